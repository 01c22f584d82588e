package plan

import "net/netip"

// Family is an address family.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// familyOf is the family of an address.
func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// bits is the length of an address, in bits.
func (f Family) bits() int {
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

// accepts says what the filter decides on a prefix.
func (f Filter) accepts(p netip.Prefix) bool {
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
	var own, within, pooled Set
	for _, b := range blocks {
		if familyOf(b.Addr()) == f {
			own, within = append(own, exactly(b)), append(within, inside(b))
		}
	}
	for _, p := range pools {
		if familyOf(p.Addr()) == f {
			pooled = append(pooled, inside(p))
		}
	}
	filter := Filter{{own, true}, {within, false}}
	filter = append(filter, custom...)
	return append(filter, Rule{pooled, true})
}
