package replica

import (
	"iter"
	"maps"

	"github.com/tidwall/btree"
)

// Entry is one record of a snapshot. Record must not be modified: snapshots share it.
type Entry struct {
	ID          string
	Record      any
	Create, Mod int64 // revisions
}

// Snapshot is the tables at one revision. It never changes.
type Snapshot struct {
	Revision int64
	// History counts how often the store was replaced or restored since the replica was made. Revisions compare only
	// within one.
	History int64
	tables  map[string]*table
}

// Version grows from snapshot to snapshot, whatever becomes of the store.
func (s *Snapshot) Version() uint64 { return VersionAt(s.History, s.Revision) }

// RevisionOf returns the revision of a version of this snapshot's history, and 0 for one of another history.
func (s *Snapshot) RevisionOf(version uint64) int64 {
	if int64(version>>48) != s.History {
		return 0
	}
	return int64(version & (1<<48 - 1))
}

// VersionAt returns the version of a snapshot or record of this revision.
func VersionAt(history, revision int64) uint64 { return uint64(history)<<48 | uint64(revision) }

// table is one table of one snapshot. Its trees share nodes with those of the snapshots before and after.
type table struct {
	records *btree.Map[string, *Entry]
	indexes map[string]*btree.Map[string, posting]
}

// posting is the records of one value of an index: most often a single one.
type posting struct {
	one  *Entry
	many *btree.Map[string, *Entry]
}

func emptySnapshot(sources []Source) *Snapshot {
	s := &Snapshot{tables: map[string]*table{}}
	for _, source := range sources {
		t := &table{records: new(btree.Map[string, *Entry]), indexes: map[string]*btree.Map[string, posting]{}}
		for _, i := range source.Indexes {
			t.indexes[i.Name] = new(btree.Map[string, posting])
		}
		s.tables[source.Name] = t
	}
	return s
}

// Has says whether the snapshot holds the table at all.
func (s *Snapshot) Has(source string) bool { return s.tables[source] != nil }

// Get returns the record with this id, or nil.
func (s *Snapshot) Get(source, id string) *Entry {
	t := s.tables[source]
	if t == nil {
		return nil
	}
	e, _ := t.records.Get(id)
	return e
}

// Len returns how many records the table has.
func (s *Snapshot) Len(source string) int {
	if t := s.tables[source]; t != nil {
		return t.records.Len()
	}
	return 0
}

// All returns the records in order of their ids.
func (s *Snapshot) All(source string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		if t := s.tables[source]; t != nil {
			t.records.Scan(func(_ string, e *Entry) bool { return yield(e) })
		}
	}
}

// By returns the records that have value in the index, in order of their ids.
func (s *Snapshot) By(source, index, value string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		p := s.posting(source, index, value)
		switch {
		case p.one != nil:
			yield(p.one)
		case p.many != nil:
			p.many.Scan(func(_ string, e *Entry) bool { return yield(e) })
		}
	}
}

// CountBy returns how many records have value in the index, without visiting them.
func (s *Snapshot) CountBy(source, index, value string) int {
	p := s.posting(source, index, value)
	switch {
	case p.one != nil:
		return 1
	case p.many != nil:
		return p.many.Len()
	}
	return 0
}

func (s *Snapshot) posting(source, index, value string) posting {
	t := s.tables[source]
	if t == nil || t.indexes[index] == nil {
		return posting{}
	}
	p, _ := t.indexes[index].Get(value)
	return p
}

// edit makes the next snapshot. It copies what it changes: a table and its trees once, of a tree the nodes on the way.
type edit struct {
	prev, next *Snapshot
	ours       map[*table]bool                     // made by this edit: may be changed in place
	postings   map[*btree.Map[string, *Entry]]bool // likewise
	touched    map[place]bool
	order      []place
	unseen     map[place]bool // while listing anew: not found yet
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
	c := &table{records: t.records.Copy(), indexes: make(map[string]*btree.Map[string, posting], len(t.indexes))}
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

func (e *edit) set(s *Source, entry *Entry) {
	e.touch(s, entry.ID)
	t := e.table(s)
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

// stale notes a record that goes unless it is found again.
func (e *edit) stale(s *Source, id string) {
	if e.unseen == nil {
		e.unseen = map[place]bool{}
	}
	e.unseen[place{s, id}] = true
}

// keeps says whether the record is there as of this very revision, and notes that it was found.
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

// finish returns the snapshot, and each record that differs from the one before.
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
	return u
}
