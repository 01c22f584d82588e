package simulate

import "heddle/internal/topology/packet"

// filters evaluates the filters of devices on one packet.
type filters struct {
	dec     *record
	tracker *tracker

	now             *packet.Frame // the packet: as it came in, or an answer of the virtual network
	generated       bool          // it is an answer, which counts as return flow
	inPort, outPort *port         // of the device that it is in
	visited         []*chain      // by the filter being evaluated

	read      clause // clauses that were evaluated on the packet
	usedPorts bool   // a result rests on ports
	usedTOS   bool   // a result rests on the type of service, by which no flow is keyed
}

// reset begins with a packet: one that came in, or an answer to it, sent out of a port.
func (f *filters) reset(packet *packet.Frame, answerTo *port) {
	f.now, f.generated, f.inPort, f.outPort, f.read = packet, answerTo != nil, nil, answerTo, 0
	if answerTo == nil {
		f.usedPorts, f.usedTOS = false, false
	}
}

// pass applies a device's filter (midonet-simulation §4), and reports whether the packet passes.
// Without a chain everything does; while the chain is missing nothing does.
func (f *filters) pass(device, direction string, c *chain) bool {
	if c == nil {
		return true
	}
	if c.def == nil {
		f.dec.errorDrop(device, direction+" filter: chain "+c.id+" is not known")
		return false
	}
	f.visited = f.visited[:0]
	v, by, i := f.evaluate(c)
	switch v {
	case drop, reject, invalid: // a bridge and its ports answer nothing to what they reject
		f.dec.denied(device, direction, by, i)
		return false
	}
	if f.dec.explain {
		f.dec.accepted(device, direction, v, c, by, i)
	}
	return true
}

// evaluate runs a chain. A result other than goOn comes with the chain and the rule that decided.
func (f *filters) evaluate(c *chain) (verb, *chain, int) {
	f.visited = append(f.visited, c)
	for i := range c.rules {
		r := &c.rules[i]
		if !f.matches(&r.condition) {
			continue
		}
		switch r.verb {
		case goOn:
		case jump:
			if f.skips(r.target) {
				continue
			}
			v, by, at := f.evaluate(r.target)
			if v != goOn && v != giveBack {
				return v, by, at
			}
		default:
			return r.verb, c, i
		}
	}
	return goOn, nil, 0
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
// first and is never inverted; the connection is looked up last, only where it decides.
func (f *filters) matches(c *condition) bool {
	p := f.now
	recalled := false
	if c.frags>>p.Frag&1 == 0 {
		if p.Frag != packet.FragLater || c.frags != withHeader || f.generated || !f.tracker.remembers() {
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
	if set&onSrcGroup != 0 && c.srcGroup.contains(p.SrcIP) == c.inverts(onSrcGroup) {
		return false
	}
	if set&onDstGroup != 0 && c.dstGroup.contains(p.DstIP) == c.inverts(onDstGroup) {
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

func (f *filters) isReturn() bool { return f.generated || f.tracker.isReturn() }

// rare are the clauses that few rules have.
const rare = onInPort | onOutPort | onDstMAC | onTOS | onTarget | onNoVLAN | onVLAN | onLinkOwn

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
	if set&onNoVLAN != 0 && p.VLANs != 0 {
		return false
	}
	return set&onVLAN == 0 || p.VLANs > 0 && p.VLAN == c.vlan
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
