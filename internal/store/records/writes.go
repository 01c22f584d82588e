package records

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"heddle/internal/store"
	"heddle/internal/store/snapshot"
)

// write is the desired state of one record.
type write struct {
	record any // nil: deleted
	value  []byte
	lease  store.Lease
	base   *snapshot.Entry // what the snapshot has; nil: nothing
	// replaced: the transaction deleted the record of the snapshot, and this is another one.
	replaced bool
}

// writes holds what a transaction has written to one table. It hides the stored records with the
// same ids.
type writes struct {
	byID    *btree.Map[string, *write]
	indexes map[string]*writtenIndex // made when first asked for
}

// writtenIndex indexes writes as the replica indexes stored records, so that large transactions
// stay cheap.
type writtenIndex struct {
	values  func(record any) []string
	byValue map[string]*btree.Map[string, *write] // of records written
	hidden  map[string]int                        // how many stored records with this value are hidden
}

func newWrites() *writes {
	return &writes{byID: new(btree.Map[string, *write]), indexes: map[string]*writtenIndex{}}
}

// copy returns a copy that later writes do not change.
func (w *writes) copy() *writes {
	return &writes{byID: w.byID.Copy(), indexes: map[string]*writtenIndex{}}
}

func (w *writes) set(id string, one *write) {
	old, replaced := w.byID.Set(id, one)
	for _, x := range w.indexes {
		if replaced {
			x.add(id, old, -1)
		}
		x.add(id, one, 1)
	}
}

// add adds a write to the index, or with n -1 removes it.
func (x *writtenIndex) add(id string, w *write, n int) {
	if w.base != nil {
		for _, v := range distinct(x.values(w.base.Record)) {
			x.hidden[v] += n
		}
	}
	if w.record == nil {
		return
	}
	for _, v := range x.values(w.record) {
		if x.byValue[v] == nil {
			x.byValue[v] = new(btree.Map[string, *write])
		}
		if n > 0 {
			x.byValue[v].Set(id, w)
		} else {
			x.byValue[v].Delete(id)
		}
	}
}

func distinct(values []string) []string {
	if len(values) < 2 {
		return values
	}
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

func (w *writes) index(d *definition, name string) *writtenIndex {
	if x := w.indexes[name]; x != nil {
		return x
	}
	x := &writtenIndex{values: d.index(name).Values, byValue: map[string]*btree.Map[string, *write]{}, hidden: map[string]int{}}
	w.byID.Scan(func(id string, one *write) bool {
		x.add(id, one, 1)
		return true
	})
	w.indexes[name] = x
	return x
}

// over merges stored records with some of those written, in order of ids. Every write hides the
// stored record. The loop's body may write, which the loop does not see.
func (w *writes) over(stored iter.Seq[*snapshot.Entry], some *btree.Map[string, *write]) iter.Seq[any] {
	return func(yield func(any) bool) {
		hides, next := w.byID.Copy(), some.Copy().Iter()
		more := next.First()
		for e := range stored {
			for ; more && next.Key() <= e.ID; more = next.Next() {
				if r := next.Value().record; r != nil && !yield(r) {
					return
				}
			}
			if _, hidden := hides.Get(e.ID); !hidden && !yield(e.Record) {
				return
			}
		}
		for ; more; more = next.Next() {
			if r := next.Value().record; r != nil && !yield(r) {
				return
			}
		}
	}
}
