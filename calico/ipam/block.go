package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"heddle/calico"
)

// ordinalMask are the bits of an address's last byte that number it within its block.
const ordinalMask = calico.BlockSize - 1

// ordinal returns the number of an address within its block.
func ordinal(ip netip.Addr) int {
	b := ip.As16()
	return int(b[15] & ordinalMask)
}

// address returns the ith address of a block.
func address(cidr netip.Prefix, i int) netip.Addr {
	b := cidr.Addr().As16()
	b[15] |= byte(i)
	a := netip.AddrFrom16(b)
	if cidr.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

// whole reports whether a CIDR is that of a block of 64 addresses.
func whole(cidr netip.Prefix) bool { return cidr.Bits() == familyOf(cidr.Addr()).bits() }

// newBlock returns one with all addresses free.
func newBlock(cidr netip.Prefix, host string, strict bool) *calico.Block {
	b := &calico.Block{
		CIDR:           cidr,
		Affinity:       calico.HostAffinity(host),
		Allocations:    make([]*int, calico.BlockSize),
		Unallocated:    make([]int, calico.BlockSize),
		StrictAffinity: strict,
	}
	for i := range b.Unallocated {
		b.Unallocated[i] = i
	}
	return b
}

// clone returns a copy that can be changed by the functions below, while the original stays.
func clone(b *calico.Block) *calico.Block {
	c := *b
	c.Allocations = slices.Clone(b.Allocations)
	c.Unallocated = slices.Clone(b.Unallocated)
	c.Attributes = slices.Clone(b.Attributes)
	return &c
}

// owner is the holder of an address: a handle, or "", and attributes.
type owner struct {
	handle     string
	attributes map[string]string
}

func (o owner) attribute() calico.Attribute {
	a := calico.Attribute{Secondary: maps.Clone(o.attributes)}
	if o.handle != "" {
		a.HandleID = &o.handle
	}
	return a
}

func handleOf(a calico.Attribute) string {
	if a.HandleID == nil {
		return ""
	}
	return *a.HandleID
}

// attribute finds the index of an owner's entry, or adds one.
func attribute(b *calico.Block, o owner) int {
	a := o.attribute()
	for i := range b.Attributes {
		if a.Equal(&b.Attributes[i]) {
			return i
		}
	}
	b.Attributes = append(b.Attributes, a)
	return len(b.Attributes) - 1
}

// take assigns up to n free addresses, those first that have been free for longest.
func take(b *calico.Block, n int, o owner) []netip.Addr {
	n = min(n, len(b.Unallocated))
	if n <= 0 {
		return nil
	}
	index := attribute(b, o)
	out := make([]netip.Addr, n)
	for i, ord := range b.Unallocated[:n] {
		b.Allocations[ord] = &index
		out[i] = address(b.CIDR, ord)
	}
	b.Unallocated = b.Unallocated[n:]
	return out
}

// takeOne assigns one address, unless it is taken.
func takeOne(b *calico.Block, ord int, o owner) bool {
	if b.Allocations[ord] != nil {
		return false
	}
	index := attribute(b, o)
	b.Allocations[ord] = &index
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(u int) bool { return u == ord })
	return true
}

// release frees an address and says which handle it had; false when it was free.
func release(b *calico.Block, ord int) (handle string, ok bool) {
	index := b.Allocations[ord]
	if index == nil {
		return "", false
	}
	handle = handleOf(b.Attributes[*index])
	b.Allocations[ord] = nil
	b.Unallocated = append(b.Unallocated, ord)
	dropUnused(b, *index)
	return handle, true
}

// dropUnused removes an attribute entry that no address has, and renumbers those behind it.
func dropUnused(b *calico.Block, index int) {
	for _, a := range b.Allocations {
		if a != nil && *a == index {
			return
		}
	}
	b.Attributes = slices.Delete(b.Attributes, index, index+1)
	for i, a := range b.Allocations {
		if a != nil && *a > index {
			less := *a - 1
			b.Allocations[i] = &less
		}
	}
}

// carrying returns the ordinals that have a handle, which is not empty.
func carrying(b *calico.Block, handle string) []int {
	var out []int
	for ord, index := range b.Allocations {
		if index != nil && handleOf(b.Attributes[*index]) == handle {
			out = append(out, ord)
		}
	}
	return out
}

func empty(b *calico.Block) bool { return len(b.Unallocated) == calico.BlockSize }
