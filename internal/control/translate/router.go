package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Places of the rules that gateways, interfaces, floating IPs and firewalls have in a router's
// chains (midonet-translations §3.2–3.4). The router's own rules are at place 0.
const (
	// Pre-routing.
	placeFloatingDNAT       = 10
	placeForwarding         = 10
	placeForwardingWhole    = 12
	placeForwardingDropFrag = 14
	placeGatewayReverse     = 20
	placeGatewayDropWrong   = 30
	placeSameSubnetReverse  = 40

	// Post-routing, before the jumps.
	placeForwardingReverse = -10

	// Post-routing, after the jumps.
	placeGatewayIPv6      = 10
	placeGatewayScope     = 15
	placeGatewaySNAT      = 20
	placeGatewayRewritten = 30
	placeGatewayDropFrag  = 40
	placeSameSubnetSNAT   = 50

	// Skip SNAT: what returns stands before what accepts, and the router's own rule is last.
	placeSkipFloatingOut = -40
	placeSkipGatewayOut  = -30
	placeSkipFloatingIn  = -20
	placeSkipGatewayIn   = -10

	// Float SNAT exact, and float SNAT.
	placeFloatExact       = 10
	placeFloatByGateway   = 10
	placeFloatByInterface = 20

	// NDP proxies, before the rule that drops the rest.
	placeProxied = -10

	// Forward: what is for no proxied address does not come in; what groups let pass goes on to the
	// other direction's, then to the firewall.
	placeNDPProxy     = -30
	placeGroupEgress  = -20
	placeGroupIngress = -10
	placeFirewall     = 10
)

// routerChain returns a chain of router r by its role.
func routerChain(role, r string) string { return Derive(role, r) }

// Router translates a router (midonet-translations §8). links are the ports by which it is on
// networks, in any order; an extra route whose next hop is on none of their subnets is left out.
//
//	in ─ pre-routing ─▶ route ─ forward ─ post-routing ─▶ out
//	     floating IPs           firewalls jump skip SNAT ── fixed addresses stay
//	     replies to                       jump float SNAT exact ┐
//	     the gateway                      jump float SNAT ──────┴ floating IPs
//	     and interfaces                   SNAT of the gateway, then of interfaces
//
// Gateways, interfaces, floating IPs and firewalls have the rules of these chains in their own
// bundles, but for the jumps and the last rule of skip SNAT.
func Router(r *neutron.Router, links []RouterLink) topology.Bundle {
	return topology.Bundle{
		Routers: []topology.Router{{
			ID:               r.ID,
			TenantID:         r.ProjectID,
			Name:             r.Name,
			AdminStateUp:     r.AdminStateUp,
			InboundFilterID:  routerChain(roleChainIn, r.ID),
			OutboundFilterID: routerChain(roleChainOut, r.ID),
			ForwardChainID:   routerChain(roleChainForward, r.ID),
			ExcludedHostIDs:  r.ExcludedHostIDs,
		}},
		Chains: routerChains(r),
		PortGroups: []topology.PortGroup{
			{ID: statefulGroup(r.ID), Name: "OS_STATEFUL_" + r.ID, TenantID: r.ProjectID, Stateful: true},
			{ID: interfaceGroup(r.ID), Name: "OS_INTERFACES_" + r.ID, TenantID: r.ProjectID},
		},
		Routes: extraRoutes(r, links),
	}
}

// statefulGroup holds the ports whose hosts exchange the router's connections, interfaceGroup those
// that firewalls apply to.
func statefulGroup(router string) string  { return Derive(rolePortGroupStateful, router) }
func interfaceGroup(router string) string { return Derive(rolePortGroupInterfaces, router) }

func routerChains(r *neutron.Router) []topology.Chain {
	chain := func(role, name string, purpose topology.ChainPurpose, rules ...topology.Rule) topology.Chain {
		return topology.Chain{ID: routerChain(role, r.ID), Name: name + r.ID, Purpose: purpose, TenantID: r.ProjectID, Rules: rules}
	}
	notRewritten := anyFragment()
	notRewritten.MatchNwDstRewritten, notRewritten.ConjunctionInv = true, true
	skipRest := literal(topology.Accept, notRewritten)
	skipRest.ID = Derive(roleSkipAccept, r.ID)
	skip := chain(roleChainSkipSNAT, "OS_SKIP_SNAT_", topology.PurposeSkipSNAT, skipRest)
	exact := chain(roleChainFloatExact, "OS_FLOAT_SNAT_EXACT_", topology.PurposeFloatSNAT)
	float := chain(roleChainFloat, "OS_FLOAT_SNAT_", topology.PurposeFloatSNAT)
	all := []topology.Chain{
		chain(roleChainIn, "OS_PRE_ROUTING_", topology.PurposePreRouting),
		chain(roleChainOut, "OS_POST_ROUTING_", topology.PurposePostRouting,
			jump(Derive(roleJumpSkipSNAT, r.ID), skip.ID, skip.Name),
			jump(Derive(roleJumpFloatExact, r.ID), exact.ID, exact.Name),
			jump(Derive(roleJumpFloat, r.ID), float.ID, float.Name)),
		chain(roleChainForward, "OS_FORWARD_", topology.PurposeForward),
		skip, exact, float,
	}
	if NDPProxyGateway(r) != "" {
		all = append(all, chain(roleChainNDPProxy, nameNDPProxy, topology.PurposeNDPProxy, dropUnproxied(r)))
	}
	return all
}

// entry returns a rule at a place in router r's chain of a role.
func entry(role, r string, place int, id string, rule topology.Rule) topology.RuleEntry {
	rule.ID = id
	return topology.RuleEntry{ChainID: routerChain(role, r), Place: place, Rule: rule}
}

// extraRoutes returns the routes that a client has given the router, each by the port on whose
// subnet its next hop is (§8.2 step 3), and of several by that with the longest prefix.
func extraRoutes(r *neutron.Router, links []RouterLink) []topology.Route {
	var routes []topology.Route
	for _, x := range r.Routes {
		id := extraRoute(r, x)
		if slices.ContainsFunc(routes, func(route topology.Route) bool { return route.ID == id }) {
			continue
		}
		q := portTowards(x.Nexthop, links)
		if q == "" || x.Nexthop.Is4() != x.Destination.Addr().Is4() {
			continue
		}
		route := portRoute(id, q, x.Destination.Masked())
		route.NextHopGateway = x.Nexthop
		routes = append(routes, route)
	}
	return routes
}

func extraRoute(r *neutron.Router, x neutron.HostRoute) string {
	return Derive(roleRouteExtra, r.ID, x.Destination.String(), x.Nexthop.String())
}

// portTowards returns the router's port on the subnet of a next hop; "" if there is none.
func portTowards(hop netip.Addr, links []RouterLink) string {
	w, _ := towards(hop, links)
	return w.port
}

// way is an address of a router by whose subnet it reaches others.
type way struct {
	link    *RouterLink
	port    string // of the router
	address linkAddress
}

// towards returns the router's address on the subnet of a next hop, that with the longest prefix of
// several; false if there is none. An address of the router itself is no next hop.
func towards(hop netip.Addr, links []RouterLink) (way, bool) {
	var ways []way
	for i := range links {
		l := &links[i]
		as := l.addresses()
		if slices.ContainsFunc(as, func(a linkAddress) bool { return a.ip == hop }) {
			continue
		}
		for _, a := range as {
			if OnLink(a.subnet.CIDR, hop) {
				ways = append(ways, way{l, l.routerPort(), a})
			}
		}
	}
	if len(ways) == 0 {
		return way{}, false
	}
	return slices.MinFunc(ways, func(a, b way) int {
		return cmp.Or(cmp.Compare(b.address.subnet.CIDR.Bits(), a.address.subnet.CIDR.Bits()), cmp.Compare(a.port, b.port))
	}), true
}

// OnLink reports whether hop can be a next hop on a subnet: an address of it, but not the one that
// names an IPv4 network (§8.2 step 3), unless that is a link of two addresses (RFC 3021).
func OnLink(cidr netip.Prefix, hop netip.Addr) bool {
	unusable := hop.Is4() && cidr.Bits() < 31 && hop == cidr.Masked().Addr()
	return cidr.Contains(hop) && !unusable
}
