package addresses

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// members returns which addresses of 10.0.0.0/24 the prefixes hold.
func members(prefixes []netip.Prefix) (in [256]bool) {
	for i := range in {
		in[i] = slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) })
	}
	return in
}

// Compact, Without and Common hold the addresses that sets would, in order and as few prefixes as
// can be.
func TestPrefixSets(t *testing.T) {
	t.Parallel()
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 255).Draw(t, "address"))})
		return netip.PrefixFrom(a, rapid.IntRange(24, 32).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(prefix, 0, 8).Draw(t, "a"), rapid.SliceOfN(prefix, 0, 8).Draw(t, "b")
		inA, inB := members(a), members(b)
		var without, common [256]bool
		for i := range inA {
			without[i], common[i] = inA[i] && !inB[i], inA[i] && inB[i]
		}
		for name, tt := range map[string]struct {
			got  []netip.Prefix
			want [256]bool
		}{"Compact": {Compact(a), inA}, "Without": {Without(a, b), without}, "Common": {Common(a, b), common}} {
			if members(tt.got) != tt.want {
				t.Fatalf("%s of %v and %v: %v", name, a, b, tt.got)
			}
			for i, p := range tt.got {
				if i > 0 && (!tt.got[i-1].Addr().Less(p.Addr()) || tt.got[i-1] == Sibling(p)) {
					t.Fatalf("%s of %v and %v: %v could be fewer", name, a, b, tt.got)
				}
			}
		}
	})
}
