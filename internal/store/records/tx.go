package records

import (
	"encoding/json"
	"fmt"

	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// Tx is one run of a transaction: a snapshot, what was read of it, and what is to be written. It must not be used after
// the function that got it has returned.
type Tx struct {
	snap    *replica.Snapshot
	writes  map[*definition]*writes
	records map[string]store.Cond // by key of the record
	keys    map[string]store.Op   // of no table, by key
	guards  map[string]bool       // prefixes under which nothing new may have come
	touched map[string]bool       // keys given to Touch
	marked  map[string]bool       // keys given to Mark
}

func newTx(snap *replica.Snapshot) *Tx {
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

// Revision is the revision of the snapshot that the transaction reads.
func (tx *Tx) Revision() int64 { return tx.snap.Revision }

// Touch makes transactions that touch the same key happen one after another: each sees what those before it have
// written. That is for rules over many records, such as quotas.
func (tx *Tx) Touch(key string) { tx.touched[key] = true }

// Mark lets transactions that heed the key know of this one. Those that mark it do not wait for each other.
func (tx *Tx) Mark(key string) { tx.marked[key] = true }

// Heed has the commit fail if another transaction has touched or marked the key, or one below it (key/…), since the
// snapshot.
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
	if e := tx.snap.Get(d.name, id); e != nil {
		tx.records[key] = store.Cond{Key: key, Create: e.Create}
	} else {
		tx.records[key] = store.Cond{Key: key}
	}
}

func (tx *Tx) guardPrefix(prefix string) { tx.guards[prefix] = true }

// Put stores the record under its id, new or in place of the old one. It must not be modified afterwards. Errors:
// [TakenError] when another record has one of its unique keys, [NotFoundError] when something it refers to is missing;
// then nothing is put.
func (t *Table[T]) Put(tx *Tx, record *T) error { return tx.put(t.def, record, 0) }

// PutLeased stores a record that vanishes with the lease. Its table can have neither unique keys nor references, since
// those would stay.
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
	tx.set(d, id, &write{record: record, value: value, lease: lease})
	return nil
}

// holder returns the id of the record that has the unique key, as the transaction sees it.
func (tx *Tx) holder(d *definition, u replica.Index, key string) (string, bool) {
	for record := range tx.view().by(d, u.Name, key) {
		return d.id(record), true
	}
	return "", false
}

// set notes the wanted state of a record, guarded by the state that the snapshot has.
func (tx *Tx) set(d *definition, id string, w *write) {
	w.base = tx.snap.Get(d.name, id)
	tx.guardRecord(d, id)
	if tx.writes[d] == nil {
		tx.writes[d] = newWrites()
	}
	tx.writes[d].set(id, w)
}

// Delete takes the record away, with everything that cascades from it; references with ClearWith are cleared. It
// returns a [NotFoundError] when there is no such record, or an [InUseError] when something refers to it that refuses;
// then nothing is deleted.
func (t *Table[T]) Delete(tx *Tx, id string) error {
	if tx.view().get(t.def, id) == nil {
		tx.guardRecord(t.def, id)
		return &NotFoundError{t.def.name, id}
	}
	doomed := tx.closure(t.def, id)
	for _, p := range doomed.order {
		if err := tx.refused(p, doomed); err != nil {
			return err
		}
	}
	before := tx.copyWrites()
	for _, p := range doomed.order {
		tx.set(p.def, p.id, &write{})
		if len(p.def.incoming) > 0 {
			tx.guardPrefix(p.def.idxPrefix(p.id))
		}
	}
	if err := tx.clearReferences(doomed); err != nil {
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

// doomed is a set of records that will be deleted together.
type doomed struct {
	order []place
	in    map[place]bool
}

// closure is the record and all that cascades from it.
func (tx *Tx) closure(d *definition, id string) doomed {
	set := doomed{in: map[place]bool{}}
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

// refused says who refuses that the record goes: referrers that stay.
func (tx *Tx) refused(p place, doomed doomed) error {
	for _, in := range p.def.incoming {
		if !tx.snap.Has(in.from.name) {
			return fmt.Errorf("%s %s cannot be deleted here: table %s, which refers to it, is not replicated", p.def.name, p.id, in.from.name)
		}
		if in.action.kind != refuse {
			continue
		}
		var ids []string
		for _, by := range tx.view().referrers(in.from, &in.reference, p.id) {
			if !doomed.in[place{in.from, by}] {
				ids = append(ids, by)
			}
		}
		if len(ids) > 0 {
			return &InUseError{p.def.name, p.id, in.from.name, in.field, ids}
		}
	}
	return nil
}

// clearReferences takes the references to deleted records out of those that stay. A record may refer to several of them,
// so it is put only when all are out.
func (tx *Tx) clearReferences(doomed doomed) error {
	cleared := map[place]any{}
	for _, p := range doomed.order {
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

// copy makes a copy that shares nothing with the record.
func (d *definition) copy(record any) (any, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", d.name, d.id(record), err)
	}
	return d.decode(value)
}
