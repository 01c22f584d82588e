package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/flow"
)

// Memory is State in maps, without expiry: for traces of a scenario and for tests.
type Memory struct {
	conns map[flow.ConnKey]struct{}
	frags map[flow.FragKey][2]uint16
	nats  map[flow.NATKey]flow.NATBinding

	clients map[netip.Addr]flow.MetadataClient
}

// NewMemory makes an empty memory.
func NewMemory() *Memory {
	return &Memory{conns: map[flow.ConnKey]struct{}{}, frags: map[flow.FragKey][2]uint16{}, nats: map[flow.NATKey]flow.NATBinding{},
		clients: map[netip.Addr]flow.MetadataClient{}}
}

// Reset empties the memory.
func (m *Memory) Reset() {
	clear(m.conns)
	clear(m.frags)
	clear(m.nats)
	clear(m.clients)
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

// NAT implements State.
func (m *Memory) NAT(key flow.NATKey) (flow.NATBinding, bool) {
	b, ok := m.nats[key]
	return b, ok
}

// NATSource implements State: the first source that is free.
func (m *Memory) NATSource(r flow.NATRequest) (flow.NATBinding, flow.NATAnswer) {
	free := func(b flow.NATBinding) bool {
		_, taken := m.nats[r.Taken(b)]
		return !taken
	}
	for _, t := range r.Targets {
		for a := t.First; a.IsValid() && !t.Last.Less(a); a = a.Next() {
			if b := (flow.NATBinding{Addr: a, Port: r.Keep}); r.Keep != 0 && free(b) {
				return b, flow.NATChosen
			}
			for port := int(t.FirstPort); port <= int(t.LastPort); port++ {
				b := flow.NATBinding{Addr: a, Port: uint16(port)}
				if _, reserved := slices.BinarySearch(r.Reserved, b.Port); !reserved && free(b) {
					return b, flow.NATChosen
				}
			}
		}
	}
	return flow.NATBinding{}, flow.NATExhausted
}

// Seed implements State: choices of load balancers are the same in each run.
func (m *Memory) Seed() uint64 { return 0 }

// OwnConns implements State.
func (m *Memory) OwnConns(vip flow.Endpoint) (n int) {
	for k := range m.nats {
		if k.Kind == flow.ForwardDNAT && vip == (flow.Endpoint{Device: k.Device, Addr: k.Dst, Port: k.DstPort, Proto: k.Proto}) {
			n++
		}
	}
	return n
}

// MemberConns implements State.
func (m *Memory) MemberConns(member flow.Endpoint) (n int) {
	for k, b := range m.nats {
		if k.Kind == flow.ForwardDNAT && member == (flow.Endpoint{Device: k.Device, Addr: b.Addr, Port: b.Port, Proto: k.Proto}) {
			n++
		}
	}
	return n
}

// Commit stores what a decision says packets leave behind.
func (m *Memory) Commit(d *flow.Decision) {
	for _, k := range d.NewConns {
		m.conns[k] = struct{}{}
	}
	for _, k := range d.GoneNATs {
		m.forget(k)
	}
	for _, n := range d.NewNATs {
		m.nats[n.NATKey] = n.NATBinding
	}
	if d.FirstFrag != nil {
		m.frags[*d.FirstFrag] = d.FragPorts
	}
}

// forget deletes a translation of a Forward kind in both directions.
func (m *Memory) forget(k flow.NATKey) {
	if b, ok := m.nats[k]; ok {
		delete(m.nats, flow.NATEntry{NATKey: k, NATBinding: b}.Reverse().NATKey)
		delete(m.nats, k)
	}
}

// MetadataSource implements State: each client has an address, in the order of their requests.
func (m *Memory) MetadataSource(c flow.MetadataClient) (source netip.Addr, why string) {
	for a, other := range m.clients {
		if other == c {
			return a, ""
		}
	}
	n := uint32(len(m.clients) + 1)
	source = flow.MetadataSourceAddr(n, c.IP.Is6())
	m.clients[source] = c
	return source, ""
}

// MetadataClient implements State.
func (m *Memory) MetadataClient(source netip.Addr) (flow.MetadataClient, bool) {
	c, ok := m.clients[source]
	return c, ok
}
