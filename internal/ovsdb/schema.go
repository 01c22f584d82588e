package ovsdb

import (
	"encoding/json"
	"fmt"
)

// schema holds those parts of a database's schema that the client needs.
type schema struct {
	version string
	columns map[string][]string        // by table of the model: those of its columns that are there
	missing map[string]bool            // optional columns that are not there: see State.Missing
	many    map[string]map[string]bool // by table and column: it may have more than one value, so its changes come as differences
}

// schemaText is a schema as a database reports it (RFC 7047 §3.2).
type schemaText struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Tables  map[string]struct {
		Columns map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"columns"`
	} `json:"tables"`
}

// readSchema finds the model's columns, and refuses a database that lacks a needed one.
func readSchema[S Contents[S]](m *Model[S], raw json.RawMessage) (*schema, error) {
	var text schemaText
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if text.Name != m.Database {
		return nil, fmt.Errorf("schema: it is that of database %q, not %s", text.Name, m.Database)
	}
	s := &schema{version: text.Version, columns: map[string][]string{}, missing: map[string]bool{}, many: map[string]map[string]bool{}}
	for _, table := range sortedKeys(m.Tables) {
		there, ok := text.Tables[table]
		if !ok {
			return nil, fmt.Errorf("schema %s has no table %s: %s", text.Version, table, m.Needs)
		}
		s.many[table] = map[string]bool{}
		for _, c := range m.Tables[table] {
			described, ok := there.Columns[c.Name]
			switch {
			case ok:
				s.columns[table] = append(s.columns[table], c.Name)
				s.many[table][c.Name] = holdsMany(described.Type)
			case c.Optional:
				s.missing[table+"."+c.Name] = true
			default:
				return nil, fmt.Errorf("schema %s has no column %s.%s: %s", text.Version, table, c.Name, m.Needs)
			}
		}
	}
	return s, nil
}

// holdsMany reads a column's type: whether its "max" is above 1.
func holdsMany(raw json.RawMessage) bool {
	var composed struct {
		Max json.RawMessage `json:"max"`
	}
	if json.Unmarshal(raw, &composed) != nil { // an atomic type is a string
		return false
	}
	return len(composed.Max) > 0 && string(composed.Max) != "1"
}

// requests returns the requests for a database's monitor.
func (s *schema) requests(list bool) map[string]any {
	all := map[string]any{}
	for table, columns := range s.columns {
		request := map[string]any{"columns": columns}
		if list { // monitor_cond_since takes a list of requests for each table
			all[table] = []any{request}
		} else {
			all[table] = request
		}
	}
	return all
}
