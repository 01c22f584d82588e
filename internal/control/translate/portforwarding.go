package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

const (
	protoTCP = 6

	icmpUnreachable  = 3 // to 5, redirect: the errors about a packet's way
	icmpRedirect     = 5
	icmpTimeExceeded = 11 // and 12, parameter problem
	icmpParameter    = 12
)

// PortForwarding translates a port forwarding: the floating address in the external network, an
// address of router r itself, and the rules that give connections to some of its ports another
// destination. servedBy is the router's link to that network, a gateway or an interface.
//
//	pre-routing    forward: destination FLOATING:external becomes FIXED:internal
//	post-routing   reverse: the source of replies becomes FLOATING:external
//
// Unlike those of floating IPs the translations have a state, for many addresses inside share one.
// Errors of ICMP follow the connections that they are about.
func PortForwarding(x *neutron.PortForwarding, f *neutron.FloatingIP, r *neutron.Router, servedBy RouterLink) topology.Bundle {
	gateway := slices.ContainsFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == servedBy.Port.ID })
	q := interfacePort(servedBy.Port.ID)
	if gateway {
		q = gatewayPort(servedBy.Port.ID)
	}
	floating, fixed := single(f.FloatingIPAddress), single(x.InternalIPAddress)
	id := func(role string) string { return Derive(role, x.ID) }
	proto := uint8(protoTCP)
	if x.Protocol == "udp" {
		proto = protoUDP
	}

	to, from := unfragmented(), unfragmented()
	to.NwDstIP, to.NwProto, to.TpDst = &floating, protocol(proto), ports(x.External.First, x.External.Last)
	from.NwSrcIP, from.NwProto, from.TpSrc = &fixed, protocol(proto), ports(x.Internal.First, x.Internal.Last)
	forward, reverse := dynamicDNAT(x, to), reverseDNAT(from)
	rules := []topology.RuleEntry{
		entry(roleChainIn, r.ID, placeForwarding, id(roleForwardingDNAT), forward),
		entry(roleChainOut, r.ID, placeForwardingReverse, id(roleForwardingReverse), reverse),
		entry(roleChainSkipSNAT, r.ID, placeSkipFloatingOut, id(roleForwardingSkipOut), literal(topology.Return, leaving(q))),
		entry(roleChainSkipSNAT, r.ID, placeSkipFloatingIn, id(roleForwardingSkipIn), literal(topology.Accept, entering(q))),
	}
	for _, types := range [][2]uint16{{icmpUnreachable, icmpRedirect}, {icmpTimeExceeded, icmpParameter}} {
		for _, c := range []*topology.Condition{&to, &from} {
			c.NwProto, c.TpSrc, c.TpDst = protocol(protoICMP), ports(types[0], types[1]), nil
		}
		rules = append(rules,
			entry(roleChainIn, r.ID, placeForwarding, deriveAt(roleForwardingDNAT, x.ID, int(types[0])), dynamicDNAT(x, to)),
			entry(roleChainOut, r.ID, placeForwardingReverse, deriveAt(roleForwardingReverse, x.ID, int(types[0])), reverseDNAT(from)))
	}
	rules = append(rules, forwardingRest(r.ID, x.ID, floating)...)
	for i := range rules {
		rules[i].Rule.FipPortID = x.InternalPortID
	}
	local := localRoute(q, f.FloatingIPAddress)
	local.ID = Derive(roleRouteLocal, q, x.ID)
	b := topology.Bundle{
		Rules: rules, Routes: []topology.Route{local},
		Neighbours: []topology.NeighbourEntry{{
			NetworkID: servedBy.Network.ID, IP: f.FloatingIPAddress, MAC: servedBy.Port.MACAddress,
		}},
		FloatingAddresses: []topology.FloatingAddress{{RouterID: r.ID, PortID: q, Address: f.FloatingIPAddress}},
	}
	if gateway && len(r.Gateways) > 1 {
		b.Routes = append(b.Routes, boundTo(q, Derive(roleFloatingRoute, x.ID), x.InternalIPAddress))
	}
	return b
}

// forwardingRest returns the rules on what is for a floating address but for none of the forwarded
// ports. The router takes it, but for fragments, whose sender hears that it should not fragment,
// and answers pings from that address.
func forwardingRest(r, id string, floating netip.Prefix) []topology.RuleEntry {
	whole, fragments, own := unfragmented(), anyFragment(), anyFragment()
	whole.NwDstIP, fragments.NwDstIP, own.NwSrcIP = &floating, &floating, &floating
	return []topology.RuleEntry{
		entry(roleChainOut, r, placeForwardingReverse, Derive(roleForwardingOwn, id), literal(topology.Accept, own)),
		entry(roleChainIn, r, placeForwardingWhole, Derive(roleForwardingWhole, id), literal(topology.Accept, whole)),
		entry(roleChainIn, r, placeForwardingDropFrag, Derive(roleForwardingDropFrag, id), literal(topology.Drop, fragments)),
	}
}

// dynamicDNAT returns a rule that gives each connection the port inside that belongs to its
// destination.
func dynamicDNAT(x *neutron.PortForwarding, c topology.Condition) topology.Rule {
	target := topology.NatTarget{
		NwStart: x.InternalIPAddress, NwEnd: x.InternalIPAddress, TpStart: x.Internal.First, TpEnd: x.Internal.Last,
	}
	if !x.Internal.Single() {
		target.TpFrom = x.External.First
	}
	return topology.Rule{Type: topology.NAT, Action: topology.Accept, Dnat: true, NatTargets: []topology.NatTarget{target}, Condition: &c}
}

// reverseDNAT returns a rule that gives replies the source that dynamicDNAT replaced.
func reverseDNAT(c topology.Condition) topology.Rule {
	return topology.Rule{Type: topology.NAT, Action: topology.Accept, Dnat: true, Reverse: true, Condition: &c}
}
