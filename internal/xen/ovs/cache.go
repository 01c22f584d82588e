package ovs

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
)

// cache is a database's rows as they came, and the snapshot made of them.
type cache struct {
	schema *schema
	rows   map[string]map[UUID]Row // by table
	snap   *Snapshot
}

// change is a change of one row, in any of the forms in which databases send it: "old" and "new" to
// monitor, and "initial", "insert", "modify" and "delete" to monitor_cond_since.
type change map[string]json.RawMessage

func newCache() *cache { return &cache{rows: map[string]map[UUID]Row{}, snap: &Snapshot{}} }

// apply takes changes in and makes the snapshot anew. With all set they are everything that there
// is: rows that are not among them are gone. Nothing has changed when it fails.
func (c *cache) apply(raw json.RawMessage, all bool) error {
	var told map[string]map[UUID]change
	if err := json.Unmarshal(raw, &told); err != nil {
		return fmt.Errorf("changes of rows: %w", err)
	}
	next := &cache{schema: c.schema, rows: maps.Clone(c.rows), snap: c.snap.clone()}
	for _, table := range sortedKeys(watched) {
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

func (c *cache) applyTable(table string, told map[UUID]change, all bool) error {
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
	if err := c.snap.take(table, taking{rows, told, all}); err != nil {
		return fmt.Errorf("%s %w", table, err)
	}
	return nil
}

// changeRow returns the row after a change, nil when it is gone. Unknown changes are ignored.
func (c *cache) changeRow(table string, old Row, how change) (Row, error) {
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
func (c *cache) modify(table string, old, differences Row) (Row, error) {
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

// clone copies the snapshot for changes, but not its tables: take copies those that it changes.
func (s *Snapshot) clone() *Snapshot {
	return &Snapshot{Root: s.Root, Bridges: s.Bridges, Ports: s.Ports, Interfaces: s.Interfaces, Managers: s.Managers, SSLs: s.SSLs,
		Lost: s.Lost}
}

// taking is an update of a table: its rows, those that the database sent, and if they are all.
type taking struct {
	rows map[UUID]Row
	told map[UUID]change
	all  bool
}

// take makes typed rows of those that were told.
func (s *Snapshot) take(table string, t taking) (err error) {
	switch table {
	case Database:
		var roots map[UUID]*Root
		if s.Root != nil {
			roots = map[UUID]*Root{s.Root.UUID: s.Root}
		}
		if roots, err = takeRows(roots, t, readRoot); err != nil {
			return err
		}
		s.Root = nil
		for _, id := range sortedKeys(roots) {
			s.Root = roots[id]
		}
	case "Bridge":
		s.Bridges, err = takeRows(s.Bridges, t, readBridge)
	case "Port":
		s.Ports, err = takeRows(s.Ports, t, readPort)
	case "Interface":
		s.Interfaces, err = takeRows(s.Interfaces, t, readInterface)
	case "Manager":
		s.Managers, err = takeRows(s.Managers, t, readManager)
	case "SSL":
		s.SSLs, err = takeRows(s.SSLs, t, readSSL)
	}
	return err
}

// takeRows makes a table of the snapshot. A row that reads as before stays the same one.
func takeRows[T any](have map[UUID]*T, t taking, read func(UUID, *rowReader) *T) (map[UUID]*T, error) {
	next := maps.Clone(have)
	if t.all || next == nil {
		next = make(map[UUID]*T, len(t.rows))
	}
	for id := range t.told {
		row, ok := t.rows[id]
		if !ok {
			delete(next, id)
			continue
		}
		r := rowReader{row: row}
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
