package snapshot

import (
	"iter"

	"github.com/tidwall/btree"
)

// Entry is one record of a snapshot. Record must not be modified: snapshots share it.
type Entry struct {
	ID          string
	Record      any
	Create, Mod int64 // revisions
}

// Snapshot holds the tables at one revision. It never changes.
type Snapshot struct {
	Revision int64
	// History counts how often the store was replaced or restored since the replica was made.
	// Revisions compare only within one history.
	History int64
	tables  map[string]*table
	log     changeLog
}

// Version grows from snapshot to snapshot, also when the store is replaced.
func (s *Snapshot) Version() uint64 { return VersionAt(s.History, s.Revision) }

// RevisionOf returns the revision of a version, and 0 for a version of another history.
func (s *Snapshot) RevisionOf(version uint64) int64 {
	if int64(version>>48) != s.History {
		return 0
	}
	return int64(version & (1<<48 - 1))
}

// VersionAt returns the version of a snapshot or record of this revision.
func VersionAt(history, revision int64) uint64 { return uint64(history)<<48 | uint64(revision) }

// table is one table of one snapshot. Its trees share nodes with other snapshots.
type table struct {
	records *btree.Map[string, *Entry]
	stored  *btree.Map[string, []byte] // values of the records that are partial
	indexes map[string]*btree.Map[string, posting]
}

// posting holds the records of one value of an index, most often a single one.
type posting struct {
	one  *Entry
	many *btree.Map[string, *Entry]
}

func newTable(indexes []Index) *table {
	t := &table{records: new(btree.Map[string, *Entry]), stored: new(btree.Map[string, []byte]), indexes: map[string]*btree.Map[string, posting]{}}
	for _, i := range indexes {
		t.indexes[i.Name] = new(btree.Map[string, posting])
	}
	return t
}

// Has reports whether the snapshot has the table.
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

// Stored returns the value of the record with this id if the record is [Partial], else nil.
func (s *Snapshot) Stored(source, id string) []byte {
	t := s.tables[source]
	if t == nil {
		return nil
	}
	value, _ := t.stored.Get(id)
	return value
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
		if p.one != nil {
			yield(p.one)
		} else if p.many != nil {
			p.many.Scan(func(_ string, e *Entry) bool { return yield(e) })
		}
	}
}

// CountBy returns how many records have value in the index, without visiting them.
func (s *Snapshot) CountBy(source, index, value string) int {
	p := s.posting(source, index, value)
	if p.one != nil {
		return 1
	}
	if p.many != nil {
		return p.many.Len()
	}
	return 0
}

// IndexValues returns the values that records have in the index, sorted.
func (s *Snapshot) IndexValues(source, index string) []string {
	t := s.tables[source]
	if t == nil || t.indexes[index] == nil {
		return nil
	}
	return t.indexes[index].Keys()
}

func (s *Snapshot) posting(source, index, value string) posting {
	t := s.tables[source]
	if t == nil || t.indexes[index] == nil {
		return posting{}
	}
	p, _ := t.indexes[index].Get(value)
	return p
}
