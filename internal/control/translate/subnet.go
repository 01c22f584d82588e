package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Subnet translates a subnet of network n into the data of its DHCP responder (midonet-translations
// §6, simulation §18). dhcpPorts are the network:dhcp ports with an address on the subnet, in any
// order: the newest is the server, and each adds its metadata route (§7.1 step 7). domain completes
// the machines' names.
func Subnet(s *neutron.Subnet, n *neutron.Network, dhcpPorts []*neutron.Port, domain string) topology.Bundle {
	if bridgeless(n) {
		return topology.Bundle{}
	}
	if s.IPVersion == 6 {
		return topology.Bundle{DhcpV6s: []topology.DhcpV6{{
			ID:               s.ID,
			NetworkID:        s.NetworkID,
			SubnetAddress:    s.CIDR,
			DefaultGateway:   s.GatewayIP,
			DNSServerAddress: s.DNSNameservers,
			RAMode:           s.IPv6RAMode,
			AddressMode:      s.IPv6AddressMode,
			InterfaceMTU:     n.MTU,
			DomainName:       domain,
			Enabled:          s.EnableDHCP,
		}}}
	}
	d := topology.Dhcp{
		ID:               s.ID,
		NetworkID:        s.NetworkID,
		SubnetAddress:    s.CIDR,
		ServerAddress:    s.GatewayIP,
		DefaultGateway:   s.GatewayIP,
		DNSServerAddress: s.DNSNameservers,
		InterfaceMTU:     n.MTU,
		DomainName:       domain,
		Enabled:          s.EnableDHCP,
	}
	for _, r := range s.HostRoutes {
		d.Opt121Routes = append(d.Opt121Routes, topology.Opt121Route{DstSubnet: r.Destination, Gateway: r.Nexthop})
	}
	for _, server := range serverAddresses(s, dhcpPorts) {
		d.ServerAddress = &server
		d.Opt121Routes = append(d.Opt121Routes, topology.Opt121Route{DstSubnet: metadata(), Gateway: server})
	}
	return topology.Bundle{Dhcps: []topology.Dhcp{d}}
}

// serverAddresses returns the first addresses of the DHCP ports on the subnet, oldest port first.
func serverAddresses(s *neutron.Subnet, dhcpPorts []*neutron.Port) []netip.Addr {
	oldestFirst := slices.SortedFunc(slices.Values(dhcpPorts), func(a, b *neutron.Port) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	var servers []netip.Addr
	for _, p := range oldestFirst {
		if ClassOf(p.DeviceOwner) != DHCP {
			continue
		}
		i := slices.IndexFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.SubnetID == s.ID && f.IPAddress.Is4() })
		if i >= 0 {
			servers = append(servers, p.FixedIPs[i].IPAddress)
		}
	}
	return servers
}

// DHCPServer returns the address of the newest DHCP port on a subnet; invalid if there is none.
func DHCPServer(s *neutron.Subnet, dhcpPorts []*neutron.Port) netip.Addr {
	servers := serverAddresses(s, dhcpPorts)
	if len(servers) == 0 {
		return netip.Addr{}
	}
	return servers[len(servers)-1]
}

// metadata returns the address of the metadata service (H7).
func metadata() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 169, 254}), 32)
}
