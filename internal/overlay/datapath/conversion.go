package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// conversion carries the entries of a map that an agent of another version left into one of this
// version's shape (decision 0038). Members of keys and values are found by their names, which the
// kernel keeps with a map (BTF). A member that the earlier map does not have is 0; one that this
// version does not know goes. What has no names, the rows of a Table, keeps its first bytes.
type conversion struct{ key, value []span }

// span is a run of bytes that both shapes have.
type span struct{ from, to, size uint32 }

// member is a number, or an array of numbers, in a key or value.
type member struct{ offset, size uint32 }

// errNoConversion reports entries that cannot be carried over.
var errNoConversion = errors.New("cannot be carried over")

// fits reports whether a map has the shape, flags and sizes of spec.
func fits(m *ebpf.Map, spec *ebpf.MapSpec) bool {
	if spec.Compatible(m) != nil {
		return false
	}
	if spec.Value == nil {
		return true
	}
	for _, part := range partsOf(m, spec) {
		before, err := part.earlier()
		if err != nil {
			continue // it does not say: its size is the same
		}
		if now, err := membersOf(part.now); err != nil || !maps.Equal(before, now) {
			return false
		}
	}
	return true
}

// conversionTo returns what makes entries of spec out of those of m, or errNoConversion.
func conversionTo(spec *ebpf.MapSpec, m *ebpf.Map) (conversion, error) {
	if m.Type() != spec.Type || (m.Type() != ebpf.Hash && m.Type() != ebpf.Array) {
		return conversion{}, fmt.Errorf("a %s into a %s: %w", m.Type(), spec.Type, errNoConversion)
	}
	if spec.Value == nil {
		if m.KeySize() != spec.KeySize {
			return conversion{}, fmt.Errorf("keys of %d bytes into %d: %w", m.KeySize(), spec.KeySize, errNoConversion)
		}
		return conversion{key: []span{{size: spec.KeySize}}, value: []span{{size: min(m.ValueSize(), spec.ValueSize)}}}, nil
	}
	parts := partsOf(m, spec)
	key, err := parts[0].spans()
	if err != nil {
		return conversion{}, fmt.Errorf("key: %w", err)
	}
	value, err := parts[1].spans()
	if err != nil {
		return conversion{}, fmt.Errorf("value: %w", err)
	}
	return conversion{key, value}, nil
}

// part is the key or the value of a map, as it was and as it is now.
type part struct {
	m      *ebpf.Map
	before uint32 // size, bytes
	size   uint32
	now    btf.Type
}

func partsOf(m *ebpf.Map, spec *ebpf.MapSpec) [2]part {
	return [2]part{{m, m.KeySize(), spec.KeySize, spec.Key}, {m, m.ValueSize(), spec.ValueSize, spec.Value}}
}

// spans returns what both shapes have.
func (p part) spans() ([]span, error) {
	before, err := p.earlier()
	if err != nil {
		return nil, err
	}
	now, err := membersOf(p.now)
	if err != nil {
		return nil, err
	}
	var all []span
	for name, m := range now {
		b, known := before[name]
		if !known {
			continue
		}
		if b.size != m.size {
			return nil, fmt.Errorf("member %q of %d bytes into %d: %w", name, b.size, m.size, errNoConversion)
		}
		all = append(all, span{b.offset, m.offset, m.size})
	}
	return all, nil
}

// earlier returns the members that the map's own description has for the type of this name.
func (p part) earlier() (map[string]member, error) {
	s, is := btf.UnderlyingType(p.now).(*btf.Struct)
	if !is { // a number
		return map[string]member{"": {size: p.before}}, nil
	}
	handle, err := p.m.Handle()
	if err != nil {
		return nil, fmt.Errorf("what is in the map: %w", err)
	}
	defer handle.Close()
	spec, err := handle.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("what is in the map: %w", err)
	}
	var earlier *btf.Struct
	if err := spec.TypeByName(s.Name, &earlier); err != nil {
		return nil, fmt.Errorf("what is in the map: struct %s: %w", s.Name, err)
	}
	if earlier.Size != p.before {
		return nil, fmt.Errorf("struct %s of %d bytes in entries of %d: %w", s.Name, earlier.Size, p.before, errNoConversion)
	}
	return membersOf(earlier)
}

// membersOf returns the members of a type by their paths: "common.used", "all[1].out".
func membersOf(t btf.Type) (map[string]member, error) {
	all := map[string]member{}
	return all, addMembers(all, "", 0, t)
}

func addMembers(all map[string]member, path string, offset uint32, t btf.Type) error {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			if m.BitfieldSize != 0 {
				return fmt.Errorf("bit field %s.%s: %w", path, m.Name, errNoConversion)
			}
			if err := addMembers(all, path+"."+m.Name, offset+m.Offset.Bytes(), m.Type); err != nil {
				return err
			}
		}
		return nil
	case *btf.Array:
		if _, of := btf.UnderlyingType(t.Type).(*btf.Struct); !of {
			break
		}
		size, err := btf.Sizeof(t.Type)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for i := range t.Nelems {
			if err := addMembers(all, fmt.Sprintf("%s[%d]", path, i), offset+i*uint32(size), t.Type); err != nil {
				return err
			}
		}
		return nil
	}
	size, err := btf.Sizeof(t)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	all[path] = member{offset, uint32(size)}
	return nil
}

// carry puts all entries of from into to, and returns how many found room, and how many did not.
func (c conversion) carry(from, to *ebpf.Map) (carried, refused int, err error) {
	n := min(batchSize, int(from.MaxEntries()))
	keys, key := rows(n, int(from.KeySize()))
	values, value := rows(n, int(from.ValueSize()))
	newKey, newValue := make([]byte, to.KeySize()), make([]byte, to.ValueSize())
	zero := make([]byte, from.ValueSize())
	var failed error
	err = eachBatch(from, keys, values, func(got int) bool {
		for i := range got {
			if from.Type() == ebpf.Array && bytes.Equal(value(i), zero) {
				continue // as to has it
			}
			convert(newKey, key(i), c.key)
			convert(newValue, value(i), c.value)
			switch err := to.Put(newKey, newValue); {
			case err == nil:
				carried++
			case isFull(err):
				refused++
			default:
				failed = err
				return false
			}
		}
		return true
	})
	return carried, refused, errors.Join(err, failed)
}

func convert(to, from []byte, spans []span) {
	clear(to)
	for _, s := range spans {
		copy(to[s.to:s.to+s.size], from[s.from:s.from+s.size])
	}
}
