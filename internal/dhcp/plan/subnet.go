package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
)

// defaultNetwork is the network of subnets that name none.
const defaultNetwork = "calico"

// longestID bounds IDs of subnets, which become parts of tags and of file names.
const longestID = 64

// subnet is a subnet of etcd with the plan's findings.
type subnet struct {
	*calico.DHCPSubnet
	id      string
	tag     string
	network string
	mode    mode
	refused string // why nothing in it can be served; "": it can
	skipped string // why addresses in it are passed over; "" where mode is another
	// server is the address at which the host answers in the subnet, for DHCP and DNS: the
	// gateway's.
	//
	// An IPv6 gateway may be link-local, such as fe80::1. The subnet does not follow from it, and
	// dnsmasq serves only those subnets in which its device has an address. So there the server is
	// the subnet-router anycast address (RFC 4291 §2.6.1), which belongs to every router and no
	// machine. Router advertisements are as elsewhere: the router is the host, by its link-local
	// address on the machine's interface. The policy agent has the host answer for fe80::1 too
	// (ipv6_gateway of the endpoint). Several subnets may have this gateway, as the device does not
	// have its address.
	server netip.Addr
}

// mode is the way in which machines of a subnet get their addresses.
type mode int

const (
	static    mode = iota // by DHCP
	stateless             // their own, the rest by DHCPv6
	slaac                 // their own, the rest by advertisements
	skipped               // not at all
)

func readSubnet(o Options, id string, from *calico.DHCPSubnet) *subnet {
	s := &subnet{DHCPSubnet: from, id: id, tag: "subnet-" + id, network: defaultNetwork}
	if s.refused = refusal(id, from); s.refused != "" {
		return s
	}
	if from.NetworkID != "" {
		s.network = from.NetworkID
	}
	if s.server = from.GatewayIP; !from.CIDR.Contains(s.server) {
		s.server = from.CIDR.Addr()
	}
	switch {
	case from.CIDR.Addr().Is6() && o.NoIPv6:
		s.mode, s.skipped = skipped, "is of IPv6, which this host does not have"
		return s
	case from.CIDR.Addr().Is6() && from.CIDR.Bits() < 64:
		s.mode, s.skipped = skipped, "is wider than a /64"
		return s
	}
	s.mode = modeOf(from)
	if s.mode != static && from.CIDR.Bits() != 64 {
		s.refused = fmt.Sprintf("is invalid: machines choose their own addresses in it, which wants a /64, not %s", from.CIDR)
	}
	return s
}

// refusal returns why nothing can be served in a subnet, whatever its mode, "" if it can.
func refusal(id string, s *calico.DHCPSubnet) string {
	switch {
	case !isID(id):
		return fmt.Sprintf("is invalid: want an ID of 1 to %d of [A-Za-z0-9_.-]", longestID)
	case s == nil:
		return "is invalid: it could not be decoded"
	}
	if err := s.Validate(); err != nil {
		return "is invalid: " + err.Error()
	}
	switch ip := s.CIDR.Addr(); {
	case s.CIDR.Bits() < 8:
		return fmt.Sprintf("is invalid: cidr %s is too wide, want at least /8", s.CIDR)
	case ip.IsLoopback() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.Is4In6():
		return fmt.Sprintf("is invalid: cidr %s is not for machines", s.CIDR)
	case s.GatewayIP.Zone() != "":
		return fmt.Sprintf("is invalid: gateway_ip %s has a zone", s.GatewayIP)
	case !s.CIDR.Contains(s.GatewayIP) && (ip.Is4() || !s.GatewayIP.IsLinkLocalUnicast()):
		return fmt.Sprintf("is invalid: gateway_ip %s is not in cidr %s", s.GatewayIP, s.CIDR)
	}
	return ""
}

func modeOf(s *calico.DHCPSubnet) mode {
	switch {
	case s.CIDR.Addr().Is4():
		return static
	case s.IPv6AddressMode == calico.SLAAC || s.IPv6AddressMode == "" && s.IPv6RAMode == calico.SLAAC:
		return slaac
	case s.IPv6AddressMode == calico.DHCPv6Stateless || s.IPv6AddressMode == "" && s.IPv6RAMode == calico.DHCPv6Stateless:
		return stateless
	}
	return static
}

// networksOf finds the IPv4 subnets of each network, by ID of the network.
func networksOf(known map[string]*subnet) map[string][]netip.Prefix {
	all := map[string][]netip.Prefix{}
	for _, s := range known {
		if s.refused == "" && s.CIDR.Addr().Is4() {
			all[s.network] = append(all[s.network], s.CIDR)
		}
	}
	for id, list := range all {
		slices.SortFunc(list, netip.Prefix.Compare)
		all[id] = slices.Compact(list)
	}
	return all
}

func isID(id string) bool {
	for _, c := range []byte(id) {
		if !isLetter(c) && !isDigit(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= longestID
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func netmask(p netip.Prefix) netip.Addr {
	ones := ^uint32(0) << (32 - p.Bits())
	return netip.AddrFrom4([4]byte{byte(ones >> 24), byte(ones >> 16), byte(ones >> 8), byte(ones)})
}
