package simulate

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// lookups remembers, with false positives, the addresses that decisions have looked up in a group.
// Others can join or leave without stopping any: a new port of a large group that refers to itself
// costs nothing, nor does a prefix from which no packet came. Simulations write it, hence the
// atomics.
type lookups struct{ filter atomic.Pointer[lookupFilter] } // nil before the first

// lookupFilter is a Bloom filter of addresses, and of the prefixes of lookupLengths they are in.
type lookupFilter [64]atomic.Uint64

// lookupLengths are the lengths of the prefixes that are noted with an address, longest first. What
// is longer than one of them is looked for by the address or by a prefix around it.
func lookupLengths(is4 bool) [3]int {
	if is4 {
		return [3]int{24, 16, 8}
	}
	return [3]int{64, 48, 32}
}

func lookupBit(a netip.Addr, bits int) (word int, bit uint64) {
	b := a.As16()
	h := binary.LittleEndian.Uint64(b[:8])*0x9e3779b97f4a7c15 + binary.LittleEndian.Uint64(b[8:]) + uint64(bits)*0xc2b2ae3d27d4eb4f
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	h >>= 52 // 12 bits
	return int(h >> 6), 1 << (h & 63)
}

func (l *lookups) note(a netip.Addr) {
	f := l.filter.Load()
	if f == nil {
		l.filter.CompareAndSwap(nil, &lookupFilter{})
		f = l.filter.Load()
	}
	f.set(a, a.BitLen())
	for _, bits := range lookupLengths(a.Is4()) {
		if p, err := a.Prefix(bits); err == nil {
			f.set(p.Addr(), bits)
		}
	}
}

func (f *lookupFilter) set(a netip.Addr, bits int) {
	word, bit := lookupBit(a, bits)
	if f[word].Load()&bit == 0 {
		f[word].Or(bit)
	}
}

func (f *lookupFilter) has(a netip.Addr, bits int) bool {
	word, bit := lookupBit(a, bits)
	return f[word].Load()&bit != 0
}

// mayHave reports whether an address of a masked prefix may have been looked up.
func (l *lookups) mayHave(p netip.Prefix) bool {
	f := l.filter.Load()
	if f == nil {
		return false
	}
	if p.IsSingleIP() {
		return f.has(p.Addr(), p.Bits())
	}
	for _, bits := range lookupLengths(p.Addr().Is4()) {
		if bits > p.Bits() {
			continue
		}
		around, err := p.Addr().Prefix(bits)
		return err != nil || f.has(around.Addr(), bits)
	}
	return true
}

func (l *lookups) clear() { l.filter.Store(nil) }
