package calico

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// blockBits is the number of bits of an address within its block.
const blockBits = 6

// ofHost begins the affinity of a block to a host.
const ofHost = "host:"

// HostAffinity returns the affinity of a block to a host.
func HostAffinity(host string) string { return ofHost + host }

// Host returns the host that the block is affine to, if there is one.
func (b *Block) Host() (host string, ok bool) { return strings.CutPrefix(b.Affinity, ofHost) }

// BlockOf returns the block that an address lies in.
func BlockOf(ip netip.Addr) netip.Prefix {
	return netip.PrefixFrom(ip, ip.BitLen()-blockBits).Masked()
}

var blockTable = table[Block]{
	columns: []column[Block]{
		member("cidr", func(b *Block) *netip.Prefix { return &b.CIDR }, asPrefix),
		member("affinity", func(b *Block) *string { return &b.Affinity }, format[string]{(*reader).kept, (*writer).textOrNull, nil}),
		{name: "hostAffinity", unless: "affinity", read: func(r *reader, b *Block) { // deprecated
			if host := r.text(); host != "" {
				b.Affinity = HostAffinity(host)
			}
		}},
		member("allocations", func(b *Block) *[]*int { return &b.Allocations }, format[[]*int]{(*reader).allocations, (*writer).allocations, nil}),
		member("unallocated", func(b *Block) *[]int { return &b.Unallocated }, asList((*reader).ordinal, (*writer).number)),
		member("attributes", func(b *Block) *[]Attribute { return &b.Attributes }, asObjects(&attributeTable)),
		member("strictAffinity", func(b *Block) *bool { return &b.StrictAffinity }, asBoolean),
		{name: "strict_affinity", unless: "strictAffinity", read: func(r *reader, b *Block) { // in Python's spelling
			b.StrictAffinity = r.boolean()
		}},
	},
	unknown: func(b *Block) *Unknown { return &b.Unknown },
}

func readBlock(r *reader) *Block {
	b := &Block{}
	if found := blockTable.read(r, b); !blockTable.has(found, "unallocated") {
		b.Unallocated = b.free()
	}
	return b
}

func (r *reader) ordinal() int { return r.integer(0, 1<<31-1, "want a number from 0") }

// allocations reads what may be null. The numbers share one piece of memory.
func (r *reader) allocations() []*int {
	list := make([]*int, 0, BlockSize)
	numbers := make([]int, 0, BlockSize)
	r.list(func(int) {
		if r.null() {
			list = append(list, nil)
			return
		}
		numbers = append(numbers, r.ordinal())
		list = append(list, &numbers[len(numbers)-1])
	})
	if len(list) == 0 {
		return nil // as where there is no such member
	}
	return list
}

var attributeTable = table[Attribute]{
	columns: []column[Attribute]{
		member("handle_id", func(a *Attribute) **string { return &a.HandleID }, format[*string]{(*reader).textPointer, (*writer).textPointer, nil}),
		{name: "primary", unless: "handle_id", read: func(r *reader, a *Attribute) { a.HandleID = r.textPointer() }}, // of seed 001
		member("secondary", func(a *Attribute) *map[string]string { return &a.Secondary }, format[map[string]string]{
			read: func(r *reader) map[string]string {
				m := map[string]string{}
				r.stringMapInto(&m)
				return m
			},
			write: func(w *writer, m map[string]string) {
				if m == nil {
					w.null()
				} else {
					w.stringMap(m)
				}
			},
		}),
	},
	unknown: func(a *Attribute) *Unknown { return &a.Unknown },
}

func (r *reader) textPointer() *string {
	s := r.kept()
	return &s
}

func (w *writer) textPointer(s *string) {
	if s == nil {
		w.null()
	} else {
		w.string(*s)
	}
}

// free returns the ordinals without allocation, ascending.
func (b *Block) free() (free []int) {
	for i, a := range b.Allocations {
		if a == nil {
			free = append(free, i)
		}
	}
	return free
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error]. What the parts
// of a block say of each other is the matter of [Block.Check].
func (b *Block) Validate() error { return b.check(options{}).of(string(KindIPAMBlock)) }

func (b *Block) check(options) *Error {
	if err := checkPrefix("cidr", b.CIDR); err != nil {
		return err
	}
	if host, ok := b.Host(); b.Affinity != "" && (!ok || host == "" || strings.Contains(host, "/")) {
		return refuse("affinity", b.Affinity, "want host: and the name of a host, or none")
	}
	for i, a := range b.Allocations {
		if a != nil && *a < 0 {
			return refuse(index("allocations", i), *a, "want a number from 0")
		}
	}
	for i, o := range b.Unallocated {
		if o < 0 {
			return refuse(index("unallocated", i), o, "want a number from 0")
		}
	}
	for i := range b.Attributes {
		if err := b.Attributes[i].check(); err != nil {
			return err.in(index("attributes", i))
		}
	}
	return first(checkText("affinity", b.Affinity), blockTable.checkUnknown(b))
}

func (a *Attribute) check() *Error {
	if a.HandleID != nil {
		if err := checkText("handle_id", *a.HandleID); err != nil {
			return err
		}
	}
	return first(checkMap("secondary", a.Secondary), attributeTable.checkUnknown(a))
}

// Check reports what is wrong between the parts of a block (spec 3.7): the error is an [Error].
// Such a block stays as it is, its addresses count as taken, and nothing is allocated from it.
func (b *Block) Check() error {
	if err := b.Validate(); err != nil {
		return err
	}
	for _, check := range []func() *Error{b.checkSize, b.checkIndices, b.checkUnallocated, b.checkUnique} {
		if err := check(); err != nil {
			return err.of(string(KindIPAMBlock))
		}
	}
	return nil
}

func (b *Block) checkSize() *Error {
	if want := b.CIDR.Addr().BitLen() - blockBits; b.CIDR.Bits() != want {
		return refuse("cidr", b.CIDR, "want a block of %d addresses, a /%d", BlockSize, want)
	}
	if len(b.Allocations) != BlockSize {
		return refuse("allocations", nil, "want %d entries, not %d", BlockSize, len(b.Allocations))
	}
	return nil
}

func (b *Block) checkIndices() *Error {
	used := make([]bool, len(b.Attributes))
	for i, a := range b.Allocations {
		if a == nil {
			continue
		}
		if *a >= len(used) {
			return refuse(index("allocations", i), *a, "want the index of one of %d attributes", len(used))
		}
		used[*a] = true
	}
	if i := slices.Index(used, false); i >= 0 {
		return refuse(index("attributes", i), nil, "no allocation refers to it")
	}
	return nil
}

func (b *Block) checkUnallocated() *Error {
	var seen [BlockSize]bool
	for i, o := range b.Unallocated {
		switch {
		case o >= len(b.Allocations):
			return refuse(index("unallocated", i), o, "want an ordinal below %d", len(b.Allocations))
		case b.Allocations[o] != nil:
			return refuse(index("unallocated", i), o, "allocations[%d] is taken", o)
		case seen[o]:
			return refuse(index("unallocated", i), o, "is there twice")
		}
		seen[o] = true
	}
	for _, o := range b.free() {
		if !seen[o] {
			return refuse("unallocated", nil, "ordinal %d is missing, and allocations[%d] is free", o, o)
		}
	}
	return nil
}

func (b *Block) checkUnique() *Error {
	for i := range b.Attributes {
		for j := range b.Attributes[:i] {
			if b.Attributes[i].Equal(&b.Attributes[j]) {
				return refuse(index("attributes", i), nil, "has the handle and the secondary of attributes[%d]", j)
			}
		}
	}
	return nil
}

// Equal reports whether two attributes are the same holder: equal handle and secondary.
func (a *Attribute) Equal(other *Attribute) bool {
	if (a.HandleID == nil) != (other.HandleID == nil) || a.HandleID != nil && *a.HandleID != *other.HandleID {
		return false
	}
	return maps.Equal(a.Secondary, other.Secondary)
}

func (b *Block) write(w *writer) { blockTable.write(w, b) }

func (w *writer) allocations(list []*int) {
	writeList(w, list, func(w *writer, n *int) {
		if n == nil {
			w.null()
		} else {
			w.number(*n)
		}
	})
}

func (w *writer) textOrNull(value string) {
	if value == "" {
		w.null()
	} else {
		w.string(value)
	}
}
