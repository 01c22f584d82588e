package plan

import "net/netip"

// Family is an address family.
type Family int

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) bits() int { return f.zero().BitLen() }

func (f Family) zero() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Rule accepts or rejects the prefixes of a set.
type Rule struct {
	Set    Set
	Accept bool
}

// Filter is a list of rules; the first whose set contains a prefix decides. The default is to
// reject.
type Filter []Rule

func (f Filter) accepts(p netip.Prefix) bool {
	for _, r := range f {
		if r.Set.Contains(p) {
			return r.Accept
		}
	}
	return false
}

// exportFilter builds the export filter of a family (spec §12): own blocks but nothing inside them,
// then custom filters, then destinations in pools.
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
