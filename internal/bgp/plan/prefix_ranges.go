package plan

import (
	"fmt"
	"net/netip"
	"slices"
)

// Range is a range of prefixes: those inside Prefix with lengths from Min to Max, both included.
// Min is at least Prefix.Bits().
type Range struct {
	Prefix   netip.Prefix
	Min, Max int
}

// inside returns prefix itself and everything in it.
func inside(prefix netip.Prefix) Range {
	return Range{prefix.Masked(), prefix.Bits(), prefix.Addr().BitLen()}
}

func exactly(prefix netip.Prefix) Range {
	return Range{prefix.Masked(), prefix.Bits(), prefix.Bits()}
}

// Contains reports whether p, of the same family, is one of the range's prefixes.
func (r Range) Contains(p netip.Prefix) bool {
	return r.Min <= p.Bits() && p.Bits() <= r.Max && r.Prefix.Overlaps(p) && r.Prefix.Bits() <= p.Bits()
}

// String returns "prefix{min,max}", or the prefix alone where only it is meant.
func (r Range) String() string {
	if r.Min == r.Max && r.Min == r.Prefix.Bits() {
		return r.Prefix.String()
	}
	return fmt.Sprintf("%s{%d,%d}", r.Prefix, r.Min, r.Max)
}

// Set is a set of prefixes of one family: what any of its ranges contains.
type Set []Range

func everything(f Family) Set { return Set{{netip.PrefixFrom(f.zero(), 0), 0, f.bits()}} }

// Contains reports whether p is in the set.
func (s Set) Contains(p netip.Prefix) bool {
	return slices.ContainsFunc(s, func(r Range) bool { return r.Contains(p) })
}

func (s Set) intersect(other Set) Set {
	var out Set
	for _, a := range s {
		for _, b := range other {
			if both, ok := a.intersect(b); ok {
				out = append(out, both)
			}
		}
	}
	return out
}

func (r Range) intersect(other Range) (Range, bool) {
	if !r.Prefix.Overlaps(other.Prefix) {
		return Range{}, false
	}
	if other.Prefix.Bits() > r.Prefix.Bits() {
		r, other = other, r
	}
	r.Min, r.Max = max(r.Min, other.Min), min(r.Max, other.Max)
	return r, r.Min <= r.Max
}

// without returns the set less a range.
func (s Set) without(gone Range) Set {
	var rest Set
	for _, r := range s {
		rest = r.without(gone, rest)
	}
	return rest
}

// without appends to out what of r is not in gone.
func (r Range) without(gone Range, out Set) Set {
	add := func(prefix netip.Prefix, low, high int) {
		if low = max(low, prefix.Bits()); low <= high {
			out = append(out, Range{prefix, low, high})
		}
	}
	if !r.Prefix.Overlaps(gone.Prefix) {
		return append(out, r)
	}
	inner := r.Prefix
	if bits := gone.Prefix.Bits(); bits > r.Prefix.Bits() {
		// Outside gone.Prefix: prefixes too short to lie in it, and the other half at every step
		// down to it.
		add(r.Prefix, r.Min, min(r.Max, bits-1))
		for at := r.Prefix.Bits() + 1; at <= bits; at++ {
			add(sibling(gone.Prefix, at), max(r.Min, bits), r.Max)
		}
		inner = gone.Prefix
	}
	add(inner, r.Min, min(r.Max, gone.Min-1))
	add(inner, max(r.Min, gone.Max+1), r.Max)
	return out
}

// sibling returns the prefix of length bits that differs from p's first bits in the last of them.
func sibling(p netip.Prefix, bits int) netip.Prefix {
	raw := p.Addr().AsSlice()
	raw[(bits-1)/8] ^= 0x80 >> ((bits - 1) % 8)
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, bits).Masked()
}
