package flowstate

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"heddle/internal/topology/flow"
)

// index finds entries by their keys. It keeps hashes of 64 bits in place of the keys, which an
// entry has in itself: a key is some eighty bytes. Of two keys with one hash the later has the
// place, and the other's entry has to go; by chance that happens once in ten million full tables.
type index[K, R comparable] struct {
	keys   func(R) (K, K)
	hash   func(K) uint64
	byHash map[uint64]*entry[R]
}

func newIndex[K, R comparable](keys func(R) (K, K), hash func(K) uint64) index[K, R] {
	return index[K, R]{keys: keys, hash: hash, byHash: map[uint64]*entry[R]{}}
}

// hasher makes hashes of what keys have in common. Its seeds are secret: who sends packets cannot
// choose two with one hash.
type hasher struct {
	devices maphash.Seed
	seeds   [4]uint64
}

func newHasher() hasher {
	return hasher{maphash.MakeSeed(), [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}}
}

func (h *hasher) of(src, dst netip.Addr, srcPort, dstPort uint16, kind, proto uint8, device string) uint64 {
	a, b := src.As16(), dst.As16()
	rest := uint64(srcPort)<<48 | uint64(dstPort)<<32 | uint64(kind)<<8 | uint64(proto)
	x := fold(binary.NativeEndian.Uint64(a[:])^h.seeds[0], binary.NativeEndian.Uint64(a[8:])^h.seeds[1])
	y := fold(binary.NativeEndian.Uint64(b[:])^h.seeds[2], binary.NativeEndian.Uint64(b[8:])^h.seeds[3])
	return fold(x^rest^h.seeds[1], y^maphash.String(h.devices, device))
}

// fold mixes two numbers by the halves of their product.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func (h *hasher) ofConn(k flow.ConnKey) uint64 {
	var ingress uint8
	if k.Ingress {
		ingress = 1
	}
	return h.of(k.Src, k.Dst, k.SrcPort, k.DstPort, ingress, k.Proto, k.Device)
}

func (h *hasher) ofNAT(k flow.NATKey) uint64 {
	return h.of(k.Src, k.Dst, k.SrcPort, k.DstPort, uint8(k.Kind), k.Proto, k.Device)
}

// get returns the entry with a key, or nil.
func (x *index[K, R]) get(key K) *entry[R] {
	c := x.byHash[x.hash(key)]
	if c == nil {
		return nil
	}
	if a, b := x.keys(c.record); a != key && b != key {
		return nil
	}
	return c
}

// put enters an entry under its keys, and returns the entries of others that had one of the places.
func (x *index[K, R]) put(c *entry[R]) (evicted []*entry[R]) {
	a, b := x.keys(c.record)
	for i, key := range [2]K{a, b} {
		if i == 1 && b == a {
			break
		}
		h := x.hash(key)
		if other := x.byHash[h]; other != nil && other != c {
			evicted = append(evicted, other)
		}
		x.byHash[h] = c
	}
	return evicted
}

// remove takes an entry away.
func (x *index[K, R]) remove(c *entry[R]) {
	a, b := x.keys(c.record)
	for _, key := range [2]K{a, b} {
		if h := x.hash(key); x.byHash[h] == c {
			delete(x.byHash, h)
		}
	}
}
