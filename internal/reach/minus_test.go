package reach

import (
	"math/rand/v2"
	"testing"
)

// TestMinus holds differences and unions of random sets to what they are for each service.
func TestMinus(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	random := func() Services {
		var ranges []Range
		for range r.IntN(5) {
			low := uint16(r.IntN(40))
			ranges = append(ranges, Range{uint8(r.IntN(3)), low, low + uint16(r.IntN(20))})
		}
		if r.IntN(3) == 0 {
			ranges = append(ranges, Range{uint8(r.IntN(3)), 0, 0xffff})
		}
		return Of(ranges...)
	}
	for range 2000 {
		a, b := random(), random()
		minus, and := a.Minus(&b), a.And(&b)
		for proto := range uint8(4) {
			for _, n := range []uint16{0, 1, 5, 19, 20, 21, 39, 40, 58, 59, 60, 0xffff, uint16(r.IntN(70))} {
				if got, want := minus.Has(proto, n), a.Has(proto, n) && !b.Has(proto, n); got != want {
					t.Fatalf("%v minus %v has %d/%d: %t", a, b, proto, n, got)
				}
				if got, want := and.Has(proto, n), a.Has(proto, n) || b.Has(proto, n); got != want {
					t.Fatalf("%v and %v has %d/%d: %t", a, b, proto, n, got)
				}
			}
		}
		if both := minus.And(&b); !both.Equal(&and) {
			t.Fatalf("%v and %v: %v, then %v", a, b, and, both)
		}
	}
}
