package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
)

// checkSubnet holds a subnet against the rules of neutron-api §4 that do not concern its network or
// pools. old is the subnet before an update, nil at create.
func (o *Options) checkSubnet(s, old *neutron.Subnet) error {
	var dhcp error
	if s.EnableDHCP && (old == nil || !old.EnableDHCP) {
		dhcp = checkDHCPRange(s)
	}
	return cmp.Or(
		checkVersion(s, "cidr", s.CIDR.Addr(), s.CIDR.String()),
		dhcp,
		checkGateway(s),
		o.checkNameservers(s),
		o.checkHostRoutes(s),
		checkIPv6Modes(s),
	)
}

// checkVersion refuses an address of the other IP version; text is how the client wrote it.
func checkVersion(s *neutron.Subnet, name string, a netip.Addr, text string) error {
	if a.Is4() == (s.IPVersion == 4) {
		return nil
	}
	return invalid("%s '%s' does not match the ip_version '%d'", name, text, s.IPVersion)
}

// checkDHCPRange refuses a range whose machines DHCP cannot serve.
func checkDHCPRange(s *neutron.Subnet) error {
	switch bits, a := s.CIDR.Bits(), s.CIDR.Addr(); {
	case a.Is4() && bits > 30 || a.Is6() && bits > 126:
		return invalid("Subnet has a prefix length that is incompatible with DHCP service enabled")
	case a.IsMulticast():
		return invalid("Multicast IP subnet is not supported if enable_dhcp is True")
	case a.IsLoopback():
		return invalid("Loopback IP subnet is not supported if enable_dhcp is True")
	case a.Is4() && a.IsUnspecified() && bits > 0:
		return invalid("First IP '0.0.0.0' of network is not supported if enable_dhcp is True.")
	}
	return nil
}

// checkGateway refuses the network and broadcast address; a gateway may lie outside of the range.
func checkGateway(s *neutron.Subnet) error {
	if s.GatewayIP == nil {
		return nil
	}
	g := *s.GatewayIP
	if err := checkVersion(s, "gateway_ip", g, g.String()); err != nil {
		return err
	}
	if g.Is4() && s.CIDR.Contains(g) && (g == s.CIDR.Addr() || g == addresses.LastOf(s.CIDR)) && s.CIDR.Bits() < 31 {
		return invalid("Gateway is not valid on subnet")
	}
	return nil
}

func (o *Options) checkNameservers(s *neutron.Subnet) error {
	if len(s.DNSNameservers) > o.MaxNameservers {
		return neutron.Errorf(neutron.Invalid, "DNSNameServersExhausted",
			"Unable to complete operation for %s. The number of DNS nameservers exceeds the limit %d.", subnetLabel(s), o.MaxNameservers)
	}
	for _, a := range s.DNSNameservers {
		if err := checkVersion(s, "dns_nameserver", a, a.String()); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) checkHostRoutes(s *neutron.Subnet) error {
	if len(s.HostRoutes) > o.MaxHostRoutes {
		return neutron.Errorf(neutron.Invalid, "HostRoutesExhausted",
			"Unable to complete operation for %s. The number of host routes exceeds the limit %d.", subnetLabel(s), o.MaxHostRoutes)
	}
	for _, r := range s.HostRoutes {
		if err := cmp.Or(
			checkVersion(s, "nexthop", r.Nexthop, r.Nexthop.String()),
			checkVersion(s, "destination", r.Destination.Addr(), r.Destination.String()),
		); err != nil {
			return err
		}
	}
	return nil
}

// subnetLabel returns Neutron's name for a subnet in errors.
func subnetLabel(s *neutron.Subnet) string {
	if s.ID == "" {
		return "new subnet"
	}
	return s.ID
}

// checkIPv6Modes checks the combination of ra and address modes.
func checkIPv6Modes(s *neutron.Subnet) error {
	ra, address := s.IPv6RAMode, s.IPv6AddressMode
	if s.IPVersion == 4 {
		switch {
		case ra != "":
			return invalid("ipv6_ra_mode is not valid when ip_version is 4")
		case address != "":
			return invalid("ipv6_address_mode is not valid when ip_version is 4")
		}
		return nil
	}
	if ra == "" && address == "" {
		return nil
	}
	if !s.EnableDHCP {
		return invalid("ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False")
	}
	if ra != "" && address != "" && ra != address {
		return invalid("ipv6_ra_mode set to '%s' with ipv6_address_mode set to '%s' is not valid. "+
			"If both attributes are set, they must be the same value", ra, address)
	}
	if addresses.AutoAddress(s) && s.CIDR.Bits() != 64 {
		return invalid("Invalid CIDR %s for IPv6 address mode. OpenStack uses the EUI-64 address format, "+
			"which requires the prefix to be /64", s.CIDR)
	}
	return nil
}

// checkOverlap refuses a range that shares addresses with another subnet of the network.
func checkOverlap(s *neutron.Subnet, others []*neutron.Subnet) error {
	if s.CIDR.Bits() == 0 {
		return invalid("0 is not allowed as CIDR prefix length")
	}
	for _, o := range others {
		if o.ID != s.ID && o.CIDR.Overlaps(s.CIDR) {
			return invalid("Requested subnet with cidr: %s for network: %s overlaps with another subnet", s.CIDR, s.NetworkID)
		}
	}
	return nil
}

// checkPools holds pools against the range: ordered, inside, apart.
func checkPools(pools []neutron.Pool, cidr netip.Prefix) error {
	all := addresses.DefaultPools(cidr, nil)[0]
	for _, p := range pools {
		if p.Start.Is4() != p.End.Is4() || p.Start.Is4() != cidr.Addr().Is4() || p.End.Less(p.Start) {
			return neutron.Errorf(neutron.Invalid, "InvalidAllocationPool",
				"The allocation pool {'start': '%s', 'end': '%s'} is not valid.", p.Start, p.End)
		}
	}
	for _, p := range pools {
		if p.Start.Less(all.Start) || all.End.Less(p.End) {
			return neutron.Errorf(neutron.Invalid, "OutOfBoundsAllocationPool",
				"The allocation pool %s spans beyond the subnet cidr %s.", poolText(p), cidr)
		}
	}
	for i, p := range pools {
		for _, q := range pools[i+1:] {
			if !p.End.Less(q.Start) && !q.End.Less(p.Start) {
				return conflict("OverlappingAllocationPools", "Found overlapping allocation pools: %s %s for subnet %s.",
					poolText(p), poolText(q), cidr)
			}
		}
	}
	return nil
}

// checkGatewayOutside refuses a gateway that a machine could be given.
func checkGatewayOutside(gateway *netip.Addr, pools []neutron.Pool) error {
	if gateway == nil {
		return nil
	}
	i := slices.IndexFunc(pools, func(p neutron.Pool) bool { return contains(p, *gateway) })
	if i < 0 {
		return nil
	}
	return conflict("GatewayConflictWithAllocationPools", "Gateway ip %s conflicts with allocation pool %s.", *gateway, poolText(pools[i]))
}

func poolText(p neutron.Pool) string { return fmt.Sprintf("%s-%s", p.Start, p.End) }

func contains(p neutron.Pool, a netip.Addr) bool {
	return a.Is4() == p.Start.Is4() && !a.Less(p.Start) && !p.End.Less(a)
}
