package addresses

import (
	"cmp"
	"net/netip"
	"slices"
)

// Compact returns the fewest prefixes that hold the same addresses, in order.
func Compact(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	for i, p := range sorted {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	out := []netip.Prefix{}
	for _, p := range sorted {
		if n := len(out); n > 0 && Within(p, out[n-1]) {
			continue
		}
		for len(out) > 0 && p.Bits() > 0 && out[len(out)-1] == Sibling(p) {
			out, p = out[:len(out)-1], Parent(p)
		}
		out = append(out, p)
	}
	return out
}

// Without returns the fewest prefixes that hold the addresses of prefixes but for the removed ones,
// in order.
func Without(prefixes, removed []netip.Prefix) []netip.Prefix {
	left := Compact(prefixes)
	for _, r := range Compact(removed) {
		var next []netip.Prefix
		for _, p := range left {
			switch {
			case !p.Overlaps(r):
				next = append(next, p)
			case Within(r, p):
				next = append(next, Remainder(p, r)...)
			}
		}
		left = next
	}
	return Compact(left)
}

// Common returns the fewest prefixes that hold the addresses of both, in order.
func Common(a, b []netip.Prefix) []netip.Prefix {
	var both []netip.Prefix
	for _, p := range a {
		for _, q := range b {
			switch {
			case Within(p, q):
				both = append(both, p)
			case Within(q, p):
				both = append(both, q)
			}
		}
	}
	return Compact(both)
}

// Remainder returns the fewest prefixes that hold the addresses of p but for those of part, which
// is within p; from the longest to the shortest.
func Remainder(p, part netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for q := part; q.Bits() > p.Bits(); q = Parent(q) {
		out = append(out, Sibling(q))
	}
	return out
}

// Within reports whether p holds no address that q does not.
func Within(p, q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }

// Parent returns the prefix that is one bit shorter.
func Parent(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() }

// Sibling returns the other half of the parent.
func Sibling(p netip.Prefix) netip.Prefix {
	b := p.Addr().AsSlice()
	bit := p.Bits() - 1
	b[bit/8] ^= 0x80 >> (bit % 8)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits())
}

// First returns the lowest prefix of a length within p, which is not longer.
func First(p netip.Prefix, bits int) netip.Prefix { return netip.PrefixFrom(p.Masked().Addr(), bits) }
