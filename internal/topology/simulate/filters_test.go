package simulate

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// filtered is threeOpen with the given rules as the in filter of p1, and more chains beside.
func filtered(rules []topology.Rule, chains ...topology.Chain) *lab {
	l := threeOpen()
	b := open(1).bundle()
	b.Chains = append([]topology.Chain{{ID: "p1/in", Name: "IN", Rules: rules}, {ID: "p1/out"}}, chains...)
	l.Apply(open(1).owner(), b)
	return l
}

func rulesOf(r ...topology.Rule) []topology.Rule { return r }

func TestChains(t *testing.T) {
	t.Parallel()
	always := topology.Condition{}
	acceptAll, dropAll := literal("accept", topology.Accept, always), literal("drop", topology.Drop, always)
	returnAll, rejectAll := literal("return", topology.Return, always), literal("reject", topology.Reject, always)
	goOnAll := literal("continue", topology.Continue, always)
	chain := func(id string, r ...topology.Rule) topology.Chain { return topology.Chain{ID: id, Rules: r} }
	for _, c := range []struct {
		name    string
		rules   []topology.Rule
		chains  []topology.Chain
		verdict flow.Verdict
		by      string
	}{
		{"empty", nil, nil, flow.Forward, ""},
		{"accept ends", rulesOf(acceptAll, dropAll), nil, flow.Forward, ""},
		{"return ends as accept", rulesOf(returnAll, dropAll), nil, flow.Forward, ""},
		{"drop", rulesOf(dropAll, acceptAll), nil, flow.Drop, "drop"},
		{"reject drops", rulesOf(rejectAll), nil, flow.Drop, "reject"},
		{"continue goes on", rulesOf(goOnAll, dropAll), nil, flow.Drop, "drop"},
		{"no condition matches", rulesOf(topology.Rule{ID: "bare", Type: topology.Literal, Action: topology.Drop}), nil, flow.Drop, "bare"},
		{"jump, accept is final", rulesOf(jumpTo("j", "x"), dropAll), []topology.Chain{chain("x", acceptAll)}, flow.Forward, ""},
		{"jump, drop is final", rulesOf(jumpTo("j", "x"), acceptAll), []topology.Chain{chain("x", dropAll)}, flow.Drop, "drop"},
		{"jump, return goes on", rulesOf(jumpTo("j", "x"), rejectAll), []topology.Chain{chain("x", returnAll, dropAll)}, flow.Drop, "reject"},
		{"jump, end goes on", rulesOf(jumpTo("j", "x"), rejectAll), []topology.Chain{chain("x")}, flow.Drop, "reject"},
		{"jump to nowhere goes on", rulesOf(jumpTo("j", "nowhere"), rejectAll), nil, flow.Drop, "reject"},
		{"cycle is broken", rulesOf(jumpTo("j", "x"), rejectAll), []topology.Chain{chain("x", jumpTo("k", "p1/in"), jumpTo("l", "x"))}, flow.Drop, "reject"},
		{"second visit goes on", rulesOf(jumpTo("j", "x"), jumpTo("k", "x"), rejectAll), []topology.Chain{chain("x", returnAll)}, flow.Drop, "reject"},
		{"unknown type", rulesOf(topology.Rule{ID: "new", Type: "NAT", Action: topology.Accept}), nil, flow.ErrorDrop, "new"},
		{"unknown action", rulesOf(topology.Rule{ID: "new", Type: topology.Literal, Action: "REDIRECT"}), nil, flow.ErrorDrop, "new"},
	} {
		d := filtered(c.rules, c.chains...).send("p1", tcp(1, 2, 4000, 80))
		by := ""
		if len(d.Drops) > 0 {
			by = d.Drops[0].Rule
		}
		if d.Verdict != c.verdict || by != c.by {
			t.Errorf("%s: got %v by %q, want %v by %q\n%s", c.name, d.Verdict, by, c.verdict, c.by, walk(d))
		}
	}
}

func TestMissingFilterDeniesUntilItComes(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	b := open(2).bundle()
	chains := b.Chains
	b.Chains = nil
	l.Apply(open(2).owner(), b)
	expect(t, l.send("p1", tcp(1, 2, 1, 2)), flow.ErrorDrop)
	if got := l.Apply(owner("chains", "of p2"), &topology.Bundle{Chains: chains}); len(got) != 1 || got[0] != "p2" {
		t.Errorf("touched %v, want p2", got)
	}
	expect(t, l.send("p1", tcp(1, 2, 1, 2)), flow.Forward, "p2")
}

func TestConditions(t *testing.T) {
	t.Parallel()
	prefix := func(s string) *netip.Prefix { return ptr(netip.MustParsePrefix(s)) }
	span := func(low, high uint16) *topology.Range { return &topology.Range{Low: &low, High: &high} }
	tcp80 := tcp(1, 2, 4000, 80)
	udp := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoUDP, TOS: 8}, packet.UDP{SrcPort: 4000, DstPort: 80}.Append(nil, addr(1), addr(2), nil))
	gre := ipv4(1, 2, packet.IPv4{Proto: 47}, []byte{0, 0, 8, 0})
	ping := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoICMP}, packet.ICMP{Type: 8, Rest: packet.EchoRest(7, 1)}.Append(nil, nil))
	arpReply := arp(mac(2), packet.ARP{Op: packet.ARPReply, SHA: mac(1), SPA: addr(1), THA: mac(2), TPA: addr(2)})
	first := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoTCP, ID: 5, MoreFragments: true}, tcp80[34:])
	later := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoTCP, ID: 5, Offset: 3}, make([]byte, 16))
	lldp := append(packet.Ethernet{Dst: mac(2), Src: mac(1), Type: 0x88cc}.Append(nil), 1, 2)
	tagged := append(packet.Ethernet{Dst: mac(2), Src: mac(1), Tagged: true, VLAN: 5, Type: packet.TypeIPv4}.Append(nil), tcp80[14:]...)
	na := packet.NeighborAdvert(mac(2), mac(1), addr6(2), addr6(1), packet.NDSolicited)
	oui := packet.MAC{0xff, 0xff, 0xff}
	type cond = topology.Condition
	for _, c := range []struct {
		name  string
		c     cond
		frame []byte
		match bool
	}{
		{"type", cond{DlType: packet.TypeIPv4}, tcp80, true},
		{"type, other", cond{DlType: packet.TypeIPv6}, tcp80, false},
		{"type inverted", cond{DlType: packet.TypeARP, InvDlType: true}, tcp80, true},
		{"inversion of an unset clause", cond{InvDlType: true, NwSrcInv: true, TpDstInv: true}, tcp80, true},
		{"type behind a tag", cond{DlType: packet.TypeIPv4}, tagged, true},
		{"source", cond{NwSrcIP: prefix("10.0.0.0/24")}, tcp80, true},
		{"source inverted", cond{NwSrcIP: prefix("10.0.0.0/24"), NwSrcInv: true}, tcp80, false},
		{"source of ARP", cond{NwSrcIP: prefix("10.0.0.1/32")}, arpReply, true},
		{"destination of ARP", cond{NwDstIP: prefix("10.0.0.2/32")}, arpReply, true},
		{"source, none", cond{NwSrcIP: prefix("0.0.0.0/0")}, lldp, false},
		{"source, none, inverted", cond{NwSrcIP: prefix("0.0.0.0/0"), NwSrcInv: true}, lldp, true},
		{"source of another family", cond{NwSrcIP: prefix("::/0")}, tcp80, false},
		{"destination", cond{NwDstIP: prefix("10.0.0.2/32")}, tcp80, true},
		{"protocol", cond{NwProto: ptr(packet.ProtoTCP)}, tcp80, true},
		{"protocol inverted", cond{NwProto: ptr(packet.ProtoTCP), NwProtoInv: true}, udp, true},
		{"protocol of ARP is the operation", cond{DlType: packet.TypeARP, NwProto: ptr(uint8(2))}, arpReply, true},
		{"protocol, none", cond{NwProto: ptr(uint8(0))}, lldp, false},
		{"TOS", cond{NwTos: ptr(uint8(8))}, udp, true},
		{"TOS inverted", cond{NwTos: ptr(uint8(8)), NwTosInv: true}, udp, false},
		{"TOS, none", cond{NwTos: ptr(uint8(0))}, arpReply, false},
		{"ports", cond{TpSrc: span(4000, 4001), TpDst: span(80, 80)}, tcp80, true},
		{"port outside", cond{TpDst: span(81, 90)}, tcp80, false},
		{"port outside, inverted", cond{TpDst: span(81, 90), TpDstInv: true}, tcp80, true},
		{"open low end", cond{TpDst: &topology.Range{High: ptr(uint16(100))}}, tcp80, true},
		{"open high end", cond{TpDst: &topology.Range{Low: ptr(uint16(100))}}, tcp80, false},
		{"ports, none", cond{TpDst: span(0, 65535)}, gre, false},
		{"ports, none, inverted", cond{TpDst: span(0, 65535), TpDstInv: true}, gre, true},
		{"ports of a later fragment", cond{TpDst: span(0, 65535)}, later, false},
		{"ICMP type and code", cond{TpSrc: span(8, 8), TpDst: span(0, 0)}, ping, true},
		{"source MAC", cond{DlSrc: ptr(mac(1))}, tcp80, true},
		{"source MAC inverted", cond{DlSrc: ptr(mac(1)), InvDlSrc: true}, tcp80, false},
		{"source MAC masked", cond{DlSrc: &packet.MAC{0xfa, 0x16, 0x3e, 9, 9, 9}, DlSrcMask: &oui}, tcp80, true},
		{"destination MAC", cond{DlDst: ptr(mac(2))}, tcp80, true},
		{"destination MAC, other", cond{DlDst: ptr(mac(3))}, tcp80, false},
		{"in port", cond{InPortIDs: []string{"p2", "p1"}}, tcp80, true},
		{"in port inverted", cond{InPortIDs: []string{"p1"}, InPortInv: true}, tcp80, false},
		{"in port that is gone", cond{InPortIDs: []string{"gone"}}, tcp80, false},
		{"in port that is gone, inverted", cond{InPortIDs: []string{"gone"}, InPortInv: true}, tcp80, true},
		{"out port on the way in", cond{OutPortIDs: []string{"p2"}}, tcp80, false},
		{"out port on the way in, inverted", cond{OutPortIDs: []string{"p2"}, OutPortInv: true}, tcp80, true},
		{"group", cond{IPAddrGroupIDSrc: "g"}, tcp80, true},
		{"group by prefix", cond{IPAddrGroupIDDst: "g"}, tcp80, true},
		{"group inverted", cond{IPAddrGroupIDSrc: "g", InvIPAddrGroupSrc: true}, tcp80, false},
		{"group that is gone", cond{IPAddrGroupIDSrc: "gone"}, tcp80, false},
		{"group that is gone, inverted", cond{IPAddrGroupIDSrc: "gone", InvIPAddrGroupSrc: true}, tcp80, true},
		{"no tag", cond{NoVlan: true}, tcp80, true},
		{"no tag, tagged", cond{NoVlan: true}, tagged, false},
		{"tag", cond{Vlan: 5}, tagged, true},
		{"tag, other", cond{Vlan: 6}, tagged, false},
		{"tag, untagged", cond{Vlan: 5}, tcp80, false},
		{"ND target", cond{NdTargetIP: prefix("2001:db8::/32")}, na, true},
		{"ND target, none", cond{NdTargetIP: prefix("::/0")}, tcp80, false},
		{"ND target, none, inverted", cond{NdTargetIP: prefix("::/0"), NdTargetInv: true}, tcp80, true},
		{"conjunction", cond{DlType: packet.TypeIPv4, NwProto: ptr(packet.ProtoUDP)}, tcp80, false},
		{"conjunction negated", cond{DlType: packet.TypeIPv4, NwProto: ptr(packet.ProtoUDP), ConjunctionInv: true}, tcp80, true},
		{"forward flow", cond{MatchForwardFlow: true}, tcp80, true},
		{"return flow", cond{MatchReturnFlow: true}, tcp80, false},
		{"forward flow without addresses", cond{MatchForwardFlow: true}, lldp, true},
		{"any, first", cond{FragmentPolicy: topology.FragAny}, first, true},
		{"header, first", cond{FragmentPolicy: topology.FragHeader}, first, true},
		{"header, later", cond{FragmentPolicy: topology.FragHeader}, later, false},
		{"header, later, negated", cond{FragmentPolicy: topology.FragHeader, ConjunctionInv: true}, later, false},
		{"nonheader, later", cond{FragmentPolicy: topology.FragNonHeader}, later, true},
		{"nonheader, first", cond{FragmentPolicy: topology.FragNonHeader}, first, false},
		{"nonheader, whole", cond{FragmentPolicy: topology.FragNonHeader}, tcp80, false},
		{"unfragmented, whole", cond{FragmentPolicy: topology.FragUnfragmented}, tcp80, true},
		{"unfragmented, first", cond{FragmentPolicy: topology.FragUnfragmented}, first, false},
		{"an unset policy is unfragmented", cond{FragmentPolicy: "unset"}, first, false},
	} {
		l := filtered(rulesOf(literal("drop", topology.Drop, c.c)))
		l.Apply(owner("security-group", "g"), &topology.Bundle{IPAddrGroups: []topology.IPAddrGroup{{ID: "g"}}})
		l.Apply(owner("port", "members"), &topology.Bundle{Memberships: []topology.Membership{
			{GroupID: "g", PortID: "x", IPAddress: "10.0.0.1"}, {GroupID: "g", PortID: "x", IPAddress: "10.0.0.2/31"},
			{GroupID: "gone", PortID: "x", IPAddress: "10.0.0.1"}, {GroupID: "g", PortID: "x", IPAddress: "no address"}}})
		if d := l.send("p1", c.frame); (d.Verdict == flow.Drop) != c.match {
			t.Errorf("%s: matches %v, want %v\n%s", c.name, !c.match, c.match, walk(d))
		}
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	l := twoMachines()
	spoofed := ipv4(3, 2, packet.IPv4{Proto: 47}, []byte{0, 0, 0, 0})
	for _, c := range []struct {
		frame  []byte
		device string
		want   string
	}{
		{tcp(1, 2, 1, 22), "p2", "out filter: security group denies: chain OS_PORT_p2_OUTBOUND, rule 3 of 3: nothing before it accepted the packet"},
		{spoofed, "p1", "in filter: anti-spoofing denies this source address or MAC: chain OS_PORT_p1_ANTI_SPOOF"},
	} {
		d := l.send("p1", c.frame)
		if d.Device != c.device || !strings.HasPrefix(d.Reason, c.want) || d.Drops[0].Chain == "" || d.Drops[0].Rule == "" {
			t.Errorf("got %s: %q, want %s: %q", d.Device, d.Reason, c.device, c.want)
		}
		if d := l.sim.Run(Input{PortID: "p1", Frame: c.frame}); len(d.Walk) > 0 || d.Reason == "" {
			t.Errorf("unasked: walk %v, reason %q", d.Walk, d.Reason)
		}
	}
}
