package records

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// write is the wanted state of one record.
type write struct {
	record any // nil: deleted
	value  []byte
	lease  store.Lease
	base   *replica.Entry // what the snapshot has; nil: nothing
}

// writes are what a transaction has written to one table. It lies over what is stored: a record written hides the one
// stored.
type writes struct {
	byID    *btree.Map[string, *write]
	indexes map[string]*writtenIndex // made when first asked for
}

// writtenIndex finds writes as the replica's indexes find what is stored, so that large transactions stay cheap.
type writtenIndex struct {
	values  func(record any) []string
	byValue map[string]*btree.Map[string, *write] // of records written
	hidden  map[string]int                        // how many stored records with this value are hidden
}

func newWrites() *writes {
	return &writes{byID: new(btree.Map[string, *write]), indexes: map[string]*writtenIndex{}}
}

// copy shares what was written, but not what will be.
func (w *writes) copy() *writes {
	return &writes{byID: w.byID.Copy(), indexes: map[string]*writtenIndex{}}
}

func (w *writes) set(id string, one *write) {
	old, again := w.byID.Set(id, one)
	for _, x := range w.indexes {
		if again {
			x.remove(id, old)
		}
		x.add(id, one)
	}
}

func (x *writtenIndex) add(id string, w *write) {
	if w.base != nil {
		for _, v := range distinct(x.values(w.base.Record)) {
			x.hidden[v]++
		}
	}
	if w.record == nil {
		return
	}
	for _, v := range x.values(w.record) {
		if x.byValue[v] == nil {
			x.byValue[v] = new(btree.Map[string, *write])
		}
		x.byValue[v].Set(id, w)
	}
}

func (x *writtenIndex) remove(id string, w *write) {
	if w.base != nil {
		for _, v := range distinct(x.values(w.base.Record)) {
			x.hidden[v]--
		}
	}
	if w.record == nil {
		return
	}
	for _, v := range x.values(w.record) {
		x.byValue[v].Delete(id)
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
		x.add(id, one)
		return true
	})
	w.indexes[name] = x
	return x
}

// over joins what is stored with some of what is written, in order of ids. Of what is stored all that is written hides.
// The loop's body may write; the loop does not see it.
func (w *writes) over(stored iter.Seq[*replica.Entry], some *btree.Map[string, *write]) iter.Seq[any] {
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
