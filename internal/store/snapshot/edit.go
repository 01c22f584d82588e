package snapshot

import (
	"maps"

	"github.com/tidwall/btree"
)

// edit makes the next snapshot. It copies what it changes: a table once, of a tree only the nodes
// on the path.
type edit struct {
	prev, next *Snapshot
	ours       map[*table]bool                     // made by this edit: may be changed in place
	postings   map[*btree.Map[string, *Entry]]bool // likewise
	touched    map[place]bool
	order      []place
	unseen     map[place]bool // while listing: not found yet
	invalid    []Invalid
}

type place struct {
	source *Source
	id     string
}

func newEdit(prev *Snapshot) *edit {
	return &edit{
		prev:     prev,
		next:     &Snapshot{History: prev.History, tables: maps.Clone(prev.tables)},
		ours:     map[*table]bool{},
		postings: map[*btree.Map[string, *Entry]]bool{},
		touched:  map[place]bool{},
	}
}

// table returns the source's table for writing.
func (e *edit) table(s *Source) *table {
	t := e.next.tables[s.Name]
	if e.ours[t] {
		return t
	}
	c := &table{records: t.records.Copy(), stored: t.stored.Copy(), indexes: make(map[string]*btree.Map[string, posting], len(t.indexes))}
	for name, tree := range t.indexes {
		c.indexes[name] = tree.Copy()
	}
	e.ours[c] = true
	e.next.tables[s.Name] = c
	return c
}

func (e *edit) touch(s *Source, id string) {
	if p := (place{s, id}); !e.touched[p] {
		e.touched[p] = true
		e.order = append(e.order, p)
	}
}

// set puts a record in place of the one with its id. stored is its value if it is partial.
func (e *edit) set(s *Source, entry *Entry, stored []byte) {
	e.touch(s, entry.ID)
	t := e.table(s)
	if stored != nil {
		t.stored.Set(entry.ID, stored)
	} else {
		t.stored.Delete(entry.ID)
	}
	old, replaced := t.records.Set(entry.ID, entry)
	for _, i := range s.Indexes {
		tree := t.indexes[i.Name]
		if replaced {
			e.unpost(tree, i.Values(old.Record), entry.ID)
		}
		for _, value := range i.Values(entry.Record) {
			e.post(tree, value, entry)
		}
	}
}

func (e *edit) remove(s *Source, id string) {
	if _, ok := e.next.tables[s.Name].records.Get(id); !ok {
		return
	}
	e.touch(s, id)
	t := e.table(s)
	old, _ := t.records.Delete(id)
	t.stored.Delete(id)
	for _, i := range s.Indexes {
		e.unpost(t.indexes[i.Name], i.Values(old.Record), id)
	}
}

func (e *edit) post(tree *btree.Map[string, posting], value string, entry *Entry) {
	p, _ := tree.Get(value)
	switch {
	case p.many != nil:
		many := e.posting(p.many)
		many.Set(entry.ID, entry)
		tree.Set(value, posting{many: many})
	case p.one != nil && p.one.ID != entry.ID:
		many := new(btree.Map[string, *Entry])
		e.postings[many] = true
		many.Set(p.one.ID, p.one)
		many.Set(entry.ID, entry)
		tree.Set(value, posting{many: many})
	default:
		tree.Set(value, posting{one: entry})
	}
}

func (e *edit) unpost(tree *btree.Map[string, posting], values []string, id string) {
	for _, value := range values {
		p, _ := tree.Get(value)
		switch {
		case p.one != nil && p.one.ID == id:
			tree.Delete(value)
		case p.many != nil:
			many := e.posting(p.many)
			many.Delete(id)
			if many.Len() == 0 {
				tree.Delete(value)
			} else {
				tree.Set(value, posting{many: many})
			}
		}
	}
}

// posting returns the tree for writing.
func (e *edit) posting(many *btree.Map[string, *Entry]) *btree.Map[string, *Entry] {
	if e.postings[many] {
		return many
	}
	c := many.Copy()
	e.postings[c] = true
	return c
}

// stale marks a record to be removed unless it is found again.
func (e *edit) stale(s *Source, id string) {
	if e.unseen == nil {
		e.unseen = map[place]bool{}
	}
	e.unseen[place{s, id}] = true
}

// keeps reports whether the record has this revision, and marks it as found.
func (e *edit) keeps(s *Source, id string, mod int64) bool {
	delete(e.unseen, place{s, id})
	entry, ok := e.next.tables[s.Name].records.Get(id)
	return ok && entry.Mod == mod
}

func (e *edit) removeStale() {
	for p := range e.unseen {
		e.remove(p.source, p.id)
	}
}

// finish returns the snapshot, and each record that differs from the last one.
func (e *edit) finish(rev int64) Update {
	e.next.Revision = rev
	u := Update{Prev: e.prev, Next: e.next}
	for _, p := range e.order {
		before, after := e.prev.Get(p.source.Name, p.id), e.next.Get(p.source.Name, p.id)
		if before == nil && after == nil {
			continue // came and went in between
		}
		c := Changed{Source: p.source.Name, ID: p.id}
		if before != nil {
			c.Old = before.Record
		}
		if after != nil {
			c.New = after.Record
		}
		u.Changed = append(u.Changed, c)
	}
	e.next.log = e.prev.log.with(u.Changed)
	return u
}
