package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// RouterLink is a port by which a router is on a network: a gateway or an interface.
type RouterLink struct {
	Port    *neutron.Port
	Network *neutron.Network
	Subnets []*neutron.Subnet // of the port's addresses
	// DHCPServer is the address of the DHCP port on the first subnet; invalid if there is none.
	DHCPServer netip.Addr
	// AddressScopes are those of the network's subnets.
	AddressScopes neutron.AddressScopeIDs
}

// gateway reports whether the link is a gateway of the router.
func (l *RouterLink) gateway() bool { return ClassOf(l.Port.DeviceOwner) == Gateway }

// routerPort returns the id of the router's end of the link.
func (l *RouterLink) routerPort() string {
	if l.gateway() {
		return gatewayPort(l.Port.ID)
	}
	return interfacePort(l.Port.ID)
}

// linkAddress is an address that a router has by a link.
type linkAddress struct {
	ip     netip.Addr
	subnet *neutron.Subnet
}

// prefix returns the address with the length of its subnet's prefix.
func (a linkAddress) prefix() netip.Prefix { return netip.PrefixFrom(a.ip, a.subnet.CIDR.Bits()) }

// addresses returns the addresses of the link's port, in order. A port without any has the gateway
// addresses of the link's subnets (§9.1 step 3).
func (l *RouterLink) addresses() []linkAddress {
	var as []linkAddress
	for _, f := range l.Port.FixedIPs {
		i := slices.IndexFunc(l.Subnets, func(s *neutron.Subnet) bool { return s.ID == f.SubnetID })
		if i >= 0 && l.Subnets[i].CIDR.Contains(f.IPAddress) {
			as = append(as, linkAddress{f.IPAddress, l.Subnets[i]})
		}
	}
	if len(l.Port.FixedIPs) > 0 {
		return as
	}
	for _, s := range l.Subnets {
		if s.GatewayIP != nil && s.CIDR.Contains(*s.GatewayIP) {
			as = append(as, linkAddress{*s.GatewayIP, s})
		}
	}
	return as
}

// first4 returns the first IPv4 address, the only one that packets are translated to.
func first4(as []linkAddress) (linkAddress, bool) {
	i := slices.IndexFunc(as, func(a linkAddress) bool { return a.ip.Is4() })
	if i < 0 {
		return linkAddress{}, false
	}
	return as[i], true
}

// gatewayPort and interfacePort return the router's end of a link by a Neutron port.
func gatewayPort(port string) string   { return Derive(rolePortGateway, port) }
func interfacePort(port string) string { return Derive(rolePortInterface, port) }

// ServedPort returns the port that the host of a Neutron port serves and reports: its own or, of an
// interface of a router, the router's end, which on an uplink is bound in its place (§9).
func ServedPort(p *neutron.Port) string {
	if ClassOf(p.DeviceOwner) == RouterIface {
		return interfacePort(p.ID)
	}
	return p.ID
}

// routerPort returns the router's end of a link. Its subnets are its addresses with the lengths of
// their prefixes; PortAddress is the first IPv4 address, or the first of a port without one.
func routerPort(id string, r *neutron.Router, l *RouterLink, as []linkAddress) topology.Port {
	q := topology.Port{ID: id, RouterID: r.ID, AdminStateUp: true, PortMAC: l.Port.MACAddress}
	q.AddressScope4, q.AddressScope6 = l.AddressScopes.IPv4, l.AddressScopes.IPv6
	for _, a := range as {
		q.PortSubnet = append(q.PortSubnet, a.prefix())
	}
	if len(as) > 0 {
		q.PortAddress = as[0].ip
	}
	if a, ok := first4(as); ok {
		q.PortAddress = a.ip
	}
	return q
}

// portRoute returns a route by router port q to the destination itself (H8).
func portRoute(id, q string, dst netip.Prefix) topology.Route {
	return topology.Route{
		ID: id, SrcSubnet: anywhere(dst.Addr()), DstSubnet: dst, NextHop: topology.HopPort, NextHopPortID: q,
		Weight: routeWeight,
	}
}

// localRoute returns the route to an address of router port q (H8).
func localRoute(q string, a netip.Addr) topology.Route {
	route := portRoute(Derive(roleRouteLocal, q, a.String()), q, single(a))
	route.NextHop = topology.HopLocal
	return route
}

// Weights of routes: otherGatewayWeight that of the default routes of all gateways but the first,
// routeWeight that of all others.
const (
	routeWeight        = 100
	otherGatewayWeight = 200
)

// anywhere returns the prefix of all addresses of a's family.
func anywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// single returns the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
