package control

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
)

func testOptions(t *testing.T) *Options {
	t.Helper()
	o, err := Options{PhysicalNetworks: map[string]PhysicalNetwork{
		"physnet1": {VLANs: []IDRange{{100, 101}}},
		"public":   {Flat: true, MTU: 9000},
	}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func addr(s string) *netip.Addr {
	a := netip.MustParseAddr(s)
	return &a
}

func pool(text string) neutron.Pool {
	start, end, _ := strings.Cut(text, "-")
	return neutron.Pool{Start: netip.MustParseAddr(start), End: netip.MustParseAddr(end)}
}

// problem returns an error as a client sees it: its class, and its text.
func problem(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(*neutron.Error); ok {
		return e.Type + ": " + e.Message
	}
	return "not for clients: " + err.Error()
}

func TestCheckSubnet(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cidr  string
		edit  func(s *neutron.Subnet)
		error string
	}{
		{"plain", "10.0.0.0/24", func(*neutron.Subnet) {}, ""},
		{"version", "10.21.0.0/24", func(s *neutron.Subnet) { s.IPVersion = 6 },
			"InvalidInput: Invalid input for operation: cidr '10.21.0.0/24' does not match the ip_version '6'."},
		{"too long for DHCP", "10.24.0.1/32", func(*neutron.Subnet) {},
			"InvalidInput: Invalid input for operation: Subnet has a prefix length that is incompatible with DHCP service enabled."},
		{"long without DHCP", "10.24.0.0/31", func(s *neutron.Subnet) { s.EnableDHCP = false }, ""},
		{"multicast", "224.0.0.0/24", func(*neutron.Subnet) {},
			"InvalidInput: Invalid input for operation: Multicast IP subnet is not supported if enable_dhcp is True."},
		{"loopback", "127.0.0.0/24", func(*neutron.Subnet) {},
			"InvalidInput: Invalid input for operation: Loopback IP subnet is not supported if enable_dhcp is True."},
		{"gateway outside", "10.23.0.0/24", func(s *neutron.Subnet) { s.GatewayIP = addr("10.99.0.1") }, ""},
		{"gateway is the network", "10.24.0.0/24", func(s *neutron.Subnet) { s.GatewayIP = addr("10.24.0.0") },
			"InvalidInput: Invalid input for operation: Gateway is not valid on subnet."},
		{"gateway is the broadcast", "10.24.0.0/24", func(s *neutron.Subnet) { s.GatewayIP = addr("10.24.0.255") },
			"InvalidInput: Invalid input for operation: Gateway is not valid on subnet."},
		{"gateway of the other version", "10.24.0.0/24", func(s *neutron.Subnet) { s.GatewayIP = addr("fd00::1") },
			"InvalidInput: Invalid input for operation: gateway_ip 'fd00::1' does not match the ip_version '4'."},
		{"six nameservers", "10.24.0.0/24", func(s *neutron.Subnet) { s.DNSNameservers = make([]netip.Addr, 6) },
			"DNSNameServersExhausted: Unable to complete operation for new subnet. The number of DNS nameservers exceeds the limit 5."},
		{"nexthop of the other version", "10.24.0.0/24", func(s *neutron.Subnet) {
			s.HostRoutes = []neutron.HostRoute{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Nexthop: *addr("fd00::1")}}
		}, "InvalidInput: Invalid input for operation: nexthop 'fd00::1' does not match the ip_version '4'."},
		{"ra mode on v4", "10.24.0.0/24", func(s *neutron.Subnet) { s.IPv6RAMode = "slaac" },
			"InvalidInput: Invalid input for operation: ipv6_ra_mode is not valid when ip_version is 4."},
		{"address mode on v4", "10.24.0.0/24", func(s *neutron.Subnet) { s.IPv6AddressMode = "slaac" },
			"InvalidInput: Invalid input for operation: ipv6_address_mode is not valid when ip_version is 4."},
		{"modes differ", "fd00:24::/64", func(s *neutron.Subnet) { s.IPv6RAMode, s.IPv6AddressMode = "slaac", "dhcpv6-stateful" },
			"InvalidInput: Invalid input for operation: ipv6_ra_mode set to 'slaac' with ipv6_address_mode set to 'dhcpv6-stateful' is not valid. " +
				"If both attributes are set, they must be the same value."},
		{"mode without dhcp", "fd00:24::/64", func(s *neutron.Subnet) { s.IPv6RAMode, s.EnableDHCP = "slaac", false },
			"InvalidInput: Invalid input for operation: ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False."},
		{"slaac not 64", "fd00:24::/80", func(s *neutron.Subnet) { s.IPv6RAMode, s.IPv6AddressMode = "slaac", "slaac" },
			"InvalidInput: Invalid input for operation: Invalid CIDR fd00:24::/80 for IPv6 address mode. " +
				"OpenStack uses the EUI-64 address format, which requires the prefix to be /64."},
		{"stateful may be longer", "fd00:24::/80", func(s *neutron.Subnet) { s.IPv6RAMode, s.IPv6AddressMode = "dhcpv6-stateful", "dhcpv6-stateful" }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &neutron.Subnet{IPVersion: 4, CIDR: netip.MustParsePrefix(tt.cidr), EnableDHCP: true}
			if s.CIDR.Addr().Is6() {
				s.IPVersion = 6
			}
			tt.edit(s)
			if got := problem(testOptions(t).checkSubnet(s, nil)); got != tt.error {
				t.Errorf("got  %q\nwant %q", got, tt.error)
			}
		})
	}
}

func TestCheckPools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, pools, gateway, error string
	}{
		{"apart", "10.24.0.2-10.24.0.9 10.24.0.10-10.24.0.20", "10.24.0.1", ""},
		{"gateway inside", "10.24.0.2-10.24.0.9", "10.24.0.5",
			"GatewayConflictWithAllocationPools: Gateway ip 10.24.0.5 conflicts with allocation pool 10.24.0.2-10.24.0.9."},
		{"overlap", "10.24.0.2-10.24.0.9 10.24.0.9-10.24.0.20", "",
			"OverlappingAllocationPools: Found overlapping allocation pools: 10.24.0.2-10.24.0.9 10.24.0.9-10.24.0.20 for subnet 10.24.0.0/24."},
		{"outside", "10.25.0.2-10.25.0.9", "",
			"OutOfBoundsAllocationPool: The allocation pool 10.25.0.2-10.25.0.9 spans beyond the subnet cidr 10.24.0.0/24."},
		{"broadcast", "10.24.0.2-10.24.0.255", "",
			"OutOfBoundsAllocationPool: The allocation pool 10.24.0.2-10.24.0.255 spans beyond the subnet cidr 10.24.0.0/24."},
		{"reversed", "10.24.0.9-10.24.0.2", "",
			"InvalidAllocationPool: The allocation pool {'start': '10.24.0.9', 'end': '10.24.0.2'} is not valid."},
		{"other version", "fd00::1-fd00::2", "", "InvalidAllocationPool: The allocation pool {'start': 'fd00::1', 'end': 'fd00::2'} is not valid."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cidr := netip.MustParsePrefix("10.24.0.0/24")
			var pools []neutron.Pool
			for p := range strings.FieldsSeq(tt.pools) {
				pools = append(pools, pool(p))
			}
			err := checkPools(pools, cidr)
			if err == nil && tt.gateway != "" {
				err = checkGatewayOutside(addr(tt.gateway), pools)
			}
			if got := problem(err); got != tt.error {
				t.Errorf("got  %q\nwant %q", got, tt.error)
			}
		})
	}
}

// TestDefaultPoolsAreAllowed: what the server chooses passes the checks that a client's choice must
// pass.
func TestDefaultPoolsAreAllowed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/30", "10.0.0.0/31", "10.0.0.1/32", "fd00::/64", "fd00::/126", "fd00::1/128"} {
		cidr := netip.MustParsePrefix(text)
		s := &neutron.Subnet{CIDR: cidr, IPVersion: 4}
		if cidr.Addr().Is6() {
			s.IPVersion = 6
		}
		if g, ok := addresses.DefaultGateway(cidr); ok {
			s.GatewayIP = &g
		}
		pools := addresses.DefaultPools(cidr, s.GatewayIP)
		for _, err := range []error{testOptions(t).checkSubnet(s, nil), checkPools(pools, cidr), checkGatewayOutside(s.GatewayIP, pools)} {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestCheckOverlap(t *testing.T) {
	t.Parallel()
	others := []*neutron.Subnet{{Standard: neutron.Standard{ID: "a"}, CIDR: netip.MustParsePrefix("10.20.0.0/24")}}
	s := &neutron.Subnet{NetworkID: "n", CIDR: netip.MustParsePrefix("10.20.0.128/25")}
	want := "InvalidInput: Invalid input for operation: Requested subnet with cidr: 10.20.0.128/25 for network: n overlaps with another subnet."
	if got := problem(checkOverlap(s, others)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.CIDR = netip.MustParsePrefix("10.20.1.0/24")
	if err := checkOverlap(s, others); err != nil {
		t.Error(err)
	}
	s.CIDR = netip.MustParsePrefix("0.0.0.0/0")
	if err := checkOverlap(s, nil); err == nil {
		t.Error("a prefix of length 0 was accepted")
	}
}
