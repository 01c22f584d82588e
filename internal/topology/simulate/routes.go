package simulate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// route is a route of a router, by its port if it has one.
type route struct {
	object
	claims  claims[topology.Route]
	def     *topology.Route // nil while it is only referred to
	port    *port
	learned *learnedRoute // that it is, nil for a topology.Route of a bundle
	owner   *router       // named by the definition, of a route without port
	router  *router       // whose table it is in
	dst     netip.Prefix
}

// routeTable finds routes by destination, those of one prefix by weight and id.
type routeTable struct {
	byDst   map[netip.Prefix][]*route
	lengths prefixLengths
	// bySource has the routes that bind an address to a gateway, by id; they are not in byDst.
	bySource map[netip.Addr][]*route
}

func (w *World) linkRoute(r *route) {
	def := r.claims.top()
	if def == r.def {
		return
	}
	w.unplaceRoute(r)
	port, owner := r.port, r.owner
	if port != nil {
		port.routes = slices.DeleteFunc(port.routes, func(x *route) bool { return x == r })
		if !r.def.BySource {
			w.routerPortChanged(port)
		}
	}
	r.def, r.port, r.owner = def, nil, nil
	if def != nil && def.NextHopPortID != "" {
		r.port = hold(w.ports, def.NextHopPortID)
		r.port.routes = append(r.port.routes, r)
		if !def.BySource {
			w.routerPortChanged(r.port)
		}
	} else if def != nil {
		r.owner = hold(w.routers, def.RouterID)
	}
	w.placeRoute(r)
	if port != nil {
		release(w.ports, port)
	}
	if owner != nil {
		release(w.routers, owner)
	}
}

// placeRoute puts a route into the table of its router, which changes with that of its port.
func (w *World) placeRoute(r *route) {
	w.unplaceRoute(r)
	to := r.owner
	if r.port != nil {
		to = r.port.router
	}
	if to == nil || r.def == nil || !r.def.DstSubnet.IsValid() || r.learned != nil && !r.learned.counts(to) {
		return
	}
	if r.learned == nil {
		w.touchRouter(to)
	}
	r.router, r.dst = to, r.def.DstSubnet.Masked()
	t := &to.routes
	if r.def.BySource {
		if t.bySource == nil {
			t.bySource = map[netip.Addr][]*route{}
		}
		same := t.bySource[r.def.SrcSubnet.Addr()]
		i, _ := slices.BinarySearchFunc(same, r, compareRoutes)
		t.bySource[r.def.SrcSubnet.Addr()] = slices.Insert(same, i, r)
		return
	}
	if t.byDst == nil {
		t.byDst = map[netip.Prefix][]*route{}
	}
	same := t.byDst[r.dst]
	i, _ := slices.BinarySearchFunc(same, r, compareRoutes)
	t.byDst[r.dst] = slices.Insert(same, i, r)
	t.lengths.count(r.dst, 1)
}

func (w *World) unplaceRoute(r *route) {
	if r.router == nil {
		return
	}
	if r.learned == nil {
		w.touchRouter(r.router)
	}
	t := &r.router.routes
	if r.def.BySource {
		source := r.def.SrcSubnet.Addr()
		same := slices.DeleteFunc(t.bySource[source], func(x *route) bool { return x == r })
		if t.bySource[source] = same; len(same) == 0 {
			delete(t.bySource, source)
		}
		r.router = nil
		return
	}
	same := slices.DeleteFunc(t.byDst[r.dst], func(x *route) bool { return x == r })
	if t.byDst[r.dst] = same; len(same) == 0 {
		delete(t.byDst, r.dst)
	}
	t.lengths.count(r.dst, -1)
	r.router = nil
}

func compareRoutes(a, b *route) int {
	return cmp.Or(cmp.Compare(a.def.Weight, b.def.Weight), cmp.Compare(a.id, b.id))
}

// usable reports whether a packet from src may take the route.
func (r *route) usable(src netip.Addr) bool {
	if r.port != nil && !r.port.up() {
		return false
	}
	s := r.def.SrcSubnet
	return !s.IsValid() || s.Bits() == 0 || s.Contains(src)
}

// find returns the route of a packet, nil without one. Where that leads out by a gateway, packets
// from an address that is bound to other gateways take the route by the first of those, and packets
// from an address of the router the one by the gateway that has it: a peer outside expects answers
// from the network by which it asked.
func (t *routeTable) find(f *packet.Frame, reads *Reads) *route {
	found := t.search(f, nil, reads)
	if found == nil || found.port == nil {
		return found
	}
	defaults := t.defaults(f.DstIP)
	is := func(p *port) func(*route) bool { return func(r *route) bool { return r.port == p } }
	if len(defaults) < 2 || !slices.ContainsFunc(defaults, is(found.port)) {
		return found
	}
	if bound := t.bySource[f.SrcIP]; len(bound) > 0 {
		if slices.ContainsFunc(bound, is(found.port)) {
			return found
		}
		return t.search(f, bound[0].port, reads)
	}
	if i := slices.IndexFunc(defaults, func(r *route) bool { return r.port != nil && r.port.has(f.SrcIP) }); i >= 0 {
		return t.search(f, defaults[i].port, reads)
	}
	return found
}

// defaults returns the default routes of an address's family.
func (t *routeTable) defaults(dst netip.Addr) []*route {
	if dst.Is4() {
		return t.byDst[netip.PrefixFrom(netip.IPv4Unspecified(), 0)]
	}
	return t.byDst[netip.PrefixFrom(netip.IPv6Unspecified(), 0)]
}

// home returns the port behind which source belongs, if packets from there must not come in by
// port p; nil if they may. The routes of the longest prefix with source tell, usable or not, but
// none by a port with a default route: what is outside may come in by any way. Nor do learned
// routes tell: the way back need not be the way out.
func (t *routeTable) home(source netip.Addr, p *port) *port {
	for _, l := range t.lengths {
		if l.is4 != source.Is4() {
			continue
		}
		if l.bits == 0 {
			break
		}
		prefix, err := source.Prefix(l.bits)
		if err != nil || !slices.ContainsFunc(t.byDst[prefix], func(r *route) bool { return r.learned == nil }) {
			continue
		}
		return t.elsewhere(t.byDst[prefix], source, p)
	}
	return nil
}

// elsewhere returns the port of the first of routes to source, nil if one of them leads to the link
// of port p, or all lead outside.
func (t *routeTable) elsewhere(routes []*route, source netip.Addr, p *port) (home *port) {
	outside := func(q *port) bool {
		return slices.ContainsFunc(t.defaults(source), func(r *route) bool { return r.port == q })
	}
	for _, r := range routes {
		switch q := r.port; {
		case q == nil || r.learned != nil:
		case q.sharesLink(p):
			return nil
		case home == nil && !outside(q):
			home = q
		}
	}
	return home
}

// search returns the route of a packet by any port, or by a certain one: that of the longest
// prefix, then of the lowest weight, then by hash of the connection (midonet-simulation §8.5).
func (t *routeTable) search(f *packet.Frame, by *port, reads *Reads) *route {
	link := t.link(f.DstIP)
	for _, l := range t.lengths {
		if l.is4 != f.DstIP.Is4() {
			continue
		}
		p, err := f.DstIP.Prefix(l.bits)
		if err != nil {
			continue
		}
		routes := t.byDst[p]
		if 0 < l.bits && l.bits <= link {
			routes = withoutLearned(routes)
		}
		if r := choose(routes, f, by, reads); r != nil {
			return r
		}
	}
	return nil
}

// link returns the length of the prefix of dst's link, if that is one of a port with a default
// route, else -1. Such a port has no route to its link but that one, which yet comes before what
// is learned of networks around the link.
func (t *routeTable) link(dst netip.Addr) int {
	longest := -1
	for _, r := range t.defaults(dst) {
		if r.port == nil || r.port.def == nil {
			continue
		}
		for _, s := range r.port.def.PortSubnet {
			if s.Contains(dst) {
				longest = max(longest, s.Bits())
			}
		}
	}
	return longest
}

// withoutLearned returns routes itself if none is learned.
func withoutLearned(routes []*route) []*route {
	learned := func(r *route) bool { return r.learned != nil }
	if !slices.ContainsFunc(routes, learned) {
		return routes
	}
	return slices.DeleteFunc(slices.Clone(routes), learned)
}

// choose returns one of the usable routes of the lowest weight, by any port or by a certain one.
func choose(routes []*route, f *packet.Frame, by *port, reads *Reads) *route {
	var best *route
	same := 0 // usable routes of the best one's weight
	usable := func(r *route) bool { return r.usable(f.SrcIP) && (by == nil || r.port == by) }
	for _, r := range routes {
		if !usable(r) {
			continue
		}
		if best == nil {
			best = r
		} else if r.def.Weight != best.def.Weight {
			break
		}
		same++
	}
	if same < 2 {
		return best
	}
	skip, decided := reads.choose(same)
	if !decided {
		var srcPort, dstPort uint16
		if f.Frag == packet.FragNone { // fragments of a datagram take one path
			srcPort, dstPort = connPorts(f)
		}
		skip = int(hashOf(f.SrcIP, f.DstIP, srcPort, dstPort, f.Proto) % uint32(same))
	}
	for _, r := range routes {
		if !usable(r) {
			continue
		}
		if skip == 0 {
			return r
		}
		skip--
	}
	return best
}

// gateway returns the neighbour to which a packet for dst goes. By a default route that is dst
// itself on the port's own link: a gateway port has no other route there (midonet-translations
// §8.3, decision 0015).
func (r *route) gateway(dst netip.Addr) netip.Addr {
	g := r.def.NextHopGateway
	if !g.IsValid() || g.IsUnspecified() || g == limitedBroadcast || r.dst.Bits() == 0 && r.port.onLink(dst) {
		return dst
	}
	return g
}
