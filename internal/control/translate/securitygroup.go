package translate

import (
	"cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// A group's egress chain sees what its members send, so the inbound chains of their ports jump to
// it; its ingress chain sees what they get (midonet-translations §3).
func egressChain(group string) string      { return Derive(roleChainIn, group) }
func ingressChain(group string) string     { return Derive(roleChainOut, group) }
func egressChainName(group string) string  { return "OS_SG_" + group + "_EGRESS" }
func ingressChainName(group string) string { return "OS_SG_" + group + "_INGRESS" }

// SecurityGroup translates a group with its rules into an address group and two chains
// (midonet-translations §11). The newest rule stands first in its chain.
func SecurityGroup(g *neutron.SecurityGroup) topology.Bundle {
	egress := topology.Chain{ID: egressChain(g.ID), Name: egressChainName(g.ID), Purpose: topology.PurposeGroup, TenantID: g.ProjectID}
	ingress := topology.Chain{ID: ingressChain(g.ID), Name: ingressChainName(g.ID), Purpose: topology.PurposeGroup, TenantID: g.ProjectID}
	for i := len(g.Rules) - 1; i >= 0; i-- {
		r := &g.Rules[i]
		if r.Direction == "ingress" {
			ingress.Rules = append(ingress.Rules, groupRule(r)...)
		} else {
			egress.Rules = append(egress.Rules, groupRule(r)...)
		}
	}
	return topology.Bundle{
		Chains: []topology.Chain{egress, ingress},
		IPAddrGroups: []topology.IPAddrGroup{{
			ID: g.ID, Name: g.Name, InboundChainID: egress.ID, OutboundChainID: ingress.ID,
		}},
	}
}

// groupRule translates one rule. A rule on ports gets a companion for later fragments.
func groupRule(r *neutron.SecurityGroupRule) []topology.Rule {
	c, ok := remoteClauses(r)
	low, lowOK := bound(r.PortRangeMin)
	high, highOK := bound(r.PortRangeMax)
	if !ok || !lowOK || !highOK {
		return nil
	}
	rule := topology.Rule{ID: r.ID, Type: topology.Literal, Action: topology.Accept, Condition: &c}
	if low == nil && high == nil {
		c.FragmentPolicy = topology.FragAny
		return []topology.Rule{rule}
	}
	later := c
	later.FragmentPolicy = topology.FragNonHeader
	companion := rule
	companion.ID, companion.Condition = Derive(roleSGNonHeader, r.ID), &later
	c.FragmentPolicy = topology.FragHeader
	portClauses(&c, low, high)
	return []topology.Rule{rule, companion}
}

// IsOfGroupRule reports whether a rule of a group's chains, by its id, is r's.
func IsOfGroupRule(r *neutron.SecurityGroupRule, rule string) bool {
	return rule == r.ID || rule == Derive(roleSGNonHeader, r.ID)
}

// remoteClauses returns the clauses on family, protocol and remote side; false for invalid text.
func remoteClauses(r *neutron.SecurityGroupRule) (topology.Condition, bool) {
	c := topology.Condition{DlType: etherIPv4}
	if r.Ethertype == "IPv6" {
		c.DlType = etherIPv6
	}
	var ok bool
	if c.NwProto, ok = protocolClause(r.Protocol, c.DlType); !ok {
		return c, false
	}
	if r.RemoteIPPrefix != "" {
		prefix, ok := prefixOf(r.RemoteIPPrefix)
		if !ok {
			return c, false
		}
		if r.Direction == "ingress" {
			c.NwSrcIP = &prefix
		} else {
			c.NwDstIP = &prefix
		}
	}
	remote := cmp.Or(r.RemoteGroupID, r.RemoteAddressGroupID)
	if r.Direction == "ingress" {
		c.IPAddrGroupIDSrc = remote
	} else {
		c.IPAddrGroupIDDst = remote
	}
	return c, true
}

// portClauses: for ICMP the bounds are type and code, otherwise the destination ports.
func portClauses(c *topology.Condition, low, high *uint16) {
	if c.NwProto == nil || *c.NwProto != protoICMP && *c.NwProto != protoICMPv6 {
		c.TpDst = &topology.Range{Low: low, High: high}
		return
	}
	if low != nil {
		c.TpSrc = &topology.Range{Low: low, High: low}
	}
	if high != nil {
		c.TpDst = &topology.Range{Low: high, High: high}
	}
}

// bound returns one end of a port range; nil is open.
func bound(n *int) (*uint16, bool) {
	if n == nil {
		return nil, true
	}
	if *n < 0 || *n > 0xffff {
		return nil, false
	}
	v := uint16(*n)
	return &v, true
}

// protocolClause reads a protocol as Neutron stores it, by name or number; nil is any. ICMP of an
// IPv6 rule is ICMPv6. Neutron's 0 (ip, hopopt) means any.
func protocolClause(text string, dlType uint16) (*uint8, bool) {
	n, ok := protocolNumber(text)
	if !ok || n == 0 {
		return nil, ok
	}
	if n == protoICMP && dlType == etherIPv6 {
		n = protoICMPv6
	}
	return &n, true
}

// protocolNumber returns the number of a protocol, by name or number; 0 stands for any.
func protocolNumber(text string) (uint8, bool) {
	if text == "" {
		return 0, true
	}
	n, ok := neutron.ProtocolNumber(text)
	return uint8(n), ok
}
