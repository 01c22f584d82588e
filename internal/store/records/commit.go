package records

import (
	"maps"
	"slices"

	"heddle/internal/store"
)

// commit returns the transaction's conditions and operations.
func (tx *Tx) commit() ([]store.Cond, []store.Op) {
	c := commit{tx: tx, conds: maps.Clone(tx.records), keys: map[string]keyChange{}}
	for d, writes := range tx.writes {
		writes.byID.Scan(func(id string, w *write) bool {
			c.record(d, id, w)
			return true
		})
	}
	conds := slices.Collect(maps.Values(c.conds))
	for prefix := range tx.guards {
		conds = append(conds, store.Cond{Prefix: prefix, Mod: tx.snap.Revision})
	}
	ops := c.ops
	for key, k := range c.keys {
		switch {
		case k.taken && k.released: // passed on within this transaction: the record that had it is guarded
			ops = append(ops, store.Op{Key: key, Value: []byte(k.id)})
		case k.taken:
			ops = append(ops, store.Op{Key: key, Value: []byte(k.id)})
			if k.exclusive {
				conds = append(conds, store.Cond{Key: key})
			}
		default:
			ops = append(ops, store.Op{Key: key, Delete: true})
		}
	}
	ops = slices.AppendSeq(ops, maps.Values(tx.keys))
	if len(ops) == 0 {
		return nil, nil
	}
	for key := range tx.touched {
		guard := guardKey(key)
		conds = append(conds, store.Cond{Prefix: guard, Mod: tx.snap.Revision})
		ops = append(ops, store.Op{Key: guard})
	}
	for key := range tx.marked {
		if !tx.touched[key] {
			ops = append(ops, store.Op{Key: guardKey(key)})
		}
	}
	return conds, ops
}

// guardKey returns a key that is also the prefix of itself alone.
func guardKey(key string) string { return guardRoot + key + "/" }

type commit struct {
	tx    *Tx
	conds map[string]store.Cond // by key of the record
	ops   []store.Op
	keys  map[string]keyChange // unique and index keys
}

// keyChange combines what all writes do to a unique or index key.
type keyChange struct {
	taken, released bool
	exclusive       bool // it must not exist yet
	id              string
}

func (c *commit) record(d *definition, id string, w *write) {
	switch {
	case w.record != nil:
		c.ops = append(c.ops, store.Op{Key: d.key(id), Value: w.value, Lease: w.lease})
	case w.base != nil:
		c.ops = append(c.ops, store.Op{Key: d.key(id), Delete: true})
	}
	for _, u := range d.uniques {
		c.change(u.Values, w, func(value string) string { return d.uniqueKey(u.Name, value) }, keyChange{exclusive: true, id: id})
	}
	for i := range d.refs {
		r := &d.refs[i]
		added := c.change(r.ids, w, func(target string) string { return r.idxField(d, target) + id }, keyChange{})
		for _, target := range added {
			c.needs(r.target, target)
		}
	}
}

// change adds the keys that a write adds and removes, and returns the values added.
func (c *commit) change(values func(any) []string, w *write, key func(string) string, as keyChange) (added []string) {
	var before, after []string
	if w.base != nil {
		before = values(w.base.Record)
	}
	if w.record != nil {
		after = values(w.record)
	}
	for _, v := range before {
		if !slices.Contains(after, v) {
			k := c.keys[key(v)]
			k.released = true
			c.keys[key(v)] = k
		}
	}
	for _, v := range after {
		if !slices.Contains(before, v) {
			k := c.keys[key(v)]
			k.taken, k.exclusive, k.id = true, as.exclusive, as.id
			c.keys[key(v)] = k
			added = append(added, v)
		}
	}
	return added
}

// needs makes the commit fail unless the target of a new reference exists.
func (c *commit) needs(target *definition, id string) {
	key := target.key(id)
	if _, guarded := c.conds[key]; guarded {
		return
	}
	if e := c.tx.snap.Get(target.name, id); e != nil {
		c.conds[key] = store.Cond{Key: key, Create: e.Create}
	}
}
