package agent

import (
	"heddle/internal/telemetry"
	"heddle/internal/xen/ovs"
)

// status holds an agent's figures.
type status struct {
	wanted, there int
	connected     bool
}

// counted notes what the last pass came to.
func (a *Agent) counted(w wanted, s *ovs.Snapshot) {
	there := 0
	for _, b := range w.bridges {
		if outcome(s, b.Name, nil) == nil {
			there++
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status{wanted: len(w.bridges), there: there, connected: s.Lost == nil}
}

// Metrics are the agent's figures.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	s := a.status
	a.mu.Unlock()
	connected := 0
	if s.connected {
		connected = 1
	}
	return []telemetry.Value{
		telemetry.Gauge.Of("heddle_xen_bridges_wanted", "Bridges that the pool wants on this host.", s.wanted),
		telemetry.Gauge.Of("heddle_xen_bridges", "Those of them that Open vSwitch has made.", s.there),
		telemetry.Gauge.Of("heddle_xen_ovsdb_connected", "1 while Open vSwitch's database answers.", connected),
	}
}
