package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// FloatingIP translates a floating IP that is associated with a port: its address in the external
// network, and its rules in the chains of router r (§10). servedBy is the router's link to that
// network, a gateway or an interface. Of several gateways, what the fixed address sends out leaves
// by that one. Without a port the floating IP has no topology.
func FloatingIP(f *neutron.FloatingIP, r *neutron.Router, servedBy RouterLink) topology.Bundle {
	if f.PortID == "" || !f.FixedIPAddress.Is4() || !f.FloatingIPAddress.Is4() {
		return topology.Bundle{}
	}
	gateway := slices.ContainsFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == servedBy.Port.ID })
	q, float := interfacePort(servedBy.Port.ID), placeFloatByInterface
	if gateway {
		q, float = gatewayPort(servedBy.Port.ID), placeFloatByGateway
	}
	floating, fixed := single(f.FloatingIPAddress), single(f.FixedIPAddress)
	toFloating, fromFixed, exact := anyFragment(), anyFragment(), leaving(q)
	toFloating.NwDstIP, fromFixed.NwSrcIP, exact.NwSrcIP = &floating, &fixed, &fixed

	rules := []topology.RuleEntry{
		entry(roleChainIn, r.ID, placeFloatingDNAT, Derive(roleFloatingDNAT, f.ID), staticNAT(true, f.FixedIPAddress, toFloating)),
		entry(roleChainSkipSNAT, r.ID, placeSkipFloatingOut, Derive(roleFloatingSkipOut, f.ID), literal(topology.Return, leaving(q))),
		entry(roleChainSkipSNAT, r.ID, placeSkipFloatingIn, Derive(roleFloatingSkipIn, f.ID), literal(topology.Accept, entering(q))),
		entry(roleChainFloatExact, r.ID, placeFloatExact, Derive(roleFloatingExact, f.ID), staticNAT(false, f.FloatingIPAddress, exact)),
		entry(roleChainFloat, r.ID, float, Derive(roleFloatingSNAT, f.ID), staticNAT(false, f.FloatingIPAddress, fromFixed)),
	}
	for i := range rules {
		rules[i].Rule.FipPortID = f.PortID
		limit(&rules[i].Rule, f.QoSPolicyID, f.ID)
	}
	b := topology.Bundle{
		Rules: rules,
		Neighbours: []topology.NeighbourEntry{{
			NetworkID: servedBy.Network.ID, IP: f.FloatingIPAddress, MAC: servedBy.Port.MACAddress,
		}},
		FloatingAddresses: []topology.FloatingAddress{{RouterID: r.ID, PortID: q, Address: f.FloatingIPAddress}},
	}
	if gateway && len(r.Gateways) > 1 {
		b.Routes = []topology.Route{boundTo(q, Derive(roleFloatingRoute, f.ID), f.FixedIPAddress)}
	}
	return b
}

// boundTo returns the route that makes what an address sends leave the router by gateway port q
// rather than by another gateway.
func boundTo(q, id string, a netip.Addr) topology.Route {
	route := portRoute(id, q, anywhere(a))
	route.SrcSubnet, route.BySource = single(a), true
	return route
}
