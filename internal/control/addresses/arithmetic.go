package addresses

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// u128 counts addresses; an IPv4 address is its low 32 bits.
type u128 struct{ hi, lo uint64 }

func (a u128) isZero() bool { return a == u128{} }

func (a u128) less(b u128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a u128) add(b u128) u128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return u128{hi, lo}
}

func (a u128) sub(b u128) u128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return u128{hi, lo}
}

func fromAddr(a netip.Addr) u128 {
	if a.Is4() {
		b := a.As4()
		return u128{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// offset returns the address n after start, in start's family.
func offset(start netip.Addr, n u128) netip.Addr {
	sum := fromAddr(start).add(n)
	if start.Is4() {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(sum.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], sum.hi)
	binary.BigEndian.PutUint64(b[8:], sum.lo)
	return netip.AddrFrom16(b)
}

// span returns the number of addresses from first to last; 0 if they are not in order.
func span(first, last netip.Addr) u128 {
	if first.BitLen() != last.BitLen() || last.Less(first) {
		return u128{}
	}
	return fromAddr(last).sub(fromAddr(first)).add(u128{lo: 1})
}

// LastOf returns the highest address of a prefix.
func LastOf(p netip.Prefix) netip.Addr {
	host := uint(p.Addr().BitLen() - p.Bits())
	return offset(p.Masked().Addr(), lowBits(host))
}

// lowBits returns the number whose n low bits are set, n up to 128.
func lowBits(n uint) u128 {
	if n >= 64 {
		return u128{1<<(n-64) - 1, ^uint64(0)}
	}
	return u128{lo: 1<<n - 1}
}

// randomBelow returns a number from 0 to n−1, each as likely; n must not be 0.
func randomBelow(n u128, random Random) u128 {
	if n.hi == 0 {
		return u128{lo: random.Uint64N(n.lo)}
	}
	mask := lowBits(uint(64 + bits.Len64(n.hi)))
	for {
		r := u128{random.Uint64() & mask.hi, random.Uint64()}
		if r.less(n) {
			return r
		}
	}
}
