package packet

import "net/netip"

// LastAddr returns the last address of a prefix.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch host := p.Bits() - 8*i; {
		case host <= 0:
			b[i] = 0xff
		case host < 8:
			b[i] |= 0xff >> host
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// RangeText puts a range of addresses into words: an address, a prefix if it is one, or both ends.
func RangeText(first, last netip.Addr) string {
	if first == last {
		return first.String()
	}
	for bits := range first.BitLen() {
		if p := netip.PrefixFrom(first, bits).Masked(); p.Addr() == first && LastAddr(p) == last {
			return p.String()
		}
	}
	return first.String() + "-" + last.String()
}
