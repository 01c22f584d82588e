package overlay

import (
	"time"

	"heddle/internal/topology/flow"
)

// hostReport returns the state of this host, for operators who ask for it.
func (a *Agent) hostReport() *flow.HostReport {
	m := a.engine.memory
	m.mu.Lock()
	flows := len(m.flows.byCookie)
	m.mu.Unlock()
	connections, translations := a.engine.conns.Stats(), a.engine.nats.Stats()
	r := &flow.HostReport{
		Time:    time.Now().UTC(),
		Tunnels: a.underlay.count(),
		Tables: []flow.TableFill{
			{Name: "flows", Used: flows, Max: a.opts.MaxFlows},
			{Name: "connections", Used: connections.Entries, Max: connections.Max},
			{Name: "translations", Used: translations.Entries, Max: translations.Max},
		},
		Failing: map[string]string{},
	}
	for port, err := range a.attachments.reconciler.Failing() {
		r.Failing[port] = err.Error()
	}
	if a.opts.CertificateEnd != nil {
		r.CertificateEnd = a.opts.CertificateEnd()
	}
	return r
}
