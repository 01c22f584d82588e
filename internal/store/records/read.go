package records

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"heddle/internal/store"
	"heddle/internal/store/snapshot"
)

// Reader is a [Snap] or a [Tx]. Readers share records: copy a record to change it.
type Reader interface {
	view() view
}

// view is a snapshot with a transaction's writes over it.
type view struct {
	snap *snapshot.Snapshot
	tx   *Tx // nil: the snapshot alone
}

// Snap is an immutable view of all tables at one revision.
type Snap struct{ snap *snapshot.Snapshot }

func (s *Snap) view() view { return view{snap: s.snap} }

// Revision returns the snapshot's revision.
func (s *Snap) Revision() int64 { return s.snap.Revision }

// ChangedSince returns the ids of the records that may differ from those of an earlier snapshot, by
// table. An id may come twice. It reports false if that is not known.
func (s *Snap) ChangedSince(earlier *Snap) (ids map[string][]string, known bool) {
	places, known := s.snap.ChangedSince(earlier.snap)
	ids = map[string][]string{}
	for _, p := range places {
		ids[p.Source] = append(ids[p.Source], p.ID)
	}
	return ids, known
}

// Same reports whether two are of one snapshot.
func (s *Snap) Same(o *Snap) bool { return s.snap == o.snap }

// With returns the snapshot with changes of its tables, at a revision that may be an earlier one; s
// itself if they change nothing. It leaves out what cannot be decoded, as a replica does.
func (s *Snap) With(tables snapshot.Tables, changes []store.Event, revision int64) *Snap {
	update, _ := tables.Apply(s.snap, changes, revision)
	if len(update.Changed) == 0 {
		return s
	}
	return &Snap{update.Next}
}

// Tables returns the snapshot with all tables, those that are no records' among them.
func (s *Snap) Tables() *snapshot.Snapshot { return s.snap }

// Over returns a reader of a replica's snapshot.
func Over(s *snapshot.Snapshot) *Snap { return &Snap{s} }

// Get returns the record with this id, or a [NotFoundError]. A transaction's commit fails if the
// record has changed, or exists now.
func (t *Table[T]) Get(r Reader, id string) (*T, error) {
	v := r.view()
	if v.tx != nil {
		v.tx.guardRecord(t.def, id)
	}
	return t.found(v, id)
}

// Need returns the record with this id, or a [NotFoundError]. A transaction's commit fails only if
// the record is gone: use it for parents, whose updates should not conflict with new children.
func (t *Table[T]) Need(r Reader, id string) (*T, error) {
	v := r.view()
	if v.tx != nil {
		v.tx.guardExistence(t.def, id)
	}
	return t.found(v, id)
}

// Peek returns the record with this id, if there is one. A transaction does not guard it.
func (t *Table[T]) Peek(r Reader, id string) (*T, bool) {
	record := r.view().get(t.def, id)
	if record == nil {
		return nil, false
	}
	return record.(*T), true
}

// Version returns when the record with this id was last written, as [snapshot.VersionAt] orders
// records of one store; that of the snapshot if there is none.
func (t *Table[T]) Version(s *Snap, id string) uint64 {
	if e := s.snap.Get(t.def.name, id); e != nil {
		return snapshot.VersionAt(s.snap.History, e.Mod)
	}
	return s.snap.Version()
}

func (t *Table[T]) found(v view, id string) (*T, error) {
	record := v.get(t.def, id)
	if record == nil {
		return nil, &NotFoundError{t.def.name, id}
	}
	return record.(*T), nil
}

// All returns the records in order of their ids, with the transaction's own writes. A transaction
// does not guard them. Records may be written during the loop, which does not see that.
func (t *Table[T]) All(r Reader) iter.Seq[*T] {
	v := r.view()
	stored := v.snap.All(t.def.name)
	if w := v.written(t.def); w != nil {
		return typed[T](w.over(stored, w.byID))
	}
	return typed[T](recordsOf(stored))
}

// By returns the records that have value in the index, as All does.
func (t *Table[T]) By(r Reader, index, value string) iter.Seq[*T] {
	v := r.view()
	return typed[T](v.by(t.def, index, value))
}

// CountBy returns how many records have value in the index, at a cost independent of their number.
func (t *Table[T]) CountBy(r Reader, index, value string) int {
	v := r.view()
	t.def.index(index) // panics when there is none
	n := v.snap.CountBy(t.def.name, index, value)
	if w := v.written(t.def); w != nil {
		x := w.index(t.def, index)
		n -= x.hidden[value]
		if found := x.byValue[value]; found != nil {
			n += found.Len()
		}
	}
	return n
}

// IndexValues returns the values that records have in the index, sorted, at a cost that follows
// their number.
func (t *Table[T]) IndexValues(r Reader, index string) []string {
	v := r.view()
	t.def.index(index) // panics when there is none
	values := v.snap.IndexValues(t.def.name, index)
	w := v.written(t.def)
	if w == nil {
		return values
	}
	for value := range w.index(t.def, index).byValue {
		values = append(values, value)
	}
	slices.Sort(values)
	return slices.DeleteFunc(slices.Compact(values), func(value string) bool { return t.CountBy(r, index, value) == 0 })
}

// Count returns how many records there are.
func (t *Table[T]) Count(r Reader) int {
	v := r.view()
	n := v.snap.Len(t.def.name)
	if w := v.written(t.def); w != nil {
		w.byID.Scan(func(_ string, w *write) bool {
			if w.base != nil {
				n--
			}
			if w.record != nil {
				n++
			}
			return true
		})
	}
	return n
}

// Referrers returns the ids of the records that refer to target by the field, in order. A
// transaction's commit fails if there are new ones.
func (t *Table[T]) Referrers(r Reader, field, target string) []string {
	v := r.view()
	ref := t.def.reference(field)
	if v.tx != nil {
		v.tx.guardPrefix(ref.idxField(t.def, target))
	}
	return v.referrers(t.def, ref, target)
}

func (v view) get(d *definition, id string) any {
	if w := v.written(d); w != nil {
		if one, ok := w.byID.Get(id); ok {
			return one.record
		}
	}
	if e := v.snap.Get(d.name, id); e != nil {
		return e.Record
	}
	return nil
}

// written returns what the transaction has written to the table, or nil.
func (v view) written(d *definition) *writes {
	if v.tx == nil {
		return nil
	}
	return v.tx.writes[d]
}

func (v view) by(d *definition, index, value string) iter.Seq[any] {
	d.index(index) // panics when there is none
	stored := v.snap.By(d.name, index, value)
	w := v.written(d)
	if w == nil {
		return recordsOf(stored)
	}
	found := w.index(d, index).byValue[value]
	if found == nil {
		found = new(btree.Map[string, *write])
	}
	return w.over(stored, found)
}

func (v view) referrers(d *definition, ref *reference, target string) []string {
	var ids []string
	for record := range v.by(d, ref.field, target) {
		ids = append(ids, d.id(record))
	}
	return ids
}

// index returns the index of this name.
func (d *definition) index(name string) snapshot.Index {
	for _, i := range d.all {
		if i.Name == name {
			return i
		}
	}
	panic("table " + d.name + " has no index named " + name)
}

func recordsOf(stored iter.Seq[*snapshot.Entry]) iter.Seq[any] {
	return func(yield func(any) bool) {
		for e := range stored {
			if !yield(e.Record) {
				return
			}
		}
	}
}

func typed[T any](records iter.Seq[any]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for r := range records {
			if !yield(r.(*T)) {
				return
			}
		}
	}
}
