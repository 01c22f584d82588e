package calico

import "net/netip"

var dhcpSubnetTable = table[DHCPSubnet]{
	columns: []column[DHCPSubnet]{
		member("cidr", func(s *DHCPSubnet) *netip.Prefix { return &s.CIDR }, asPrefix),
		member("gateway_ip", func(s *DHCPSubnet) *netip.Addr { return &s.GatewayIP }, asAddress),
		member("dns_servers", func(s *DHCPSubnet) *[]netip.Addr { return &s.DNSServers }, asAddresses),
		member("host_routes", func(s *DHCPSubnet) *[]HostRoute { return &s.HostRoutes }, omitEmpty(asObjects(&hostRouteTable))),
		member("network_id", func(s *DHCPSubnet) *string { return &s.NetworkID }, asText),
		member("ipv6_address_mode", func(s *DHCPSubnet) *string { return &s.IPv6AddressMode }, asWord(DHCPv6Stateful, DHCPv6Stateless, SLAAC)),
		member("ipv6_ra_mode", func(s *DHCPSubnet) *string { return &s.IPv6RAMode }, asWord(DHCPv6Stateful, DHCPv6Stateless, SLAAC)),
		member("mtu", func(s *DHCPSubnet) *int { return &s.MTU }, asInteger(minMTU, maxMTU, wantMTU)),
	},
	unknown: func(s *DHCPSubnet) *Unknown { return &s.Unknown },
}

// hostRouteTable describes a route. Members of later versions are dropped.
var hostRouteTable = table[HostRoute]{
	columns: []column[HostRoute]{
		member("destination", func(h *HostRoute) *netip.Prefix { return &h.Destination }, asPrefix),
		member("nexthop", func(h *HostRoute) *netip.Addr { return &h.NextHop }, asAddress),
	},
	skip: true,
}

// The least MTU that IPv4 requires of a link (RFC 791), and the longest packet, in bytes.
const (
	minMTU  = 68
	maxMTU  = 65535
	wantMTU = "want 68 to 65535 bytes"
)

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *DHCPSubnet) Validate() error { return s.check(options{}).of(string(KindDHCPSubnet)) }

func (s *DHCPSubnet) check(options) *Error {
	if err := checkPrefix("cidr", s.CIDR); err != nil {
		return err
	}
	family := familyOf(s.CIDR.Addr())
	if err := first(checkFamily("gateway_ip", s.GatewayIP, family), checkFamilies("dns_servers", s.DNSServers, family)); err != nil {
		return err
	}
	for i, h := range s.HostRoutes {
		if err := first(checkPrefix("destination", h.Destination), checkFamily("nexthop", h.NextHop, family)); err != nil {
			return err.in(index("host_routes", i))
		}
		if familyOf(h.Destination.Addr()) != family {
			return refuse("destination", h.Destination, "want a CIDR of IPv%d", family).in(index("host_routes", i))
		}
	}
	if s.MTU != 0 && (s.MTU < minMTU || s.MTU > maxMTU) {
		return refuse("mtu", s.MTU, wantMTU)
	}
	return first(
		checkText("network_id", s.NetworkID),
		checkMode("ipv6_address_mode", s.IPv6AddressMode, family), checkMode("ipv6_ra_mode", s.IPv6RAMode, family),
		dhcpSubnetTable.checkUnknown(s),
	)
}

func checkMode(field, mode string, family int) *Error {
	switch mode {
	case "":
		return nil
	case DHCPv6Stateful, DHCPv6Stateless, SLAAC:
		if family == 4 {
			return refuse(field, mode, "want none in an IPv4 subnet")
		}
		return nil
	}
	return refuse(field, mode, "want %s, %s or %s", DHCPv6Stateful, DHCPv6Stateless, SLAAC)
}

func (s *DHCPSubnet) write(w *writer) { dhcpSubnetTable.write(w, s) }
