package translate

import (
	"slices"
	"strconv"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// Firewall translates a firewall with the rules of its policy, in their order (§16). Each of its
// routers jumps to its chain with what enters or leaves by an interface.
func Firewall(f *neutron.Firewall, rules []neutron.FirewallRule) topology.Bundle {
	chain := topology.Chain{
		ID: Derive(roleChainForward, f.ID), Name: "OS_FW_FORWARD_" + f.ID, Purpose: topology.PurposeFirewall, TenantID: f.ProjectID,
		Rules: firewallRules(f, rules),
	}
	b := topology.Bundle{Chains: []topology.Chain{chain}}
	for i, r := range f.RouterIDs {
		if slices.Contains(f.RouterIDs[:i], r) {
			continue
		}
		enter := jump("", chain.ID, chain.Name)
		c := enter.Condition
		c.InPortGroupID, c.InvInPortGroup = interfaceGroup(r), true
		c.OutPortGroupID, c.InvOutPortGroup = interfaceGroup(r), true
		c.ConjunctionInv = true
		b.Rules = append(b.Rules, entry(roleChainForward, r, placeFirewall, Derive(roleFirewallJump, r), enter))
	}
	return b
}

func firewallRules(f *neutron.Firewall, rules []neutron.FirewallRule) []topology.Rule {
	fixed := func(role string, rule topology.Rule) topology.Rule {
		rule.ID = Derive(role, f.ID)
		return rule
	}
	var out []topology.Rule
	if !f.AdminStateUp {
		out = append(out, fixed(roleFirewallDown, literal(topology.Drop, anyFragment())))
	}
	out = append(out, fixed(roleFirewallReturn, acceptReplies()))
	for i := range rules {
		rule, ok := firewallRule(&rules[i])
		if !ok || !rules[i].Enabled {
			continue
		}
		if rule.ID = rules[i].ID; f.SharesPolicy {
			rule.ID = Derive(roleFirewallShared, f.ID, rules[i].ID)
		}
		out = append(out, rule)
	}
	return append(out, fixed(roleFirewallDrop, literal(topology.Drop, anyFragment())))
}

// IsOfFirewallRule reports whether a rule of a chain of the owner, a firewall or the policy of a
// firewall group, is that of a user's rule with this id.
func IsOfFirewallRule(owner, userRule, rule string) bool {
	return rule == userRule || rule == Derive(roleFirewallShared, owner, userRule) || rule == Derive(roleGroupRule, owner, userRule)
}

// firewallRule translates one rule; false if its text is invalid and it would allow packets. One
// that would deny some then denies all.
func firewallRule(r *neutron.FirewallRule) (topology.Rule, bool) {
	action := map[string]string{"allow": topology.Accept, "reject": topology.Reject}[r.Action]
	if action == "" {
		action = topology.Drop
	}
	c, ok := firewallCondition(r)
	if !ok {
		return literal(action, anyFragment()), action != topology.Accept
	}
	return literal(action, c), true
}

// firewallCondition returns the clauses of a rule; false if its text is invalid.
func firewallCondition(r *neutron.FirewallRule) (topology.Condition, bool) {
	c, ok := firewallClauses(r)
	return c, ok && r.IPVersion != 6
}

// firewallClauses is firewallCondition for a rule of any IP version, without a clause on that.
func firewallClauses(r *neutron.FirewallRule) (topology.Condition, bool) {
	c := anyFragment()
	n, ok := protocolNumber(r.Protocol)
	if !ok {
		return c, false
	}
	if n != 0 {
		c.NwProto = &n
	}
	if r.SourceIPAddress != "" {
		p, ok := prefixOf(r.SourceIPAddress)
		if !ok {
			return c, false
		}
		c.NwSrcIP = &p
	}
	if r.DestinationIPAddress != "" {
		p, ok := prefixOf(r.DestinationIPAddress)
		if !ok {
			return c, false
		}
		c.NwDstIP = &p
	}
	if c.TpSrc, ok = portRange(r.SourcePort); !ok {
		return c, false
	}
	if c.TpDst, ok = portRange(r.DestinationPort); !ok {
		return c, false
	}
	if c.TpSrc != nil || c.TpDst != nil {
		c.FragmentPolicy = topology.FragHeader
	}
	return c, true
}

// portRange reads "80" or "80:90"; "" is any port, nil.
func portRange(text string) (*topology.Range, bool) {
	if text == "" {
		return nil, true
	}
	first, last, found := strings.Cut(text, ":")
	if !found {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return nil, false
	}
	high, err := strconv.ParseUint(last, 10, 16)
	return ports(uint16(low), uint16(high)), err == nil && low <= high
}
