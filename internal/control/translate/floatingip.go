package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// FloatingIP translates a floating IP that is associated with a port: its address in the external
// network, and its rules in the chains of the router (§10). servedBy is the router's link to that
// network, gateway whether it is one rather than an interface. Without a port it has no topology.
func FloatingIP(f *neutron.FloatingIP, servedBy RouterLink, gateway bool) topology.Bundle {
	if f.PortID == "" || !f.FixedIPAddress.Is4() || !f.FloatingIPAddress.Is4() {
		return topology.Bundle{}
	}
	q, float := interfacePort(servedBy.Port.ID), placeFloatByInterface
	if gateway {
		q, float = gatewayPort(servedBy.Port.ID), placeFloatByGateway
	}
	floating, fixed := single(f.FloatingIPAddress), single(f.FixedIPAddress)
	toFloating, fromFixed, exact := anyFragment(), anyFragment(), leaving(q)
	toFloating.NwDstIP, fromFixed.NwSrcIP, exact.NwSrcIP = &floating, &fixed, &fixed

	r := f.RouterID
	rules := []topology.RuleEntry{
		entry(roleChainIn, r, placeFloatingDNAT, Derive(roleFloatingDNAT, f.ID), staticNAT(true, f.FixedIPAddress, toFloating)),
		entry(roleChainSkipSNAT, r, placeSkipFloatingOut, Derive(roleFloatingSkipOut, f.ID), literal(topology.Return, leaving(q))),
		entry(roleChainSkipSNAT, r, placeSkipFloatingIn, Derive(roleFloatingSkipIn, f.ID), literal(topology.Accept, entering(q))),
		entry(roleChainFloatExact, r, placeFloatExact, Derive(roleFloatingExact, f.ID), staticNAT(false, f.FloatingIPAddress, exact)),
		entry(roleChainFloat, r, float, Derive(roleFloatingSNAT, f.ID), staticNAT(false, f.FloatingIPAddress, fromFixed)),
	}
	for i := range rules {
		rules[i].Rule.FipPortID = f.PortID
	}
	return topology.Bundle{
		Rules: rules,
		Neighbours: []topology.NeighbourEntry{{
			NetworkID: servedBy.Network.ID, IP: f.FloatingIPAddress, MAC: servedBy.Port.MACAddress,
		}},
	}
}
