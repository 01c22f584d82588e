package translate

import (
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// A router with NDP proxies enabled lets in, from its first gateway to the subnets of its
// interfaces, only packets for addresses with a proxy:
//
//	forward ─ from the gateway, to a subnet of an interface ─▶ NDP proxies
//	                                                       return: address of a proxy
//	                                                       drop
//
// The reference's L3 agent does so within an address scope, and where both sides have none, as
// after a pool has left its scope. Between two scopes nothing passes.
const nameNDPProxy = "OS_NDP_PROXY_"

// NDPProxyGateway returns the Neutron port by which a router answers for proxied addresses, "" for
// none.
func NDPProxyGateway(r *neutron.Router) string {
	if !r.EnableNDPProxy || len(r.Gateways) == 0 {
		return ""
	}
	return r.Gateways[0].PortID
}

// NDPProxy translates an NDP proxy: its address in the external network, which router r then
// answers for, and the rule that lets packets for it in. servedBy is the link of the router's first
// gateway.
func NDPProxy(x *neutron.NDPProxy, r *neutron.Router, servedBy RouterLink) topology.Bundle {
	address := single(x.IPAddress)
	proxied := entering(gatewayPort(servedBy.Port.ID))
	proxied.NwDstIP = &address
	rule := entry(roleChainNDPProxy, r.ID, placeProxied, Derive(roleNDPProxyReturn, x.ID), literal(topology.Return, proxied))
	rule.Rule.FipPortID = x.PortID
	return topology.Bundle{
		Rules: []topology.RuleEntry{rule},
		Neighbours: []topology.NeighbourEntry{{
			NetworkID: servedBy.Network.ID, IP: x.IPAddress, MAC: servedBy.Port.MACAddress,
		}},
	}
}

// dropUnproxied returns the rule that ends the chain of a router's NDP proxies.
func dropUnproxied(r *neutron.Router) topology.Rule {
	rule := literal(topology.Drop, anyFragment())
	rule.ID = Derive(roleNDPProxyDrop, r.ID)
	return rule
}

// insideProxied returns the rules by which packets from the gateway to the IPv6 subnets of
// interface q go through the chain of NDP proxies.
func insideProxied(r *neutron.Router, q string, as []linkAddress) []topology.RuleEntry {
	g := NDPProxyGateway(r)
	if g == "" {
		return nil
	}
	var rules []topology.RuleEntry
	for _, a := range as {
		if !a.ip.Is6() {
			continue
		}
		subnet := a.subnet.CIDR.Masked()
		c := entering(gatewayPort(g))
		c.NwDstIP = &subnet
		to := jump(Derive(roleNDPProxyInside, q, a.ip.String()), routerChain(roleChainNDPProxy, r.ID), nameNDPProxy+r.ID)
		to.Condition = &c
		rules = append(rules, entry(roleChainForward, r.ID, placeNDPProxy, to.ID, to))
	}
	return rules
}
