package topology

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/topology/packet"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// world is two ports of one group on a network with a subnet, in the bundles of their owners.
func world() ([]Bundle, []Host, []TunnelZone) {
	rule := func(id, jump string, c *Condition) Rule {
		if jump != "" {
			return Rule{ID: id, Type: Jump, Action: Jump, JumpChainID: jump, Condition: c}
		}
		return Rule{ID: id, Type: Literal, Action: Accept, Condition: c}
	}
	port := func(id, ip string, mac byte) Bundle {
		m := packet.MAC{2, 0, 0, 0, 0, mac}
		h := DhcpHost{SubnetID: "s", PortID: id}
		h.MAC, h.IPAddress = m, addr(ip)
		return Bundle{
			Ports: []Port{{ID: id, NetworkID: "n", InboundFilterID: "in-" + id, HostID: "h1", InterfaceName: "tap" + id}},
			Chains: []Chain{{ID: "in-" + id, Rules: []Rule{
				rule("r1-"+id, "egress", nil), rule("r2-"+id, "gone", nil), rule("r3-"+id, "", nil)}}},
			MACs:        []MACEntry{{NetworkID: "n", MAC: m, PortID: id}},
			Neighbours:  []NeighbourEntry{{NetworkID: "n", IP: addr(ip), MAC: m}, {NetworkID: "n", IP: addr("fd00::" + id), MAC: m}},
			DhcpHosts:   []DhcpHost{h, {SubnetID: "gone", PortID: id}},
			Memberships: []Membership{{GroupID: "g", PortID: id, IPAddress: ip}, {GroupID: "g", PortID: id, IPAddress: "10.0.0.99"}, {GroupID: "gone", PortID: id}},
		}
	}
	bundles := []Bundle{
		{Networks: []Network{{ID: "n", AdminStateUp: true}}},
		{Dhcps: []Dhcp{{ID: "s", NetworkID: "n", SubnetAddress: netip.MustParsePrefix("10.0.0.0/24")}}},
		{
			Chains: []Chain{{ID: "egress", Rules: []Rule{
				rule("g2", "", &Condition{IPAddrGroupIDDst: "g"}), rule("g1", "", &Condition{IPAddrGroupIDDst: "g", IPAddrGroupIDSrc: "g"})}}},
			IPAddrGroups: []IPAddrGroup{{ID: "g", InboundChainID: "egress"}},
		},
		{MemberSets: []MemberSet{{GroupID: "g", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}}}},
		port("b", "10.0.0.10", 11),
		port("a", "10.0.0.9", 10),
	}
	hosts := []Host{{ID: "h1", Name: "one", Tunnels: []HostTunnel{{ZoneID: "z", IP: addr("192.0.2.1")}, {ZoneID: "gone", IP: addr("192.0.2.9")}}}}
	return bundles, hosts, []TunnelZone{{ID: "z", Name: "default", Type: "VXLAN"}}
}

func TestLink(t *testing.T) {
	t.Parallel()
	v := Link(world())
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"ports of the network", v.Networks["n"].PortIDs, []string{"a", "b"}},
		{"subnets of the network", v.Networks["n"].DhcpIDs, []string{"s"}},
		{"rules in order, without the jump to nowhere", v.Chains["in-a"].RuleIDs, []string{"r1-a", "r3-a"}},
		{"order of a group's rules is kept", v.Chains["egress"].RuleIDs, []string{"g2", "g1"}},
		{"no rules in place", v.Chains["egress"].Rules, []Rule(nil)},
		{"chain of a rule", v.Rules["r3-b"].ChainID, "in-b"},
		{"jumps to a chain", v.Chains["egress"].JumpRuleIDs, []string{"r1-a", "r1-b"}},
		{"ports that filter by a chain", v.Chains["in-b"].PortInboundIDs, []string{"b"}},
		{"rules that name a group, once each", v.IPAddrGroups["g"].RuleIDs, []string{"g1", "g2"}},
		{"members by number", v.IPAddrGroups["g"].IPAddrPorts, []IPAddrPorts{
			{"10.0.1.0/24", []string{""}}, {"10.0.0.9", []string{"a"}}, {"10.0.0.10", []string{"b"}}, {"10.0.0.99", []string{"a", "b"}}}},
		{"hosts of the subnet by number", []netip.Addr{v.Dhcps["s"].Hosts[0].IPAddress, v.Dhcps["s"].Hosts[1].IPAddress},
			[]netip.Addr{addr("10.0.0.9"), addr("10.0.0.10")}},
		{"ports of the host", v.Hosts["h1"].PortIDs, []string{"a", "b"}},
		{"zones of the host", v.Hosts["h1"].TunnelZoneIDs, []string{"z"}},
		{"hosts of the zone", v.TunnelZones["z"].Hosts, []TunnelZoneHost{{"h1", addr("192.0.2.1")}}},
		{"MAC table", v.Tables.MAC["n"][0], [][2]string{{"02:00:00:00:00:0a", "a"}, {"02:00:00:00:00:0b", "b"}}},
		{"ARP table", v.Tables.ARP["n"], [][2]string{{"10.0.0.9", "02:00:00:00:00:0a"}, {"10.0.0.10", "02:00:00:00:00:0b"}}},
		{"ND table", v.Tables.ND["n"], [][2]string{{"fd00::a", "02:00:00:00:00:0a"}, {"fd00::b", "02:00:00:00:00:0b"}}},
	} {
		if diff := cmp.Diff(tt.want, tt.got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}

// The view depends on what is there alone, and making it changes nothing.
func TestLinkAnyOrder(t *testing.T) {
	t.Parallel()
	text := func(x any) string {
		b, err := json.MarshalIndent(x, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	bundles, hosts, zones := world()
	bundles = append(bundles, routed()...)
	before, want := text(bundles), text(Link(bundles, hosts, zones))
	if after := text(bundles); after != before {
		t.Errorf("Link changed its input:\n%s", cmp.Diff(before, after))
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		random.Shuffle(len(bundles), func(i, j int) { bundles[i], bundles[j] = bundles[j], bundles[i] })
		if got := text(Link(bundles, hosts, zones)); got != want {
			t.Fatalf("another order of bundles gives another view:\n%s", cmp.Diff(want, got))
		}
	}
}

// routed is a router with ports on network n, two of which name one peer, with rules in its chain
// from several bundles, and with references to missing objects.
func routed() []Bundle {
	rule := func(id string) Rule { return Rule{ID: id, Type: Literal, Action: Accept} }
	at := func(place int, id string) RuleEntry { return RuleEntry{ChainID: "post", Place: place, Rule: rule(id)} }
	lost := at(5, "lost")
	lost.ChainID = "gone"
	toNowhere := at(1, "to-nowhere")
	toNowhere.Rule.Type, toNowhere.Rule.JumpChainID = Jump, "gone"
	floating := at(2, "z-floating")
	floating.Rule.FipPortID = "a"
	return []Bundle{
		{
			Routers: []Router{{ID: "r", InboundFilterID: "pre", OutboundFilterID: "post", ForwardChainID: "fwd", PortIDs: []string{"stale"}, RouteIDs: []string{"stale"}}},
			Chains:  []Chain{{ID: "pre"}, {ID: "post", Rules: []Rule{rule("o2"), rule("o1")}}, {ID: "fwd"}},
			PortGroups: []PortGroup{
				{ID: "group", PortIDs: []string{"stale"}}, {ID: "stateful", Stateful: true}},
			Routes: []Route{{ID: "blackhole", RouterID: "r", NextHop: HopBlackhole}, {ID: "no-router", RouterID: "gone", NextHop: HopReject}},
		},
		{
			Ports: []Port{
				{ID: "q1", RouterID: "r", PeerID: "p1", DhcpID: "s", PortGroupIDs: []string{"group", "gone"}, RouteIDs: []string{"stale"}},
				{ID: "p1", NetworkID: "n"}},
			Routes: []Route{
				{ID: "b-route", NextHop: HopPort, NextHopPortID: "q1", GatewayDhcpID: "s"}, {ID: "a-route", NextHop: HopLocal, NextHopPortID: "q1"},
				{ID: "no-port", NextHop: HopPort, NextHopPortID: "gone"}, {ID: "no-subnet", NextHop: HopPort, NextHopPortID: "q1", GatewayDhcpID: "gone"}},
			Rules: []RuleEntry{at(1, "e2"), at(1, "e1"), at(-1, "before"), lost, toNowhere},
		},
		{Ports: []Port{{ID: "q2", RouterID: "r", PeerID: "p1", DhcpID: "s6", PortGroupIDs: []string{"group"}}},
			DhcpV6s: []DhcpV6{{ID: "s6", NetworkID: "n", RouterIfPortID: "stale", GatewayRouteIDs: []string{"stale"}}},
			Routes:  []Route{{ID: "six", NextHop: HopPort, NextHopPortID: "q2", GatewayDhcpID: "s6"}},
			Rules:   []RuleEntry{floating, at(0, "same-place")}},
		{Ports: []Port{{ID: "q3", RouterID: "r", PeerID: "gone", DhcpID: "gone"}}},
		{Ports: []Port{{ID: "q0", RouterID: "r", DhcpID: "s"}}},
	}
}

func TestLinkRouters(t *testing.T) {
	t.Parallel()
	bundles, hosts, zones := world()
	v := Link(append(bundles, routed()...), hosts, zones)
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"ports of the router", v.Routers["r"].PortIDs, []string{"q0", "q1", "q2", "q3"}},
		{"blackholes of the router", v.Routers["r"].RouteIDs, []string{"blackhole"}},
		{"chain before routing", v.Chains["pre"].RouterInboundIDs, []string{"r"}},
		{"chain after routing", v.Chains["post"].RouterOutboundIDs, []string{"r"}},
		{"chain between them", v.Chains["fwd"].RouterForwardIDs, []string{"r"}},
		{"rules by place, then by id, own ones in order", v.Chains["post"].RuleIDs,
			[]string{"before", "o2", "o1", "same-place", "e1", "e2", "z-floating"}},
		{"chain of an entry", v.Rules["before"].ChainID, "post"},
		{"rules in missing chains and to them", []*Rule{v.Rules["lost"], v.Rules["to-nowhere"]}, []*Rule{nil, nil}},
		{"rules of the floating IP", v.Ports["a"].FipNatRuleIDs, []string{"z-floating"}},
		{"peer that a router's port names", v.Ports["q1"].PeerID, "p1"},
		{"peer by the other's record, of two the lowest id", v.Ports["p1"].PeerID, "q1"},
		{"missing peer", v.Ports["q3"].PeerID, ""},
		{"members of a group", v.PortGroups["group"].PortIDs, []string{"q1", "q2"}},
		{"members of no ports", v.PortGroups["stateful"].PortIDs, []string(nil)},
		{"groups of a port, without missing ones", v.Ports["q1"].PortGroupIDs, []string{"group"}},
		{"routes of a port", v.Ports["q1"].RouteIDs, []string{"a-route", "b-route"}},
		{"subnet of a port", v.Ports["q1"].DhcpID, "s"},
		{"missing subnet of a port", v.Ports["q3"].DhcpID, ""},
		{"port of a subnet's gateway, of two the lowest id", v.Dhcps["s"].RouterIfPortID, "q0"},
		{"port of an IPv6 subnet's gateway", v.DhcpV6s["s6"].RouterIfPortID, "q2"},
		{"routes to a subnet's gateway", v.Dhcps["s"].GatewayRouteIDs, []string{"b-route"}},
		{"routes to an IPv6 subnet's gateway", v.DhcpV6s["s6"].GatewayRouteIDs, []string{"six"}},
		{"number of routes", len(v.Routes), 4},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}

func TestLinkNothing(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(Link(nil, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Network":{},"Router":{},"Port":{},"PortGroup":{},"Route":{},"Chain":{},"Rule":{},"IPAddrGroup":{},"Dhcp":{},"DhcpV6":{},"Host":{},` +
		`"TunnelZone":{},"tables":{"mac":{},"arp":{},"nd":{},"peering":{}}}`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestRangeJSON(t *testing.T) {
	t.Parallel()
	n := func(n uint16) *uint16 { return &n }
	for _, tt := range []struct {
		r    Range
		text string
	}{
		{Range{n(80), n(443)}, "[80,443]"},
		{Range{nil, n(443)}, "[null,443]"},
		{Range{n(0), nil}, "[0,null]"},
		{Range{}, "[null,null]"},
	} {
		text, err := json.Marshal(&tt.r)
		if err != nil || string(text) != tt.text {
			t.Errorf("marshal = %s, %v; want %s", text, err, tt.text)
		}
		var back Range
		if err := json.Unmarshal([]byte(tt.text), &back); err != nil || !cmp.Equal(back, tt.r) {
			t.Errorf("unmarshal %s = %+v, %v", tt.text, back, err)
		}
	}
	for _, bad := range []string{"[1]", "[1,2,3]", "[-1,2]", "[1,65536]", `"1-2"`, "{}"} {
		if err := json.Unmarshal([]byte(bad), &Range{}); err == nil {
			t.Errorf("unmarshal %s: no error", bad)
		}
	}
}

func TestRangeContains(t *testing.T) {
	t.Parallel()
	n := func(n uint16) *uint16 { return &n }
	for _, tt := range []struct {
		r    Range
		n    uint16
		want bool
	}{
		{Range{n(80), n(90)}, 79, false}, {Range{n(80), n(90)}, 80, true}, {Range{n(80), n(90)}, 90, true},
		{Range{n(80), n(90)}, 91, false}, {Range{nil, n(90)}, 0, true}, {Range{n(80), nil}, 65535, true}, {Range{}, 7, true},
	} {
		if got := tt.r.Contains(tt.n); got != tt.want {
			t.Errorf("%+v contains %d = %t", tt.r, tt.n, got)
		}
	}
}

func FuzzRangeJSON(f *testing.F) {
	f.Add([]byte("[1,2]"))
	f.Add([]byte("[null,null]"))
	f.Add([]byte("[[1],2]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, back Range
		if json.Unmarshal(b, &r) != nil {
			return
		}
		text, err := json.Marshal(r)
		if err != nil || json.Unmarshal(text, &back) != nil || !cmp.Equal(r, back) {
			t.Fatalf("%s: %+v printed as %s reads as %+v, %v", b, r, text, back, err)
		}
	})
}
