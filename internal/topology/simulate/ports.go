package simulate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// port is a port of a network or of a router.
type port struct {
	object
	claims  claims[topology.Port]
	def     *topology.Port // nil while it is only referred to
	network *network       // or router
	router  *router
	in, out *chain
	host    *host // where it is bound
	from    *host // where it moves from; see topology.Port
	groups  []*portGroup

	physical *physicalNetwork // to which a localnet port leads
	leaders                   // its home on its network's LAN, and the host that takes over

	names   *port   // the port that def.PeerID names
	namedBy []*port // by id
	routes  []*route
	locals  []*localIP                // that it stands for, by id
	mirrors *attachments              // nil for none
	remotes map[packet.MAC]netip.Addr // of a VTEP: learned entries of the peering table
	listed  listing
}

// listing is the entry of a network's list of routers' ports that is due to one of its own ports.
type listing struct {
	in        *network
	port      *port
	mac       packet.MAC // of port then, as its addresses
	addresses []netip.Addr
}

// Bound reports whether a port is one of a network or router and bound to a host: a localnet port
// to each that carries its physical network, alive or not. What comes by a VTEP may come in at any
// host, and goes to the VTEPs in the peering table alone.
func (w *World) Bound(portID, deviceID, hostID string) bool {
	p := w.ports[portID]
	if p == nil || p.def == nil || p.deviceID() != deviceID {
		return false
	}
	if h := w.hosts[hostID]; p.isLocalnet() && h != nil && h.def != nil {
		return slices.Contains(h.def.PhysicalNetworks, p.def.PhysicalNetwork)
	}
	if g, ok := p.joins(); ok && g.def.VTEP() {
		h := w.hosts[hostID]
		return h != nil && h.def != nil
	}
	return slices.Contains(p.def.HostIDs(), hostID)
}

// PortDevice returns the id of the network or router that a port is one of, or "".
func (w *World) PortDevice(portID string) string {
	if p := w.ports[portID]; p != nil && p.def != nil {
		return p.deviceID()
	}
	return ""
}

// IsNetworkPort reports whether an id is that of a network's port.
func (w *World) IsNetworkPort(id string) bool {
	p := w.ports[id]
	return p != nil && p.network != nil
}

// PortProject returns the project that owns the filters of a network's port, "" if that is not
// known.
func (w *World) PortProject(id string) string {
	p := w.ports[id]
	if p == nil {
		return ""
	}
	for _, c := range []*chain{p.in, p.out} {
		if c != nil && c.def != nil && c.def.TenantID != "" {
			return c.def.TenantID
		}
	}
	return ""
}

// BoundHost returns the host that a port is bound to, or "". While it moves there, packets go to
// the host that serves it still.
func (w *World) BoundHost(portID string) string {
	if p := w.ports[portID]; p != nil && p.def != nil {
		return p.def.HostID
	}
	return ""
}

// server returns the host that serves an exterior port: until it is up where it is bound, the one
// it moves from, if that is known.
func (p *port) server() *host {
	if p.from != nil && p.def.PreviousInterface != "" && p.from.def != nil {
		return p.from
	}
	return p.host
}

// deviceID is the id of the port's network or router.
func (p *port) deviceID() string {
	if p.router != nil {
		return p.router.id
	}
	return p.network.id
}

// peer returns the port at the other end of a link: the one that this names or, if it names none,
// the one that names this.
func (p *port) peer() *port {
	switch {
	case p.names != nil:
		return p.names
	case len(p.namedBy) > 0:
		return p.namedBy[0]
	}
	return nil
}

// toContainer reports whether the port leads to a service container.
func (p *port) toContainer() bool { return p.def.ServiceContainerID != "" }

// up reports whether routes by the port count: it is bound or linked.
func (p *port) up() bool {
	if p.def == nil || !p.def.AdminStateUp {
		return false
	}
	peer := p.peer()
	return p.def.Exterior() || peer != nil && peer.def != nil
}

// addresses returns the IP addresses of a router's port: those of its subnets, and for IPv6 the
// link-local one.
func (p *port) addresses() []netip.Addr {
	all := []netip.Addr{packet.LinkLocal(p.def.PortMAC)}
	if p.def.PortAddress.IsValid() {
		all = append(all, p.def.PortAddress)
	}
	for _, s := range p.def.PortSubnet {
		if s.Addr() != p.def.PortAddress {
			all = append(all, s.Addr())
		}
	}
	return all
}

// has reports whether ip is an address of a router's port.
func (p *port) has(ip netip.Addr) bool {
	if ip == p.def.PortAddress {
		return true
	}
	for _, s := range p.def.PortSubnet {
		if ip == s.Addr() {
			return true
		}
	}
	return ip.Is6() && ip.IsLinkLocalUnicast() && ip == packet.LinkLocal(p.def.PortMAC)
}

// addressFor returns the address by which a router's port speaks to a neighbour, or to one of the
// neighbour's family; invalid if it has none.
func (p *port) addressFor(neighbour netip.Addr) netip.Addr {
	for _, s := range p.def.PortSubnet {
		if s.Contains(neighbour) && s.Addr() != s.Masked().Addr() {
			return s.Addr()
		}
	}
	switch {
	case p.def.PortAddress.BitLen() == neighbour.BitLen():
		return p.def.PortAddress
	case neighbour.Is6():
		return packet.LinkLocal(p.def.PortMAC)
	}
	return netip.Addr{}
}

// onLink reports whether ip is in a subnet of a router's port.
func (p *port) onLink(ip netip.Addr) bool {
	for _, s := range p.def.PortSubnet {
		if s.Contains(ip) {
			return true
		}
	}
	return ip.Is6() && ip.IsLinkLocalUnicast()
}

func (w *World) linkPort(p *port) {
	def := p.claims.top()
	if def == p.def {
		return
	}
	before := p.peers()
	w.touchLinked(p, before)
	w.touchLocals(p)
	defer w.touchLocals(p)
	old := *p
	w.homesBehind(p)
	p.def, p.network, p.router, p.host, p.from, p.in, p.out, p.groups, p.names = def, nil, nil, nil, nil, nil, nil, nil, nil
	p.physical = nil
	if def != nil {
		w.linkPortTo(p)
	}
	w.unlinkPortFrom(p, &old)
	swapFilters(w, p, func(c *chain) *users[*port] { return &c.ports }, []*chain{old.in, old.out}, []*chain{p.in, p.out})
	if old.router != p.router {
		for _, r := range p.routes {
			w.placeRoute(r)
		}
	}
	after := p.peers()
	for _, q := range slices.Concat([]*port{p}, before, after) {
		w.listRouterPort(q)
	}
	for _, q := range slices.Concat([]*port{p, &old}, before, after) {
		w.jointChanged(q)
	}
	w.linkLANs(p, &old)
	for _, q := range slices.Concat([]*port{p}, before, after) {
		w.rehome(q)
	}
	w.touchLinked(p, after)
	if old.def != nil && old.toContainer() {
		w.followSpeaker(old.router)
	}
	if p.def != nil && p.toContainer() {
		w.followSpeaker(p.router)
	}
	if old.router != nil {
		release(w.routers, old.router)
	}
	if old.network != nil {
		release(w.networks, old.network)
	}
}

// linkPortTo makes the references of p's definition.
func (w *World) linkPortTo(p *port) {
	def := p.def
	p.in, p.out = w.useChain(def.InboundFilterID), w.useChain(def.OutboundFilterID)
	if def.NetworkID == "" && def.RouterID != "" {
		p.router = hold(w.routers, def.RouterID)
		p.router.ports = insertPort(p.router.ports, p)
		if def.VTEP() {
			p.router.vteps = insertPort(p.router.vteps, p)
		}
	} else {
		p.network = hold(w.networks, def.NetworkID)
		p.network.ports = insertPort(p.network.ports, p)
		if def.PhysicalNetwork != "" && def.HostID == "" && def.PeerID == "" {
			p.physical = hold(w.physicals, def.PhysicalNetwork)
			p.network.localnets = insertPort(p.network.localnets, p)
		}
		if def.PeerID != "" {
			p.network.joints = insertPort(p.network.joints, p)
		}
		if def.InVLAN() {
			p.network.vlans = insertPort(p.network.vlans, p)
			w.touchNetwork(p.network)
		}
	}
	if def.HostID != "" {
		p.host = hold(w.hosts, def.HostID)
		p.host.ports.add(p)
	}
	if id := def.MovedFrom(); id != "" {
		p.from = hold(w.hosts, id)
		p.from.ports.add(p)
	}
	for _, id := range def.PortGroupIDs {
		g := hold(w.portGroups, id)
		g.ports = insertPort(g.ports, p)
		p.groups = append(p.groups, g)
	}
	if def.PeerID != "" {
		p.names = hold(w.ports, def.PeerID)
		p.names.namedBy = insertPort(p.names.namedBy, p)
	}
}

// unlinkPortFrom gives up what p referred to as old. Its device and its filters are kept for the
// rest of linkPort.
func (w *World) unlinkPortFrom(p, old *port) {
	if old.router != nil {
		old.router.ports = removePort(old.router.ports, p)
		old.router.vteps = removePort(old.router.vteps, p)
	}
	if old.network != nil {
		old.network.ports = removePort(old.network.ports, p)
		old.network.joints = removePort(old.network.joints, p)
		if old.def.InVLAN() {
			old.network.vlans = removePort(old.network.vlans, p)
			w.touchNetwork(old.network)
		}
	}
	if old.physical != nil {
		old.network.localnets = removePort(old.network.localnets, p)
	}
	for _, h := range []*host{old.host, old.from} {
		if h != nil {
			h.ports.remove(p)
			release(w.hosts, h)
		}
	}
	for _, g := range old.groups {
		g.ports = removePort(g.ports, p)
		release(w.portGroups, g)
	}
	if old.names != nil {
		old.names.namedBy = removePort(old.names.namedBy, p)
		release(w.ports, old.names)
	}
}

// linkLANs follows a change of p in the networks that it was and is a port of.
func (w *World) linkLANs(p, old *port) {
	if old.network != nil {
		w.linkLAN(old.network)
	}
	if p.network != nil {
		w.linkLAN(p.network)
	} else {
		p.leaders = leaders{}
	}
	if old.physical != nil {
		release(w.physicals, old.physical)
	}
}

// peers returns all ports that a change of p's link may concern.
func (p *port) peers() []*port {
	all := slices.Clone(p.namedBy)
	if p.names != nil {
		all = append(all, p.names)
		all = append(all, p.names.namedBy...)
	}
	return all
}

// touchLinked touches a port before or after it changes, and the ports of its links.
func (w *World) touchLinked(p *port, peers []*port) {
	for _, q := range append(peers, p) {
		w.touch(q)
		w.touchHidden(q)
	}
}

// touchHidden touches the ports to which packets go by entries of a network's tables that the
// addresses of a router's port hide.
func (w *World) touchHidden(q *port) {
	b := q.peer()
	if q.router == nil || b == nil || b.network == nil {
		return
	}
	w.touchBehind(b.network, q.def.PortMAC)
	w.homeMayChange(b.network, q.def.PortMAC)
	for _, ip := range q.addresses() {
		if e := b.network.neighbours[ip]; e != nil {
			w.touchBehind(b.network, *e.top)
		}
	}
}

// listRouterPort keeps the list of routers' ports in the network of p.
func (w *World) listRouterPort(p *port) {
	old := p.listed
	if old.in != nil {
		old.in.routers.remove(old)
	}
	p.listed = listing{}
	if q := p.peer(); p.network != nil && q != nil && q.router != nil && q.peer() == p {
		p.listed = listing{p.network, q, q.def.PortMAC, q.addresses()}
		p.network.routers.add(p.listed)
	}
	w.routerListed(old)
	w.routerListed(p.listed)
}

// routerListed reports what follows from an entry that came or went.
func (w *World) routerListed(l listing) {
	if l.in == nil {
		return
	}
	w.advertisementChanged(l.in)
	for _, ip := range l.addresses {
		w.reportNeighbour(ip)
	}
	if w.neighbourChanged != nil {
		for _, ip := range l.addresses {
			w.neighbourChanged(l.in.id, ip)
		}
	}
}

// jointChanged notes that p, if it may be a joint, has come or gone or leads elsewhere: the MTU of
// its network rests on that.
func (w *World) jointChanged(p *port) {
	if p.network != nil && p.def.PeerID != "" {
		w.advertisementChanged(p.network)
	}
}

// insertPort adds p to ports in order of their ids, one more time if it is there.
func insertPort(ports []*port, p *port) []*port {
	i, _ := slices.BinarySearchFunc(ports, p.id, comparePort)
	return slices.Insert(ports, i, p)
}

// removePort takes p away once.
func removePort(ports []*port, p *port) []*port {
	if i, found := slices.BinarySearchFunc(ports, p.id, comparePort); found {
		return slices.Delete(ports, i, i+1)
	}
	return ports
}

func comparePort(p *port, id string) int { return cmp.Compare(p.id, id) }

// sharesLink reports whether two ports of a router are on one link.
func (p *port) sharesLink(q *port) bool {
	if p == q {
		return true
	}
	a, b := p.peer(), q.peer()
	return a != nil && b != nil && a.network != nil && a.network == b.network
}
