package calico

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// blockBits is how many bits of an address lie within a block.
const blockBits = 6

// ofHost begins the affinity of a block to a host.
const ofHost = "host:"

// HostAffinity is the affinity of a block to a host.
func HostAffinity(host string) string { return ofHost + host }

// Host is the host that the block is affine to, if there is one.
func (b *Block) Host() (host string, ok bool) { return strings.CutPrefix(b.Affinity, ofHost) }

// BlockOf is the block that an address lies in.
func BlockOf(ip netip.Addr) netip.Prefix {
	return netip.PrefixFrom(ip, ip.BitLen()-blockBits).Masked()
}

// stored is a block while it is read.
type stored struct {
	Block
	hasAffinity    bool
	hostAffinity   string // deprecated
	strictAffinity bool   // in Python's spelling
	hasStrict      bool   // in our own spelling
	hasUnallocated bool
}

func readBlock(r *reader) *Block {
	s := &stored{}
	r.members(s, &s.Unknown)
	if !s.hasAffinity && s.hostAffinity != "" {
		s.Affinity = HostAffinity(s.hostAffinity)
	}
	if !s.hasStrict {
		s.StrictAffinity = s.strictAffinity
	}
	if !s.hasUnallocated {
		s.Unallocated = s.free()
	}
	return &s.Block
}

func (s *stored) member(r *reader, name string) bool {
	switch name {
	case "cidr":
		s.CIDR = r.maskedPrefix()
	case "affinity":
		s.hasAffinity = r.peek() != 'n'
		s.Affinity = r.kept()
	case "hostAffinity":
		s.hostAffinity = r.kept()
	case "allocations":
		s.Allocations = r.allocations()
	case "unallocated":
		s.hasUnallocated = r.peek() != 'n'
		r.list(func(int) { s.Unallocated = append(s.Unallocated, r.ordinal()) })
	case "attributes":
		r.list(func(int) { s.Attributes = append(s.Attributes, readAttribute(r)) })
	case "strictAffinity":
		s.hasStrict = r.peek() != 'n'
		s.StrictAffinity = r.boolean()
	case "strict_affinity":
		s.strictAffinity = r.boolean()
	default:
		return false
	}
	return true
}

func (r *reader) ordinal() int { return r.integerEntry(0, 1<<31-1, "want a number from 0") }

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

// attribute is an Attribute while it is read.
type attribute struct {
	Attribute
	primary *string // as seed 001 prints handle_id
}

func readAttribute(r *reader) Attribute {
	a := attribute{}
	r.members(&a, &a.Unknown)
	if a.HandleID == nil {
		a.HandleID = a.primary
	}
	return a.Attribute
}

func (a *attribute) member(r *reader, name string) bool {
	switch name {
	case "handle_id":
		a.HandleID = r.optionalPointer()
	case "primary":
		a.primary = r.optionalPointer()
	case "secondary":
		if given := r.peek() != 'n'; given {
			a.Secondary = map[string]string{}
		}
		r.stringMapInto(&a.Secondary)
	default:
		return false
	}
	return true
}

// optionalPointer is a string; nil for null.
func (r *reader) optionalPointer() *string {
	if r.null() {
		return nil
	}
	s := strings.Clone(r.text())
	return &s
}

// free are the ordinals without allocation, ascending.
func (b *Block) free() (free []int) {
	for i, a := range b.Allocations {
		if a == nil {
			free = append(free, i)
		}
	}
	return free
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error]. What the parts of a block say of
// each other is the matter of [Block.Check].
func (b *Block) Validate() error { return b.check().of(string(KindIPAMBlock)) }

func (b *Block) check() *Error {
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
	return first(checkText("affinity", b.Affinity), checkUnknown[stored](b.Unknown))
}

func (a *Attribute) check() *Error {
	if a.HandleID != nil {
		if err := checkText("handle_id", *a.HandleID); err != nil {
			return err
		}
	}
	return first(checkMap("secondary", a.Secondary), checkUnknown[attribute](a.Unknown))
}

// Check reports what is wrong between the parts of a block (spec 3.7): the error is an [Error]. Such a block stays as
// it is, its addresses count as taken, and nothing is allocated from it.
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

// Equal says whether two attributes are the same holder: equal handle and secondary.
func (a *Attribute) Equal(other *Attribute) bool {
	if (a.HandleID == nil) != (other.HandleID == nil) || a.HandleID != nil && *a.HandleID != *other.HandleID {
		return false
	}
	return maps.Equal(a.Secondary, other.Secondary)
}

func (b *Block) write(w *writer) {
	w.open('{')
	w.prefixMember("cidr", b.CIDR)
	w.optionalOrNull("affinity", b.Affinity)
	w.name("allocations")
	w.open('[')
	for _, a := range b.Allocations {
		w.comma()
		if a == nil {
			w.null()
		} else {
			w.number(*a)
		}
	}
	w.end(']')
	w.name("unallocated")
	w.open('[')
	for _, o := range b.Unallocated {
		w.comma()
		w.number(o)
	}
	w.end(']')
	w.name("attributes")
	w.open('[')
	for i := range b.Attributes {
		w.comma()
		b.Attributes[i].write(w)
	}
	w.end(']')
	w.boolMember("strictAffinity", b.StrictAffinity)
	w.unknown(b.Unknown)
	w.end('}')
}

func (a *Attribute) write(w *writer) {
	w.open('{')
	w.name("handle_id")
	if a.HandleID == nil {
		w.null()
	} else {
		w.text = appendText(w.text, *a.HandleID)
	}
	w.name("secondary")
	if a.Secondary == nil {
		w.null()
	} else {
		w.stringMap(a.Secondary)
	}
	w.unknown(a.Unknown)
	w.end('}')
}

func (w *writer) optionalOrNull(name, value string) {
	if value != "" {
		w.stringMember(name, value)
		return
	}
	w.name(name)
	w.null()
}
