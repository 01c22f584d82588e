package simulate

import (
	"net/netip"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// network is a virtual bridge with its tables. One that is not defined may hold the neighbours of
// the router with the same id, found by its exterior ports.
type network struct {
	object
	claims  claims[topology.Network]
	def     *topology.Network // nil while it is only referred to
	in, out *chain

	ports      []*port // by id; whether they are bound or not
	routers    []*port // by id: the ports of routers that ports of the network are linked with
	localnets  []*port // by id
	joints     []*port // by id: those that name a peer
	vlans      []*port // by id: those in a VLAN, of a trunk
	lan        *lan    // nil without a localnet port
	macs       map[macKey]*macEntry
	neighbours map[netip.Addr]*neighbour
	localIPs   map[netip.Addr][]*localIP // by port
	subnets    []*subnet                 // by id
	subnets6   []*subnet6                // by id
}

func (w *World) linkNetwork(n *network) {
	def := n.claims.top()
	if def == n.def {
		return
	}
	w.touchNetwork(n)
	w.advertisementChanged(n)
	n.def = def
	in, out := n.in, n.out
	n.in, n.out = nil, nil
	if def != nil {
		n.in, n.out = w.useChain(def.InboundFilterID), w.useChain(def.OutboundFilterID)
	}
	swapFilters(w, n, func(c *chain) *users[*network] { return &c.networks }, []*chain{in, out}, []*chain{n.in, n.out})
}

// routerPort returns the port of a router that has the MAC address, as machines on n see it.
func (n *network) routerPort(m packet.MAC) *port {
	for _, q := range n.routers {
		if q.def.PortMAC == m {
			return q
		}
	}
	return nil
}

// routerAt returns the port of a router that has the IP address.
func (n *network) routerAt(ip netip.Addr) *port {
	for _, q := range n.routers {
		if q.has(ip) {
			return q
		}
	}
	return nil
}

// behind returns the port of n to which frames for a MAC address go, nil if that is not known.
func (n *network) behind(m packet.MAC) *port {
	if q := n.routerPort(m); q != nil {
		return q.peer()
	}
	if e := n.macs[keyOf(table, m)]; e != nil {
		return e.top
	}
	if j, g := n.joint(); j != nil && g.def.InVLAN() && g.network != nil {
		if e := g.network.macs[keyOf(g.def.VlanID, m)]; e != nil && e.top.network == g.network {
			return j // a machine on the trunk
		}
	}
	return nil
}

// resolve returns the MAC address of ip on n.
func (n *network) resolve(ip netip.Addr) (packet.MAC, bool) {
	if q := n.routerAt(ip); q != nil {
		return q.def.PortMAC, true
	}
	if e := n.neighbours[ip]; e != nil {
		return *e.top, true
	}
	return packet.MAC{}, false
}
