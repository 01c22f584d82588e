package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// RouterInterface translates a router's link to a network of machines (§9). On an uplink network
// the router's port is itself exterior, with the binding of the Neutron port, and its hosts hear of
// the router's connections. A link by IPv6 alone has no rules but those of NDP proxies, since there
// is no NAT for IPv6.
func RouterInterface(r *neutron.Router, l RouterLink) topology.Bundle {
	as := l.addresses()
	q := routerPort(interfacePort(l.Port.ID), r, &l, as)
	q.Guest = l.Network.ProjectID != r.ProjectID
	b := topology.Bundle{}
	for _, a := range as {
		id := Derive(roleRouteInterface, q.ID, a.ip.String())
		b.Routes = append(b.Routes, portRoute(id, q.ID, a.subnet.CIDR.Masked()), localRoute(q.ID, a.ip))
	}
	b.Rules = insideProxied(r, q.ID, as)
	if Uplink(l.Network) {
		q.AdminStateUp = l.Network.AdminStateUp
		q.PortGroupIDs = []string{statefulGroup(r.ID)}
		q.TunnelKey, q.PreviousHostID, q.PreviousInterface = l.Port.TunnelKey, l.Port.PreviousHostID, l.Port.PreviousInterface
		bind(&q, l.Port)
		b.Ports = []topology.Port{q}
		return b
	}
	q.PeerID = l.Port.ID
	q.PortGroupIDs = []string{interfaceGroup(r.ID)}
	q.DhcpID = gatewayOf(as)
	b.Ports = []topology.Port{q}
	if a, ok := first4(as); ok {
		if l.DHCPServer.Is4() {
			b.Routes = append(b.Routes, metadataRoute(q.ID, l.DHCPServer, a.subnet.CIDR.Masked()))
		}
		b.Rules = append(b.Rules, sameSubnetSNAT(r.ID, q.ID, a)...)
	}
	return b
}

// gatewayOf returns the first subnet whose gateway is the router, or "".
func gatewayOf(as []linkAddress) string {
	i := slices.IndexFunc(as, func(a linkAddress) bool { return a.subnet.GatewayIP != nil && *a.subnet.GatewayIP == a.ip })
	if i < 0 {
		return ""
	}
	return as[i].subnet.ID
}

// metadataRoute leads the subnet's requests for metadata to its DHCP port (§9.1 step 8).
func metadataRoute(q string, server netip.Addr, subnet netip.Prefix) topology.Route {
	route := portRoute(Derive(roleRouteMetadata, q, server.String()), q, metadata())
	route.NextHopGateway, route.SrcSubnet = server, subnet
	return route
}

// sameSubnetSNAT returns the rules by which a machine reaches another of its own subnet through the
// router, as by a floating IP: the answer must come back here (§3.2 group 4, §3.3 group 7).
func sameSubnetSNAT(r, q string, a linkAddress) []topology.RuleEntry {
	reply := unfragmented()
	reply.InPortIDs, reply.NwDstIP, reply.MatchReturnFlow = []string{q}, single4(a), true
	hairpin := unfragmented()
	hairpin.InPortIDs, hairpin.OutPortIDs, hairpin.MatchForwardFlow = []string{q}, []string{q}, true
	service := metadata()
	hairpin.NwDstIP, hairpin.NwDstInv = &service, true
	return []topology.RuleEntry{
		entry(roleChainIn, r, placeSameSubnetReverse, Derive(roleSameSubnetReverse, q), reverseSNAT(reply)),
		entry(roleChainOut, r, placeSameSubnetSNAT, Derive(roleSameSubnetSNAT, q), dynamicSNAT(a.ip, hairpin)),
	}
}
