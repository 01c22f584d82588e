package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Cache is a database's rows as they came, and the contents made of them.
type Cache[S Contents[S]] struct {
	model  *Model[S]
	schema *schema
	rows   map[string]map[UUID]Row // by table
	snap   S
}

// change is a change of one row, in any of the forms in which databases send it: "old" and "new" to
// monitor, and "initial", "insert", "modify" and "delete" to monitor_cond_since.
type change map[string]json.RawMessage

func newCache[S Contents[S]](m *Model[S]) *Cache[S] {
	return &Cache[S]{model: m, rows: map[string]map[UUID]Row{}, snap: m.New()}
}

// NewCache returns the cache of a client that has read the schema, and no rows yet.
func NewCache[S Contents[S]](m *Model[S], schema json.RawMessage) (*Cache[S], error) {
	c := newCache(m)
	s, err := readSchema(m, schema)
	if err == nil {
		c.setSchema(s)
	}
	return c, err
}

func (c *Cache[S]) setSchema(s *schema) {
	c.schema, c.snap = s, c.snap.Clone()
	c.snap.Connection().Missing = s.missing
}

// Contents returns what the rows are read as.
func (c *Cache[S]) Contents() S { return c.snap }

// Apply takes changes of rows in (RFC 7047 §4.1.6) and makes the contents anew. With all set they
// are everything that there is: rows that are not among them are gone. Nothing has changed when it
// fails.
func (c *Cache[S]) Apply(raw json.RawMessage, all bool) error {
	var told map[string]map[UUID]change
	if err := json.Unmarshal(raw, &told); err != nil {
		return fmt.Errorf("changes of rows: %w", err)
	}
	next := &Cache[S]{model: c.model, schema: c.schema, rows: maps.Clone(c.rows), snap: c.snap.Clone()}
	for _, table := range sortedKeys(c.model.Tables) {
		if _, ok := told[table]; !ok && !all {
			continue
		}
		if err := next.applyTable(table, told[table], all); err != nil {
			return err
		}
	}
	c.rows, c.snap = next.rows, next.snap
	return nil
}

func (c *Cache[S]) applyTable(table string, told map[UUID]change, all bool) error {
	before := c.rows[table]
	rows := maps.Clone(before)
	if all || rows == nil {
		rows = make(map[UUID]Row, len(told))
	}
	for id, how := range told {
		row, err := c.changeRow(table, before[id], how)
		if err != nil {
			return fmt.Errorf("%s %s: %w", table, id, err)
		}
		if row == nil {
			delete(rows, id)
		} else {
			rows[id] = row
		}
	}
	c.rows[table] = rows
	if err := c.snap.Take(table, Rows{rows, told, all}); err != nil {
		return fmt.Errorf("%s %w", table, err)
	}
	return nil
}

// changeRow returns the row after a change, nil when it is gone. Unknown changes are ignored.
func (c *Cache[S]) changeRow(table string, old Row, how change) (Row, error) {
	for kind, raw := range how {
		switch kind {
		case "initial", "insert", "new":
			var row Row
			if err := json.Unmarshal(raw, &row); err != nil {
				return nil, err
			}
			if row == nil {
				return nil, fmt.Errorf("%s: no row", kind)
			}
			return row, nil
		case "modify":
			var differences Row
			if err := json.Unmarshal(raw, &differences); err != nil {
				return nil, err
			}
			if old == nil {
				return nil, fmt.Errorf("a change of a row that was never reported")
			}
			return c.modify(table, old, differences)
		case "delete":
			return nil, nil
		}
	}
	if _, ok := how["old"]; ok { // and no "new"
		return nil, nil
	}
	return old, nil
}

// modify puts differences into a row: a column of one value comes whole; of one of many values the
// elements come that are in one of old and new, and of a map also the pairs that have a new value
// (ovsdb-server(7) §4.1.14).
func (c *Cache[S]) modify(table string, old, differences Row) (Row, error) {
	row := maps.Clone(old)
	for name, value := range differences {
		if !c.schema.many[table][name] {
			row[name] = value
			continue
		}
		switch value := value.(type) {
		case Map:
			was, ok := old[name].(Map)
			if !ok && len(elements(old[name])) > 0 {
				return nil, fmt.Errorf("column %s: a map's change of what is no map", name)
			}
			row[name] = toggleMap(was, value)
		default:
			if _, ok := old[name].(Map); ok {
				return nil, fmt.Errorf("column %s: a set's change of a map", name)
			}
			row[name] = toggleSet(elements(old[name]), elements(value))
		}
	}
	return row, nil
}

func toggleMap(was, difference Map) Map {
	m := maps.Clone(was)
	if m == nil {
		m = Map{}
	}
	for k, v := range difference {
		if old, ok := m[k]; ok && old == v {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	return m
}

func toggleSet(was, difference Set) Set {
	toggled := make(map[any]bool, len(difference))
	for _, e := range difference {
		toggled[e] = true
	}
	set := make(Set, 0, len(was)+len(difference))
	for _, e := range was {
		if !toggled[e] {
			set = append(set, e)
		}
		delete(toggled, e)
	}
	for _, e := range difference {
		if toggled[e] {
			set = append(set, e)
		}
	}
	return set
}
