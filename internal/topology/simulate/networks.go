package simulate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/topology"
)

// network is a virtual bridge with its tables.
type network struct {
	object
	claims  claims[topology.Network]
	def     *topology.Network // nil while it is only referred to
	in, out *chain

	ports      []*port // by id; whether they are bound or not
	macs       map[macKey]*macEntry
	neighbours map[netip.Addr]*neighbour
	subnets    []*subnet // by id
}

// port is a port of a network.
type port struct {
	object
	claims  claims[topology.Port]
	def     *topology.Port // nil while it is only referred to
	network *network
	in, out *chain
	host    *host // where it is bound
}

// Bound reports whether a port is one of a network and bound to a host.
func (w *World) Bound(portID, networkID, hostID string) bool {
	p := w.ports[portID]
	return p != nil && p.def != nil && p.def.NetworkID == networkID && p.def.HostID == hostID
}

func (w *World) linkNetwork(n *network) {
	def := n.claims.top()
	if def == n.def {
		return
	}
	w.touchNetwork(n)
	n.def = def
	in, out := n.in, n.out
	n.in, n.out = nil, nil
	if def != nil {
		n.in, n.out = w.useChain(def.InboundFilterID), w.useChain(def.OutboundFilterID)
	}
	swapFilters(w, n, func(c *chain) *users[*network] { return &c.networks }, []*chain{in, out}, []*chain{n.in, n.out})
}

func (w *World) linkPort(p *port) {
	def := p.claims.top()
	if def == p.def {
		return
	}
	w.touch(p)
	old := *p
	p.def, p.network, p.host, p.in, p.out = def, nil, nil, nil, nil
	if def != nil {
		p.in, p.out = w.useChain(def.InboundFilterID), w.useChain(def.OutboundFilterID)
		p.network = hold(w.networks, def.NetworkID)
		if def.HostID != "" {
			p.host = hold(w.hosts, def.HostID)
			p.host.ports.add(p)
		}
	}
	swapFilters(w, p, func(c *chain) *users[*port] { return &c.ports }, []*chain{old.in, old.out}, []*chain{p.in, p.out})
	if old.network != p.network {
		if p.network != nil {
			i, _ := slices.BinarySearchFunc(p.network.ports, p.id, comparePort)
			p.network.ports = slices.Insert(p.network.ports, i, p)
		}
		if old.network != nil {
			i, _ := slices.BinarySearchFunc(old.network.ports, p.id, comparePort)
			old.network.ports = slices.Delete(old.network.ports, i, i+1)
		}
	}
	if old.network != nil {
		release(w.networks, old.network)
	}
	if old.host != nil {
		old.host.ports.remove(p)
		release(w.hosts, old.host)
	}
}

// swapFilters makes user one of the users of the filters in after, and no longer of those in
// before.
func swapFilters[P comparable](w *World, user P, of func(*chain) *users[P], before, after []*chain) {
	for _, c := range after {
		if c != nil {
			of(c).add(user)
		}
	}
	for _, c := range before {
		if c != nil {
			of(c).remove(user)
			release(w.chains, c)
		}
	}
}

func comparePort(p *port, id string) int { return cmp.Compare(p.id, id) }

// useChain holds the chain with that id, none for "".
func (w *World) useChain(id string) *chain {
	if id == "" {
		return nil
	}
	return hold(w.chains, id)
}
