package translate

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

const (
	portID  = "9b0a3c5e-7d2f-4a61-8e4b-1c2d3e4f5a6b"
	groupID = "5c6d7e8f-9a0b-4c1d-8e2f-3a4b5c6d7e8f"
)

// Ids that another implementation of midonet-translations §2 computed (Python's uuid.uuid5).
func TestDerive(t *testing.T) {
	t.Parallel()
	if got, want := Derive("chain.in", "00000000-0000-0000-0000-000000000001"), "8267f6f8-b421-5132-b487-24466ca7a0ac"; got != want {
		t.Errorf("Derive = %s; want %s", got, want)
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		owner           string
		class           Class
		trusted, seeded bool
	}{
		{"", VIF, false, true},
		{"compute:nova", VIF, false, true},
		{"compute:", VIF, false, true},
		{"baremetal:none", VIF, false, true},
		{"neutron:other", VIF, false, true},
		{"network:dhcp", DHCP, true, true},
		{"network:floatingip", FloatingAddress, true, false},
		{"network:router_gateway", Gateway, true, true},
		{"network:router_interface", RouterIface, true, true},
		{"network:remote_site", Remote, true, true},
		{"network:distributed", Service, true, true},
		{"neutron:LOADBALANCER", VIPv1, false, false},
		{"neutron:LOADBALANCERV2", VIPv2, false, true},
	} {
		c := ClassOf(tt.owner)
		if c != tt.class || c.Trusted() != tt.trusted || c.seeded() != tt.seeded {
			t.Errorf("ClassOf(%q) = %d, trusted %t, seeded %t; want %d, %t, %t",
				tt.owner, c, c.Trusted(), c.seeded(), tt.class, tt.trusted, tt.seeded)
		}
	}
}

func TestInterfaceName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		owner   string
		profile map[string]any
		want    string
	}{
		{"host alone", "compute:nova", nil, "tap9b0a3c5e-7d"},
		{"named", "compute:nova", map[string]any{"interface_name": "eth0"}, "eth0"},
		{"named empty", "compute:nova", map[string]any{"interface_name": ""}, "tap9b0a3c5e-7d"},
		{"named no text", "compute:nova", map[string]any{"interface_name": 7}, "tap9b0a3c5e-7d"},
		{"no machine's port", "network:dhcp", nil, ""},
		{"no machine's port, named", "network:dhcp", map[string]any{"interface_name": "dhcp0"}, "dhcp0"},
	} {
		p := &neutron.Port{DeviceOwner: tt.owner, Profile: tt.profile}
		p.ID = portID
		if got := InterfaceName(p); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// port returns a port with an address of each family, in one group, bound.
func port(owner string) *neutron.Port {
	p := &neutron.Port{
		NetworkID: "n", DeviceOwner: owner, MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, PortSecurityEnabled: true,
		AdminStateUp: true, SecurityGroups: []string{groupID}, BoundHostID: "h", InterfaceName: "tap1", TunnelKey: 7,
		FixedIPs: []neutron.FixedIP{
			{SubnetID: "s4", IPAddress: netip.MustParseAddr("192.0.2.5")},
			{SubnetID: "s6", IPAddress: netip.MustParseAddr("2001:db8::5")},
		},
	}
	p.ID = portID
	return p
}

// What a port owns depends on what it is for (midonet-translations §7.1).
func TestPortParts(t *testing.T) {
	t.Parallel()
	type parts struct{ ports, chains, macs, neighbours, hosts, members int }
	for owner, want := range map[string]parts{
		"compute:nova":             {1, 3, 1, 2, 2, 2},
		"network:dhcp":             {1, 0, 1, 2, 0, 0},
		"network:router_gateway":   {1, 0, 1, 2, 0, 0},
		"network:router_interface": {1, 0, 1, 2, 0, 0},
		"network:distributed":      {1, 0, 1, 2, 0, 0},
		"network:floatingip":       {},
		"network:remote_site":      {0, 0, 1, 2, 0, 0},
		"neutron:LOADBALANCER":     {1, 3, 0, 0, 0, 2},
		"neutron:LOADBALANCERV2":   {1, 3, 1, 2, 0, 2},
	} {
		b := Port(port(owner), &neutron.Network{}, nil)
		got := parts{len(b.Ports), len(b.Chains), len(b.MACs), len(b.Neighbours), len(b.DhcpHosts), len(b.Memberships)}
		if got != want {
			t.Errorf("%s: %+v; want %+v", owner, got, want)
		}
		if b := Port(port(owner), &neutron.Network{NetworkType: "Uplink"}, nil); !cmp.Equal(b, topology.Bundle{}) {
			t.Errorf("%s on an uplink: %+v; want nothing", owner, b)
		}
	}
	remote := Port(port("network:remote_site"), &neutron.Network{}, nil)
	if got, want := remote.MACs[0].PortID, Derive("port.l2gw.net", "n"); got != want {
		t.Errorf("a remote machine is behind %s; want %s", got, want)
	}
}

// A bound port has host and interface; half a binding is none.
func TestPortBinding(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, iface string
		exterior    bool
	}{{"h", "tap1", true}, {"h", "", false}, {"", "tap1", false}} {
		p := port("compute:nova")
		p.BoundHostID, p.InterfaceName = tt.host, tt.iface
		got := Port(p, &neutron.Network{}, nil).Ports[0]
		if got.Exterior() != tt.exterior || !tt.exterior && got.HostID+got.InterfaceName != "" {
			t.Errorf("host %q, interface %q: %+v", tt.host, tt.iface, got)
		}
	}
}

// Bundles of different owners never share an id, nor do the objects of one.
func TestIDsDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]string{}
		enter := func(what, id string) {
			if id == "" || seen[id] != "" {
				t.Fatalf("%s has id %q, which is that of %s", what, id, seen[id])
			}
			seen[id] = what
		}
		uuids := rapid.SliceOfNDistinct(rapid.StringMatching("[0-9a-f]{8}-0000-4000-8000-[0-9a-f]{12}"), 8, 8, rapid.ID).Draw(t, "ids")
		ips := rapid.SliceOfN(rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}), 0, 4)
		for i, id := range uuids[:2] {
			p := port("compute:nova")
			p.ID, p.SecurityGroups, p.FixedIPs = id, uuids[2:5], nil
			for _, ip := range ips.Draw(t, "ips") {
				p.FixedIPs = append(p.FixedIPs, neutron.FixedIP{IPAddress: netip.MustParseAddr(ip)})
			}
			for _, ip := range ips.Draw(t, "pairs") {
				p.AllowedAddressPairs = append(p.AllowedAddressPairs, neutron.AddressPair{IPAddress: ip})
			}
			enterChains(enter, Port(p, &neutron.Network{}, nil).Chains)
			g := &neutron.SecurityGroup{}
			g.ID = uuids[2+i]
			for _, rule := range uuids[4+2*i : 6+2*i] {
				five := 5
				r := neutron.SecurityGroupRule{Protocol: "tcp", PortRangeMin: &five, Direction: rapid.SampledFrom([]string{"ingress", "egress"}).Draw(t, "direction")}
				r.ID = rule
				g.Rules = append(g.Rules, r)
			}
			enterChains(enter, SecurityGroup(g).Chains)
		}
	})
}

func enterChains(enter func(what, id string), chains []topology.Chain) {
	for _, c := range chains {
		enter("chain "+c.Name, c.ID)
		for i := range c.Rules {
			enter(c.Rules[i].String()+" in "+c.Name, c.Rules[i].ID)
		}
	}
}

// Every rule says which fragments it is about (midonet-topology §3.3).
func TestFragmentPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range Port(port(""), &neutron.Network{}, nil).Chains {
		for i := range c.Rules {
			if got := c.Rules[i].Condition.FragmentPolicy; got != topology.FragAny {
				t.Errorf("%s rule %d: fragment policy %q", c.Name, i+1, got)
			}
		}
	}
}

// The bundle of a port needs nothing of its groups but whether they are stateful, and changes
// nothing it is given.
func TestPortReadsLittle(t *testing.T) {
	t.Parallel()
	text := func(x any) string {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	p, n := port("compute:nova"), &neutron.Network{}
	g := &neutron.SecurityGroup{Stateful: true}
	before := text([]any{p, n, g})
	bare := text(Port(p, n, []*neutron.SecurityGroup{{Stateful: true}}))
	g.Rules, g.Name = []neutron.SecurityGroupRule{{Direction: "ingress"}}, "renamed"
	n.Name, n.MTU, n.AdminStateUp = "renamed", 1400, true
	if got := text(Port(p, n, []*neutron.SecurityGroup{g})); got != bare {
		t.Errorf("with another group and network: %s", cmp.Diff(bare, got))
	}
	g.Rules, g.Name, n.Name, n.MTU, n.AdminStateUp = nil, "", "", 0, false
	if after := text([]any{p, n, g}); after != before {
		t.Errorf("the input was changed: %s", cmp.Diff(before, after))
	}
}

// Of several DHCP ports the newest is the server, in whatever order they are given.
func TestSubnetServers(t *testing.T) {
	t.Parallel()
	gateway := netip.MustParseAddr("192.0.2.1")
	s := &neutron.Subnet{IPVersion: 4, CIDR: netip.MustParsePrefix("192.0.2.0/24"), GatewayIP: &gateway}
	s.ID = "s4"
	server := func(id, ip string, at int64) *neutron.Port {
		p := port("network:dhcp")
		p.ID, p.CreatedAt = id, time.Unix(at, 0)
		p.FixedIPs = []neutron.FixedIP{
			{SubnetID: "other", IPAddress: netip.MustParseAddr("198.51.100.9")},
			{SubnetID: "s4", IPAddress: netip.MustParseAddr(ip)}, {SubnetID: "s4", IPAddress: netip.MustParseAddr("192.0.2.99")},
		}
		return p
	}
	ports := []*neutron.Port{server("b", "192.0.2.3", 2), server("a", "192.0.2.4", 2), server("c", "192.0.2.2", 1), port("compute:nova")}
	for range 4 {
		ports = append(ports[1:], ports[0])
		d := Subnet(s, &neutron.Network{MTU: 1400}, ports, "example.org").Dhcps[0]
		var hops []string
		for _, r := range d.Opt121Routes {
			hops = append(hops, r.Gateway.String())
		}
		if d.ServerAddress.String() != "192.0.2.3" || d.DomainName != "example.org" || !slices.Equal(hops, []string{"192.0.2.2", "192.0.2.4", "192.0.2.3"}) || d.InterfaceMTU != 1400 {
			t.Fatalf("server %s, metadata by %v, MTU %d", d.ServerAddress, hops, d.InterfaceMTU)
		}
	}
	if d := Subnet(s, &neutron.Network{}, nil, "").Dhcps[0]; *d.ServerAddress != gateway {
		t.Errorf("without DHCP ports the server is %s; want the gateway", d.ServerAddress)
	}
	if b := Subnet(s, &neutron.Network{NetworkType: "uplink"}, nil, ""); !cmp.Equal(b, topology.Bundle{}) {
		t.Errorf("on an uplink: %+v", b)
	}
}

// A rule whose text cannot be read allows nothing.
func TestUnreadableRules(t *testing.T) {
	t.Parallel()
	high, low := 70000, -1
	g := &neutron.SecurityGroup{Rules: []neutron.SecurityGroupRule{
		{Direction: "ingress", Protocol: "carrier-pigeon"}, {Direction: "ingress", Protocol: "256"},
		{Direction: "ingress", RemoteIPPrefix: "192.0.2.0/33"}, {Direction: "ingress", RemoteIPPrefix: "fe80::1%eth0"},
		{Direction: "egress", Protocol: "tcp", PortRangeMax: &high}, {Direction: "egress", Protocol: "tcp", PortRangeMin: &low},
	}}
	for _, c := range SecurityGroup(g).Chains {
		if len(c.Rules) > 0 {
			t.Errorf("%s: %v", c.Name, c.Rules)
		}
	}
	p := port("")
	p.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: "anything"}}
	if got, want := Port(p, &neutron.Network{}, nil), Port(port(""), &neutron.Network{}, nil); !cmp.Equal(got, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
		t.Error("an address pair that cannot be read left a trace")
	}
}

func BenchmarkPort(b *testing.B) {
	p, n := port("compute:nova"), &neutron.Network{}
	groups := []*neutron.SecurityGroup{{Stateful: true}}
	b.ReportAllocs()
	for b.Loop() {
		Port(p, n, groups)
	}
}
