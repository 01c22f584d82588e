package reach

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
)

// Services is a set of services: IP protocols, and of those with ports the destination ports, of
// ICMP types and codes. The zero value is the empty set. Equal sets are deeply equal.
type Services struct {
	whole [4]uint64 // protocols with all of their ports or types
	parts []Range   // of others, in order; neither overlapping nor adjacent
}

// Range is a part of the services of one protocol.
type Range struct {
	Proto     uint8
	Low, High uint16 // ports; of ICMP type<<8 | code
}

func (r Range) isWhole() bool { return r.Low == 0 && r.High == 0xffff }

// IsEmpty reports whether there is no service in the set.
func (s *Services) IsEmpty() bool { return s.whole == [4]uint64{} && len(s.parts) == 0 }

// Has reports whether a service is in the set.
func (s *Services) Has(proto uint8, n uint16) bool {
	if s.whole[proto>>6]>>(proto&63)&1 != 0 {
		return true
	}
	return slices.ContainsFunc(s.parts, func(r Range) bool { return r.Proto == proto && r.Low <= n && n <= r.High })
}

// Whole returns the protocols of which all services are in the set.
func (s *Services) Whole() (protos []uint8) {
	for i, w := range s.whole {
		for ; w != 0; w &= w - 1 {
			protos = append(protos, uint8(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return protos
}

// First returns the first service of a protocol in the set.
func (s *Services) First(proto uint8) (n uint16, ok bool) {
	for _, r := range s.ranges() {
		if r.Proto == proto {
			return r.Low, true
		}
	}
	return 0, false
}

// Parts returns the services of other protocols, in order.
func (s *Services) Parts() []Range { return s.parts }

// Equal reports whether two sets are equal.
func (s *Services) Equal(o *Services) bool {
	return s.whole == o.whole && slices.Equal(s.parts, o.parts)
}

// Key returns a text that is the same for equal sets alone.
func (s *Services) Key() string {
	var b strings.Builder
	for _, w := range s.whole {
		for range 8 {
			b.WriteByte(byte(w))
			w >>= 8
		}
	}
	for _, r := range s.parts {
		b.Write([]byte{r.Proto, byte(r.Low >> 8), byte(r.Low), byte(r.High >> 8), byte(r.High)})
	}
	return b.String()
}

// services makes a set of ranges that do not overlap.
func services(ranges []Range) (s Services) {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Low, b.Low)) })
	for i := 0; i < len(ranges); {
		r := ranges[i]
		for i++; i < len(ranges) && ranges[i].Proto == r.Proto && r.High != 0xffff && ranges[i].Low == r.High+1; i++ {
			r.High = ranges[i].High
		}
		if r.isWhole() {
			s.whole[r.Proto>>6] |= 1 << (r.Proto & 63)
		} else {
			s.parts = append(s.parts, r)
		}
	}
	return s
}
