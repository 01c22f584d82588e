package overlay

import (
	"maps"
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

// hostReport returns the state of this host, for operators who ask for it, with all its traffic or
// without.
func (a *Agent) hostReport(traffic bool) *flow.HostReport {
	m := a.engine.memory
	m.mu.Lock()
	flows := len(m.flows.byCookie)
	m.mu.Unlock()
	tunnels := a.tunnelReports()
	connections, translations := a.engine.conns.Stats(), a.engine.nats.Stats()
	r := &flow.HostReport{
		Time:    time.Now().UTC(),
		Tunnels: a.underlay.count(),
		Tables: []flow.TableFill{
			{Name: "flows", Used: flows, Max: a.opts.MaxFlows},
			{Name: "connections", Used: connections.Entries, Max: connections.Max},
			{Name: "translations", Used: translations.Entries, Max: translations.Max},
		},
		DeadTunnels: deadTunnels(tunnels),
		Faults:      a.faults(),
		Failing:     map[string]string{},
	}
	if a.obstacles.first(noTunnelAddress) != "" {
		r.Unreachable, r.Uncarried = missingAddress(a.opts.TunnelIP), a.physical.keptOff(noTunnelAddress)
	}
	if traffic {
		r.Traffic = a.trafficReport(tunnels)
	}
	for port, err := range a.attachments.reconciler.Failing() {
		r.Failing[port] = err.Error()
	}
	if a.opts.CertificateEnd != nil {
		r.CertificateEnd = a.opts.CertificateEnd()
	}
	return r
}

// faultsReported bounds the faults in a report on a host.
const faultsReported = 10

// faults returns the first of what is wrong with other hosts' records and with encryption.
func (a *Agent) faults() (all []string) {
	if a.keys.crypt != nil {
		all = a.keys.crypt.faults()
	}
	if records := a.feed.faults.Load(); records != nil {
		all = append(all, slices.Sorted(maps.Values(*records))...)
	}
	return all[:min(len(all), faultsReported)]
}
