package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Reads notes what decisions rest on, so that a caller knows for which other packets they are the
// same (explain §6), and lets it take each of the ways among which a hash of the connection would
// choose. It belongs to one goroutine, and to a world that does not change.
type Reads struct {
	// Choices has the way to take at each choice among equals, in the order in which a walk comes
	// to them: of routes of one weight, members of a pool, targets of a translation. It is the
	// first where Choices ends.
	Choices []int
	// Options has the number of ways at each choice of the walks since Reset.
	Options []int
	// AnyPort is set if a translation chose a source port among many, AnyTarget if it chose a
	// destination. Neither is a choice that Choices can make.
	AnyPort, AnyTarget bool

	chains   []chainRead
	routers  []*router
	networks []*network
	texts    map[*chain]*chainText
	bounds   map[any][]netip.Addr // of the addresses that chains, routers and networks tell apart
}

// Span is an inclusive range of numbers.
type Span struct{ Low, High uint16 }

// chainRead is a chain with the last of its rules that was read, nil for all of them; read before
// or after a source port was chosen.
type chainRead struct {
	chain *chain
	after bool
	last  *rule
}

// rules returns the number of the rules that were read, from the first on.
func (c *chainRead) rules() int {
	if c.last == nil {
		return len(c.chain.rules)
	}
	return c.chain.position(c.last)
}

// chainText is a list of what the rules of a chain compare services with.
type chainText struct {
	ports  []portClause
	protos []uint8
}

// portClause is the clauses of a rule on ports, or on type and code of ICMP.
type portClause struct {
	rule     int   // its place, from 0 on
	proto    int16 // of the packets that may be compared with them, -1 for all
	src, dst span
}

var allPorts = span{0, 0xffff}

// Reset forgets what was noted.
func (r *Reads) Reset() {
	r.Options, r.AnyPort, r.AnyTarget = r.Options[:0], false, false
	r.chains, r.routers, r.networks = r.chains[:0], r.routers[:0], r.networks[:0]
}

// note notes that the rules of a chain were compared with the packet, up to the one that decided;
// nil: all.
func (r *Reads) note(c *chain, decided *rule) {
	if r == nil {
		return
	}
	for i := range r.chains {
		x := &r.chains[i]
		if x.chain != c || x.after != r.AnyPort {
			continue
		}
		if x.last != nil && (decided == nil || compareRules(x.last, decided) < 0) {
			x.last = decided
		}
		return
	}
	r.chains = append(r.chains, chainRead{c, r.AnyPort, decided})
}

// noteRouter notes that a router has had the packet.
func (r *Reads) noteRouter(at *router) {
	if r != nil && !slices.Contains(r.routers, at) {
		r.routers = append(r.routers, at)
	}
}

// noteNetwork notes that a router has looked for a neighbour in a network. Without a LAN neither a
// neighbour there nor a missing one is outside.
func (r *Reads) noteNetwork(n *network) {
	if n.lan != nil && !slices.Contains(r.networks, n) {
		r.networks = append(r.networks, n)
	}
}

// choose returns the way to take among n, if r decides that.
func (r *Reads) choose(n int) (way int, decides bool) {
	if r == nil {
		return 0, false
	}
	if at := len(r.Options); at < len(r.Choices) {
		way = min(r.Choices[at], n-1)
	}
	r.Options = append(r.Options, n)
	return way, true
}

func (r *Reads) text(c *chain) *chainText {
	t := r.texts[c]
	if t == nil {
		if r.texts == nil {
			r.texts = map[*chain]*chainText{}
		}
		t = newChainText(c)
		r.texts[c] = t
	}
	return t
}

func newChainText(c *chain) *chainText {
	t := &chainText{}
	for i, x := range c.rules {
		p := portClause{i, -1, allPorts, allPorts}
		if x.set&onProto != 0 {
			t.protos = append(t.protos, x.proto)
			if !x.inverts(onProto) {
				p.proto = int16(x.proto)
			}
		}
		if x.set&onTpSrc != 0 {
			p.src = x.tpSrc
		}
		if x.set&onTpDst != 0 {
			p.dst = x.tpDst
		}
		if x.set&(onTpSrc|onTpDst) != 0 {
			t.ports = append(t.ports, p)
		}
	}
	slices.Sort(t.protos)
	t.protos = slices.Compact(t.protos)
	return t
}

// Same returns the ports from src and dst on, or types and codes, with which packets of a protocol
// that are equal otherwise have had the same decision: no clause that was asked tells them apart.
func (r *Reads) Same(proto uint8, src, dst uint16) (srcs, dsts Span) {
	srcs, dsts = Span{src, 0xffff}, Span{dst, 0xffff}
	for i := range r.chains {
		ports := r.text(r.chains[i].chain).ports
		if len(ports) == 0 {
			continue
		}
		rules := r.chains[i].rules()
		for _, p := range ports {
			if p.rule < rules && (p.proto < 0 || p.proto == int16(proto)) {
				srcs.High = p.src.same(src, srcs.High)
				dsts.High = p.dst.same(dst, dsts.High)
			}
		}
	}
	for _, at := range r.routers {
		for _, b := range at.balancers {
			for e, ports := range b.ports {
				for _, port := range ports {
					if e.proto == proto {
						dsts.High = span{port, port}.same(dst, dsts.High)
					}
				}
			}
			for e := range b.members {
				if e.proto == proto {
					srcs.High = span{e.port, e.port}.same(src, srcs.High)
				}
			}
		}
	}
	return srcs, dsts
}

// same returns the last number up to high that is, as from, in the span or not.
func (s span) same(from, high uint16) uint16 {
	switch {
	case from < s.low:
		return min(high, s.low-1)
	case from <= s.high:
		return min(high, s.high)
	}
	return high
}

// Protocols calls yield for each IP protocol that a clause which was asked compares packets with; a
// protocol may come several times. All others have had the same decision.
func (r *Reads) Protocols(yield func(proto uint8)) {
	for _, c := range r.chains {
		for _, p := range r.text(c.chain).protos {
			yield(p)
		}
	}
	for _, at := range r.routers {
		if len(at.balancers) > 0 {
			yield(packet.ProtoTCP)
			yield(packet.ProtoUDP)
		}
	}
}

// AsksAnyPort reports whether a clause that was asked compares source ports of the protocol, or
// the destination ports of answers, after one was chosen among many.
func (r *Reads) AsksAnyPort(proto uint8, answers bool) bool {
	for _, c := range r.chains {
		if !c.after && !answers {
			continue
		}
		for _, p := range r.text(c.chain).ports {
			asked := p.src
			if answers {
				asked = p.dst
			}
			if p.rule < c.rules() && asked != allPorts && (p.proto < 0 || p.proto == int16(proto)) {
				return true
			}
		}
	}
	return false
}

// SameAddresses returns the last address from a on for which packets that are equal otherwise, and
// their answers, have had the same decision if a is the machine outside: no prefix, group, route or
// neighbour that was asked tells them apart.
func (r *Reads) SameAddresses(a netip.Addr) netip.Addr {
	last := packet.LastAddr(netip.PrefixFrom(a, 0).Masked())
	for _, special := range []netip.Addr{flow.MetadataIPv4, flow.MetadataIPv6} {
		last = SameAddresses(netip.PrefixFrom(special, special.BitLen()), a, last)
	}
	within := func(of any, each func(at func(netip.Prefix))) {
		bounds, known := r.bounds[of]
		if !known {
			bounds = boundsOf(each)
			if r.bounds == nil {
				r.bounds = map[any][]netip.Addr{}
			}
			r.bounds[of] = bounds
		}
		i, found := slices.BinarySearchFunc(bounds, a, netip.Addr.Compare)
		if found {
			i++
		}
		if i < len(bounds) && bounds[i].BitLen() == a.BitLen() && bounds[i].Compare(last) <= 0 {
			last = bounds[i].Prev()
		}
	}
	for _, c := range r.chains {
		within(c.chain, c.chain.prefixes)
	}
	for _, at := range r.routers {
		within(at, at.prefixes)
	}
	for _, n := range r.networks {
		within(n, n.prefixes)
	}
	return last
}

// boundsOf returns the addresses, in order, at which one comes into a prefix or out of it.
func boundsOf(each func(at func(netip.Prefix))) (bounds []netip.Addr) {
	each(func(p netip.Prefix) {
		if !p.IsValid() {
			return
		}
		bounds = append(bounds, p.Addr())
		if after := packet.LastAddr(p).Next(); after.IsValid() {
			bounds = append(bounds, after)
		}
	})
	slices.SortFunc(bounds, netip.Addr.Compare)
	return slices.Compact(bounds)
}

// prefixes calls at for each prefix that the chain's rules compare addresses with.
func (c *chain) prefixes(at func(netip.Prefix)) {
	for _, x := range c.rules {
		at(x.srcIP.Masked())
		at(x.dstIP.Masked())
		for _, g := range []*group{x.srcGroup, x.dstGroup} {
			if g == nil {
				continue
			}
			for member := range g.addrs {
				at(netip.PrefixFrom(member, member.BitLen()))
			}
			for p := range g.prefixes {
				at(p)
			}
		}
	}
}

// prefixes calls at for each neighbour in the network.
func (n *network) prefixes(at func(netip.Prefix)) {
	for a := range n.neighbours {
		at(netip.PrefixFrom(a, a.BitLen()))
	}
	for a := range n.routers.addrs {
		at(netip.PrefixFrom(a, a.BitLen()))
	}
}

// prefixes calls at for each prefix that the router compares addresses of packets with.
func (r *router) prefixes(at func(netip.Prefix)) {
	single := func(a netip.Addr) { at(netip.PrefixFrom(a, a.BitLen())) }
	for p, routes := range r.routes.byDst {
		at(p)
		for _, x := range routes {
			at(x.def.SrcSubnet.Masked())
			if g := x.def.NextHopGateway; g.IsValid() {
				single(g)
			}
			if x.port != nil && x.port.def != nil {
				for _, s := range x.port.def.PortSubnet {
					at(s.Masked())
					single(s.Addr())
				}
			}
		}
	}
	for a := range r.routes.bySource {
		single(a)
	}
	for _, b := range r.balancers {
		for e, vips := range b.vips {
			single(e.addr)
			for _, v := range vips {
				for _, p := range v.def.AllowedSources {
					at(p.Masked())
				}
			}
		}
		for e := range b.members {
			single(e.addr)
		}
	}
}

// SameAddresses returns the last address from one on, at most last, that is in the prefix if from
// is, and out of it if not.
func SameAddresses(p netip.Prefix, from, last netip.Addr) netip.Addr {
	switch end := packet.LastAddr(p); {
	case p.Addr().BitLen() != from.BitLen():
	case from.Less(p.Addr()):
		return least(last, p.Addr().Prev())
	case !end.Less(from):
		return least(last, end)
	}
	return last
}

func least(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}
