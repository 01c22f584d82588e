package overlay

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
)

// senderFloats holds the floating IPs and the proxied IPv6 addresses, and which of them let packets
// in at their gateway to other ports than their own.
type senderFloats struct {
	floats         map[string]*senderFloat          // by floating IP
	floatsAt       map[place]map[*senderFloat]bool  // by address
	floatsOf       map[string]map[*senderFloat]bool // by port
	floatsTo       map[string]map[*senderFloat]bool // by the port's network
	floatsIn       map[string]map[*senderFloat]bool // by the router's chain
	targets        map[string]floatTarget
	extra          map[string][]netip.Prefix // by router's chain, destinations of its extra routes
	lans           map[string]int            // localnet ports, by network
	doubtfulFloats map[*senderFloat]bool     // that the change under way may make openings, or no longer
}

// senderFloat is a floating IP of a network, or an address inside that is proxied there.
type senderFloat struct {
	network, port string
	gateway       string // the router's port that has the address
	chain         string // one of the router's
	addr, fixed   netip.Addr
	hosts         []string // as counted in the network
	opening       bool     // as counted at the gateway
}

// floatTarget is a port that has its addresses in its network's tables, so that what is for them
// leads to it and nowhere else.
type floatTarget struct {
	network  string
	exterior bool
	hosts    []string
}

func (t floatTarget) equal(u floatTarget) bool {
	return t.network == u.network && t.exterior == u.exterior && slices.Equal(t.hosts, u.hosts)
}

func newSenderFloats() senderFloats {
	return senderFloats{floats: map[string]*senderFloat{}, floatsAt: map[place]map[*senderFloat]bool{}, floatsOf: map[string]map[*senderFloat]bool{},
		floatsTo: map[string]map[*senderFloat]bool{}, floatsIn: map[string]map[*senderFloat]bool{}, targets: map[string]floatTarget{},
		extra: map[string][]netip.Prefix{}, lans: map[string]int{}, doubtfulFloats: map[*senderFloat]bool{}}
}

// floatOf returns the floating IP that a bundle translates, or nil.
func floatOf(b *topology.Bundle) *senderFloat {
	if len(b.Neighbours) == 0 {
		return nil
	}
	n := &b.Neighbours[0]
	f := &senderFloat{network: n.NetworkID, addr: n.IP}
	for i := range b.Rules {
		switch e := &b.Rules[i]; {
		case e.Rule.FipPortID == "":
		case e.Rule.Dnat && len(e.Rule.NatTargets) > 0:
			f.port, f.chain, f.fixed = e.Rule.FipPortID, e.ChainID, e.Rule.NatTargets[0].NwStart
		case e.Rule.Condition != nil && len(e.Rule.Condition.OutPortIDs) > 0:
			f.gateway = e.Rule.Condition.OutPortIDs[0]
		}
	}
	if f.port == "" {
		return nil
	}
	return f
}

// proxiedOf returns the address that the bundle of an NDP proxy lets in, or nil.
func proxiedOf(b *topology.Bundle) *senderFloat {
	if len(b.Neighbours) == 0 || len(b.Rules) == 0 {
		return nil
	}
	n, e := &b.Neighbours[0], &b.Rules[0]
	if e.Rule.FipPortID == "" || e.Rule.Condition == nil || len(e.Rule.Condition.InPortIDs) == 0 {
		return nil
	}
	return &senderFloat{network: n.NetworkID, addr: n.IP, fixed: n.IP, port: e.Rule.FipPortID, gateway: e.Rule.Condition.InPortIDs[0], chain: e.ChainID}
}

// equal reports whether two floating IPs are translated alike.
func (f *senderFloat) equal(g *senderFloat) bool {
	if f == nil || g == nil {
		return f == g
	}
	return f.network == g.network && f.port == g.port && f.gateway == g.gateway && f.chain == g.chain && f.addr == g.addr && f.fixed == g.fixed
}

// findOpenings finds the openings among the floating IPs in doubt.
func (b *senderBorders) findOpenings() {
	for f := range b.doubtfulFloats {
		b.setOpening(f, b.isOpening(f))
	}
	clear(b.doubtfulFloats)
}

// isOpening reports whether a floating IP lets packets in to other ports than its own: by a route
// that leads to it, or where it leads to an address that another port may take over, or that the
// router has a route to.
func (b *senderBorders) isOpening(f *senderFloat) bool {
	t, there := b.targets[f.port]
	return !there || !t.exterior && b.lans[t.network] > 0 || b.hopsAt[place{f.network, f.addr}] > 0 ||
		slices.ContainsFunc(b.extra[f.chain], func(dst netip.Prefix) bool { return dst.Contains(f.fixed) })
}

func (b *senderBorders) setOpening(f *senderFloat, opening bool) {
	if f.opening == opening {
		return
	}
	f.opening = opening
	by := 1
	if !opening {
		by = -1
	}
	add(b.openings, f.gateway, by)
	b.doubtful[f.gateway] = true
}

// setFloat replaces a floating IP; nil if it leads to no port.
func (s *senders) setFloat(id string, now *senderFloat) {
	b := &s.borders
	was := b.floats[id]
	if now != nil {
		b.floats[id] = now
		s.device(now.network).floats++
		b.index(now, true)
		s.openPort(now, 1)
		s.countHosts(now, b.targets[now.port].hosts)
		b.doubtfulFloats[now] = true
	} else {
		delete(b.floats, id)
	}
	if was != nil {
		b.setOpening(was, false)
		delete(b.doubtfulFloats, was)
		s.countHosts(was, nil)
		s.openPort(was, -1)
		b.index(was, false)
		s.device(was.network).floats--
		s.tidy(was.network)
	}
}

func (b *senderBorders) index(f *senderFloat, there bool) {
	put(b.floatsAt, place{f.network, f.addr}, f, there)
	put(b.floatsOf, f.port, f, there)
	put(b.floatsIn, f.chain, f, there)
	if t, known := b.targets[f.port]; known {
		put(b.floatsTo, t.network, f, there)
	}
}

// replaceTargets replaces an owner's ports that floating IPs may lead to.
func (s *senders) replaceTargets(before, after map[string]floatTarget) {
	for id := range before {
		if _, there := after[id]; !there {
			s.setTarget(id, nil)
		}
	}
	for id, t := range after {
		if was, there := before[id]; !there || !was.equal(t) {
			s.setTarget(id, &t)
		}
	}
}

// setTarget replaces a port that floating IPs may lead to; nil if it has not its addresses.
func (s *senders) setTarget(id string, now *floatTarget) {
	b := &s.borders
	was, there := b.targets[id]
	for f := range b.floatsOf[id] {
		if there {
			put(b.floatsTo, was.network, f, false)
		}
		if now != nil {
			put(b.floatsTo, now.network, f, true)
			s.countHosts(f, now.hosts)
		} else {
			s.countHosts(f, nil)
		}
		b.doubtfulFloats[f] = true
	}
	if now != nil {
		b.targets[id] = *now
	} else {
		delete(b.targets, id)
	}
}

// setExtra replaces the destinations of a router's extra routes.
func (b *senderBorders) setExtra(chain string, dsts []netip.Prefix) {
	if b.extra[chain] = dsts; len(dsts) == 0 {
		delete(b.extra, chain)
	}
	for f := range b.floatsIn[chain] {
		b.doubtfulFloats[f] = true
	}
}

// addLANs notes that a network has more or fewer localnet ports.
func (b *senderBorders) addLANs(network string, by int) {
	was := b.lans[network] > 0
	if add(b.lans, network, by); was == (b.lans[network] > 0) {
		return
	}
	for f := range b.floatsTo[network] {
		b.doubtfulFloats[f] = true
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

// openPort notes that a floating IP leads to a port, or no longer, if that is this host's, and to
// those here that get copies of what goes to it.
func (s *senders) openPort(f *senderFloat, by int) {
	if s.ports[f.port] != "" {
		s.openOne(f, f.port, by)
	}
	for id := range s.mirrors.watchers[f.port] {
		s.openOne(f, id, by)
	}
}

func (s *senders) openOne(f *senderFloat, id string, by int) {
	d := s.device(f.network)
	add(d.opened, id, by)
	add(d.area.opened, id, by)
	s.stale[id] = true
}

// openAll does so for all floating IPs of a port.
func (s *senders) openAll(port string, by int) {
	for f := range s.borders.floatsOf[port] {
		s.openOne(f, port, by)
	}
}
