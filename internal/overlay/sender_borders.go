package overlay

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
)

// senderBorders decides which links are borders: those of gateways with SNAT, by which packets come
// in only to floating IPs or as replies. A gateway by which packets may come in to other addresses
// is none.
type senderBorders struct {
	is         map[string]bool               // routers' ports whose links are borders
	gateways   map[string][]netip.Addr       // addresses of gateways with SNAT, by the router's port
	gatewaysAt map[place]map[string]bool     // the same by address
	leads      map[string]map[string]int     // devices that links lead to, by port
	hops       map[string]map[netip.Addr]int // next hops of routes, by the routes' port
	hopsAt     map[place]int                 // the same by where that port leads
	openings   map[string]int                // floating IPs that let packets in to other addresses, by gateway
	doubtful   map[string]bool               // gateways that the change under way may make borders, or no longer
	senderFloats
}

// place is an address of a network.
type place struct {
	network string
	addr    netip.Addr
}

func newSenderBorders() senderBorders {
	return senderBorders{is: map[string]bool{}, gateways: map[string][]netip.Addr{}, gatewaysAt: map[place]map[string]bool{},
		leads: map[string]map[string]int{}, hops: map[string]map[netip.Addr]int{}, hopsAt: map[place]int{}, openings: map[string]int{},
		doubtful: map[string]bool{}, senderFloats: newSenderFloats()}
}

// put adds an element to a set of a map, or removes it.
func put[K, V comparable](sets map[K]map[V]bool, k K, v V, there bool) {
	if there && sets[k] == nil {
		sets[k] = map[V]bool{}
	}
	if there {
		sets[k][v] = true
	} else if delete(sets[k], v); len(sets[k]) == 0 {
		delete(sets, k)
	}
}

// addTo adds to a count of a map, which is removed when it is 0.
func addTo[K, V comparable](counts map[K]map[V]int, k K, v V, by int) {
	if counts[k] == nil {
		counts[k] = map[V]int{}
	}
	if add(counts[k], v, by); len(counts[k]) == 0 {
		delete(counts, k)
	}
}

// borderFacts is a set of all that the bundle of one owner says about borders.
type borderFacts struct {
	gateways map[string][]netip.Addr
	hops     map[string]map[netip.Addr]int
	lans     map[string]int // localnet ports, by network
	targets  map[string]floatTarget
	float    *senderFloat
	chains   []string       // of a router with extra routes
	extra    []netip.Prefix // their destinations
}

func factsOf(owner topology.Owner, b *topology.Bundle) *borderFacts {
	f := &borderFacts{gateways: map[string][]netip.Addr{}, hops: map[string]map[netip.Addr]int{}, lans: map[string]int{}, targets: map[string]floatTarget{}}
	for i := range b.Routes {
		if r := &b.Routes[i]; r.NextHopGateway.IsValid() {
			addTo(f.hops, r.NextHopPortID, r.NextHopGateway, 1)
		}
	}
	for i := range b.Ports {
		p := &b.Ports[i]
		if p.PhysicalNetwork != "" {
			f.lans[p.NetworkID]++
		}
		if hasSeeds(b, p) {
			f.targets[p.ID] = floatTarget{p.NetworkID, p.Exterior(), p.HostIDs()}
		}
	}
	switch owner.Kind {
	case "router-gateway":
		if !slices.ContainsFunc(b.Rules, func(e topology.RuleEntry) bool { return e.Rule.Type == topology.NAT }) {
			break
		}
		for i := range b.Ports {
			p := &b.Ports[i]
			f.gateways[p.ID] = []netip.Addr{}
			for _, prefix := range p.PortSubnet {
				f.gateways[p.ID] = append(f.gateways[p.ID], prefix.Addr())
			}
		}
	case "router":
		f.chains, f.extra = extraRoutes(b)
	case "floating-ip", "port-forwarding":
		f.float = floatOf(b)
	case "ndp-proxy":
		f.float = proxiedOf(b)
	}
	return f
}

// extraRoutes returns the destinations of a router's extra routes, except for default routes, and
// if there are any the chains of which floating IPs name one.
func extraRoutes(b *topology.Bundle) (chains []string, dsts []netip.Prefix) {
	for i := range b.Routes {
		if r := &b.Routes[i]; r.NextHopGateway.IsValid() && r.DstSubnet.Bits() > 0 {
			dsts = append(dsts, r.DstSubnet)
		}
	}
	if dsts == nil {
		return nil, nil
	}
	for i := range b.Routers {
		chains = append(chains, b.Routers[i].InboundFilterID)
	}
	for i := range b.Chains {
		if id := b.Chains[i].ID; !slices.Contains(chains, id) {
			chains = append(chains, id)
		}
	}
	return chains, dsts
}

// hasSeeds reports whether the bundle of a network's port has its addresses.
func hasSeeds(b *topology.Bundle, p *topology.Port) bool {
	return p.NetworkID != "" && len(b.Neighbours) > 0 && slices.ContainsFunc(b.MACs, func(m topology.MACEntry) bool { return m.PortID == p.ID })
}

// redraw replaces what one owner says about borders, and its links.
func (s *senders) redraw(owner topology.Owner, before, after *topology.Bundle) {
	was, now := s.relink(before.Ports, after.Ports)
	b := &s.borders
	for _, l := range now {
		b.join(l, 1)
	}
	for _, l := range was {
		b.join(l, -1)
	}
	s.replaceFacts(owner.ID, factsOf(owner, before), factsOf(owner, after))
	b.findOpenings()
	for id := range b.doubtful {
		if border := b.isBorder(id); border != b.is[id] {
			for _, l := range s.linksOf(map[string]bool{id: true}) {
				if _, changes := now[l.from.port]; l.from.port == id && !changes {
					was[id], now[id] = l, l
				}
			}
		}
	}
	s.redrawLinks(was, now)
	clear(b.doubtful)
}

// redrawLinks brings areas to links that are there now instead of others, as borders or not. New
// ones are made before others are removed, so that areas do not fall apart meanwhile; but what
// becomes a border, or no longer is one, is removed first, else an area would be above itself.
func (s *senders) redrawLinks(was, now map[string]portLink) {
	wasBorder := map[string]bool{}
	for id := range was {
		wasBorder[id] = s.borders.is[id]
	}
	for id := range s.borders.doubtful {
		if s.borders.is[id] = true; !s.borders.isBorder(id) {
			delete(s.borders.is, id)
		}
	}
	for id, l := range was {
		if now[id] != l {
			continue
		}
		if border := s.borders.is[id]; border != wasBorder[id] {
			s.setLink(l, wasBorder[id], false)
			s.setLink(l, border, true)
		}
		delete(was, id)
		delete(now, id)
	}
	for id, l := range now {
		s.setLink(l, s.borders.is[id], true)
	}
	for id, l := range was {
		s.setLink(l, wasBorder[id], false)
	}
}

// isBorder reports whether packets come in by a gateway only as replies or to ports with floating
// IPs. Others come in where a route leads to the gateway, and by floating IPs that are openings.
func (b *senderBorders) isBorder(id string) bool {
	addrs, there := b.gateways[id]
	if !there || b.openings[id] > 0 {
		return false
	}
	for network := range b.leads[id] {
		for _, addr := range addrs {
			if b.hopsAt[place{network, addr}] > 0 {
				return false
			}
		}
	}
	return true
}

// replaceFacts replaces what an owner says about borders.
func (s *senders) replaceFacts(id string, before, after *borderFacts) {
	b := &s.borders
	for port, addrs := range before.gateways {
		if !slices.Equal(addrs, after.gateways[port]) || after.gateways[port] == nil {
			b.setGateway(port, nil)
		}
	}
	for port, addrs := range after.gateways {
		if b.gateways[port] == nil {
			b.setGateway(port, addrs)
		}
	}
	for port, addrs := range after.hops {
		b.addHops(port, addrs, 1)
	}
	for port, addrs := range before.hops {
		b.addHops(port, addrs, -1)
	}
	for network, n := range after.lans {
		b.addLANs(network, n)
	}
	for network, n := range before.lans {
		b.addLANs(network, -n)
	}
	s.replaceTargets(before.targets, after.targets)
	if !slices.Equal(before.chains, after.chains) || !slices.Equal(before.extra, after.extra) {
		for _, chain := range before.chains {
			b.setExtra(chain, nil)
		}
		for _, chain := range after.chains {
			b.setExtra(chain, after.extra)
		}
	}
	if !before.float.equal(after.float) {
		s.setFloat(id, after.float)
	}
}

// join notes that the ports at the ends of a link lead to each other's devices, or no longer.
func (b *senderBorders) join(l portLink, by int) {
	b.lead(l.from.port, l.to.device, by)
	b.lead(l.to.port, l.from.device, by)
}

func (b *senderBorders) lead(port, device string, by int) {
	was := b.leads[port][device] > 0
	addTo(b.leads, port, device, by)
	is := b.leads[port][device] > 0
	if was == is {
		return
	}
	for addr, n := range b.hops[port] {
		b.addHop(place{device, addr}, n*by)
	}
	for _, addr := range b.gateways[port] {
		put(b.gatewaysAt, place{device, addr}, port, is)
		b.doubtful[port] = true
	}
}

// setGateway replaces the addresses of a gateway with SNAT; nil if it is none.
func (b *senderBorders) setGateway(port string, addrs []netip.Addr) {
	for network := range b.leads[port] {
		for _, addr := range b.gateways[port] {
			put(b.gatewaysAt, place{network, addr}, port, false)
		}
		for _, addr := range addrs {
			put(b.gatewaysAt, place{network, addr}, port, true)
		}
	}
	if b.gateways[port] = addrs; addrs == nil {
		delete(b.gateways, port)
	}
	b.doubtful[port] = true
}

// addHops notes more or fewer next hops of routes by a port.
func (b *senderBorders) addHops(port string, addrs map[netip.Addr]int, by int) {
	for addr, n := range addrs {
		addTo(b.hops, port, addr, n*by)
		for network := range b.leads[port] {
			b.addHop(place{network, addr}, n*by)
		}
	}
}

func (b *senderBorders) addHop(at place, by int) {
	was := b.hopsAt[at] > 0
	if add(b.hopsAt, at, by); was == (b.hopsAt[at] > 0) {
		return
	}
	for id := range b.gatewaysAt[at] {
		b.doubtful[id] = true
	}
	for f := range b.floatsAt[at] {
		b.doubtfulFloats[f] = true
	}
}
