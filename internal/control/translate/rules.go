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
