package translate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

func TestRoutedHasNoTopology(t *testing.T) {
	n := &neutron.Network{NetworkType: "routed"}
	s := &neutron.Subnet{IPVersion: 4}
	for name, b := range map[string]topology.Bundle{"network": Network(n), "subnet": Subnet(s, n, nil, ""), "port": Port(port("compute:nova"), n, nil)} {
		if !cmp.Equal(b, topology.Bundle{}) {
			t.Errorf("%s: %+v; want nothing", name, b)
		}
	}
}

func TestHasEndpoint(t *testing.T) {
	routed := &neutron.Network{NetworkType: "routed"}
	for _, tt := range []struct {
		name   string
		n      *neutron.Network
		change func(p *neutron.Port)
		want   bool
	}{
		{"a machine's", routed, func(*neutron.Port) {}, true},
		{"nobody's", routed, func(p *neutron.Port) { p.DeviceOwner = "" }, true},
		{"not bound", routed, func(p *neutron.Port) { p.BoundHostID, p.InterfaceName = "", "" }, false},
		{"DHCP's", routed, func(p *neutron.Port) { p.DeviceOwner = "network:dhcp" }, false},
		{"a floating address", routed, func(p *neutron.Port) { p.DeviceOwner = "network:floatingip" }, false},
		{"a load balancer's", routed, func(p *neutron.Port) { p.DeviceOwner = "neutron:LOADBALANCERV2" }, false},
		{"of another network", &neutron.Network{NetworkType: "vxlan"}, func(*neutron.Port) {}, false},
	} {
		p := &neutron.Port{DeviceOwner: "compute:nova", BoundHostID: "h", InterfaceName: "tap1"}
		tt.change(p)
		if got := HasEndpoint(p, tt.n); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestEndpoint(t *testing.T) {
	address := netip.MustParseAddr
	gateway := func(text string) *netip.Addr { a := address(text); return &a }
	subnets := []*neutron.Subnet{
		{Standard: neutron.Standard{ID: "a"}, GatewayIP: gateway("10.65.0.1"), EnableDHCP: true},
		{Standard: neutron.Standard{ID: "b"}, GatewayIP: gateway("10.66.0.1"), EnableDHCP: true},
		{Standard: neutron.Standard{ID: "c"}, EnableDHCP: false},
		{Standard: neutron.Standard{ID: "d"}, GatewayIP: gateway("fe80::1"), EnableDHCP: true},
	}
	base := neutron.Port{
		Standard: neutron.Standard{ID: "6dfb1b32-9d5d-4a8a-9e08-5e9f2a3c1b11"}, AdminStateUp: true, MACAddress: packet.MAC{2, 0, 0, 0, 0, 1},
		HostID: "h1", BoundHostID: "id", InterfaceName: "tap6dfb1b32-9d", DeviceID: "vm", SecurityGroups: []string{"g2", "g1", "g2"},
		FixedIPs: []neutron.FixedIP{{SubnetID: "b", IPAddress: address("10.66.0.4")}, {SubnetID: "d", IPAddress: address("fd00::4")},
			{SubnetID: "c", IPAddress: address("10.67.0.4")}, {SubnetID: "a", IPAddress: address("10.65.0.4")}},
	}
	const head = `{"state":"active","name":"tap6dfb1b32-9d","mac":"02:00:00:00:00:01","profile_ids":["openstack-sg-g2","openstack-sg-g1"],`
	for _, tt := range []struct {
		name   string
		change func(p *neutron.Port, n *neutron.Network)
		path   string // from the workload on
		want   string
	}{
		{"in order of fixed_ips, the last gateway wins", func(*neutron.Port, *neutron.Network) {}, "vm", head +
			`"ipv4_nets":["10.66.0.4/32","10.67.0.4/32","10.65.0.4/32"],"ipv6_nets":["fd00::4/128"],"ipv4_gateway":"10.65.0.1","ipv6_gateway":"fe80::1","labels":{},` +
			`"ipv4_subnet_ids":["b","","a"],"ipv6_subnet_ids":["d"],"fqdn":"host-10-66-0-4.example.org"}`},
		{"pairs", func(p *neutron.Port, _ *neutron.Network) {
			p.FixedIPs = p.FixedIPs[:1]
			for _, text := range []string{"10.66.0.9", "10.66.0.4/32", "fd00::9/128", "10.66.0.9/32"} {
				p.AllowedAddressPairs = append(p.AllowedAddressPairs, neutron.AddressPair{IPAddress: text})
			}
		}, "vm", head +
			`"ipv4_nets":["10.66.0.4/32","10.66.0.9/32"],"ipv6_nets":["fd00::9/128"],"ipv4_gateway":"10.66.0.1","labels":{},` +
			`"ipv4_subnet_ids":["b"],"fqdn":"host-10-66-0-4.example.org"}`},
		{"down", func(p *neutron.Port, _ *neutron.Network) { p.AdminStateUp, p.FixedIPs = false, nil }, "vm",
			strings.Replace(head, "active", "inactive", 1) + `"ipv4_nets":[],"ipv6_nets":[],"labels":{}}`},
		{"options of its own", func(p *neutron.Port, _ *neutron.Network) {
			p.FixedIPs = p.FixedIPs[:1]
			p.ExtraDHCPOpts = []neutron.DHCPOpt{{OptName: "server-ip-address", OptValue: "10.66.0.9", IPVersion: 4}, {OptName: "59", OptValue: `"a"`, IPVersion: 6}}
		}, "vm", head +
			`"ipv4_nets":["10.66.0.4/32"],"ipv6_nets":[],"ipv4_gateway":"10.66.0.1","labels":{},"ipv4_subnet_ids":["b"],"fqdn":"host-10-66-0-4.example.org",` +
			`"extra_dhcp_opts":[{"opt_name":"server-ip-address","opt_value":"10.66.0.9","ip_version":4},{"opt_name":"59","opt_value":"\"a\"","ip_version":6}]}`},
		{"network down, no device, no group", func(p *neutron.Port, n *neutron.Network) {
			n.AdminStateUp, p.FixedIPs, p.DeviceID, p.SecurityGroups = false, nil, "", nil
		}, base.ID, `{"state":"inactive","name":"tap6dfb1b32-9d","mac":"02:00:00:00:00:01","profile_ids":[],"ipv4_nets":[],"ipv6_nets":[],"labels":{}}`},
	} {
		p, n := base, neutron.Network{AdminStateUp: true}
		tt.change(&p, &n)
		key := EndpointKey(&p)
		value, err := calico.Encode(key, Endpoint(&p, &n, subnets, "example.org"))
		if err != nil || string(value) != tt.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.name, err, value, tt.want)
		}
		if path, err := key.Path(); path != "/calico/v1/host/h1/workload/openstack/"+tt.path+"/endpoint/"+base.ID {
			t.Errorf("%s: %s, %v", tt.name, path, err)
		}
		if path, err := EndpointStatusKey(&p).Path(); path != "/calico/felix/v1/host/h1/workload/openstack/"+tt.path+"/endpoint/"+base.ID {
			t.Errorf("%s: %s, %v", tt.name, path, err)
		}
	}
}

func TestProfile(t *testing.T) {
	num := func(n int) *int { return &n }
	rule := func(direction, ethertype, protocol string, low, high *int) neutron.SecurityGroupRule {
		return neutron.SecurityGroupRule{Direction: direction, Ethertype: ethertype, Protocol: protocol, PortRangeMin: low, PortRangeMax: high}
	}
	const in, out, anyIn, anyIn6, anyOut = "ingress", "egress", `"src_net":"0.0.0.0/0"`, `"src_net":"::/0"`, `"dst_net":"0.0.0.0/0"`
	from := func(prefix string) neutron.SecurityGroupRule {
		r := rule(in, "IPv4", "", nil, nil)
		r.RemoteIPPrefix = prefix
		return r
	}
	member := func(direction string) neutron.SecurityGroupRule {
		r := rule(direction, "IPv6", "", nil, nil)
		r.RemoteGroupID = "other"
		return r
	}
	addresses := map[string][]netip.Prefix{
		"both": {netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("fd00::/8")},
		"four": {netip.MustParsePrefix("192.0.2.0/24")},
		"many": make([]netip.Prefix, maxProfileAddresses+1),
	}
	for i := range addresses["many"] {
		addresses["many"][i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	among := func(direction, ethertype, group string) neutron.SecurityGroupRule {
		r := rule(direction, ethertype, "", nil, nil)
		r.RemoteAddressGroupID = group
		return r
	}
	for _, tt := range []struct {
		name string
		rule neutron.SecurityGroupRule
		want string // beside action and version, in the order of the model; "-" = left out
	}{
		{"all in", rule(in, "IPv4", "", nil, nil), anyIn},
		{"all out", rule(out, "IPv4", "", nil, nil), anyOut},
		{"all in, IPv6", rule(in, "IPv6", "", nil, nil), anyIn6},
		{"any by number", rule(in, "IPv4", "0", nil, nil), anyIn},
		{"any by -1", rule(in, "IPv4", "-1", nil, nil), anyIn},
		{"from a prefix", from("192.0.2.7/24"), `"src_net":"192.0.2.0/24"`},
		{"from an address", from("192.0.2.7"), `"src_net":"192.0.2.7/32"`},
		{"from the other family", from("fd00::/8"), "-"},
		{"from nonsense", from("x"), "-"},
		{"from a group", member(in), `"src_tag":"other"`},
		{"to a group", member(out), `"dst_tag":"other"`},
		{"from an address group", among(in, "IPv4", "both"), `"src_nets":["192.0.2.0/24","198.51.100.7/32"]`},
		{"to an address group", among(out, "IPv6", "both"), `"dst_net":"fd00::/8"`},
		{"from one of the other family", among(in, "IPv6", "four"), "-"},
		{"from one without members", among(in, "IPv4", "none"), "-"},
		{"from one with too many", among(in, "IPv4", "many"), "-"},
		{"a port", rule(in, "IPv4", "tcp", num(80), num(80)), `"protocol":"tcp",` + anyIn + `,"dst_ports":[80]`},
		{"ports, out", rule(out, "IPv4", "udp", num(1000), num(2000)), `"protocol":"udp",` + anyOut + `,"dst_ports":["1000:2000"]`},
		{"all ports", rule(in, "IPv4", "tcp", num(-1), num(-1)), `"protocol":"tcp",` + anyIn + `,"dst_ports":["1:65535"]`},
		{"no ports said", rule(in, "IPv4", "tcp", nil, nil), `"protocol":"tcp",` + anyIn},
		{"ports from", rule(in, "IPv4", "tcp", num(80), nil), `"protocol":"tcp",` + anyIn + `,"dst_ports":["80:65535"]`},
		{"ports to", rule(in, "IPv4", "tcp", nil, num(80)), `"protocol":"tcp",` + anyIn + `,"dst_ports":["1:80"]`},
		{"ports from 0", rule(in, "IPv4", "tcp", num(0), num(80)), `"protocol":"tcp",` + anyIn + `,"dst_ports":["1:80"]`},
		{"port 0 alone", rule(in, "IPv4", "tcp", num(0), num(0)), "-"},
		{"protocol by number", rule(in, "IPv4", "6", num(80), num(80)), `"protocol":"tcp",` + anyIn + `,"dst_ports":[80]`},
		{"another protocol", rule(in, "IPv4", "vrrp", nil, nil), `"protocol":112,` + anyIn},
		{"sctp", rule(in, "IPv4", "sctp", nil, nil), `"protocol":"sctp",` + anyIn},
		{"sctp with ports", rule(in, "IPv4", "sctp", num(80), num(80)), "-"},
		{"unknown protocol", rule(in, "IPv4", "carrier pigeon", nil, nil), "-"},
		{"icmp", rule(in, "IPv4", "icmp", nil, nil), `"protocol":"icmp",` + anyIn},
		{"icmp of IPv6", rule(in, "IPv6", "icmp", nil, nil), `"protocol":"icmpv6",` + anyIn6},
		{"icmpv6", rule(in, "IPv6", "ipv6-icmp", num(128), nil), `"protocol":"icmpv6",` + anyIn6 + `,"icmp_type":128`},
		{"icmp type and code", rule(in, "IPv4", "icmp", num(3), num(4)), `"protocol":"icmp",` + anyIn + `,"icmp_type":3,"icmp_code":4`},
		{"icmp -1", rule(in, "IPv4", "icmp", num(-1), num(-1)), `"protocol":"icmp",` + anyIn},
		{"icmp type, code -1", rule(in, "IPv4", "icmp", num(8), num(-1)), `"protocol":"icmp",` + anyIn + `,"icmp_type":8`},
		{"icmp type 255", rule(in, "IPv4", "icmp", num(255), nil), "-"},
		{"icmp type too large", rule(in, "IPv4", "icmp", num(300), nil), "-"},
		{"icmpv6 of IPv4", rule(in, "IPv4", "icmpv6", nil, nil), "-"},
	} {
		good := rule(tt.rule.Direction, "IPv4", "tcp", num(1), num(1)) // stays whatever its neighbour is
		rules, tags := Profile(&neutron.SecurityGroup{Standard: neutron.Standard{ID: "g"}, Rules: []neutron.SecurityGroupRule{tt.rule, good}}, addresses)
		value, err := calico.Encode(calico.ProfileRulesKey{Profile: ProfileID("g")}, rules)
		if err != nil || !cmp.Equal(tags, &calico.ProfileTags{"g"}) {
			t.Errorf("%s: %v, tags %v", tt.name, err, tags)
		}
		list, empty, goodNet := `{"inbound_rules":[`, `],"outbound_rules":[]}`, anyIn
		if tt.rule.Direction == out {
			list, empty, goodNet = `{"inbound_rules":[],"outbound_rules":[`, `]}`, anyOut
		}
		want := list
		if tt.want != "-" {
			want += `{"action":"allow","ip_version":` + tt.rule.Ethertype[3:] + `,` + tt.want + `},`
		}
		want += `{"action":"allow","ip_version":4,"protocol":"tcp",` + goodNet + `,"dst_ports":[1]}` + empty
		if string(value) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, value, want)
		}
	}
}

func TestDHCPSubnet(t *testing.T) {
	n := &neutron.Network{MTU: 1400}
	g := netip.MustParseAddr("fd00::1")
	s := &neutron.Subnet{Standard: neutron.Standard{ID: "s"}, NetworkID: "n", IPVersion: 6, CIDR: netip.MustParsePrefix("fd00::/64"), GatewayIP: &g,
		EnableDHCP: true, IPv6RAMode: "slaac", IPv6AddressMode: "slaac", DNSNameservers: []netip.Addr{netip.MustParseAddr("fd00::53")},
		HostRoutes: []neutron.HostRoute{{Destination: netip.MustParsePrefix("fd01::1/16"), Nexthop: netip.MustParseAddr("fd00::9")}}}
	value, err := calico.Encode(calico.DHCPSubnetKey{Subnet: "s"}, DHCPSubnet(s, n))
	want := `{"cidr":"fd00::/64","gateway_ip":"fd00::1","dns_servers":["fd00::53"],"host_routes":[{"destination":"fd01::/16","nexthop":"fd00::9"}],` +
		`"network_id":"n","ipv6_address_mode":"slaac","ipv6_ra_mode":"slaac","mtu":1400}`
	if err != nil || string(value) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, value, want)
	}
	s.EnableDHCP = false
	if d := DHCPSubnet(s, n); d != nil {
		t.Errorf("without DHCP: %+v", d)
	}
	s.EnableDHCP, s.GatewayIP = true, nil
	if d := DHCPSubnet(s, n); d != nil {
		t.Errorf("without a gateway: %+v", d)
	}
}
