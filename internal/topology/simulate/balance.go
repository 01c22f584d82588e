package simulate

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// stickyLife is the life of a client's choice of a member after its last use, seconds, unless the
// pool has another.
const stickyLife = 300

// balanced is the result of a load balancer's look at a packet.
type balanced uint8

const (
	untouched balanced = iota // it does nothing: the router goes on
	rewritten                 // the packet has another address: filters are skipped
	stopped                   // the decision says why
)

// balance is a load balancer's part before the routing: packets to a VIP go to a member of its pool
// (services §3.1).
func (s *Simulator) balance(r *router) balanced {
	b, f := r.balancer(), s.filters.now
	if b == nil || !b.def.AdminStateUp || f.EtherType != packet.TypeIPv4 {
		return untouched
	}
	if f.IsICMPError() {
		return s.balanceError(b, flow.ForwardDNAT)
	}
	k, known := s.balancedKey(b, flow.ForwardDNAT)
	if !known {
		return s.unknown(b, k)
	}
	at := endpoint{k.Dst, k.DstPort, k.Proto}
	v := b.vipAt(at)
	if v == nil {
		s.dec.touch(at.tag(b.id), nil)
		return untouched
	}
	return s.toVip(b, v, k)
}

// vipAt returns the VIP at an endpoint that is up, or nil; of several the one with the lowest id.
func (b *balancer) vipAt(e endpoint) *vip {
	for _, v := range b.vips[e] {
		if v.def.AdminStateUp {
			return v
		}
	}
	return nil
}

// balancedKey returns the key under which a load balancer has the packet's connection; not known
// for a packet that has no ports. Those of a later fragment are the first one's.
func (s *Simulator) balancedKey(b *balancer, kind flow.NATKind) (k flow.NATKey, known bool) {
	f := s.filters.now
	if f.Proto != packet.ProtoTCP && f.Proto != packet.ProtoUDP {
		return k, false
	}
	k = flow.NATKey{Kind: kind, Src: f.SrcIP, Dst: f.DstIP, SrcPort: f.TpSrc, DstPort: f.TpDst, Proto: f.Proto, Device: b.id}
	if !f.HasTp && f.Frag == packet.FragLater && !s.filters.generated && s.tracker.remembers() {
		k.SrcPort, k.DstPort = s.tracker.recall.src, s.tracker.recall.dst
		return k, s.tracker.recall.hasTp
	}
	return k, f.HasTp
}

// unknown ends a packet whose ports are not known if it may be one of the load balancer's.
func (s *Simulator) unknown(b *balancer, k flow.NATKey) balanced {
	if !b.concerns(k) {
		return untouched
	}
	s.unkeyed = true
	s.dec.drop(b.id, flow.CodeFragment, "lb: a fragment of a datagram whose first has not passed here")
	return stopped
}

// concerns reports whether a packet may be one to a VIP or the reply of a member, by its addresses.
func (b *balancer) concerns(k flow.NATKey) bool {
	if k.Kind == flow.ForwardDNAT {
		return len(b.ports[endpoint{addr: k.Dst, proto: k.Proto}]) > 0
	}
	for e := range b.members {
		if e.addr == k.Src && e.proto == k.Proto {
			return true
		}
	}
	return false
}

// stop drops the reply of a member until something about tag changes, and not for long.
func (s *Simulator) stop(b *balancer, tag string, code flow.Code, reason string) balanced {
	s.dec.touch(tag, nil)
	s.dec.errorDrop(b.id, code, reason)
	return stopped
}

// refuse drops a packet to a VIP, until something about that changes.
func (s *Simulator) refuse(b *balancer, v *vip, code flow.Code, reason string) balanced {
	s.dec.touch(v.id, nil)
	s.dec.drop(b.id, code, reason)
	return stopped
}

// toVip sends a packet to a member of the VIP's pool: the one that has its connection, or that its
// client has been to, or a new one.
func (s *Simulator) toVip(b *balancer, v *vip, k flow.NATKey) balanced {
	p := v.pool
	switch {
	case !v.admits(k.Src):
		return s.refuse(b, v, flow.CodeLBSource, fmt.Sprintf("lb: source not allowed: VIP %s admits no clients at %v", v.id, k.Src))
	case p == nil || p.def == nil || p.balancer != b || p.proto() != k.Proto:
		return s.refuse(b, v, flow.CodeLBNoMember, "lb: no pool: VIP "+v.id+" has none that balances its protocol")
	}
	sticky := v.isSticky()
	if to, ok := s.nat.lookUp(k); ok {
		if m := p.keeper(to, k.Proto, sticky); m != nil {
			if sticky { // as long as the connection is used, the client's choice is
				s.nat.lookUp(stickyKey(p, k))
			}
			return s.toMember(b, v, m, k, "its connection is there")
		}
		s.forget(k)
	}
	if sticky {
		client := stickyKey(p, k)
		if to, ok := s.nat.lookUp(client); ok {
			if m := p.keeper(to, k.Proto, true); m != nil {
				return s.open(b, v, m, k, "its client was there before")
			}
			s.forget(client)
		}
	}
	return s.choose(b, v, k, sticky)
}

// admits reports whether a client may use the VIP.
func (v *vip) admits(client netip.Addr) bool {
	all := v.def.AllowedSources
	return len(all) == 0 || slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(client) })
}

// isSticky reports whether all connections of a client go to one member: as the pool says, or else
// the VIP.
func (v *vip) isSticky() bool {
	if by := v.pool.def.SessionPersistence; by != "" {
		return by == topology.PersistSourceIP
	}
	return v.def.SessionPersistence == topology.PersistSourceIP
}

// stickyKey returns the key under which the member of a connection's client is found.
func stickyKey(p *pool, k flow.NATKey) flow.NATKey {
	k.Kind, k.SrcPort = flow.ForwardSticky, 0
	if bits := p.def.PersistenceBits; bits > 0 {
		if prefix, err := k.Src.Prefix(bits); err == nil {
			k.Src = prefix.Addr()
		}
	}
	return k
}

// keeper returns the member at an endpoint that keeps what it has, or nil.
func (p *pool) keeper(at flow.NATBinding, proto uint8, sticky bool) *member {
	for _, m := range p.at[endpoint{at.Addr, at.Port, proto}] {
		if m.keeps(sticky) {
			return m
		}
	}
	return nil
}

// forget deletes a binding whose member is no more.
func (s *Simulator) forget(k flow.NATKey) {
	s.dec.NATs = slices.DeleteFunc(s.dec.NATs, func(x flow.NATKey) bool { return x == k })
	s.dec.GoneNATs = append(s.dec.GoneNATs, k)
}

// choose sends a new connection to a member of the pool.
func (s *Simulator) choose(b *balancer, v *vip, k flow.NATKey, sticky bool) balanced {
	p := v.pool
	c := p.selectable()
	if len(c.members) == 0 {
		return s.refuse(b, v, flow.CodeLBNoMember, fmt.Sprintf("lb: no member: pool %s of VIP %s has none that is up and weighs anything", p.id, v.id))
	}
	if limit := v.def.ConnectionLimit; limit > 0 && s.nat.state != nil {
		if n := s.nat.state.OwnConns(flow.Endpoint{Device: b.id, Addr: k.Dst, Port: k.DstPort, Proto: k.Proto}); n >= limit {
			s.unkeyed = true // another connection may end at any time
			s.dec.drop(b.id, flow.CodeLBLimit, fmt.Sprintf("lb: connection limit: VIP %s has %d connections by this host, of %d", v.id, n, limit))
			return stopped
		}
	}
	var seed uint64
	if s.nat.state != nil {
		seed = s.nat.state.Seed()
	}
	if way, decided := s.in.Reads.choose(len(c.members)); decided {
		return s.open(b, v, c.members[way], k, "it may be chosen")
	}
	m, why := c.pick(p, k, seed, func(m *member) int {
		if s.nat.state == nil {
			return 0
		}
		return s.nat.state.MemberConns(flow.Endpoint{Device: b.id, Addr: m.def.Address, Port: m.def.ProtocolPort, Proto: k.Proto})
	})
	if sticky {
		s.stick(p, m, k)
	}
	return s.open(b, v, m, k, why)
}

// pick chooses one of the members by the pool's method (services §3.2). The seed makes what is
// random: one connection has the same choice while the pool and the seed are the same, so that two
// of its packets that are decided at once do not part.
func (c *choice) pick(p *pool, k flow.NATKey, seed uint64, count func(*member) int) (m *member, why string) {
	switch p.def.LBMethod {
	case topology.MethodSourceIP:
		return c.byHash(join(hashID(p.id), hashAddr(k.Src))), "its client's address is due there"
	case topology.MethodSourceIPPort:
		ports := uint64(k.SrcPort)<<16 | uint64(k.DstPort)
		return c.byHash(join(join(hashID(p.id), hashAddr(k.Src)), join(hashAddr(k.Dst), ports))), "its client's address and port are due there"
	case topology.MethodLeastConnections:
		return c.byConnections(random(seed, k), count), "it has the fewest connections for its weight"
	}
	return c.byWeight(random(seed, k)), "by weight"
}

// random is a number for a connection.
func random(seed uint64, k flow.NATKey) uint64 {
	ports := uint64(k.SrcPort)<<32 | uint64(k.DstPort)<<16 | uint64(k.Proto)
	return join(join(seed, hashAddr(k.Src)), join(hashAddr(k.Dst), ports))
}

// stick remembers the member for all connections of the client.
func (s *Simulator) stick(p *pool, m *member, k flow.NATKey) {
	life := p.def.PersistenceTimeout
	if life <= 0 {
		life = stickyLife
	}
	s.dec.NewNATs = append(s.dec.NewNATs, flow.NATEntry{NATKey: stickyKey(p, k),
		NATBinding: flow.NATBinding{Addr: m.def.Address, Port: m.def.ProtocolPort, Life: uint16(min(life, 1<<16-1))}})
}

// open remembers a new connection to a member, and sends the packet there.
func (s *Simulator) open(b *balancer, v *vip, m *member, k flow.NATKey, why string) balanced {
	s.nat.opened(k, flow.NATBinding{Addr: m.def.Address, Port: m.def.ProtocolPort})
	s.dec.Opened = append(s.dec.Opened, flow.Meter{Vip: v.id, Member: m.id})
	return s.toMember(b, v, m, k, why)
}

// toMember gives the packet the address of a member.
func (s *Simulator) toMember(b *balancer, v *vip, m *member, k flow.NATKey, why string) balanced {
	f, port := s.filters.now, m.def.ProtocolPort
	before := s.dec.headers(f)
	s.rest(v, m, false)
	if f.DstIP = m.def.Address; f.HasTp {
		f.TpDst = port
	} else {
		s.tracker.recall.dst, s.tracker.recall.tpDst = port, port
	}
	s.filters.dstRewritten = true
	if s.dec.explain {
		s.dec.say(b.id, flow.StepBalance, fmt.Sprintf("load balancer: VIP %s at %v:%d: pool %s: member %s at %v:%d: %s",
			v.id, k.Dst, k.DstPort, v.pool.id, m.id, m.def.Address, m.def.ProtocolPort, why))
		s.dec.changed(before, f)
		to := flow.NATBinding{Addr: m.def.Address, Port: port}
		opened := slices.ContainsFunc(s.dec.NewNATs, func(e flow.NATEntry) bool { return e.NATKey == k })
		s.dec.last().Translation = s.nat.describe(k, to, opened)
	}
	return rewritten
}

// rest notes that the decision rests on a VIP and a member, which count the packet.
func (s *Simulator) rest(v *vip, m *member, reply bool) {
	s.dec.touch(bound(v, m), nil)
	if !s.filters.generated {
		s.dec.Meters = append(s.dec.Meters, flow.Meter{Vip: v.id, Member: m.id, Reply: reply})
	}
}

// unbalance is a load balancer's part after the routing: replies of members get the VIP as their
// source (services §3.3).
func (s *Simulator) unbalance(r *router) balanced {
	f := s.filters.now
	if len(r.balancers) == 0 || f.EtherType != packet.TypeIPv4 {
		return untouched
	}
	b := r.balancer()
	if f.IsICMPError() {
		return s.balanceError(b, flow.ReverseDNAT)
	}
	k, known := s.balancedKey(b, flow.ReverseDNAT)
	if !known {
		return s.unknown(b, k)
	}
	at, ok := s.nat.lookUp(k)
	if !ok {
		if b.members[endpoint{k.Src, k.SrcPort, k.Proto}] > 0 && !s.filters.generated {
			s.dec.MissingNATs = append(s.dec.MissingNATs, k)
		}
		return untouched
	}
	if !b.def.AdminStateUp {
		return s.stop(b, r.id, flow.CodeLBDown, "lb: the load balancer is administratively down")
	}
	from := endpoint{at.Addr, at.Port, k.Proto}
	v := b.vipAt(from)
	if v == nil || v.pool == nil || v.pool.def == nil || v.pool.balancer != b {
		return s.stop(b, from.tag(b.id), flow.CodeLBDown, fmt.Sprintf("lb: a reply by the VIP at %v:%d, which is gone or down", at.Addr, at.Port))
	}
	m := v.pool.keeper(flow.NATBinding{Addr: k.Src, Port: k.SrcPort}, k.Proto, v.isSticky())
	if m == nil {
		return s.stop(b, v.id, flow.CodeLBNoMember, fmt.Sprintf("lb: a reply of %v:%d, which pool %s of VIP %s has no more or has down", k.Src, k.SrcPort, v.pool.id, v.id))
	}
	before := s.dec.headers(f)
	s.rest(v, m, true)
	if f.SrcIP = at.Addr; f.HasTp {
		f.TpSrc = at.Port
	} else {
		s.tracker.recall.src, s.tracker.recall.tpSrc = at.Port, at.Port
	}
	if s.dec.explain {
		s.dec.say(b.id, flow.StepBalance, fmt.Sprintf("load balancer: reply of member %s, by VIP %s at %v:%d", m.id, v.id, at.Addr, at.Port))
		s.dec.changed(before, f)
		s.dec.last().Translation = s.nat.describe(k, at, false)
	}
	return rewritten
}

// balanceError translates an ICMP error about a balanced packet as one of its connection.
func (s *Simulator) balanceError(b *balancer, kind flow.NATKind) balanced {
	if s.nat.relatedTo(&s.filters, kind, b.id) {
		if s.dec.explain {
			s.dec.say(b.id, flow.StepBalance, "load balancer: an error about a packet of a balanced connection")
		}
		return rewritten
	}
	return untouched
}
