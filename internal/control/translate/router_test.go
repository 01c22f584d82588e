package translate

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// routerCase is the input of a golden file: a router with all that it owns and that serves it.
type routerCase struct {
	Router      neutron.Router         `json:"router"`
	Gateways    []RouterLink           `json:"gateways"`
	Interfaces  []RouterLink           `json:"interfaces"`
	FloatingIPs []servedIP             `json:"floating_ips"`
	NDPProxies  []neutron.NDPProxy     `json:"ndp_proxies"`
	Firewall    *neutron.Firewall      `json:"firewall"`
	Rules       []neutron.FirewallRule `json:"rules"`
}

type servedIP struct {
	neutron.FloatingIP
	By string `json:"by"` // id of the port
}

// link returns the router's link by a port.
func (c *routerCase) link(port string) RouterLink {
	links := slices.Concat(c.Gateways, c.Interfaces)
	return links[slices.IndexFunc(links, func(l RouterLink) bool { return l.Port.ID == port })]
}

// bundles translates everything, each owner by itself.
func (c *routerCase) bundles() []topology.Bundle {
	r := &c.Router
	links := slices.Concat(c.Gateways, c.Interfaces)
	all := []topology.Bundle{Router(r, links)}
	for i, l := range c.Gateways {
		all = append(all, RouterGateway(r, l, r.Gateways[i].EnableSNAT))
	}
	for _, l := range c.Interfaces {
		all = append(all, RouterInterface(r, l))
	}
	for _, f := range c.FloatingIPs {
		all = append(all, FloatingIP(&f.FloatingIP, r, c.link(f.By)))
	}
	for _, x := range c.NDPProxies {
		all = append(all, NDPProxy(&x, r, c.link(NDPProxyGateway(r))))
	}
	if c.Firewall != nil {
		all = append(all, Firewall(c.Firewall, c.Rules))
	}
	return all
}

// peers returns the bundles of the links' networks, subnets and ports.
func (c *routerCase) peers() []topology.Bundle {
	var all []topology.Bundle
	for _, l := range slices.Concat(c.Gateways, c.Interfaces) {
		all = append(all, Network(l.Network), Port(l.Port, l.Network, nil))
		for _, s := range l.Subnets {
			all = append(all, Subnet(s, l.Network, nil, ""))
		}
	}
	return all
}

// readable replaces derived ids by what they stand for.
func (c *routerCase) readable() *strings.Replacer {
	names := map[string]string{
		interfaceGroup(c.Router.ID): "interfaces", statefulGroup(c.Router.ID): "stateful",
	}
	for _, l := range c.Gateways {
		names[gatewayPort(l.Port.ID)] = l.Port.ID + "'"
	}
	for _, l := range c.Interfaces {
		names[interfacePort(l.Port.ID)] = l.Port.ID + "'"
	}
	var pairs []string
	for id, name := range names {
		pairs = append(pairs, id, name)
	}
	return strings.NewReplacer(pairs...)
}

// text prints the part of the view that the routers' bundles make, for people.
func (c *routerCase) text() string {
	v := topology.Link(slices.Concat(c.bundles(), c.peers()), nil, nil)
	var b strings.Builder
	byName := func(x, y *topology.Chain) int { return strings.Compare(x.Name, y.Name) }
	for _, chain := range slices.SortedFunc(maps.Values(v.Chains), byName) {
		fmt.Fprintln(&b, chain.Name)
		for i, id := range chain.RuleIDs {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, v.Rules[id])
		}
	}
	for _, id := range v.Routers[c.Router.ID].PortIDs {
		p := v.Ports[id]
		fmt.Fprintf(&b, "port %s up=%t address=%s subnets=%v mac=%s peer=%s gateway-of=%s groups=%v host=%s/%s key=%d\n", id, p.AdminStateUp,
			p.PortAddress, p.PortSubnet, p.PortMAC, p.PeerID, p.DhcpID, p.PortGroupIDs, p.HostID, p.InterfaceName, p.TunnelKey)
	}
	var routes []string
	for _, r := range v.Routes {
		if r.BySource {
			routes = append(routes, fmt.Sprintf("source %s leaves by %s\n", r.SrcSubnet, r.NextHopPortID))
			continue
		}
		routes = append(routes, fmt.Sprintf("route from %s to %s %s %s via %s weight %d gateway-of=%s\n",
			r.SrcSubnet, r.DstSubnet, r.NextHop, r.NextHopPortID, r.NextHopGateway, r.Weight, r.GatewayDhcpID))
	}
	slices.Sort(routes)
	b.WriteString(strings.Join(routes, ""))
	for _, bundle := range c.bundles() {
		for _, n := range bundle.Neighbours {
			fmt.Fprintf(&b, "ARP of %s: %s is at %s\n", n.NetworkID, n.IP, n.MAC)
		}
	}
	return c.readable().Replace(b.String())
}

// Each file has Neutron's objects above a line of dashes, and the topology of the router below.
func TestRouterGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/routers/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			c, input, want := readCase(t, file)
			got := c.text()
			if *update {
				if err := os.WriteFile(file, []byte(input+separator+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

const separator = "\n----\n"

func readCase(t testing.TB, file string) (c *routerCase, input, output string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	input, output, _ = strings.Cut(string(text), separator)
	decoder := json.NewDecoder(strings.NewReader(input))
	decoder.DisallowUnknownFields()
	c = &routerCase{}
	if err := decoder.Decode(c); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c, input, output
}

// What a router's bundles make does not depend on the order of the objects, nor on how often they
// are derived, and no two of them have one id.
func TestRouterAnyOrder(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/routers/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := make([]*routerCase, len(files))
	want := make([]string, len(files))
	for i, file := range files {
		cases[i], _, _ = readCase(t, file)
		want[i] = viewText(t, slices.Concat(cases[i].bundles(), cases[i].peers()))
		uniqueIDs(t, file, cases[i].bundles())
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(cases)-1).Draw(t, "case")
		c := *cases[i]
		before := mustJSON(t, c)
		links := rapid.Permutation(slices.Concat(c.Gateways, c.Interfaces)).Draw(t, "links")
		bundles := slices.Concat(c.bundles()[1:], c.peers(), []topology.Bundle{Router(&c.Router, links)})
		shuffled := rapid.Permutation(bundles).Draw(t, "bundles")
		if got := viewText(t, shuffled); got != want[i] {
			t.Fatalf("%s in another order:\n%s", files[i], cmp.Diff(want[i], got))
		}
		if after := mustJSON(t, c); after != before {
			t.Fatalf("translating changed its input:\n%s", cmp.Diff(before, after))
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func viewText(t fataler, bundles []topology.Bundle) string {
	t.Helper()
	return mustJSON(t, topology.Link(bundles, nil, nil))
}

func mustJSON(t fataler, x any) string {
	t.Helper()
	b, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

func uniqueIDs(t *testing.T, file string, bundles []topology.Bundle) {
	t.Helper()
	seen := map[string]string{}
	enter := func(what, id string) {
		if id == "" || seen[id] != "" {
			t.Errorf("%s: %s has id %q, which is that of %q", file, what, id, seen[id])
		}
		seen[id] = what
	}
	for _, b := range bundles {
		enterChains(enter, b.Chains)
		for i := range b.Rules {
			enter(b.Rules[i].Rule.String(), b.Rules[i].Rule.ID)
		}
		for _, p := range b.Ports {
			enter("port", p.ID)
		}
		for _, r := range b.Routes {
			enter("route to "+r.DstSubnet.String(), r.ID)
		}
		for _, g := range b.PortGroups {
			enter(g.Name, g.ID)
		}
		for _, r := range b.Routers {
			enter("router", r.ID)
		}
	}
}

// Ids of the objects below, which TestRouterIDs derives from.
const (
	routerID    = "c0000000-0000-4000-8000-000000000001"
	gatewayID   = "90000000-0000-4000-8000-000000000001"
	interfaceID = "90000000-0000-4000-8000-000000000002"
	floatingID  = "f0000000-0000-4000-8000-000000000001"
	firewallID  = "fa000000-0000-4000-8000-000000000001"
	fwRuleID    = "fb000000-0000-4000-8000-000000000001"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// routerLink returns a link with one address on one subnet with a gateway.
func routerLink(owner, port, address, cidr, gateway string) RouterLink {
	l := RouterLink{Port: &neutron.Port{DeviceOwner: owner, NetworkID: "n-" + port, MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}}}
	l.Port.ID = port
	l.Port.FixedIPs = []neutron.FixedIP{{SubnetID: "s-" + port, IPAddress: ip(address)}}
	l.Network = &neutron.Network{AdminStateUp: true}
	l.Network.ID = "n-" + port
	via := ip(gateway)
	s := &neutron.Subnet{NetworkID: l.Network.ID, IPVersion: 4, CIDR: netip.MustParsePrefix(cidr), GatewayIP: &via}
	s.ID = "s-" + port
	if via.Is6() {
		s.IPVersion = 6
	}
	l.Subnets = []*neutron.Subnet{s}
	return l
}

// whole returns a router with one of everything.
func whole() *routerCase {
	c := &routerCase{}
	c.Router.ID, c.Router.AdminStateUp = routerID, true
	c.Router.Gateways = []neutron.RouterGateway{{PortID: gatewayID, EnableSNAT: true}}
	c.Router.Routes = []neutron.HostRoute{{Destination: netip.MustParsePrefix("198.51.100.0/24"), Nexthop: ip("10.1.0.9")}}
	c.Gateways = []RouterLink{routerLink("network:router_gateway", gatewayID, "203.0.113.2", "203.0.113.0/24", "203.0.113.1")}
	c.Interfaces = []RouterLink{routerLink("network:router_interface", interfaceID, "10.1.0.1", "10.1.0.0/24", "10.1.0.1")}
	c.Interfaces[0].DHCPServer = ip("10.1.0.2")
	f := servedIP{By: gatewayID}
	f.ID, f.RouterID, f.PortID = floatingID, routerID, portID
	f.FloatingIPAddress, f.FixedIPAddress = ip("203.0.113.7"), ip("10.1.0.5")
	c.FloatingIPs = []servedIP{f}
	c.Firewall = &neutron.Firewall{RouterIDs: []string{routerID}}
	c.Firewall.ID = firewallID
	c.Rules = []neutron.FirewallRule{{Action: "allow", Enabled: true}}
	c.Rules[0].ID = fwRuleID
	return c
}

// Ids follow from roles (midonet-translations §2). The first of each kind are as another
// implementation computed them (Python's uuid.uuid5).
func TestRouterIDs(t *testing.T) {
	t.Parallel()
	for role, ids := range map[string][2]string{
		"port.gw":        {Derive("port.gw", gatewayID), "11ea166b-ba5a-56fe-aa02-5ea6b0af71f8"},
		"route.metadata": {Derive("route.metadata", Derive("port.rif", interfaceID), "10.1.0.2"), "b9526e88-9a28-5797-9219-14befa0944b3"},
		"route.extra":    {Derive("route.extra", routerID, "198.51.100.0/24", "10.1.0.9"), "cc3bd23d-ab97-5677-8d58-4befdb4ead69"},
		"rule.fw.shared": {Derive("rule.fw.shared", firewallID, fwRuleID), "4db90c6e-5e20-5d41-a8a1-067d9d11f43c"},
	} {
		if ids[0] != ids[1] {
			t.Errorf("%s: %s; want %s", role, ids[0], ids[1])
		}
	}
	gw, rif := Derive("port.gw", gatewayID), Derive("port.rif", interfaceID)
	want := []string{
		routerID, gw, rif, Derive("portgroup.stateful", routerID), Derive("portgroup.rif", routerID), fwRuleID,
		Derive("route.extra", routerID, "198.51.100.0/24", "10.1.0.9"),
		Derive("route.gw", gw, "203.0.113.2"), Derive("route.local", gw, "203.0.113.2"),
		Derive("route.rif", rif, "10.1.0.1"), Derive("route.local", rif, "10.1.0.1"), Derive("route.metadata", rif, "10.1.0.2"),
		Derive("rule.samesubnet.snat", rif), Derive("rule.samesubnet.rev", rif),
		Derive("chain.fwd", firewallID), Derive("rule.fw.jump", routerID),
		Derive("rule.fw.down", firewallID), Derive("rule.fw.return", firewallID), Derive("rule.fw.drop", firewallID),
	}
	for _, role := range []string{"chain.in", "chain.out", "chain.fwd", "chain.skipsnat", "chain.floatsnatexact", "chain.floatsnat",
		"rule.router.jump.skipsnat", "rule.router.jump.floatsnatexact", "rule.router.jump.floatsnat", "rule.skipsnat.accept",
		"rule.snat.out", "rule.snat.dstrewritten", "rule.snat.dropfrag", "rule.snat.rev", "rule.snat.dropwrong", "rule.snat.skip.out", "rule.snat.skip.in"} {
		want = append(want, Derive(role, routerID))
	}
	for _, role := range []string{"rule.fip.dnat", "rule.fip.snat", "rule.fip.snatexact", "rule.fip.skip.out", "rule.fip.skip.in"} {
		want = append(want, Derive(role, floatingID))
	}
	got := objectIDs(whole().bundles())
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

// objectIDs returns the ids of all objects of bundles.
func objectIDs(bundles []topology.Bundle) []string {
	v := topology.Link(bundles, nil, nil)
	// Routes to the gateway of a subnet are in no view without the subnet.
	ids := slices.Concat(slices.Collect(maps.Keys(v.Routers)), slices.Collect(maps.Keys(v.Ports)), slices.Collect(maps.Keys(v.PortGroups)),
		slices.Collect(maps.Keys(v.Chains)), slices.Collect(maps.Keys(v.Rules)))
	for _, b := range bundles {
		for _, r := range b.Routes {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// All rules of a floating IP name its port, so that they can be found by it.
func TestFloatingIPPort(t *testing.T) {
	t.Parallel()
	c := whole()
	l := c.link(gatewayID)
	rules := FloatingIP(&c.FloatingIPs[0].FloatingIP, &c.Router, l).Rules
	for _, e := range rules {
		if e.Rule.FipPortID != portID {
			t.Errorf("%s is for port %q; want %s", &e.Rule, e.Rule.FipPortID, portID)
		}
	}
	if len(rules) != 5 {
		t.Errorf("%d rules; want 5", len(rules))
	}
	free := c.FloatingIPs[0].FloatingIP
	free.PortID = ""
	if b := FloatingIP(&free, &c.Router, l); !cmp.Equal(b, topology.Bundle{}) {
		t.Errorf("without a port: %+v; want nothing", b)
	}
}

// The second gateway has ids of its own, and a router has its gateways' rules for each.
func TestSecondGateway(t *testing.T) {
	t.Parallel()
	c := whole()
	second := "90000000-0000-4000-8000-000000000003"
	c.Router.Gateways = append(c.Router.Gateways, neutron.RouterGateway{PortID: second, EnableSNAT: true})
	c.Gateways = append(c.Gateways, routerLink("network:router_gateway", second, "192.0.2.2", "192.0.2.0/24", "192.0.2.1"))
	uniqueIDs(t, "two gateways", c.bundles())
	chain := topology.Link(c.bundles(), nil, nil).Chains[Derive("chain.out", routerID)]
	if len(chain.RuleIDs) != 3+2*3+1 {
		t.Errorf("%d rules after routing; want the jumps, three for each gateway, and the interface's", len(chain.RuleIDs))
	}
}

// Extra routes leave by the port on whose subnet their next hop is.
func TestExtraRoutes(t *testing.T) {
	t.Parallel()
	c := whole()
	c.Interfaces = append(c.Interfaces,
		routerLink("network:router_interface", "narrow", "10.1.0.129", "10.1.0.128/25", "10.1.0.129"),
		routerLink("network:router_interface", "six", "2001:db8:1::1", "2001:db8:1::/64", "2001:db8:1::1"),
		routerLink("network:router_interface", "two", "192.0.2.1", "192.0.2.0/31", "192.0.2.0"))
	links := slices.Concat(c.Gateways, c.Interfaces)
	for _, tt := range []struct {
		destination, hop string
		port             string
	}{
		{"198.51.100.0/24", "10.1.0.9", interfacePort(interfaceID)},
		{"198.51.100.7/24", "203.0.113.9", gatewayPort(gatewayID)},
		{"198.51.100.0/24", "10.1.0.200", interfacePort("narrow")}, // the longest prefix
		{"2001:db8:9::/48", "2001:db8:1::9", interfacePort("six")},
		{"2001:db8:9::/48", "2001:db8:1::", interfacePort("six")}, // its other routers
		{"198.51.100.0/24", "192.0.2.0", interfacePort("two")},    // RFC 3021
		{"198.51.100.0/24", "10.1.0.1", ""},                       // the router's own
		{"198.51.100.0/24", "10.1.0.0", ""},                       // the subnet's
		{"198.51.100.0/24", "10.9.9.9", ""},                       // nowhere
		{"198.51.100.0/24", "2001:db8:1::9", ""},                  // of another family
	} {
		destination := netip.MustParsePrefix(tt.destination)
		c.Router.Routes = []neutron.HostRoute{{Destination: destination, Nexthop: ip(tt.hop)}, {Destination: destination, Nexthop: ip(tt.hop)}}
		routes := Router(&c.Router, links).Routes
		if tt.port == "" {
			if len(routes) > 0 {
				t.Errorf("to %s by %s: %+v; want none", tt.destination, tt.hop, routes)
			}
			continue
		}
		want := topology.Route{
			ID: Derive("route.extra", routerID, tt.destination, tt.hop), SrcSubnet: anywhere(ip(tt.hop)), DstSubnet: destination.Masked(),
			NextHop: topology.HopPort, NextHopPortID: tt.port, NextHopGateway: ip(tt.hop), Weight: 100,
		}
		if len(routes) != 1 || routes[0] != want {
			t.Errorf("to %s by %s: %+v; want %+v, once", tt.destination, tt.hop, routes, want)
		}
	}
}

// A machine's port that becomes a router's keeps its addresses in the network's tables and loses
// filters, groups, DHCP hosts and its host (§9.2).
func TestConvertedPort(t *testing.T) {
	t.Parallel()
	machine, n := port("compute:nova"), &neutron.Network{}
	converted := *machine
	converted.DeviceOwner, converted.DeviceID = "network:router_interface", routerID
	before, after := Port(machine, n, nil), Port(&converted, n, nil)
	if !cmp.Equal(before.MACs, after.MACs) || !slices.Equal(before.Neighbours, after.Neighbours) {
		t.Errorf("seeds changed: %+v", after)
	}
	if len(after.Chains)+len(after.Memberships)+len(after.DhcpHosts) > 0 {
		t.Errorf("a router's port is filtered: %+v", after)
	}
	want := topology.Port{ID: portID, NetworkID: "n", AdminStateUp: true, TunnelKey: 7}
	if diff := cmp.Diff(want, after.Ports[0], cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("port (-want +got):\n%s", diff)
	}
	unlinked := *machine
	unlinked.DeviceOwner = "network:router_interface"
	if p := Port(&unlinked, n, nil).Ports[0]; !p.Exterior() {
		t.Errorf("a port that no router has lost its host: %+v", p)
	}
}

// Subnets and addresses that are not there, or not in each other, give a port without them.
func TestRouterPortWithoutAddress(t *testing.T) {
	t.Parallel()
	c := whole()
	for what, change := range map[string]func(*RouterLink){
		"no subnet":         func(l *RouterLink) { l.Subnets = nil },
		"another subnet":    func(l *RouterLink) { l.Subnets[0].ID = "other" },
		"a foreign address": func(l *RouterLink) { l.Port.FixedIPs[0].IPAddress = ip("10.99.0.1") },
		"no gateway either": func(l *RouterLink) { l.Port.FixedIPs, l.Subnets[0].GatewayIP = nil, nil },
	} {
		l := routerLink("network:router_interface", interfaceID, "10.1.0.1", "10.1.0.0/24", "10.1.0.1")
		change(&l)
		for _, b := range []topology.Bundle{RouterInterface(&c.Router, l), RouterGateway(&c.Router, l, true)} {
			if len(b.Ports) != 1 || b.Ports[0].PortAddress.IsValid() || len(b.Routes)+len(b.Rules) > 0 {
				t.Errorf("%s: %+v", what, b)
			}
		}
	}
	l := routerLink("network:router_interface", interfaceID, "10.1.0.1", "10.1.0.0/24", "10.1.0.3")
	l.Port.FixedIPs = nil
	if q := RouterInterface(&c.Router, l).Ports[0]; q.PortAddress != ip("10.1.0.3") || q.DhcpID != "s-"+interfaceID {
		t.Errorf("a port without addresses has %s, gateway of %q; want its subnet's gateway", q.PortAddress, q.DhcpID)
	}
}

// Rules of firewalls: text that cannot be read allows nothing and denies all.
func TestFirewallRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule neutron.FirewallRule
		want string
	}{
		{neutron.FirewallRule{Action: "allow"}, "accept"},
		{neutron.FirewallRule{Action: "deny", Protocol: "icmp"}, "drop ICMP"},
		{neutron.FirewallRule{Action: "reject", Protocol: "6", SourceIPAddress: "10.0.0.9/24"}, "reject TCP, from 10.0.0.0/24"},
		{neutron.FirewallRule{Action: "allow", Protocol: "udp", DestinationIPAddress: "10.0.0.1", SourcePort: "53", DestinationPort: "80:90"},
			"accept UDP, to 10.0.0.1, from port 53, to port 80–90, with a header"},
		{neutron.FirewallRule{Action: "allow", SourcePort: "1", DestinationPort: "70000"}, ""},
		{neutron.FirewallRule{Action: "allow", SourcePort: "90:80"}, ""},
		{neutron.FirewallRule{Action: "allow", SourcePort: "a"}, ""},
		{neutron.FirewallRule{Action: "allow", SourcePort: "80:"}, ""},
		{neutron.FirewallRule{Action: "allow", SourceIPAddress: "x"}, ""},
		{neutron.FirewallRule{Action: "allow", Protocol: "carrier-pigeon"}, ""},
		{neutron.FirewallRule{Action: "allow", IPVersion: 6}, ""},
		{neutron.FirewallRule{Action: "deny", DestinationIPAddress: "x"}, "drop"},
		{neutron.FirewallRule{Action: "reject", IPVersion: 6}, "reject"},
		{neutron.FirewallRule{Action: "shrug"}, "drop"},
	} {
		tt.rule.Enabled = true
		var got []string
		rules := Firewall(&neutron.Firewall{AdminStateUp: true}, []neutron.FirewallRule{tt.rule}).Chains[0].Rules
		for _, r := range rules[1 : len(rules)-1] {
			got = append(got, r.String())
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%+v: %q; want %q", tt.rule, got, tt.want)
		}
	}
}

// Two firewalls with one policy share no ids, and routers named twice are named once.
func TestFirewallsShareAPolicy(t *testing.T) {
	t.Parallel()
	c := whole()
	first, second := *c.Firewall, *c.Firewall
	first.RouterIDs = []string{routerID, routerID}
	second.ID, second.RouterIDs, second.SharesPolicy = "fa000000-0000-4000-8000-000000000002", []string{"r2"}, true
	uniqueIDs(t, "two firewalls", []topology.Bundle{Firewall(&first, c.Rules), Firewall(&second, c.Rules)})
}

// Every rule has a fragment policy, and every one of a connection's translation the policy for
// packets that have ports (midonet-topology §3.3).
func TestRouterFragmentPolicies(t *testing.T) {
	t.Parallel()
	for _, r := range topology.Link(whole().bundles(), nil, nil).Rules {
		want := topology.FragAny
		if r.Type == topology.NAT && (r.Reverse || r.NatTargets[0].TpEnd > 0) {
			want = topology.FragUnfragmented
		}
		if r.ID == Derive("rule.snat.dropwrong", routerID) {
			want = topology.FragUnfragmented
		}
		if got := r.Condition.FragmentPolicy; got != want {
			t.Errorf("%s: fragment policy %q; want %q", r, got, want)
		}
	}
}

// Whatever a router has, its rules are in the order of midonet-translations §3.2 and §3.3.
func TestRouterRuleOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching("[0-9a-f]{8}-0000-4000-8000-[0-9a-f]{12}")
		ids := rapid.SliceOfNDistinct(id, 9, 9, rapid.ID).Draw(t, "ids")
		c := &routerCase{Router: neutron.Router{Standard: neutron.Standard{ID: routerID}}}
		kinds := map[string]int{} // by rule, its group in the chain
		for _, port := range ids[:rapid.IntRange(0, 2).Draw(t, "gateways")] {
			c.Router.Gateways = append(c.Router.Gateways, neutron.RouterGateway{PortID: port, EnableSNAT: rapid.Bool().Draw(t, "snat")})
			c.Gateways = append(c.Gateways, routerLink("network:router_gateway", port, "203.0.113.2", "203.0.113.0/24", "203.0.113.1"))
		}
		for _, port := range ids[2 : 2+rapid.IntRange(1, 3).Draw(t, "interfaces")] {
			c.Interfaces = append(c.Interfaces, routerLink("network:router_interface", port, "10.1.0.1", "10.1.0.0/24", "10.1.0.1"))
			kinds[Derive("rule.samesubnet.rev", interfacePort(port))] = 4
			kinds[Derive("rule.samesubnet.snat", interfacePort(port))] = 7
		}
		for _, floating := range ids[5 : 5+rapid.IntRange(0, 4).Draw(t, "floating IPs")] {
			l := rapid.SampledFrom(slices.Concat(c.Gateways, c.Interfaces)).Draw(t, "link")
			f := servedIP{By: l.Port.ID, FloatingIP: whole().FloatingIPs[0].FloatingIP}
			f.ID = floating
			c.FloatingIPs = append(c.FloatingIPs, f)
			kinds[Derive("rule.fip.dnat", floating)] = 1
			kinds[Derive("rule.fip.skip.out", floating)] = 1
			kinds[Derive("rule.fip.skip.in", floating)] = 2
			if ClassOf(c.link(f.By).Port.DeviceOwner) != Gateway {
				kinds[Derive("rule.fip.snat", floating)] = 1 // after those of gateways
			}
		}
		for i, g := range c.Router.Gateways {
			of := []string{routerID}
			if i > 0 {
				of = append(of, g.PortID)
			}
			for role, kind := range map[string]int{"rule.snat.rev": 2, "rule.snat.dropwrong": 3, "rule.snat.skip.out": 1, "rule.snat.skip.in": 2,
				"rule.snat.out": 4, "rule.snat.dstrewritten": 5, "rule.snat.dropfrag": 6} {
				kinds[Derive(role, of...)] = kind
			}
		}
		kinds[Derive("rule.skipsnat.accept", routerID)] = 3
		v := topology.Link(rapid.Permutation(c.bundles()).Draw(t, "bundles"), nil, nil)
		for _, chain := range v.Chains {
			inOrder := slices.IsSortedFunc(chain.RuleIDs, func(a, b string) int { return kinds[a] - kinds[b] })
			if !inOrder {
				var text []string
				for _, id := range chain.RuleIDs {
					text = append(text, v.Rules[id].String())
				}
				t.Fatalf("%s is out of order:\n%s", chain.Name, strings.Join(text, "\n"))
			}
		}
	})
}
