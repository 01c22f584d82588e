// Package snapshot holds tables of records in memory as they were at one revision of the store. A
// snapshot never changes, and shares unchanged records with the next one. The package is pure;
// package replica follows the store.
package snapshot

import (
	"slices"
	"strings"

	"heddle/internal/store"
)

// Source describes the keys of a table and how to decode them.
type Source struct {
	Name   string
	Prefix string // every key of the table begins with it
	// ID returns the record's id for its key; false: the key is of another table. nil: the id is
	// what follows Prefix.
	ID func(key string) (string, bool)
	// Key returns the key of the record with this id; nil: it is Prefix and the id.
	Key func(id string) string
	// Decode returns the record, or it as a Partial.
	Decode  func(id string, value []byte) (any, error)
	Indexes []Index
}

// Partial is a decoded record that lacks something of its value. The snapshot has Record, and also
// the value, see [Snapshot.Stored].
type Partial struct{ Record any }

// Index finds records by values. Values must depend on the record alone.
type Index struct {
	Name   string
	Values func(record any) []string
}

// Table has a Source, such as a records.Table.
type Table interface{ Source() Source }

// Source makes a Source a Table.
func (s Source) Source() Source { return s }

// RecordID returns the id of the record with this key; false: the key is not the table's.
func (s *Source) RecordID(key string) (string, bool) {
	if !strings.HasPrefix(key, s.Prefix) {
		return "", false
	}
	if s.ID == nil {
		return key[len(s.Prefix):], true
	}
	return s.ID(key)
}

// RecordKey returns the key of the record with this id.
func (s *Source) RecordKey(id string) string {
	if s.Key == nil {
		return s.Prefix + id
	}
	return s.Key(id)
}

// Tables are the sources that make a snapshot.
type Tables []Source

// Of returns the sources of the tables.
func Of(tables ...Table) Tables {
	var all Tables
	for _, t := range tables {
		all = append(all, t.Source())
	}
	return all
}

// Prefixes returns the sources' prefixes without duplicates and those inside another.
func (ts Tables) Prefixes() []string {
	var all, out []string
	for _, s := range ts {
		all = append(all, s.Prefix)
	}
	slices.Sort(all)
	for _, p := range all {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// Empty returns the snapshot of revision 0.
func (ts Tables) Empty() *Snapshot {
	s := &Snapshot{tables: map[string]*table{}}
	for _, source := range ts {
		s.tables[source.Name] = newTable(source.Indexes)
	}
	return s
}

// Update is the difference between consecutive snapshots. If their History differs, the store was
// replaced or restored, and revisions do not compare.
type Update struct {
	Prev, Next *Snapshot
	Changed    []Changed
}

// Diverged reports whether the store was replaced or restored between the two snapshots.
func (u *Update) Diverged() bool { return u.Prev.History != u.Next.History }

// Changed is one record that differs. Old is nil if it is new, New if it is deleted.
type Changed struct {
	Source, ID string
	Old, New   any
}

// Invalid is a key whose value could not be decoded. The snapshot lacks its record.
type Invalid struct {
	Source   string
	Key      string
	Revision int64
	Err      error
}

// Replace returns the difference from prev to a snapshot of exactly these keys. diverged: they are
// of another history.
func (ts Tables) Replace(prev *Snapshot, all []store.KV, rev int64, diverged bool) (Update, []Invalid) {
	e := newEdit(prev)
	if diverged {
		e.next.History++
	}
	for i := range ts {
		for entry := range prev.All(ts[i].Name) {
			e.stale(&ts[i], entry.ID)
		}
	}
	for _, kv := range all {
		ts.put(e, kv)
	}
	e.removeStale()
	return e.finish(rev), e.invalid
}

// Apply returns the difference from prev to the snapshot after the events.
func (ts Tables) Apply(prev *Snapshot, events []store.Event, rev int64) (Update, []Invalid) {
	e := newEdit(prev)
	for _, event := range events {
		if !event.Deleted {
			ts.put(e, event.KV)
		} else if s, id := ts.find(event.Key); s != nil {
			e.remove(s, id)
		}
	}
	return e.finish(rev), e.invalid
}

// put decodes a record into its table.
func (ts Tables) put(e *edit, kv store.KV) {
	s, id := ts.find(kv.Key)
	if s == nil {
		return
	}
	if same := e.keeps(s, id, kv.ModRevision); same && e.prev.History == e.next.History {
		return
	}
	record, err := s.Decode(id, kv.Value)
	if err != nil {
		e.invalid = append(e.invalid, Invalid{s.Name, kv.Key, kv.ModRevision, err})
		e.remove(s, id)
		return
	}
	var stored []byte
	if p, ok := record.(Partial); ok {
		record, stored = p.Record, kv.Value
	}
	e.set(s, &Entry{ID: id, Record: record, Create: kv.CreateRevision, Mod: kv.ModRevision}, stored)
}

// Find returns the source of a key, by name, and the record's id; false if the key is of none.
func (ts Tables) Find(key string) (source, id string, ok bool) {
	s, id := ts.find(key)
	if s == nil {
		return "", "", false
	}
	return s.Name, id, true
}

// find returns a key's source, or nil, and the record's id.
func (ts Tables) find(key string) (*Source, string) {
	for i := range ts {
		if id, ok := ts[i].RecordID(key); ok {
			return &ts[i], id
		}
	}
	return nil, ""
}
