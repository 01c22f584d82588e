package explain

import (
	"net/netip"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// endOf returns a port as an end of connections, nil for none: the machine at it knows what DHCP
// and router advertisements tell it.
func endOf(snap *records.Snap, id string) *reach.End {
	if p, ok := schema.Ports.Peek(snap, id); ok {
		return endOfPort(snap, p)
	}
	return nil
}

func endOfPort(snap *records.Snap, p *neutron.Port) *reach.End {
	e := &reach.End{PortID: p.ID, NetworkID: p.NetworkID, HostID: p.ServedBy(), MAC: p.MACAddress}
	for _, f := range p.FixedIPs {
		e.Addresses = append(e.Addresses, f.IPAddress)
		if s, ok := schema.Subnets.Peek(snap, f.SubnetID); ok {
			e.Routes = append(e.Routes, routesOf(s)...)
		}
	}
	return e
}

// routesOf returns the routes of the machines on a subnet.
func routesOf(s *neutron.Subnet) []reach.Route {
	routes := []reach.Route{{Destination: s.CIDR, Subnet: s.CIDR}}
	for _, r := range s.HostRoutes {
		routes = append(routes, reach.Route{Destination: r.Destination, Gateway: r.Nexthop, Subnet: s.CIDR})
	}
	if s.GatewayIP != nil {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if s.GatewayIP.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		routes = append(routes, reach.Route{Destination: all, Gateway: *s.GatewayIP, Subnet: s.CIDR})
	}
	return routes
}
