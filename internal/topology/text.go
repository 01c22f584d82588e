package topology

import (
	"fmt"
	"net/netip"
	"strings"

	"heddle/internal/topology/packet"
)

// String says a rule in words, such as "accept IPv4, TCP, to port 80".
func (r *Rule) String() string {
	action := strings.ToLower(r.Action)
	if r.Type == Jump {
		action = "jump to " + r.JumpChainName
		if r.JumpChainName == "" {
			action = "jump to " + r.JumpChainID
		}
	}
	between := " "
	if r.Type == NAT {
		action, between = r.translation()+" and "+action, ", "
		if r.Limits != nil {
			action += " within the limits " + r.Limits.LimitsID
		}
	}
	if r.Action == Redirect {
		action = "redirect to port " + r.TargetPortID
	}
	if r.Condition == nil {
		return action
	}
	if c := r.Condition.String(); c != "" {
		return action + between + c
	}
	return action
}

// translation returns the words for a NAT rule, such as "SNAT to 203.0.113.9:1024–65535".
func (r *Rule) translation() string {
	kind := "SNAT"
	if r.Dnat {
		kind = "DNAT"
	}
	if r.Reverse {
		return "reverse " + kind
	}
	var targets []string
	for _, t := range r.NatTargets {
		targets = append(targets, t.String())
	}
	return kind + " to " + strings.Join(targets, " or ")
}

// String is "192.0.2.1", "192.0.2.1–192.0.2.9", "192.0.2.1:1024–65535" or "192.0.2.1:22–29, of
// ports from 2022 on".
func (t NatTarget) String() string {
	text := t.NwStart.String()
	if t.NwEnd != t.NwStart {
		text += "–" + t.NwEnd.String()
	}
	if t.TpStart == 0 && t.TpEnd == 0 {
		return text
	}
	text += ":" + Range{&t.TpStart, &t.TpEnd}.String()
	if t.TpFrom != 0 {
		text += fmt.Sprintf(", of ports from %d on", t.TpFrom)
	}
	return text
}

// String says a condition in words, its clauses joined by commas; "" matches everything.
func (c *Condition) String() string {
	var s clauses
	s.add(c.MatchReturnFlow, false, "replies")
	s.add(c.MatchForwardFlow, false, "no replies")
	s.add(c.DlType != 0, c.InvDlType, etherName(c.DlType))
	if c.NwProto != nil {
		s.add(true, c.NwProtoInv, protocolName(*c.NwProto, c.DlType))
	}
	s.addMAC("from", c.DlSrc, c.DlSrcMask, c.InvDlSrc)
	s.addMAC("to", c.DlDst, c.DlDstMask, c.InvDlDst)
	s.addPrefix("from", c.NwSrcIP, c.NwSrcInv)
	s.addPrefix("to", c.NwDstIP, c.NwDstInv)
	s.add(c.IPAddrGroupIDSrc != "", c.InvIPAddrGroupSrc, "from group "+c.IPAddrGroupIDSrc)
	s.add(c.IPAddrGroupIDDst != "", c.InvIPAddrGroupDst, "to group "+c.IPAddrGroupIDDst)
	icmp := c.NwProto != nil && (*c.NwProto == 1 || *c.NwProto == 58)
	s.addRange("from port", "type", icmp, c.TpSrc, c.TpSrcInv)
	s.addRange("to port", "code", icmp, c.TpDst, c.TpDstInv)
	s.addPrefix("about", c.NdTargetIP, c.NdTargetInv)
	s.add(c.NdLinkOwn, false, "link-layer options of its own")
	if c.NwTos != nil {
		s.add(true, c.NwTosInv, fmt.Sprintf("type of service %d", *c.NwTos))
	}
	s.add(len(c.InPortIDs) > 0, c.InPortInv, "by port "+strings.Join(c.InPortIDs, " or "))
	s.add(len(c.OutPortIDs) > 0, c.OutPortInv, "for port "+strings.Join(c.OutPortIDs, " or "))
	s.add(c.PortGroupID != "", c.InvPortGroup, "from port group "+c.PortGroupID)
	s.add(c.InPortGroupID != "", c.InvInPortGroup, "by port group "+c.InPortGroupID)
	s.add(c.OutPortGroupID != "", c.InvOutPortGroup, "for port group "+c.OutPortGroupID)
	s.add(c.MatchNwDstRewritten, false, "destination translated")
	s.add(c.MatchSameAddressScope, false, "within an address scope")
	s.add(c.NoVlan, false, "untagged")
	s.add(c.Vlan != 0, false, fmt.Sprintf("VLAN %d", c.Vlan))
	if c.ConjunctionInv { // the fragment policy stands outside (midonet-topology §3.3)
		s = clauses{"not (" + strings.Join(s, ", ") + ")"}
	}
	policy := map[string]string{FragHeader: "with a header", FragNonHeader: "later fragments",
		FragUnfragmented: "unfragmented", "": "unfragmented"}[c.FragmentPolicy]
	s.add(policy != "", false, policy)
	return strings.Join(s, ", ")
}

// clauses collects the words of a condition.
type clauses []string

func (s *clauses) add(set, inverted bool, words string) {
	if !set {
		return
	}
	if inverted {
		words = "not " + words
	}
	*s = append(*s, words)
}

func (s *clauses) addPrefix(word string, p *netip.Prefix, inverted bool) {
	if p == nil {
		return
	}
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	s.add(true, inverted, word+" "+text)
}

func (s *clauses) addMAC(word string, m, mask *packet.MAC, inverted bool) {
	if m == nil {
		return
	}
	text := word + " MAC " + m.String()
	if mask != nil {
		text += "/" + mask.String()
	}
	s.add(true, inverted, text)
}

func (s *clauses) addRange(word, icmpWord string, icmp bool, r *Range, inverted bool) {
	if r == nil {
		return
	}
	if icmp {
		word = icmpWord
	}
	s.add(true, inverted, word+" "+r.String())
}

// String is "80", "80–90", "80 or more", "90 or less" or "any".
func (r Range) String() string {
	switch {
	case r.Low == nil && r.High == nil:
		return "any"
	case r.Low == nil:
		return fmt.Sprintf("%d or less", *r.High)
	case r.High == nil:
		return fmt.Sprintf("%d or more", *r.Low)
	case *r.Low == *r.High:
		return fmt.Sprint(*r.Low)
	}
	return fmt.Sprintf("%d–%d", *r.Low, *r.High)
}

func etherName(t uint16) string {
	names := map[uint16]string{packet.TypeIPv4: "IPv4", packet.TypeARP: "ARP", packet.TypeIPv6: "IPv6"}
	if name, ok := names[t]; ok {
		return name
	}
	return fmt.Sprintf("EtherType %#04x", t)
}

// protocolName names a protocol; of ARP the number is the operation.
func protocolName(n uint8, dlType uint16) string {
	names := map[uint8]string{packet.ProtoICMP: "ICMP", packet.ProtoTCP: "TCP", packet.ProtoUDP: "UDP",
		packet.ProtoICMPv6: "ICMPv6", packet.ProtoSCTP: "SCTP"}
	if dlType == packet.TypeARP {
		return fmt.Sprintf("operation %d", n)
	}
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("protocol %d", n)
}
