package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// filters evaluates the filters of devices on one packet.
type filters struct {
	dec     *record
	tracker *tracker
	nat     *translator
	loggers *loggers

	ruleLoggers *ruleLoggers

	now             *packet.Frame // the packet with its present headers
	generated       bool          // it is the virtual network's own, which counts as return flow
	entry           *port         // by which it came into the virtual network
	inPort, outPort *port         // of the device that it is in
	dstRewritten    bool          // that device has changed its destination
	visited         []*chain      // by the filter being evaluated
	reads           *Reads        // what the caller wants to know of them

	read      clause // clauses that were evaluated on the packet
	usedPorts bool   // a result rests on ports
	usedTOS   bool   // a result rests on the type of service, by which no flow is keyed
}

// reset begins with a packet: one that came in by a port or, with none, one of our own.
func (f *filters) reset(packet *packet.Frame, entry *port) {
	f.now, f.entry, f.generated = packet, entry, entry == nil
	f.inPort, f.outPort, f.dstRewritten, f.read = nil, nil, false, 0
}

// enter notes the port by which the packet comes into a device.
func (f *filters) enter(p *port) { f.inPort, f.outPort, f.dstRewritten = p, nil, false }

// pass applies a device's filter (midonet-simulation §4), and reports whether the packet passes.
// Without a chain everything does; while the chain is missing nothing does.
func (f *filters) pass(device, direction string, c *chain) bool {
	return f.apply(device, direction, c) == accept
}

// apply is pass, and returns as what the packet was dropped: ended if the decision has it already.
func (f *filters) apply(device, direction string, c *chain) verb {
	if c == nil {
		return accept
	}
	if c.def == nil {
		f.dec.errorDrop(device, flow.CodeBadObject, direction+" filter: chain "+c.id+" is not known")
		return ended
	}
	f.visited = f.visited[:0]
	v, by, r := f.run(c)
	if len(f.loggers.all) > 0 {
		f.note(c, v, by, r)
	}
	switch v {
	case drop, reject, redirect, invalid: // a bridge and its ports answer nothing to what they reject
		f.dec.denied(device, direction, by, r)
		return v
	case ended:
		return v
	}
	if r != nil {
		f.noteRuling(c, by, r)
	}
	if f.dec.explain {
		f.dec.accepted(device, direction, v, c, by, r)
	}
	return accept
}

// noteRuling notes that filter c of a network's port has let an IP packet pass by a rule of chain
// by.
func (f *filters) noteRuling(c, by *chain, r *rule) {
	p := f.filtered(c)
	if p == nil || p.network == nil || f.generated || !f.now.IsIP() {
		return
	}
	ruling := flow.Ruling{PortID: p.id, Ingress: p.out == c}
	if r.set&onReturn == 0 {
		ruling.Chain, ruling.Rule = by.id, r.id
	}
	f.dec.Rulings = append(f.dec.Rulings, ruling)
}

// evaluate runs a chain. A result other than goOn comes with the chain and the rule that decided.
func (f *filters) evaluate(c *chain) (verb, *chain, *rule) {
	f.visited = append(f.visited, c)
	if c.index.built && !f.isQuestion() {
		return f.evaluateIndexed(c)
	}
	for _, r := range c.rules {
		if !f.matches(&r.condition) {
			continue
		}
		if v, by, at := f.execute(c, r); v != goOn {
			f.reads.note(c, r)
			return v, by, at
		}
	}
	f.reads.note(c, nil)
	return goOn, nil, nil
}

// evaluateIndexed runs a chain with many rules on addresses and ports.
func (f *filters) evaluateIndexed(c *chain) (verb, *chain, *rule) {
	rules := c.index.candidates(f)
	src, dst := f.now.SrcIP, f.now.DstIP
	for r := rules.next(); r != nil; r = rules.next() {
		if !f.matches(&r.condition) {
			continue
		}
		if v, by, at := f.execute(c, r); v != goOn {
			f.reads.note(c, r)
			return v, by, at
		}
		if f.now.SrcIP != src || f.now.DstIP != dst { // by NAT: other rules may match now
			src, dst = f.now.SrcIP, f.now.DstIP
			rules = c.index.candidates(f)
			rules.skip(r)
		}
	}
	f.reads.note(c, nil)
	return goOn, nil, nil
}

// isQuestion reports whether the packet may ask for a neighbour. What its answer rests on must be
// known, so every rule is tried.
func (f *filters) isQuestion() bool { return f.now.ARPOp != 0 || f.now.IsND() }

// execute applies a rule of which the condition is met.
func (f *filters) execute(c *chain, r *rule) (verb, *chain, *rule) {
	switch r.verb {
	case goOn:
		return goOn, nil, nil
	case jump:
		if f.skips(r.target) {
			return goOn, nil, nil
		}
		v, by, at := f.run(r.target)
		if v == giveBack {
			return goOn, nil, nil
		}
		return v, by, at
	case translate:
		f.nat.chain = c
		return f.nat.apply(f, r.nat, r.id), c, r
	}
	return r.verb, c, r
}

// skips reports whether a jump leads nowhere, or to a chain already evaluated in this filter.
func (f *filters) skips(t *chain) bool {
	for _, c := range f.visited {
		if c == t {
			return true
		}
	}
	return t.def == nil
}

// matches evaluates a condition on the packet (midonet-topology §3.3). The fragment policy comes
// first and is never inverted; the connection is looked up last, only where it decides. Rules of
// NAT see a fragment as it is.
func (f *filters) matches(c *condition) bool {
	p := f.now
	recalled := false
	if c.frags>>p.Frag&1 == 0 {
		if p.Frag != packet.FragLater || c.frags != withHeader || c.ofNAT || f.generated || !f.tracker.remembers() {
			return false
		}
		recalled = true // its first fragment passed: a rule on headers sees those of the first
	}
	return f.conjunction(c, p, recalled) != c.negated
}

func (f *filters) conjunction(c *condition, p *packet.Frame, recalled bool) bool {
	set := c.set
	if set&onType != 0 && (p.EtherType == c.etherType) == c.inverts(onType) {
		return false
	}
	if set&onProto != 0 && protocolIs(p, c.proto) == c.inverts(onProto) {
		return false
	}
	if set&(onTpSrc|onTpDst) != 0 && !f.portsMatch(c, p, recalled) {
		return false
	}
	f.read |= set & onSrcIP
	if set&onSrcIP != 0 && c.srcIP.Contains(p.SrcIP) == c.inverts(onSrcIP) {
		return false
	}
	f.read |= set & onDstIP
	if set&onDstIP != 0 && c.dstIP.Contains(p.DstIP) == c.inverts(onDstIP) {
		return false
	}
	f.read |= set
	if set&onSrcMAC != 0 && (macBits(p.Src)&c.srcMask == c.srcMAC) == c.inverts(onSrcMAC) {
		return false
	}
	if set&onSrcGroup != 0 && f.lookUp(c.srcGroup, p.SrcIP) == c.inverts(onSrcGroup) {
		return false
	}
	if set&onDstGroup != 0 && f.lookUp(c.dstGroup, p.DstIP) == c.inverts(onDstGroup) {
		return false
	}
	if set&rare != 0 && !f.rareMatch(c, p) {
		return false
	}
	if set&onReturn != 0 && !f.isReturn() {
		return false
	}
	return set&onForward == 0 || !f.isReturn()
}

// lookUp reports whether a is a member of g. What rests on a question's answer is no flow, and is
// stopped by its port alone.
func (f *filters) lookUp(g *group, a netip.Addr) bool {
	switch {
	case !a.IsValid():
		return false
	case f.isQuestion():
		g.questions.note(a)
	default:
		g.lookups.note(a)
		if !slices.Contains(f.dec.lookups, a) {
			f.dec.lookups = append(f.dec.lookups, a)
		}
	}
	return g.contains(a)
}

func (f *filters) isReturn() bool { return f.generated || f.tracker.isReturn() }

// rare are the clauses that few rules have.
const rare = onInPort | onOutPort | onDstMAC | onTOS | onTarget | onNoVLAN | onVLAN | onLinkOwn | onPortGroup | onInGroup | onOutGroup | onRewritten | onSameScope

func (f *filters) rareMatch(c *condition, p *packet.Frame) bool {
	set := c.set
	if set&onInPort != 0 && among(c.inPorts, f.inPort) == c.inverts(onInPort) {
		return false
	}
	if set&onOutPort != 0 && among(c.outPorts, f.outPort) == c.inverts(onOutPort) {
		return false
	}
	if set&onDstMAC != 0 && (macBits(p.Dst)&c.dstMask == c.dstMAC) == c.inverts(onDstMAC) {
		return false
	}
	if set&onTOS != 0 {
		f.usedTOS = true
		if (p.IsIP() && p.TOS == c.tos) == c.inverts(onTOS) {
			return false
		}
	}
	if set&onTarget != 0 && c.target.Contains(p.NDTarget) == c.inverts(onTarget) {
		return false
	}
	if set&onLinkOwn != 0 && p.NDForeign {
		return false
	}
	if set&(onPortGroup|onInGroup|onOutGroup|onRewritten|onSameScope) != 0 && !f.devicesMatch(c) {
		return false
	}
	if set&onNoVLAN != 0 && p.VLANs != 0 {
		return false
	}
	return set&onVLAN == 0 || p.VLANs > 0 && p.VLAN == c.vlan
}

// devicesMatch evaluates the clauses on port groups, and on what the device did to the packet.
func (f *filters) devicesMatch(c *condition) bool {
	set := c.set
	if set&onPortGroup != 0 && c.portGroup.has(f.entry) == c.inverts(onPortGroup) {
		return false
	}
	if set&onInGroup != 0 && c.inGroup.has(f.inPort) == c.inverts(onInGroup) {
		return false
	}
	if set&onOutGroup != 0 && c.outGroup.has(f.outPort) == c.inverts(onOutGroup) {
		return false
	}
	if set&onSameScope != 0 && (f.outPort == nil || addressScope(f.inPort, f.now.DstIP) == "" ||
		addressScope(f.inPort, f.now.DstIP) != addressScope(f.outPort, f.now.DstIP)) {
		return false
	}
	return set&onRewritten == 0 || f.dstRewritten
}

// addressScope returns the address scope that port p of a router has for addresses like a; "" for
// none.
func addressScope(p *port, a netip.Addr) string {
	switch {
	case p == nil || p.def == nil:
		return ""
	case a.Is4():
		return p.def.AddressScope4
	}
	return p.def.AddressScope6
}

// has reports whether p, if any, is in the group.
func (g *portGroup) has(p *port) bool {
	if p != nil {
		for _, x := range p.groups {
			if x == g {
				return true
			}
		}
	}
	return false
}

func (c *condition) inverts(bit clause) bool { return c.inverted&bit != 0 }

// among reports whether p, if any, is one of ports.
func among(ports []*port, p *port) bool {
	for _, x := range ports {
		if x == p {
			return p != nil && p.def != nil
		}
	}
	return false
}

// protocolIs compares the IP protocol; ARP has its operation in that place.
func protocolIs(f *packet.Frame, proto uint8) bool {
	switch {
	case f.IsIP():
		return f.Proto == proto
	case f.EtherType == packet.TypeARP:
		return f.ARPOp == uint16(proto)
	}
	return false
}

// portsMatch evaluates the clauses on ports. A packet without ports is in no range.
func (f *filters) portsMatch(c *condition, p *packet.Frame, recalled bool) bool {
	has, src, dst := p.HasTp, p.TpSrc, p.TpDst
	if recalled {
		has, src, dst = f.tracker.recall.hasTp, f.tracker.recall.tpSrc, f.tracker.recall.tpDst
	}
	f.usedPorts = true
	if c.set&onTpSrc != 0 && (has && c.tpSrc.has(src)) == c.inverts(onTpSrc) {
		return false
	}
	return c.set&onTpDst == 0 || (has && c.tpDst.has(dst)) != c.inverts(onTpDst)
}
