package translate

import (
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// RouterGateway translates a router's link to an external network: its port there, the default
// routes, and with enableSNAT the rules that let machines without floating IPs out (§8.3, §8.4).
// The default routes of the router's first gateway come before those of the others, which have
// routes to their own subnets; of several gateways to a network only the first has.
func RouterGateway(r *neutron.Router, l RouterLink, enableSNAT bool) topology.Bundle {
	as := l.addresses()
	q := routerPort(gatewayPort(l.Port.ID), r, &l, as)
	q.PeerID = l.Port.ID
	b := topology.Bundle{Ports: []topology.Port{q}}
	first := isFirstGateway(r, l.Port.ID)
	var done4, done6 bool
	for _, a := range as {
		b.Routes = append(b.Routes, localRoute(q.ID, a.ip))
		if isFirstTo(r, l) && !first {
			b.Routes = append(b.Routes, portRoute(Derive(roleRouteConnected, q.ID, a.ip.String()), q.ID, a.subnet.CIDR.Masked()))
		}
		done := &done4
		if a.ip.Is6() {
			done = &done6
		}
		if !*done {
			route := defaultRoute(q.ID, a, &l)
			if !first {
				route.Weight = otherGatewayWeight
			}
			b.Routes = append(b.Routes, route)
		}
		*done = true
	}
	if a, ok := first4(as); ok && enableSNAT {
		b.Rules = defaultSNAT(r, l.Port.ID, a, done6)
		if l.AddressScopes.IPv4 != "" {
			b.Rules = append(b.Rules, withinScope(r, l.Port.ID))
		}
		for i := range b.Rules {
			limit(&b.Rules[i].Rule, gatewayLimits(r, &l), l.Port.ID)
		}
	}
	return b
}

// isFirstGateway reports whether a port is the first of a router's gateways, or the only one.
func isFirstGateway(r *neutron.Router, port string) bool {
	return len(r.Gateways) == 0 || r.Gateways[0].PortID == port
}

// isFirstTo reports whether a port is the first of a router's gateways to its network.
func isFirstTo(r *neutron.Router, l RouterLink) bool {
	i := slices.IndexFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.NetworkID == l.Port.NetworkID })
	return i < 0 || r.Gateways[i].PortID == l.Port.ID
}

// defaultRoute leads out of gateway port q, by the gateway of the address's subnet.
func defaultRoute(q string, a linkAddress, l *RouterLink) topology.Route {
	route := portRoute(Derive(roleRouteGateway, q, a.ip.String()), q, anywhere(a.ip))
	if a.subnet.GatewayIP != nil {
		route.NextHopGateway = *a.subnet.GatewayIP
	}
	if !bridgeless(l.Network) {
		route.GatewayDhcpID = a.subnet.ID
	}
	return route
}

// gatewayRule returns the id of a rule of a gateway: the first one's are the router's.
func gatewayRule(role string, r *neutron.Router, port string) string {
	if !isFirstGateway(r, port) {
		return Derive(role, r.ID, port)
	}
	return Derive(role, r.ID)
}

// withinScope returns the rule that keeps the addresses of what leaves by a gateway of the address
// scope that it comes from.
func withinScope(r *neutron.Router, port string) topology.RuleEntry {
	same := leaving(gatewayPort(port))
	same.MatchSameAddressScope = true
	return entry(roleChainOut, r.ID, placeGatewayScope, gatewayRule(roleSNATScope, r, port), literal(topology.Accept, same))
}

// defaultSNAT returns the rules that translate to the gateway's address a. With ipv6, packets of
// that family pass them, since there is no NAT for IPv6.
func defaultSNAT(r *neutron.Router, port string, a linkAddress, ipv6 bool) []topology.RuleEntry {
	q := gatewayPort(port)
	id := func(role string) string { return gatewayRule(role, r, port) }
	toSelf := unfragmented()
	toSelf.NwDstIP = single4(a)
	wrong := toSelf
	wrong.NwProto, wrong.NwProtoInv = protocol(protoICMP), true
	out := unfragmented()
	out.OutPortIDs, out.NwSrcIP, out.NwSrcInv = []string{q}, single4(a), true
	fragments := out
	fragments.FragmentPolicy = topology.FragAny
	rewritten := unfragmented()
	rewritten.MatchNwDstRewritten = true

	rules := []topology.RuleEntry{
		entry(roleChainIn, r.ID, placeGatewayReverse, id(roleSNATReverse), reverseSNAT(toSelf)),
		entry(roleChainIn, r.ID, placeGatewayDropWrong, id(roleSNATDropWrong), literal(topology.Drop, wrong)),
		entry(roleChainSkipSNAT, r.ID, placeSkipGatewayOut, id(roleSNATSkipOut), literal(topology.Return, leaving(q))),
		entry(roleChainSkipSNAT, r.ID, placeSkipGatewayIn, id(roleSNATSkipIn), literal(topology.Accept, entering(q))),
		entry(roleChainOut, r.ID, placeGatewaySNAT, id(roleSNATOut), dynamicSNAT(a.ip, out)),
		entry(roleChainOut, r.ID, placeGatewayRewritten, id(roleSNATRewritten), dynamicSNAT(a.ip, rewritten)),
		entry(roleChainOut, r.ID, placeGatewayDropFrag, id(roleSNATDropFrag), literal(topology.Drop, fragments)),
	}
	if ipv6 {
		c := leaving(q)
		c.DlType = etherIPv6
		rules = append(rules, entry(roleChainOut, r.ID, placeGatewayIPv6, id(roleSNATIPv6), literal(topology.Accept, c)))
	}
	return rules
}
