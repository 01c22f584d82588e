package simulate

import (
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// filter applies a device's filter (midonet-simulation §4) and says whether the packet passes. No chain lets everything
// pass; a chain that is named but not there lets nothing pass, until it comes.
func (s *Simulator) filter(device, direction string, c *chain) bool {
	if c == nil {
		return true
	}
	if c.def == nil {
		s.errorDrop(device, direction+" filter: chain "+c.id+" is not known")
		return false
	}
	s.visited = s.visited[:0]
	v, by, i := s.evaluate(c)
	switch v {
	case drop, reject, invalid: // a bridge and its ports answer nothing to what they reject
		s.denied(device, direction, by, i)
		return false
	}
	if s.in.Explain {
		s.accepted(device, direction, v, c, by, i)
	}
	return true
}

// accepted notes which rule let the packet pass.
func (s *Simulator) accepted(device, direction string, v verb, c, by *chain, i int) {
	step := flow.Step{Device: device, Chain: c.id, Text: direction + " filter " + c.label() + ": no rule denies"}
	if v != goOn {
		step.Chain, step.Rule = by.id, by.rules[i].id
		step.Text = direction + " filter: accepted by chain " + by.label()
	}
	s.dec.Walk = append(s.dec.Walk, step)
}

// evaluate runs the rules of a chain. A result other than goOn comes with the chain and the rule that decided.
func (s *Simulator) evaluate(c *chain) (verb, *chain, int) {
	s.visited = append(s.visited, c)
	for i := range c.rules {
		r := &c.rules[i]
		if !s.matches(&r.condition) {
			continue
		}
		switch r.verb {
		case goOn:
		case jump:
			if s.skips(r.target) {
				continue
			}
			v, by, at := s.evaluate(r.target)
			if v != goOn && v != giveBack {
				return v, by, at
			}
		default:
			return r.verb, c, i
		}
	}
	return goOn, nil, 0
}

// skips says whether a jump to t leads nowhere: t is not there, or has been evaluated in this filter already (which
// breaks cycles).
func (s *Simulator) skips(t *chain) bool {
	for _, c := range s.visited {
		if c == t {
			return true
		}
	}
	return t.def == nil
}

// matches evaluates a condition on the packet (midonet-topology §3.3). The fragment policy comes first and is not
// inverted by anything; the question about the connection comes last, so that it is asked only where it decides.
func (s *Simulator) matches(c *condition) bool {
	f := s.now
	recalled := false
	if c.frags>>f.Frag&1 == 0 {
		if f.Frag != packet.FragLater || c.frags != withHeader || !s.remembers() {
			return false
		}
		recalled = true // its first fragment passed: a rule on headers sees those of the first
	}
	return s.conjunction(c, f, recalled) != c.negated
}

func (s *Simulator) conjunction(c *condition, f *packet.Frame, recalled bool) bool {
	set := c.set
	if set&onType != 0 && (f.EtherType == c.etherType) == c.inverts(onType) {
		return false
	}
	if set&onProto != 0 && protocolIs(f, c.proto) == c.inverts(onProto) {
		return false
	}
	if set&(onTpSrc|onTpDst) != 0 && !s.portsMatch(c, f, recalled) {
		return false
	}
	s.read |= set & onSrcIP
	if set&onSrcIP != 0 && c.srcIP.Contains(f.SrcIP) == c.inverts(onSrcIP) {
		return false
	}
	s.read |= set & onDstIP
	if set&onDstIP != 0 && c.dstIP.Contains(f.DstIP) == c.inverts(onDstIP) {
		return false
	}
	s.read |= set
	if set&onSrcMAC != 0 && (macBits(f.Src)&c.srcMask == c.srcMAC) == c.inverts(onSrcMAC) {
		return false
	}
	if set&onSrcGroup != 0 && c.srcGroup.contains(f.SrcIP) == c.inverts(onSrcGroup) {
		return false
	}
	if set&onDstGroup != 0 && c.dstGroup.contains(f.DstIP) == c.inverts(onDstGroup) {
		return false
	}
	if set&rare != 0 && !s.rareMatch(c, f) {
		return false
	}
	if set&onReturn != 0 && !s.isReturn() {
		return false
	}
	return set&onForward == 0 || !s.isReturn()
}

// rare are the clauses that few rules have.
const rare = onInPort | onOutPort | onDstMAC | onTOS | onTarget | onNoVLAN | onVLAN | onLinkOwn

func (s *Simulator) rareMatch(c *condition, f *packet.Frame) bool {
	set := c.set
	if set&onInPort != 0 && among(c.inPorts, s.inPort) == c.inverts(onInPort) {
		return false
	}
	if set&onOutPort != 0 && among(c.outPorts, s.outPort) == c.inverts(onOutPort) {
		return false
	}
	if set&onDstMAC != 0 && (macBits(f.Dst)&c.dstMask == c.dstMAC) == c.inverts(onDstMAC) {
		return false
	}
	if set&onTOS != 0 {
		s.unkeyed = true // no flow is keyed by it
		if (f.IsIP() && f.TOS == c.tos) == c.inverts(onTOS) {
			return false
		}
	}
	if set&onTarget != 0 && c.target.Contains(f.NDTarget) == c.inverts(onTarget) {
		return false
	}
	if set&onLinkOwn != 0 && f.NDForeign {
		return false
	}
	if set&onNoVLAN != 0 && f.VLANs != 0 {
		return false
	}
	return set&onVLAN == 0 || f.VLANs > 0 && f.VLAN == c.vlan
}

func (c *condition) inverts(bit clause) bool { return c.inverted&bit != 0 }

// among says whether p is one of ports; no port is none of them.
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

// portsMatch evaluates the clauses on ports. A packet without ports is in no range: it fails the clause, and meets its
// inversion.
func (s *Simulator) portsMatch(c *condition, f *packet.Frame, recalled bool) bool {
	has, src, dst := f.HasTp, f.TpSrc, f.TpDst
	if recalled {
		has, src, dst = s.recall.hasTp, s.recall.tpSrc, s.recall.tpDst
	}
	s.usedPorts = true
	if c.set&onTpSrc != 0 && (has && c.tpSrc.has(src)) == c.inverts(onTpSrc) {
		return false
	}
	return c.set&onTpDst == 0 || (has && c.tpDst.has(dst)) != c.inverts(onTpDst)
}
