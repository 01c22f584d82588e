package control

import (
	"net/netip"

	"heddle/internal/control/addresses"
	"heddle/internal/store/schema"
)

// poolSpace is the free address space of a pool: ranges that are halved as long as need be to give
// a part away, and joined again when it comes back. So a change costs as much as a prefix has bits,
// whatever the number of subnets.
type poolSpace struct {
	*operation
	pool string
}

// space returns the space of a pool. Transactions that ask for it go one after the other.
func (o *operation) space(pool string) poolSpace {
	o.tx.Touch("subnetpool/" + pool)
	return poolSpace{o, pool}
}

// takeAny takes the lowest range of a length out of the smallest free range that has room for it.
func (s poolSpace) takeAny(bits int) (p netip.Prefix, ok bool, err error) {
	for length := bits; length >= 0; length-- {
		for free := range schema.FreeRanges.By(s.tx, "length", schema.FreeLength(s.pool, length)) {
			p = addresses.First(free.Range, bits)
			return p, true, s.split(free.Range, p)
		}
	}
	return p, false, nil
}

// take takes a range, unless part of it is taken or not of the pool.
func (s poolSpace) take(p netip.Prefix) (ok bool, err error) {
	free, ok := s.around(p)
	if !ok {
		return false, nil
	}
	return true, s.split(free, p)
}

// around returns the free range that holds all of p.
func (s poolSpace) around(p netip.Prefix) (free netip.Prefix, ok bool) {
	for free = p; ; free = addresses.Parent(free) {
		if _, ok := schema.FreeRanges.Peek(s.tx, schema.FreeRangeID(s.pool, free)); ok || free.Bits() == 0 {
			return free, ok
		}
	}
}

// split takes p out of a free range.
func (s poolSpace) split(free, p netip.Prefix) error {
	if err := schema.FreeRanges.Delete(s.tx, schema.FreeRangeID(s.pool, free)); err != nil {
		return err
	}
	for _, rest := range addresses.Remainder(free, p) {
		if err := s.put(rest); err != nil {
			return err
		}
	}
	return nil
}

// give adds a range that is not free.
func (s poolSpace) give(p netip.Prefix) error {
	for ; p.Bits() > 0; p = addresses.Parent(p) {
		other := schema.FreeRangeID(s.pool, addresses.Sibling(p))
		if _, free := schema.FreeRanges.Peek(s.tx, other); !free {
			break
		}
		if err := schema.FreeRanges.Delete(s.tx, other); err != nil {
			return err
		}
	}
	return s.put(p)
}

func (s poolSpace) put(p netip.Prefix) error {
	return schema.FreeRanges.Put(s.tx, &schema.FreeRange{PoolID: s.pool, Range: p})
}
