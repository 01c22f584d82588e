package datapath

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
)

// Table is a pinned map from bytes to bytes of fixed sizes, for what an agent must know again after a restart. The
// programs do not look at it.
type Table struct {
	name string
	m    *ebpf.Map
}

// batchSize is how many entries go through the kernel in one call.
const batchSize = 4096

// Table opens the table of that name, or makes it. A table of the same name with other sizes, left by another version,
// is replaced by an empty one and the log says so.
func (d *Datapath) Table(name string, keySize, valueSize, max int) (*Table, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	spec := &ebpf.MapSpec{
		Name: name, Type: ebpf.Hash, KeySize: uint32(keySize), ValueSize: uint32(valueSize), MaxEntries: uint32(max),
		Flags: flagNoPrealloc,
	}
	m, err := d.pins.openMap(tablePrefix+name, spec)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	d.mu.Lock()
	d.tables = append(d.tables, m)
	d.mu.Unlock()
	return &Table{name: name, m: m}, nil
}

// tablePrefix keeps the names of tables apart from those of the programs' maps.
const tablePrefix = "table_"

// flagNoPrealloc is BPF_F_NO_PREALLOC: memory is used for entries that are there, not for those that could be.
const flagNoPrealloc = 1

// ErrTableFull says that a table or the flow cache holds as many entries as it can.
var ErrTableFull = errors.New("table is full")

// Put stores value under key; ErrTableFull when there is no room for a new key.
func (t *Table) Put(key, value []byte) error {
	err := t.m.Put(key, value)
	if isFull(err) {
		return fmt.Errorf("table %s: %d entries: %w", t.name, t.m.MaxEntries(), ErrTableFull)
	}
	if err != nil {
		return fmt.Errorf("table %s: put: %w", t.name, err)
	}
	return nil
}

// PutAll is Put for many entries, in a few calls of the kernel. K and V are arrays of bytes of the table's sizes. When it
// fails some entries may have been stored.
func PutAll[K, V any](t *Table, keys []K, values []V) error {
	for len(keys) > 0 {
		n := min(batchSize, len(keys))
		_, err := t.m.BatchUpdate(keys[:n], values[:n], nil)
		if isFull(err) {
			return fmt.Errorf("table %s: %d entries: %w", t.name, t.m.MaxEntries(), ErrTableFull)
		}
		if err != nil {
			return fmt.Errorf("table %s: put %d entries: %w", t.name, n, err)
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

// Each calls f with every entry until it returns false. The slices are f's only until it returns. Entries that are put
// or deleted meanwhile may or may not be seen.
func (t *Table) Each(f func(key, value []byte) bool) error {
	n := min(batchSize, int(t.m.MaxEntries()))
	keys, key := rows(n, int(t.m.KeySize()))
	values, value := rows(n, int(t.m.ValueSize()))
	var cursor ebpf.MapBatchCursor
	for {
		got, err := t.m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("table %s: list: %w", t.name, err)
		}
		for i := range got {
			if !f(key(i), value(i)) {
				return nil
			}
		}
		if err != nil {
			return nil
		}
	}
}

// rows makes a slice of n arrays of size bytes, the form in which many entries are read at once, and a way to each.
func rows(n, size int) (all any, row func(i int) []byte) {
	v := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
	return v.Interface(), func(i int) []byte { return v.Index(i).Slice(0, size).Bytes() }
}
