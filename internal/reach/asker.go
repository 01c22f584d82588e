package reach

import (
	"context"
	"net/netip"
	"slices"

	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Asker asks a world. It belongs to one goroutine, and to the world as it is: after a change a new
// one is needed.
type Asker struct {
	expired func() bool
	world   *simulate.World
	ends    func(portID string) *End // nil for a port that is no machine's

	sim         *simulate.Simulator
	state       *simulate.Memory
	there, back simulate.Reads
	frame       []byte // of the first packet
	reply       []byte
	doors       []simulate.Door           // nil while not needed
	bounds      map[string][]netip.Prefix // that the routes of ends tell apart, by port
	met         []*End                    // that have answered
	translated  bool                      // a packet has got another destination port on its way
	compared    *simulate.Comparisons     // with the opener's address; nil: not noted
}

// NewAsker makes an Asker. It finds the ends of connections, such as the members of load balancers,
// by ends. Once ctx has ended answers are empty, so that a question made of many soon ends, too.
func NewAsker(ctx context.Context, w *simulate.World, ends func(portID string) *End) *Asker {
	return &Asker{expired: func() bool { return ctx.Err() != nil }, world: w, ends: ends, sim: simulate.NewSimulator(w), state: simulate.NewMemory(), bounds: map[string][]netip.Prefix{}}
}

// Question is a question about two ends.
type Question struct {
	From           *End // the connection's opener; nil for one outside, who comes in by Door
	Door           simulate.Door
	Source, Target netip.Addr
	To             *End   // nil for one outside
	Any            bool   // it may arrive at any port, as what is for a load balancer does
	Protocol       uint8  // the only one to ask about, 0 for all
	Port           uint16 // the only destination port to ask about, with a Protocol that has ports
}

// Answer has the services by which one end reaches the other.
type Answer struct {
	Always Services
	May    Services // for some connections, by the source port or the choice among ways or members
	OneWay Services // what arrives, and whose answers do not
}

// IsEmpty reports whether nothing arrives.
func (a *Answer) IsEmpty() bool { return a.Always.IsEmpty() && a.May.IsEmpty() && a.OneWay.IsEmpty() }

func (a *Answer) equal(o *Answer) bool {
	return a.Always.Equal(&o.Always) && a.May.Equal(&o.May) && a.OneWay.Equal(&o.OneWay)
}

// outcome is a set of fates that connections may have.
type outcome uint8

// Fates.
const (
	lost     outcome = 1 << iota // the first packet does not arrive
	halfway                      // the answer does not
	complete                     // both do
)

// box is a range of ports or types with the fates of their connections.
type box struct {
	srcs, dsts simulate.Span
	outcome
}

// clientPorts are the source ports of connections; those below are for services, DHCP's for
// example.
var clientPorts = simulate.Span{Low: 1024, High: 0xffff}

// Ask answers a question. Of two ends without a way from one to the other the answer is empty.
func (a *Asker) Ask(q *Question) Answer {
	c := collector{asker: a, question: q}
	return c.answer()
}

// collector collects the answer to one question.
type collector struct {
	asker    *Asker
	question *Question
	headers  headers
	done     [256]bool // protocols that were asked about
	named    []uint8   // protocols that rules name

	outside     netip.Addr // the end outside, if there is one
	lastOutside netip.Addr // to which the answer stands as it does for that

	always, may, oneWay []Range
}

func (c *collector) answer() Answer {
	if c.asker.expired() {
		return Answer{}
	}
	q := c.question
	c.headers = headers{srcMAC: OutsideMAC, dstMAC: q.Door.MAC, src: q.Source, dst: q.Target, echoID: clientPorts.High}
	c.narrow(q.From)
	if q.From != nil {
		mac, ok := c.asker.neighbour(q.From, q.Source, q.Target)
		if !ok {
			return Answer{}
		}
		c.headers.srcMAC, c.headers.dstMAC = q.From.MAC, mac
	}
	c.protocols()
	return Answer{Always: services(c.always), May: services(c.may), OneWay: services(c.oneWay)}
}

// OutsideMAC stands for the MAC address of a machine on a LAN that is not known.
var OutsideMAC = packet.MAC{0x02, 0, 0, 0, 0, 0x01}

// neighbour returns the MAC address to which a machine sends packets from source to dst.
func (a *Asker) neighbour(e *End, source, dst netip.Addr) (packet.MAC, bool) {
	hop, ok := e.NextHop(source, dst)
	if !ok {
		return packet.MAC{}, false
	}
	mac, _, ok := a.world.Neighbour(e.NetworkID, hop)
	if !ok && a.world.HasLAN(e.NetworkID) {
		return OutsideMAC, true
	}
	return mac, ok
}

// usual are the protocols that are always asked about by themselves.
var usual = []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP, packet.ProtoICMPv6, packet.ProtoSCTP, packet.ProtoDCCP, packet.ProtoUDPLite}

// protocols asks about the protocols that were asked for: about those that are usual or that a rule
// on the way names, one by one, and about all others together.
func (c *collector) protocols() {
	if p := c.question.Protocol; p != 0 {
		c.protocol(p)
		return
	}
	for p := range c.done {
		c.done[p] = c.question.Source.Is6() && packet.IsExtension(uint8(p))
	}
	c.named = append(c.named, usual...)
	for {
		for len(c.named) > 0 {
			last := len(c.named) - 1
			p := c.named[last]
			if c.named = c.named[:last]; !c.done[p] {
				c.protocol(p)
			}
		}
		other := slices.Index(c.done[:], false)
		if other < 0 {
			return
		}
		b := c.box(uint8(other), simulate.Span{High: 0xffff}, simulate.Span{High: 0xffff})
		if slices.ContainsFunc(c.named, func(p uint8) bool { return !c.done[p] }) {
			continue // there are others yet that rules tell apart
		}
		for p := range c.done {
			if !c.done[p] {
				c.add(uint8(p), simulate.Span{High: 0xffff}, b.outcome)
			}
		}
		return
	}
}

// protocol asks about the services of a protocol.
func (c *collector) protocol(proto uint8) {
	c.done[proto] = true
	v4 := c.question.Source.Is4()
	switch {
	case packet.HasPorts(proto):
		dsts := simulate.Span{High: 0xffff}
		if c.question.Port != 0 {
			dsts = simulate.Span{Low: c.question.Port, High: c.question.Port}
		}
		for dsts.Low <= dsts.High {
			end := c.ports(proto, dsts)
			if end == 0xffff {
				break
			}
			dsts.Low = end + 1
		}
	case proto == packet.ProtoICMP && v4, proto == packet.ProtoICMPv6 && !v4:
		c.types(proto)
	default:
		all := simulate.Span{High: 0xffff}
		c.add(proto, all, c.box(proto, all, all).outcome)
	}
}

// ports asks about the destination ports from the first of dsts on which all clients can or cannot
// reach alike, and returns the last of them.
func (c *collector) ports(proto uint8, dsts simulate.Span) (last uint16) {
	var all outcome
	last = dsts.High
	for src := clientPorts; ; {
		b := c.box(proto, src, simulate.Span{Low: dsts.Low, High: last})
		all |= b.outcome
		last = b.dsts.High
		if b.srcs.High == 0xffff {
			break
		}
		src.Low = b.srcs.High + 1
	}
	// An outcome of a wider range of destination ports holds for the narrower one, too.
	c.add(proto, simulate.Span{Low: dsts.Low, High: last}, all)
	return last
}

// types asks about the types and codes of ICMP. Those of neighbour discovery and of multicast
// groups on the link are no services: they count as the type before them does.
func (c *collector) types(proto uint8) {
	var codes []box
	for typ := 0; typ < 256; {
		if proto == packet.ProtoICMPv6 && ofLink(typ) {
			c.addTypes(proto, typ, typ, codes)
			typ++
			continue
		}
		end := lastTypeLike(proto, typ)
		codes = codes[:0]
		for low := 0; low < 256; {
			b := c.box(proto, simulate.Span{Low: uint16(typ), High: uint16(end)}, simulate.Span{Low: uint16(low), High: 0xff})
			end, low = int(b.srcs.High), int(b.dsts.High)+1
			codes = append(codes, b)
		}
		c.addTypes(proto, typ, end, codes)
		typ = end + 1
	}
}

// addTypes adds types of which the codes have the outcomes of boxes.
func (c *collector) addTypes(proto uint8, first, last int, codes []box) {
	for typ := first; typ <= last; typ++ {
		for _, b := range codes {
			c.add(proto, simulate.Span{Low: uint16(typ)<<8 | b.dsts.Low, High: uint16(typ)<<8 | b.dsts.High}, b.outcome)
		}
	}
}

// ofLink reports whether a type of ICMPv6 is for a link alone (RFC 4861, RFC 2710, RFC 3810).
func ofLink(typ int) bool { return 130 <= typ && typ <= 137 || typ == 143 }

// lastTypeLike returns the last type of ICMP from typ on with the same part in connections: errors
// are about others, echo requests and replies make one.
func lastTypeLike(proto uint8, typ int) int {
	own := []int{0, 3, 4, 5, 8, 11, 12}
	if proto == packet.ProtoICMPv6 {
		own = []int{1, 2, 3, 4, 128, 129, 130, 143}
	}
	for _, t := range own {
		if t == typ {
			return typ
		}
		if t > typ {
			return t - 1
		}
	}
	return 255
}

// box asks about the first of the ports or types, and returns for which of them the answer stands.
func (c *collector) box(proto uint8, srcs, dsts simulate.Span) box {
	a := c.asker
	h := c.headers
	h.proto, h.srcPort, h.dstPort = proto, srcs.Low, dsts.Low
	b := box{srcs: srcs, dsts: dsts}
	b.outcome = a.decide(c.question, &h)
	a.noteComparisons()
	if c.question.Protocol == 0 {
		a.there.Protocols(func(p uint8) { c.named = append(c.named, p) })
		a.back.Protocols(func(p uint8) { c.named = append(c.named, p) })
	}
	if c.outside.IsValid() {
		for _, e := range a.met {
			c.narrow(e)
		}
		for _, r := range []*simulate.Reads{&a.there, &a.back} {
			if last := r.SameAddresses(c.outside); last.Less(c.lastOutside) {
				c.lastOutside = last
			}
		}
	}
	s, d := a.there.Same(proto, srcs.Low, dsts.Low)
	b.srcs.High, b.dsts.High = min(srcs.High, s.High), min(dsts.High, d.High)
	if !packet.HasPorts(proto) {
		return b
	}
	if a.translated {
		b.dsts.High = dsts.Low
	}
	d, s = a.back.Same(proto, dsts.Low, srcs.Low)
	b.srcs.High, b.dsts.High = min(b.srcs.High, s.High), min(b.dsts.High, d.High)
	if a.there.AnyTarget || a.there.AnyPort && (a.there.AsksAnyPort(proto, false) || a.back.AsksAnyPort(proto, true)) {
		b.outcome |= lost
	}
	return b
}

// noteComparisons notes what has decided about the packets of a box, if that is to be noted.
func (a *Asker) noteComparisons() {
	if a.compared == nil {
		return
	}
	a.compared.Note(&a.there)
	a.compared.Note(&a.back)
	for _, e := range a.met {
		for p := range e.prefixes {
			a.compared.NotePrefix(p)
		}
	}
}

// add adds services with their outcome.
func (c *collector) add(proto uint8, n simulate.Span, o outcome) {
	r := Range{proto, n.Low, n.High}
	switch {
	case o == complete:
		c.always = append(c.always, r)
	case o&complete != 0:
		c.may = append(c.may, r)
	case o&halfway != 0:
		c.oneWay = append(c.oneWay, r)
	}
}
