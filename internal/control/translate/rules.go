package translate

import (
	"net/netip"

	"heddle/internal/topology"
)

// Numbers of the protocols and frame types that rules name.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	protoICMP   = 1
	protoUDP    = 17
	protoICMPv6 = 58
)

// anyFragment returns the condition of a rule before its clauses: every fragment of every packet.
func anyFragment() topology.Condition { return topology.Condition{FragmentPolicy: topology.FragAny} }

// unfragmented returns the condition of a rule on connections, before its clauses: fragments have
// no ports to translate.
func unfragmented() topology.Condition {
	return topology.Condition{FragmentPolicy: topology.FragUnfragmented}
}

// entering matches what enters the router by port q, leaving what leaves it there.
func entering(q string) topology.Condition {
	c := anyFragment()
	c.InPortIDs = []string{q}
	return c
}

func leaving(q string) topology.Condition {
	c := anyFragment()
	c.OutPortIDs = []string{q}
	return c
}

// single4 returns the prefix of a router's address alone.
func single4(a linkAddress) *netip.Prefix {
	p := single(a.ip)
	return &p
}

// literal returns a rule that decides by itself. Its chain numbers it unless it has an id.
func literal(action string, c topology.Condition) topology.Rule {
	return topology.Rule{Type: topology.Literal, Action: action, Condition: &c}
}

// jump returns a rule that goes on with the chain, which carries name.
func jump(id, chainID, name string) topology.Rule {
	c := anyFragment()
	return topology.Rule{
		ID: id, Type: topology.Jump, Action: topology.Jump, JumpChainID: chainID, JumpChainName: name, Condition: &c,
	}
}

// Ports that a router translates sources to (H10).
const (
	natFirstPort = 1024
	natLastPort  = 65535
)

// dynamicSNAT returns a rule that gives each connection a port of address a as its source.
func dynamicSNAT(a netip.Addr, c topology.Condition) topology.Rule {
	targets := []topology.NatTarget{{NwStart: a, NwEnd: a, TpStart: natFirstPort, TpEnd: natLastPort}}
	return topology.Rule{Type: topology.NAT, Action: topology.Accept, NatTargets: targets, Condition: &c}
}

// reverseSNAT returns a rule that gives replies the destination that dynamicSNAT replaced.
func reverseSNAT(c topology.Condition) topology.Rule {
	return topology.Rule{Type: topology.NAT, Action: topology.Accept, Reverse: true, Condition: &c}
}

// staticNAT returns a rule that replaces the destination, or else the source, by address a.
func staticNAT(dnat bool, a netip.Addr, c topology.Condition) topology.Rule {
	targets := []topology.NatTarget{{NwStart: a, NwEnd: a}}
	return topology.Rule{Type: topology.NAT, Action: topology.Accept, Dnat: dnat, NatTargets: targets, Condition: &c}
}

// number names the rules of x's chain that have no id yet by their place in it.
func number(rules []topology.Rule, role, x string) []topology.Rule {
	for i := range rules {
		if rules[i].ID == "" {
			rules[i].ID = deriveAt(role, x, i)
		}
	}
	return rules
}

// ports returns the inclusive range low to high.
func ports(low, high uint16) *topology.Range { return &topology.Range{Low: &low, High: &high} }

func protocol(n uint8) *uint8 { return &n }

// prefixOf reads an address or a prefix, and clears host bits.
func prefixOf(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err == nil
}
