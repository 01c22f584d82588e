package overlay

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// senderBorders decides which links are borders: those of gateways with SNAT, by which packets come
// in only to floating IPs or as replies. A gateway by which packets may come in to other addresses
// is none.
type senderBorders struct {
	is       map[string]bool           // routers' ports whose links are borders
	gateways map[string]*senderGateway // with SNAT, by the router's port
	byMAC    map[packet.MAC]map[string]bool
	byRouter map[string]map[string]bool
	hops     map[netip.Addr]int                // next hops of routes
	standing map[netip.Addr]map[packet.MAC]int // MAC addresses that addresses of gateways and floating IPs lead to
	extra    map[string][]netip.Prefix         // by router, destinations of its extra routes
	floats   map[string]*senderFloat           // by floating IP
	floatsOf map[string]map[*senderFloat]bool  // by port
	floatsAt map[packet.MAC]map[*senderFloat]bool
	targets  map[string]floatTarget
	lans     map[string]int // networks with a localnet port
}

// senderGateway is a router's port with SNAT.
type senderGateway struct {
	router string
	mac    packet.MAC
	addrs  []netip.Addr
}

// senderFloat is a floating IP of a network, where it is at a router's MAC address.
type senderFloat struct {
	network, port string
	mac           packet.MAC
	addr, fixed   netip.Addr
	hosts         []string // as counted in the network
}

// floatTarget is a port that has its addresses in its network's tables, so that what is for them
// leads to it and nowhere else.
type floatTarget struct {
	network  string
	exterior bool
	hosts    []string
}

func newSenderBorders() senderBorders {
	return senderBorders{is: map[string]bool{}, gateways: map[string]*senderGateway{}, byMAC: map[packet.MAC]map[string]bool{},
		byRouter: map[string]map[string]bool{}, hops: map[netip.Addr]int{}, standing: map[netip.Addr]map[packet.MAC]int{},
		extra: map[string][]netip.Prefix{}, floats: map[string]*senderFloat{}, floatsOf: map[string]map[*senderFloat]bool{},
		floatsAt: map[packet.MAC]map[*senderFloat]bool{}, targets: map[string]floatTarget{}, lans: map[string]int{}}
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

// redraw replaces what one owner says about borders. relink replaces its links.
func (s *senders) redraw(owner topology.Owner, before, after *topology.Bundle, relink func()) {
	macs := map[packet.MAC]bool{} // at which the borders may be others now
	s.note(owner, before, -1, macs)
	s.note(owner, after, 1, macs)
	for mac := range macs {
		for id := range s.borders.byMAC[mac] {
			s.setBorder(id, s.isBorder(s.borders.gateways[id]))
		}
	}
	relink()
	for i := range before.Ports {
		if id := before.Ports[i].ID; s.borders.is[id] && s.borders.gateways[id] == nil {
			s.setBorder(id, false)
		}
	}
}

// setBorder sets whether the link of a router's port is a border.
func (s *senders) setBorder(id string, border bool) {
	if s.borders.is[id] == border {
		return
	}
	devices, linked := s.linksOf(map[string]bool{id: true})[id]
	if linked {
		s.setLink(id, devices, false)
	}
	if s.borders.is[id] = true; !border {
		delete(s.borders.is, id)
	}
	if linked {
		s.setLink(id, devices, true)
	}
}

// isBorder reports whether packets come in by a gateway only as replies or to ports with floating
// IPs. Others come in where a route leads to the gateway, and to other ports where a floating IP
// leads to an address that another port may take over, or that the router has a route to.
func (s *senders) isBorder(g *senderGateway) bool {
	b := &s.borders
	for _, addr := range g.addrs {
		if b.hops[addr] > 0 {
			return false
		}
	}
	for f := range b.floatsAt[g.mac] {
		t, there := b.targets[f.port]
		switch {
		case b.hops[f.addr] > 0, !there, !t.exterior && b.lans[t.network] > 0:
			return false
		case slices.ContainsFunc(b.extra[g.router], func(dst netip.Prefix) bool { return dst.Contains(f.fixed) }):
			return false
		}
	}
	return true
}

// note enters what a bundle says about borders, or removes it, and adds the MAC addresses that this
// concerns.
func (s *senders) note(owner topology.Owner, b *topology.Bundle, by int, macs map[packet.MAC]bool) {
	there := by > 0
	switch owner.Kind {
	case "router-gateway":
		s.borders.noteGateway(b, there, macs)
	case "router":
		delete(s.borders.extra, owner.ID)
		for i := range b.Routes {
			if r := &b.Routes[i]; there && r.NextHopGateway.IsValid() && r.DstSubnet.Bits() > 0 {
				s.borders.extra[owner.ID] = append(s.borders.extra[owner.ID], r.DstSubnet)
			}
		}
		for id := range s.borders.byRouter[owner.ID] {
			macs[s.borders.gateways[id].mac] = true
		}
	case "floating-ip":
		s.noteFloat(owner.ID, b, there, macs)
	}
	for i := range b.Routes {
		if hop := b.Routes[i].NextHopGateway; hop.IsValid() {
			add(s.borders.hops, hop, by)
			for mac := range s.borders.standing[hop] {
				macs[mac] = true
			}
		}
	}
	for i := range b.Ports {
		p := &b.Ports[i]
		if p.PhysicalNetwork != "" {
			s.noteLAN(p.NetworkID, by, macs)
		}
		if hasSeeds(b, p) {
			s.noteTarget(p, there, macs)
		}
	}
}

// noteGateway enters the port of a gateway that translates, or removes it.
func (b *senderBorders) noteGateway(bundle *topology.Bundle, there bool, macs map[packet.MAC]bool) {
	if !slices.ContainsFunc(bundle.Rules, func(e topology.RuleEntry) bool { return e.Rule.Type == topology.NAT }) {
		return
	}
	for i := range bundle.Ports {
		p := &bundle.Ports[i]
		g := &senderGateway{router: p.RouterID, mac: p.PortMAC}
		for _, prefix := range p.PortSubnet {
			g.addrs = append(g.addrs, prefix.Addr())
			b.stand(prefix.Addr(), g.mac, there)
		}
		if b.gateways[p.ID] = g; !there {
			delete(b.gateways, p.ID)
		}
		put(b.byMAC, g.mac, p.ID, there)
		put(b.byRouter, g.router, p.ID, there)
		macs[g.mac] = true
	}
}

// hasSeeds reports whether the bundle of a network's port has its addresses.
func hasSeeds(b *topology.Bundle, p *topology.Port) bool {
	return p.NetworkID != "" && len(b.Neighbours) > 0 && slices.ContainsFunc(b.MACs, func(m topology.MACEntry) bool { return m.PortID == p.ID })
}

// noteTarget enters a port that floating IPs may lead to, or removes it.
func (s *senders) noteTarget(p *topology.Port, there bool, macs map[packet.MAC]bool) {
	if s.borders.targets[p.ID] = (floatTarget{p.NetworkID, p.Exterior(), p.HostIDs()}); !there {
		delete(s.borders.targets, p.ID)
	}
	for f := range s.borders.floatsOf[p.ID] {
		macs[f.mac] = true
		s.countHosts(f, s.borders.targets[p.ID].hosts)
	}
}

// noteLAN notes that a network has one more or fewer localnet ports.
func (s *senders) noteLAN(network string, by int, macs map[packet.MAC]bool) {
	add(s.borders.lans, network, by)
	for _, f := range s.borders.floats {
		if s.borders.targets[f.port].network == network {
			macs[f.mac] = true
		}
	}
}

// noteFloat enters a floating IP that leads to a port, or removes it.
func (s *senders) noteFloat(id string, b *topology.Bundle, there bool, macs map[packet.MAC]bool) {
	if f := s.borders.floats[id]; f != nil {
		s.countHosts(f, nil)
		s.openPort(f, -1)
		s.device(f.network).floats--
		s.borders.index(id, f, false)
		s.tidy(f.network)
		macs[f.mac] = true
	}
	f := floatOf(b)
	if !there || f == nil {
		return
	}
	s.borders.index(id, f, true)
	s.device(f.network).floats++
	s.openPort(f, 1)
	s.countHosts(f, s.borders.targets[f.port].hosts)
	macs[f.mac] = true
}

// floatOf returns the floating IP that a bundle translates, or nil.
func floatOf(b *topology.Bundle) *senderFloat {
	i := slices.IndexFunc(b.Rules, func(e topology.RuleEntry) bool {
		return e.Rule.Dnat && e.Rule.FipPortID != "" && len(e.Rule.NatTargets) > 0
	})
	if i < 0 || len(b.Neighbours) == 0 {
		return nil
	}
	r, n := &b.Rules[i].Rule, &b.Neighbours[0]
	return &senderFloat{network: n.NetworkID, port: r.FipPortID, mac: n.MAC, addr: n.IP, fixed: r.NatTargets[0].NwStart}
}

func (b *senderBorders) index(id string, f *senderFloat, there bool) {
	if b.floats[id] = f; !there {
		delete(b.floats, id)
	}
	put(b.floatsOf, f.port, f, there)
	put(b.floatsAt, f.mac, f, there)
	b.stand(f.addr, f.mac, there)
}

// stand notes that an address leads to a MAC address, or no longer.
func (b *senderBorders) stand(addr netip.Addr, mac packet.MAC, there bool) {
	by := 1
	if !there {
		by = -1
	}
	if b.standing[addr] == nil {
		b.standing[addr] = map[packet.MAC]int{}
	}
	if add(b.standing[addr], mac, by); len(b.standing[addr]) == 0 {
		delete(b.standing, addr)
	}
}

// countHosts replaces the hosts of a floating IP's port, which count in its network.
func (s *senders) countHosts(f *senderFloat, hosts []string) {
	d := s.device(f.network)
	count := func(hosts []string, by int) {
		for _, host := range hosts {
			add(d.floating, host, by)
			s.float(d.area, host, by)
		}
	}
	count(hosts, 1)
	count(f.hosts, -1)
	f.hosts = hosts
}

// float notes that a host has more or fewer ports with floating IPs in an area's networks.
func (s *senders) float(a *area, host string, by int) {
	was := a.floating[host] > 0
	if add(a.floating, host, by); was != (a.floating[host] > 0) {
		s.touch(a.portsBelow, host)
	}
}

// openPort notes that a floating IP leads to a port, or no longer, if that is this host's.
func (s *senders) openPort(f *senderFloat, by int) {
	if s.ports[f.port] == "" {
		return
	}
	d := s.device(f.network)
	add(d.opened, f.port, by)
	add(d.area.opened, f.port, by)
	s.stale[f.port] = true
}

// openAll does so for all floating IPs of a port.
func (s *senders) openAll(port string, by int) {
	for f := range s.borders.floatsOf[port] {
		s.openPort(f, by)
	}
}
