package ovsdb

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Contents is one state of a database as a user of the client reads it: a pointer to a struct with
// a table of typed rows for each table of its [Model], and a [State].
type Contents[S any] interface {
	// Clone returns a copy for changes. It shares the tables: Take replaces those that it changes.
	Clone() S
	// Take makes typed rows of those of a table that have changed; see [TakeRows].
	Take(table string, rows Rows) error
	// Connection returns the State, which is a part of the struct.
	Connection() *State
}

// State is the condition of a client's connection.
type State struct {
	// Lost says why the database cannot be heard, so that the rest may be old; nil while it is
	// heard. Until it was heard first there are no rows.
	Lost error
	// Silent is set while the database does not answer although there is a connection.
	Silent error
	// Missing are the optional columns that the database does not have, as "Table.column".
	Missing map[string]bool
}

// Connection returns the state itself: what holds one has it as a method of [Contents].
func (s *State) Connection() *State { return s }

// Model is the part of a database that a client follows, and the contents that it makes of it.
type Model[S Contents[S]] struct {
	Database string
	Tables   map[string][]Column // columns by table
	Needs    string              // which servers have them all, for errors: "Open vSwitch 2.4 or newer is needed"
	New      func() S            // contents without rows
}

// Column is one that the client reads.
type Column struct {
	Name     string
	Optional bool // servers in use lack it
}

// Rows is an update of a table: its rows, those that the database sent, and whether they are all.
type Rows struct {
	rows map[UUID]Row
	sent map[UUID]change
	all  bool
}

// TakeRows makes a table of typed rows. A row that reads as before stays the same pointer.
func TakeRows[T any](have map[UUID]*T, update Rows, read func(UUID, *RowReader) *T) (map[UUID]*T, error) {
	next := maps.Clone(have)
	if update.all || next == nil {
		next = make(map[UUID]*T, len(update.rows))
	}
	for id := range update.sent {
		row, ok := update.rows[id]
		if !ok {
			delete(next, id)
			continue
		}
		r := RowReader{row: row}
		typed := read(id, &r)
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", id, r.err)
		}
		if old := have[id]; old != nil && reflect.DeepEqual(old, typed) {
			typed = old
		}
		next[id] = typed
	}
	return next, nil
}

// Changed lists the rows of a table that came, went or became other between two snapshots of one
// client, in order. It compares pointers: a row that has not changed is the same in both.
func Changed[T any](before, after map[UUID]*T) []UUID {
	var ids []UUID
	for id, row := range after {
		if before[id] != row {
			ids = append(ids, id)
		}
	}
	for id := range before {
		if _, ok := after[id]; !ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
