package calico

func readDHCPSubnet(r *reader) *DHCPSubnet {
	s := &DHCPSubnet{}
	r.members(s, &s.Unknown)
	return s
}

func (s *DHCPSubnet) member(r *reader, name string) bool {
	switch name {
	case "cidr":
		s.CIDR = r.maskedPrefix()
	case "gateway_ip":
		s.GatewayIP = r.address()
	case "dns_servers":
		s.DNSServers = r.addresses()
	case "host_routes":
		r.list(func(int) {
			h := hostRoute{}
			var ignored Unknown
			r.members(&h, &ignored)
			s.HostRoutes = append(s.HostRoutes, HostRoute(h))
		})
	case "network_id":
		s.NetworkID = r.kept()
	case "ipv6_address_mode":
		s.IPv6AddressMode = oneOf(r.optional(), DHCPv6Stateful, DHCPv6Stateless, SLAAC)
	case "ipv6_ra_mode":
		s.IPv6RAMode = oneOf(r.optional(), DHCPv6Stateful, DHCPv6Stateless, SLAAC)
	case "mtu":
		s.MTU = r.integer(minMTU, maxMTU, wantMTU)
	default:
		return false
	}
	return true
}

// The bounds of an MTU in bytes: the least that IPv4 asks of a link (RFC 791), and the longest packet.
const (
	minMTU  = 68
	maxMTU  = 65535
	wantMTU = "want 68 to 65535 bytes"
)

// hostRoute is a HostRoute while it is read.
type hostRoute HostRoute

func (h *hostRoute) member(r *reader, name string) bool {
	switch name {
	case "destination":
		h.Destination = r.maskedPrefix()
	case "nexthop":
		h.NextHop = r.address()
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (s *DHCPSubnet) Validate() error { return s.check().of(string(KindDHCPSubnet)) }

func (s *DHCPSubnet) check() *Error {
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
		checkUnknown[DHCPSubnet](s.Unknown),
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

func (s *DHCPSubnet) write(w *writer) {
	w.open('{')
	w.prefixMember("cidr", s.CIDR)
	w.addressMember("gateway_ip", s.GatewayIP)
	w.addresses("dns_servers", s.DNSServers)
	if len(s.HostRoutes) > 0 {
		w.name("host_routes")
		w.open('[')
		for _, h := range s.HostRoutes {
			w.comma()
			w.open('{')
			w.prefixMember("destination", h.Destination)
			w.addressMember("nexthop", h.NextHop)
			w.end('}')
		}
		w.end(']')
	}
	w.optional("network_id", s.NetworkID)
	w.optional("ipv6_address_mode", s.IPv6AddressMode)
	w.optional("ipv6_ra_mode", s.IPv6RAMode)
	if s.MTU != 0 {
		w.intMember("mtu", s.MTU)
	}
	w.unknown(s.Unknown)
	w.end('}')
}
