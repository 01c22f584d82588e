package topology

import (
	"net/netip"
	"testing"

	"heddle/internal/topology/packet"
)

func TestRuleText(t *testing.T) {
	t.Parallel()
	number := func(n uint8) *uint8 { return &n }
	ports := func(low, high uint16) *Range { return &Range{&low, &high} }
	prefix := func(s string) *netip.Prefix { p := netip.MustParsePrefix(s); return &p }
	mac := packet.MAC{2, 0, 0, 0, 0, 1}
	for _, tt := range []struct {
		rule Rule
		want string
	}{
		{Rule{Type: Literal, Action: Drop}, "drop"},
		{Rule{Type: Literal, Action: Drop, Condition: &Condition{FragmentPolicy: FragAny}}, "drop"},
		{Rule{Type: Jump, Action: Jump, JumpChainID: "c1"}, "jump to c1"},
		{Rule{Type: L2Transform, Action: Redirect, TargetPortID: "p1", Condition: &Condition{NwProto: number(6), TpSrc: ports(179, 179), FragmentPolicy: FragUnfragmented}},
			"redirect to port p1 TCP, from port 179, unfragmented"},
		{Rule{Type: Jump, Action: Jump, JumpChainID: "c1", JumpChainName: "WEB"}, "jump to WEB"},
		{Rule{Type: Literal, Action: Accept, Condition: &Condition{MatchReturnFlow: true, FragmentPolicy: FragAny}}, "accept replies"},
		{Rule{Type: Literal, Action: Accept, Condition: &Condition{DlType: 0x800, NwProto: number(6), TpDst: ports(80, 443), FragmentPolicy: FragHeader}},
			"accept IPv4, TCP, to port 80–443, with a header"},
		{Rule{Type: Literal, Action: Accept, Condition: &Condition{NwProto: number(58), TpSrc: ports(135, 135), NdTargetIP: prefix("2001:db8::1/128"), FragmentPolicy: FragNonHeader}},
			"accept ICMPv6, type 135, about 2001:db8::1, later fragments"},
		{Rule{Type: Literal, Action: Return, Condition: &Condition{DlSrc: &mac, NwSrcIP: prefix("192.0.2.0/24"), NwSrcInv: true, InPortIDs: []string{"a", "b"}}},
			"return from MAC 02:00:00:00:00:01, not from 192.0.2.0/24, by port a or b, unfragmented"},
		{Rule{Type: Literal, Action: Drop, Condition: &Condition{DlType: 0x806, InvDlType: true, IPAddrGroupIDDst: "g", ConjunctionInv: true, FragmentPolicy: FragAny}},
			"drop not (not ARP, to group g)"},
		{Rule{Type: Literal, Action: Drop, Condition: &Condition{DlType: 0x806, NwProto: number(2), TpSrc: &Range{}, FragmentPolicy: FragAny}}, "drop ARP, operation 2, from port any"},
		{Rule{Type: NAT, Action: Accept, Dnat: true, NatTargets: []NatTarget{{NwStart: addr("10.0.0.5"), NwEnd: addr("10.0.0.5")}}}, "DNAT to 10.0.0.5 and accept"},
		{Rule{Type: NAT, Action: Accept, Dnat: true, NatTargets: []NatTarget{{addr("10.0.0.5"), addr("10.0.0.5"), 22, 29, 2022}}},
			"DNAT to 10.0.0.5:22–29, of ports from 2022 on and accept"},
		{Rule{Type: NAT, Action: Return, NatTargets: []NatTarget{{addr("192.0.2.1"), addr("192.0.2.1"), 1024, 65535, 0}, {addr("192.0.2.8"), addr("192.0.2.9"), 80, 80, 0}},
			Condition: &Condition{OutPortIDs: []string{"q"}}},
			"SNAT to 192.0.2.1:1024–65535 or 192.0.2.8–192.0.2.9:80 and return, for port q, unfragmented"},
		{Rule{Type: NAT, Action: Accept, Reverse: true, Condition: &Condition{MatchNwDstRewritten: true, FragmentPolicy: FragAny}},
			"reverse SNAT and accept, destination translated"},
		{Rule{Type: NAT, Action: Accept, Reverse: true, Dnat: true}, "reverse DNAT and accept"},
		{Rule{Type: Jump, Action: Jump, JumpChainID: "c", Condition: &Condition{InPortGroupID: "g", InvInPortGroup: true, OutPortGroupID: "h", PortGroupID: "x",
			ConjunctionInv: true, FragmentPolicy: FragAny}}, "jump to c not (from port group x, not by port group g, for port group h)"},
	} {
		if got := tt.rule.String(); got != tt.want {
			t.Errorf("%+v: %q; want %q", tt.rule, got, tt.want)
		}
	}
}
