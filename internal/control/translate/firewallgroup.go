package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// A firewall group is applied by the forward chains of the routers that its ports are of: to what
// the router forwards, with the addresses that machines behind it have, as by the reference's L3
// agent. The chain of a policy has neither ports nor direction, so that it is there once whatever
// the number of its groups.
//
//	forward chain:  by port q ── jump ─▶ egress policy's chain:   replies   return
//	                for port q ─ jump ─▶ ingress policy's chain:  allowed   return
//	                v1's firewall                                 the rest  drop
//
// A packet from one port to another needs both groups' consent.

// FirewallGroupPolicy translates a policy with its rules, in their order. A rule with an invalid
// text allows nothing, or denies everything.
func FirewallGroupPolicy(p *neutron.FirewallPolicy, rules []neutron.FirewallRule) topology.Bundle {
	var decide []topology.Rule
	for i := range rules {
		rule, ok := groupPolicyRule(&rules[i])
		if !ok || !rules[i].Enabled {
			continue
		}
		rule.ID = Derive(roleGroupRule, p.ID, rules[i].ID)
		decide = append(decide, rule)
	}
	chain := groupChain(Derive(roleGroupPolicy, p.ID), "OS_FWG_POLICY_"+p.ID, p.ProjectID, decide...)
	return topology.Bundle{Chains: []topology.Chain{chain}}
}

// groupChain returns a chain that lets replies pass, then decides by rules, and drops the rest.
func groupChain(id, name, project string, rules ...topology.Rule) topology.Chain {
	replies, rest := acceptReplies(), literal(topology.Drop, anyFragment())
	replies.ID, replies.Action = Derive(roleGroupReturn, id), topology.Return
	rest.ID = Derive(roleGroupDrop, id)
	return topology.Chain{ID: id, Name: name, Purpose: topology.PurposeFirewall, TenantID: project, Rules: slices.Concat([]topology.Rule{replies}, rules, []topology.Rule{rest})}
}

// groupPolicyRule translates one rule; false if its text is invalid and it would allow packets.
func groupPolicyRule(r *neutron.FirewallRule) (topology.Rule, bool) {
	action := map[string]string{"allow": topology.Return, "reject": topology.Reject}[r.Action]
	if action == "" {
		action = topology.Drop
	}
	c, ok := firewallClauses(r)
	for _, p := range []*netip.Prefix{c.NwSrcIP, c.NwDstIP} {
		ok = ok && (p == nil || p.Addr().Is4() == (r.IPVersion != 6))
	}
	if !ok {
		return literal(action, anyFragment()), action != topology.Return
	}
	c.DlType = etherIPv4
	if r.IPVersion == 6 {
		c.DlType = etherIPv6
		if c.NwProto != nil && *c.NwProto == protoICMP {
			c.NwProto = protocol(protoICMPv6)
		}
	}
	return literal(action, c), true
}

// GroupPort is a port of a firewall group.
type GroupPort struct{ PortID, RouterID string }

// FirewallGroup translates a group with its ports, each an interface of a router. A group without
// policies has no topology; one that is down drops all that passes its ports.
func FirewallGroup(g *neutron.FirewallGroup, ports []GroupPort) topology.Bundle {
	var b topology.Bundle
	if len(g.Policies()) == 0 || len(ports) == 0 {
		return b
	}
	deny := groupChain(Derive(roleGroupDeny, g.ID), "OS_FWG_DENY_"+g.ID, g.ProjectID)
	apply := func(policy string) topology.Rule {
		switch {
		case !g.AdminStateUp:
			return literal(topology.Drop, anyFragment())
		case policy == "":
			return jump("", deny.ID, deny.Name)
		}
		return jump("", Derive(roleGroupPolicy, policy), "OS_FWG_POLICY_"+policy)
	}
	for _, p := range ports {
		q := []string{interfacePort(p.PortID)}
		egress, ingress := apply(g.EgressPolicyID), apply(g.IngressPolicyID)
		egress.Condition.InPortIDs, ingress.Condition.OutPortIDs = q, q
		b.Rules = append(b.Rules,
			entry(roleChainForward, p.RouterID, placeGroupEgress, Derive(roleGroupEgress, g.ID, p.PortID), egress),
			entry(roleChainForward, p.RouterID, placeGroupIngress, Derive(roleGroupIngress, g.ID, p.PortID), ingress))
	}
	if g.AdminStateUp && (g.EgressPolicyID == "" || g.IngressPolicyID == "") {
		b.Chains = []topology.Chain{deny}
	}
	return b
}
