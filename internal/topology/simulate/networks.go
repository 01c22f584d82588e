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
	routers    routersPorts
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

// routersPorts are the ports of routers that ports of a network are linked with, each as often as
// it is linked.
type routersPorts struct {
	all   []*port // by id
	macs  map[packet.MAC][]*port
	addrs map[netip.Addr][]*port
}

func (r *routersPorts) add(l listing) {
	if r.macs == nil {
		r.macs, r.addrs = map[packet.MAC][]*port{}, map[netip.Addr][]*port{}
	}
	r.all = insertPort(r.all, l.port)
	r.macs[l.mac] = insertPort(r.macs[l.mac], l.port)
	for _, ip := range l.addresses {
		r.addrs[ip] = insertPort(r.addrs[ip], l.port)
	}
}

func (r *routersPorts) remove(l listing) {
	r.all = removePort(r.all, l.port)
	removeAt(r.macs, l.mac, l.port)
	for _, ip := range l.addresses {
		removeAt(r.addrs, ip, l.port)
	}
}

func removeAt[K comparable](m map[K][]*port, k K, p *port) {
	if m[k] = removePort(m[k], p); len(m[k]) == 0 {
		delete(m, k)
	}
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
	return firstPort(n.routers.macs[m])
}

// routerAt returns the port of a router that has the IP address.
func (n *network) routerAt(ip netip.Addr) *port {
	return firstPort(n.routers.addrs[ip])
}

// firstPort returns nil of no ports.
func firstPort(ports []*port) *port {
	if len(ports) == 0 {
		return nil
	}
	return ports[0]
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
