package plan

import "net/netip"

// Family is an address family.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Bits is the length of an address, in bits.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

func (f Family) zero() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Rule decides on the prefixes of a set.
type Rule struct {
	Set    Set
	Accept bool
}

// Filter is rules in the order in which they are asked; the first whose set contains a prefix decides. What none decides
// on is rejected.
type Filter []Rule

// Accepts says what the filter decides on a prefix.
func (f Filter) Accepts(p netip.Prefix) bool {
	for _, r := range f {
		if r.Set.Contains(p) {
			return r.Accept
		}
	}
	return false
}

// exportFilter puts the export filter of a family together (spec §12): own blocks as they are and nothing inside them,
// then custom filters, then what lies in a pool.
func exportFilter(f Family, blocks []netip.Prefix, custom Filter, pools []netip.Prefix) Filter {
	var own, inside, pooled Set
	for _, b := range blocks {
		if FamilyOf(b.Addr()) == f {
			own, inside = append(own, Exactly(b)), append(inside, Inside(b))
		}
	}
	for _, p := range pools {
		if FamilyOf(p.Addr()) == f {
			pooled = append(pooled, Inside(p))
		}
	}
	filter := Filter{{own, true}, {inside, false}}
	filter = append(filter, custom...)
	return append(filter, Rule{pooled, true})
}
