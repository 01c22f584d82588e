package records

import (
	"encoding/json"
	"fmt"

	"heddle/internal/store"
	"heddle/internal/store/snapshot"
)

// Tx is one run of a transaction: a snapshot, what was read of it, and what is to be written. It is
// invalid once the function has returned.
type Tx struct {
	snap    *snapshot.Snapshot
	writes  map[*definition]*writes
	records map[string]store.Cond // by key of the record
	keys    map[string]store.Op   // of no table, by key
	guards  map[string]bool       // prefixes under which nothing new may have come
	touched map[string]bool       // keys given to Touch
	marked  map[string]bool       // keys given to Mark
}

func newTx(snap *snapshot.Snapshot) *Tx {
	return &Tx{
		snap:    snap,
		writes:  map[*definition]*writes{},
		records: map[string]store.Cond{},
		keys:    map[string]store.Op{},
		guards:  map[string]bool{},
		touched: map[string]bool{},
		marked:  map[string]bool{},
	}
}

func (tx *Tx) view() view { return view{tx.snap, tx} }

// Revision returns the snapshot's revision.
func (tx *Tx) Revision() int64 { return tx.snap.Revision }

// Touch serializes the transactions that touch the same key: each sees the writes of those before
// it. It is for rules over many records, such as quotas.
func (tx *Tx) Touch(key string) { tx.touched[key] = true }

// Mark reports this transaction to those that heed the key. Marking does not serialize.
func (tx *Tx) Mark(key string) { tx.marked[key] = true }

// Heed makes the commit fail if another transaction has touched or marked the key, or one below it
// (key/…), since the snapshot.
func (tx *Tx) Heed(key string) { tx.guardPrefix(guardKey(key)) }

func (tx *Tx) guardRecord(d *definition, id string) {
	key := d.key(id)
	c := store.Cond{Key: key}
	if e := tx.snap.Get(d.name, id); e != nil {
		c.Mod = e.Mod
	}
	tx.records[key] = c
}

func (tx *Tx) guardExistence(d *definition, id string) {
	key := d.key(id)
	if _, ok := tx.records[key]; ok {
		return // guarded as a whole, or likewise
	}
	c := store.Cond{Key: key}
	if e := tx.snap.Get(d.name, id); e != nil {
		c.Create = e.Create
	}
	tx.records[key] = c
}

func (tx *Tx) guardPrefix(prefix string) { tx.guards[prefix] = true }

// Put stores a record, new or in place of the old one, of which it keeps the members that T lacks
// unless the table is of [NewDerivedTable]; do not modify it afterwards. It returns a [TakenError]
// if another record has one of its unique keys, or a [NotFoundError] if a record it refers to is
// missing; nothing is put then.
func (t *Table[T]) Put(tx *Tx, record *T) error { return tx.put(t.def, record, 0) }

// PutLeased stores a record that ends with the lease. Its table can have neither unique keys nor
// references, which would stay.
func (t *Table[T]) PutLeased(tx *Tx, record *T, lease store.Lease) error {
	if len(t.def.uniques)+len(t.def.refs) > 0 {
		return fmt.Errorf("table %s has unique keys or references: its records cannot be leased", t.def.name)
	}
	return tx.put(t.def, record, lease)
}

func (tx *Tx) put(d *definition, record any, lease store.Lease) error {
	id := d.id(record)
	if id == "" {
		return fmt.Errorf("%s without an id", d.name)
	}
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("%s %s: %w", d.name, id, err)
	}
	for _, u := range d.uniques {
		for _, key := range u.Values(record) {
			if by, ok := tx.holder(d, u, key); ok && by != id {
				return &TakenError{d.name, u.Name, key, by}
			}
		}
	}
	for _, r := range d.refs {
		for _, target := range r.ids(record) {
			if itself := r.target == d && target == id; !itself && tx.view().get(r.target, target) == nil {
				return &NotFoundError{r.target.name, target}
			}
		}
	}
	w := &write{record: record, lease: lease, replaced: tx.replaced(d, id)}
	if w.value = value; !w.replaced {
		if w.value, err = tx.withUnknown(d, id, value); err != nil {
			return fmt.Errorf("%s %s: %w", d.name, id, err)
		}
	}
	tx.set(d, id, w)
	return nil
}

// replaced reports whether the transaction has deleted the record with this id, so that what is put
// is another one.
func (tx *Tx) replaced(d *definition, id string) bool {
	w := tx.view().written(d)
	if w == nil {
		return false
	}
	one, ok := w.byID.Get(id)
	return ok && (one.record == nil || one.replaced)
}

// holder returns the id of the record that has the unique key, as the transaction sees it.
func (tx *Tx) holder(d *definition, u snapshot.Index, key string) (string, bool) {
	for record := range tx.view().by(d, u.Name, key) {
		return d.id(record), true
	}
	return "", false
}

// set adds a write of a record, guarded by its state in the snapshot.
func (tx *Tx) set(d *definition, id string, w *write) {
	w.base = tx.snap.Get(d.name, id)
	tx.guardRecord(d, id)
	if tx.writes[d] == nil {
		tx.writes[d] = newWrites()
	}
	tx.writes[d].set(id, w)
}

// Delete deletes a record and all that cascades from it, and clears references with ClearWith. It
// returns a [NotFoundError] if there is no such record, or an [InUseError] if a reference refuses;
// nothing is deleted then.
func (t *Table[T]) Delete(tx *Tx, id string) error {
	if tx.view().get(t.def, id) == nil {
		tx.guardRecord(t.def, id)
		return &NotFoundError{t.def.name, id}
	}
	deletions := tx.closure(t.def, id)
	for _, p := range deletions.order {
		if err := tx.checkRefusals(p, deletions); err != nil {
			return err
		}
	}
	before := tx.copyWrites()
	for _, p := range deletions.order {
		tx.set(p.def, p.id, &write{})
		if len(p.def.incoming) > 0 {
			tx.guardPrefix(p.def.idxPrefix(p.id))
		}
	}
	if err := tx.clearReferences(deletions); err != nil {
		tx.writes = before
		return err
	}
	return nil
}

func (tx *Tx) copyWrites() map[*definition]*writes {
	c := make(map[*definition]*writes, len(tx.writes))
	for d, w := range tx.writes {
		c[d] = w.copy()
	}
	return c
}

type place struct {
	def *definition
	id  string
}

// deletions is a set of records that will be deleted together.
type deletions struct {
	order []place
	in    map[place]bool
}

// closure returns the record and all that cascades from it.
func (tx *Tx) closure(d *definition, id string) deletions {
	set := deletions{in: map[place]bool{}}
	add := func(p place) {
		if !set.in[p] {
			set.in[p] = true
			set.order = append(set.order, p)
		}
	}
	add(place{d, id})
	for i := 0; i < len(set.order); i++ {
		p := set.order[i]
		for _, in := range p.def.incoming {
			if in.action.kind != cascade {
				continue
			}
			for _, by := range tx.view().referrers(in.from, &in.reference, p.id) {
				add(place{in.from, by})
			}
		}
	}
	return set
}

// checkRefusals returns an error if records that stay refuse the deletion.
func (tx *Tx) checkRefusals(p place, deletions deletions) error {
	for _, in := range p.def.incoming {
		if !tx.snap.Has(in.from.name) {
			return fmt.Errorf("%s %s cannot be deleted here: table %s, which refers to it, is not replicated", p.def.name, p.id, in.from.name)
		}
		if in.action.kind != refuse {
			continue
		}
		var ids []string
		for _, by := range tx.view().referrers(in.from, &in.reference, p.id) {
			if !deletions.in[place{in.from, by}] {
				ids = append(ids, by)
			}
		}
		if len(ids) > 0 {
			return &InUseError{p.def.name, p.id, in.from.name, in.field, ids}
		}
	}
	return nil
}

// clearReferences removes references to deleted records from those that stay. A record may refer to
// several, so it is put once all are removed.
func (tx *Tx) clearReferences(deletions deletions) error {
	cleared := map[place]any{}
	for _, p := range deletions.order {
		for _, in := range p.def.incoming {
			if in.action.kind != clearWith {
				continue
			}
			for _, by := range tx.view().referrers(in.from, &in.reference, p.id) {
				at := place{in.from, by}
				if cleared[at] == nil {
					copied, err := in.from.copy(tx.view().get(in.from, by))
					if err != nil {
						return err
					}
					cleared[at] = copied
				}
				in.action.clear(cleared[at], p.id)
			}
		}
	}
	for at, record := range cleared {
		if err := tx.put(at.def, record, 0); err != nil {
			return fmt.Errorf("clear references of %s %s: %w", at.def.name, at.id, err)
		}
	}
	return nil
}

// copy returns a deep copy of a record.
func (d *definition) copy(record any) (any, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", d.name, d.id(record), err)
	}
	copied, _, err := d.decode(value)
	return copied, err
}
