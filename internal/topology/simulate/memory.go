package simulate

import "heddle/internal/topology/flow"

// Memory is State in maps, without expiry: for traces of a scenario and for tests.
type Memory struct {
	conns map[flow.ConnKey]struct{}
	frags map[flow.FragKey][2]uint16
}

// NewMemory makes an empty memory.
func NewMemory() *Memory {
	return &Memory{conns: map[flow.ConnKey]struct{}{}, frags: map[flow.FragKey][2]uint16{}}
}

// Conn implements State.
func (m *Memory) Conn(key flow.ConnKey) bool {
	_, ok := m.conns[key]
	return ok
}

// Frag implements State.
func (m *Memory) Frag(key flow.FragKey) (ports [2]uint16, ok bool) {
	ports, ok = m.frags[key]
	return ports, ok
}

// Commit stores what a decision says packets leave behind.
func (m *Memory) Commit(d *flow.Decision) {
	for _, k := range d.NewConns {
		m.conns[k] = struct{}{}
	}
	if d.FirstFrag != nil {
		m.frags[*d.FirstFrag] = d.FragPorts
	}
}
