package simulate

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// translation is the NAT of a rule, compiled.
type translation struct {
	dnat, reverse bool
	static        netip.Addr // the only target, of a rule without state; else invalid
	targets       []flow.NATTarget
	action        verb                 // after a translation
	limits        *topology.RuleLimits // of what it translates; nil for none
}

// compileTranslation returns nil for a rule that contradicts itself (midonet-topology §3.2).
func compileTranslation(from *topology.Rule, action verb) *translation {
	t := &translation{dnat: from.Dnat, reverse: from.Reverse, action: action, limits: from.Limits}
	if action != accept && action != goOn && action != giveBack || t.reverse != (len(from.NatTargets) == 0) {
		return nil
	}
	for _, x := range from.NatTargets {
		if !x.NwStart.Is4() || !x.NwEnd.Is4() || x.NwEnd.Less(x.NwStart) || x.TpEnd < x.TpStart {
			return nil
		}
		if x.TpEnd == 0 {
			if len(from.NatTargets) > 1 || x.NwStart != x.NwEnd {
				return nil
			}
			t.static = x.NwStart
		}
		t.targets = append(t.targets, flow.NATTarget{First: x.NwStart, Last: x.NwEnd, FirstPort: x.TpStart, LastPort: x.TpEnd, FromPort: x.TpFrom})
	}
	return t
}

// translator applies rules of NAT to a packet (midonet-simulation §6). The decision collects what
// it used and what it made.
type translator struct {
	dec    *record
	world  *World
	state  State
	device string // id of the router that the packet is in
	// unsure is set when the result rests on more than flow keys and translations in use: on one
	// that is missing, for example.
	unsure bool
	reads  *Reads            // what the caller wants to know of it
	used   *flow.Translation // by the rule at hand, if the walk is wanted
	chain  *chain            // of that rule; nil: it is in none
}

// apply returns goOn if the rule finds nothing to do, else its action; ended if the packet cannot
// go on.
func (n *translator) apply(f *filters, t *translation, rule string) verb {
	if f.now.EtherType != packet.TypeIPv4 || n.device == "" {
		return goOn
	}
	var old packet.Frame
	if n.dec.explain || t.limits != nil {
		old = *f.now
	}
	n.used = nil
	v := goOn
	switch {
	case t.static.IsValid():
		v = n.static(f, t)
	case f.now.Frag != packet.FragNone:
	case f.now.IsICMPError():
		v = n.related(f, t)
	case f.now.HasTp && (f.now.Proto == packet.ProtoTCP || f.now.Proto == packet.ProtoUDP) || f.now.Echo:
		v = n.dynamic(f, t)
	}
	if old.EtherType == 0 || v != t.action || *f.now == old {
		return v
	}
	if n.dec.explain {
		n.dec.Walk = append(n.dec.Walk, flow.Step{Device: n.device, Kind: flow.StepTranslation, Rule: rule, Text: translationText(&old, f.now), Translation: n.used})
		if n.chain != nil {
			n.dec.last().Object = ownedObject(n.world.ownerOfRule(n.chain.id, rule))
		}
		n.dec.changed(n.dec.headers(&old), f.now)
	}
	if t.limits != nil && !f.generated {
		n.limit(t)
	}
	return v
}

func translationText(old, now *packet.Frame) string {
	text := "NAT: "
	side := func(name string, a, b netip.Addr, p, q uint16) {
		if a != b || p != q {
			text += fmt.Sprintf("%s %v:%d becomes %v:%d; ", name, a, p, b, q)
		}
	}
	srcPort, dstPort := connPorts(old)
	newSrc, newDst := connPorts(now)
	side("source", old.SrcIP, now.SrcIP, srcPort, newSrc)
	side("destination", old.DstIP, now.DstIP, dstPort, newDst)
	side("quoted source", old.Quote.Src, now.Quote.Src, old.Quote.SrcPort, now.Quote.SrcPort)
	side("quoted destination", old.Quote.Dst, now.Quote.Dst, old.Quote.DstPort, now.Quote.DstPort)
	return text[:len(text)-2]
}

// static exchanges an address whatever the packet is. Within an ICMP error the quoted packet, which
// went the other way, gets back the address that it had on the other side.
func (n *translator) static(f *filters, t *translation) verb {
	p := f.now
	quotes := p.IsICMPError() && p.Quote.Valid
	if t.dnat {
		if quotes && p.Quote.Src == p.DstIP {
			p.Quote.Src = t.static
		}
		f.dstRewritten = true
		p.DstIP = t.static
		return t.action
	}
	if quotes && p.Quote.Dst == p.SrcIP {
		p.Quote.Dst = t.static
	}
	p.SrcIP = t.static
	return t.action
}

// kind is that of the translations which a rule makes or looks for.
func (t *translation) kind() flow.NATKind {
	switch {
	case t.dnat && t.reverse:
		return flow.ReverseDNAT
	case t.dnat:
		return flow.ForwardDNAT
	case t.reverse:
		return flow.ReverseSNAT
	}
	return flow.ForwardSNAT
}

// ofDestination reports whether translations of the kind change the destination.
func ofDestination(k flow.NATKind) bool { return k == flow.ForwardDNAT || k == flow.ReverseSNAT }

// lookUp returns the translation of a live connection.
func (n *translator) lookUp(k flow.NATKey) (flow.NATBinding, bool) {
	for i := range n.dec.NewNATs { // of this very packet
		if n.dec.NewNATs[i].NATKey == k {
			return n.dec.NewNATs[i].NATBinding, true
		}
	}
	if n.state != nil {
		if b, ok := n.state.NAT(k); ok {
			n.dec.NATs = append(n.dec.NATs, k)
			return b, true
		}
	}
	return flow.NATBinding{}, false
}

// connPorts returns the ports of a packet as connections have them: of an echo the id twice.
func connPorts(p *packet.Frame) (src, dst uint16) {
	switch {
	case p.Echo:
		return p.EchoID, p.EchoID
	case p.HasTp && packet.HasPorts(p.Proto):
		return p.TpSrc, p.TpDst
	}
	return 0, 0
}

// dynamic translates by the state, which a forward rule adds to.
func (n *translator) dynamic(f *filters, t *translation) verb {
	p := f.now
	k := flow.NATKey{Kind: t.kind(), Src: p.SrcIP, Dst: p.DstIP, Proto: p.Proto, Device: n.device}
	k.SrcPort, k.DstPort = connPorts(p)
	b, ok := n.lookUp(k)
	if !ok {
		if t.reverse && t.dnat && !f.generated { // most packets of a machine's port are no such replies
			if !slices.Contains(n.dec.MissingNATs, k) { // several rules may ask for the same
				n.dec.MissingNATs = append(n.dec.MissingNATs, k)
			}
			return goOn
		}
		if t.reverse || f.generated {
			n.unsure = true
			return goOn
		}
		var v verb
		if b, v = n.open(k, t); v == ended {
			return v
		}
	}
	if n.dec.explain {
		n.used = n.describe(k, b, !ok)
	}
	port := b.Port
	switch {
	case p.Echo:
		p.EchoID = port
	case ofDestination(k.Kind):
		p.TpDst = port
	default:
		p.TpSrc = port
	}
	if ofDestination(k.Kind) {
		p.DstIP = b.Addr
		f.dstRewritten = true
	} else {
		p.SrcIP = b.Addr
	}
	return t.action
}

// open makes the translation of a new connection, in both directions.
func (n *translator) open(k flow.NATKey, t *translation) (flow.NATBinding, verb) {
	var b flow.NATBinding
	if t.dnat {
		if b, ok := ownPort(t.targets, k); ok {
			return n.opened(k, b), t.action
		}
		b = pickTarget(t.targets, hashOf(k.Src, k.Dst, k.SrcPort, k.DstPort, k.Proto))
		if n.reads != nil {
			n.reads.AnyTarget = true
		}
		if k.Proto == packet.ProtoICMP {
			b.Port = k.DstPort
		}
	} else {
		var answer flow.NATAnswer
		if b, answer = n.source(k, t); answer != flow.NATChosen {
			return b, n.refuse(answer, t, k.Src)
		}
	}
	return n.opened(k, b), t.action
}

// opened adds a translation, in both directions.
func (n *translator) opened(k flow.NATKey, b flow.NATBinding) flow.NATBinding {
	e := flow.NATEntry{NATKey: k, NATBinding: b}
	n.dec.NewNATs = append(n.dec.NewNATs, e, e.Reverse())
	return b
}

// ownPort returns the port of a target that the destination's port has for its own, if the target
// gives each its own.
func ownPort(targets []flow.NATTarget, k flow.NATKey) (flow.NATBinding, bool) {
	t := targets[0]
	at := k.DstPort - t.FromPort
	if len(targets) > 1 || t.FromPort == 0 || k.DstPort < t.FromPort || at > t.LastPort-t.FirstPort {
		return flow.NATBinding{}, false
	}
	return flow.NATBinding{Addr: t.First, Port: t.FirstPort + at}, true
}

// source chooses the source of a new connection.
func (n *translator) source(k flow.NATKey, t *translation) (flow.NATBinding, flow.NATAnswer) {
	if n.reads != nil {
		n.reads.AnyPort = true
	}
	r := flow.NATRequest{Device: k.Device, Targets: t.targets, Src: k.Src, Dst: k.Dst, DstPort: k.DstPort, Proto: k.Proto}
	if on := n.world.routers[k.Device]; on != nil && len(on.balancers) > 0 && len(t.targets) == 1 {
		r.Reserved = on.reserved(t.targets[0].First, k.Proto)
	}
	if k.Proto == packet.ProtoICMP {
		r.Keep, r.DstPort = k.SrcPort, 0
	}
	if n.state == nil { // nothing is taken
		b := flow.NATBinding{Addr: t.targets[0].First, Port: t.targets[0].FirstPort}
		if r.Keep != 0 {
			b.Port = r.Keep
		}
		return b, flow.NATChosen
	}
	return n.state.NATSource(r)
}

// refuse ends a packet from src that found no source to be translated to.
func (n *translator) refuse(answer flow.NATAnswer, t *translation, src netip.Addr) verb {
	n.unsure = true
	switch a := t.targets[0].First; answer {
	case flow.NATWaiting:
		n.dec.postpone(flow.Wait{Device: n.device, NATAddr: a}, "no ports of "+a.String()+" are leased yet")
	case flow.NATShareUsed:
		n.dec.errorDrop(n.device, flow.CodeNATExhausted, fmt.Sprintf("%v uses half of the NAT ports of %v for this destination: its share", src, a))
	default:
		reason := "all NAT ports of " + a.String() + " are in use for this destination"
		if r := n.world.routers[n.device]; r != nil && len(r.balancers) > 0 {
			reason += ": members see a load balancer's clients by one address; share the clients among more VIPs or the connections among more members"
		}
		n.dec.errorDrop(n.device, flow.CodeNATExhausted, reason)
	}
	return ended
}

// pickTarget chooses an address and a port of the targets.
func pickTarget(targets []flow.NATTarget, hash uint32) flow.NATBinding {
	t := targets[hash%uint32(len(targets))]
	hash /= uint32(len(targets))
	ports := uint32(t.LastPort-t.FirstPort) + 1
	b := flow.NATBinding{Addr: t.First, Port: t.FirstPort + uint16(hash%ports)}
	first, last := t.First.As4(), t.Last.As4()
	from := uint32(first[0])<<24 | uint32(first[1])<<16 | uint32(first[2])<<8 | uint32(first[3])
	to := uint32(last[0])<<24 | uint32(last[1])<<16 | uint32(last[2])<<8 | uint32(last[3])
	if n := to - from + 1; n > 1 {
		at := from + hash/ports%n
		b.Addr = netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)})
	}
	return b
}

// related translates an ICMP error as a packet of the connection that the quoted packet is of, in
// the direction of the error.
func (n *translator) related(f *filters, t *translation) verb {
	if n.relatedTo(f, t.kind(), n.device) {
		return t.action
	}
	return goOn
}

// relatedTo translates an ICMP error by the translations of a kind that a device has, if there is
// one for the quoted packet.
func (n *translator) relatedTo(f *filters, kind flow.NATKind, device string) bool {
	p := f.now
	q := &p.Quote
	if !q.Valid || q.Proto != packet.ProtoTCP && q.Proto != packet.ProtoUDP && q.Proto != packet.ProtoICMP {
		return false
	}
	k := flow.NATKey{Kind: kind, Src: q.Dst, SrcPort: q.DstPort, Dst: q.Src, DstPort: q.SrcPort, Proto: q.Proto, Device: device}
	b, ok := n.lookUp(k)
	if !ok {
		return false
	}
	if ofDestination(k.Kind) {
		if p.DstIP == q.Src {
			p.DstIP = b.Addr
		}
		q.Src, q.SrcPort = b.Addr, b.Port
		f.dstRewritten = true
	} else {
		if p.SrcIP == q.Dst {
			p.SrcIP = b.Addr
		}
		q.Dst, q.DstPort = b.Addr, b.Port
	}
	if q.Proto == packet.ProtoICMP {
		q.SrcPort, q.DstPort = b.Port, b.Port
	}
	return true
}

// hashOf is a hash of a connection, the same on every host.
func hashOf(src, dst netip.Addr, srcPort, dstPort uint16, proto uint8) uint32 {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	mix := func(v uint64) { h = (h ^ v) * prime }
	for _, a := range []netip.Addr{src, dst} {
		b := a.As16()
		for i := 8; i < 16; i++ {
			mix(uint64(b[i]))
		}
		for i := 0; i < 8; i++ {
			mix(uint64(b[i]))
		}
	}
	mix(uint64(srcPort)<<32 | uint64(dstPort)<<16 | uint64(proto))
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return uint32(h >> 32)
}
