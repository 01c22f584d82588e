package datapath

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
)

// Table is a pinned map of bytes that survives a restart of the agent. The programs do not use it.
type Table struct {
	name string
	m    *ebpf.Map
}

// batchSize is the number of entries that go through the kernel in one call.
const batchSize = 4096

// Table opens the table of that name, or makes it, also in place of one with other sizes.
func (k *kernel) Table(name string, keySize, valueSize, max int) (*Table, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	spec := &ebpf.MapSpec{
		Name: name, Type: ebpf.Hash, KeySize: uint32(keySize), ValueSize: uint32(valueSize), MaxEntries: uint32(max),
		Flags: flagNoPrealloc,
	}
	m, err := k.pins.openMap(tablePrefix+name, spec)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	k.mu.Lock()
	k.tables = append(k.tables, m)
	k.mu.Unlock()
	return &Table{name: name, m: m}, nil
}

// tablePrefix keeps the names of tables apart from those of the programs' maps.
const tablePrefix = "table_"

// flagNoPrealloc is BPF_F_NO_PREALLOC: entries take memory when they are made.
const flagNoPrealloc = 1

// ErrTableFull reports that a table or the flow cache has no room.
var ErrTableFull = errors.New("table is full")

// orTableFull returns ErrTableFull for a map without room, else err.
func orTableFull(err error) error {
	if isFull(err) {
		return ErrTableFull
	}
	return err
}

// Put stores value under key; ErrTableFull when there is no room for a new key.
func (t *Table) Put(key, value []byte) error {
	if err := orTableFull(t.m.Put(key, value)); err != nil {
		return fmt.Errorf("table %s of %d entries: put: %w", t.name, t.m.MaxEntries(), err)
	}
	return nil
}

// PutAll is Put for arrays of bytes. When it fails some entries may have been stored.
func PutAll[K, V any](t *Table, keys []K, values []V) error {
	for len(keys) > 0 {
		n := min(batchSize, len(keys))
		_, err := t.m.BatchUpdate(keys[:n], values[:n], nil)
		if err != nil {
			return fmt.Errorf("table %s of %d entries: put %d: %w", t.name, t.m.MaxEntries(), n, orTableFull(err))
		}
		keys, values = keys[n:], values[n:]
	}
	return nil
}

// Get returns what is stored under key, nil if nothing is.
func (t *Table) Get(key []byte) ([]byte, error) {
	v, err := t.m.LookupBytes(key)
	if err != nil {
		return nil, fmt.Errorf("table %s: get: %w", t.name, err)
	}
	return v, nil
}

// Delete removes keys; those that are not there are no error.
func (t *Table) Delete(keys ...[]byte) error {
	for _, k := range keys {
		if err := t.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("table %s: delete: %w", t.name, err)
		}
	}
	return nil
}

// Each calls f with every entry until it returns false. The slices are f's only until it returns.
// Entries that are put or deleted meanwhile may or may not be seen.
func (t *Table) Each(f func(key, value []byte) bool) error {
	n := min(batchSize, int(t.m.MaxEntries()))
	keys, key := rows(n, int(t.m.KeySize()))
	values, value := rows(n, int(t.m.ValueSize()))
	err := eachBatch(t.m, keys, values, func(got int) bool {
		for i := range got {
			if !f(key(i), value(i)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("table %s: list: %w", t.name, err)
	}
	return nil
}

// rows makes a slice of n arrays of size bytes, as batches are read into, and a way to each.
func rows(n, size int) (all any, row func(i int) []byte) {
	v := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
	return v.Interface(), func(i int) []byte { return v.Index(i).Slice(0, size).Bytes() }
}

// eachEntry calls f with the entries of a map, many at a time, until it returns false.
func eachEntry[K, V any](m *ebpf.Map, f func([]K, []V) bool) error {
	n := min(batchSize, int(m.MaxEntries()))
	keys, values := make([]K, n), make([]V, n)
	return eachBatch(m, keys, values, func(got int) bool { return f(keys[:got], values[:got]) })
}

// eachBatch reads a map into keys and values, slices of equal length, as often as it takes, and
// calls f with the number of entries read until f returns false.
func eachBatch(m *ebpf.Map, keys, values any, f func(got int) bool) error {
	var cursor ebpf.MapBatchCursor
	for {
		got, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		if !f(got) || err != nil {
			return nil
		}
	}
}
