package ovs

import (
	"encoding/json"
	"fmt"
)

// column is one that the client reads.
type column struct {
	name     string
	optional bool // switches in use lack it: Open vSwitch 2.5, as hosts of XenServer 8 have, or older
}

// watched lists the columns that the client follows, by table. Counters would change all the time.
var watched = map[string][]column{
	Database: {{name: "bridges"}, {name: "cur_cfg"}, {name: "next_cfg"}, {name: "external_ids"}, {name: "manager_options"},
		{name: "other_config"}, {name: "ovs_version"}, {name: "ssl"}, {name: "datapath_types", optional: true},
		{name: "iface_types", optional: true}},
	"Bridge": {{name: "name"}, {name: "datapath_type"}, {name: "external_ids"}, {name: "fail_mode"}, {name: "flood_vlans"},
		{name: "other_config"}, {name: "ports"}},
	"Port": {{name: "name"}, {name: "external_ids"}, {name: "interfaces"}, {name: "other_config"}, {name: "tag"},
		{name: "protected", optional: true}},
	"Interface": {{name: "name"}, {name: "admin_state"}, {name: "bfd"}, {name: "bfd_status"}, {name: "error", optional: true},
		{name: "external_ids"}, {name: "link_state"}, {name: "mac_in_use"}, {name: "mtu"}, {name: "mtu_request", optional: true},
		{name: "ofport"}, {name: "options"}, {name: "type"}},
	"Manager": {{name: "target"}, {name: "external_ids"}, {name: "is_connected"}},
	"SSL":     {{name: "ca_cert"}, {name: "certificate"}, {name: "external_ids"}, {name: "private_key"}},
}

// schema holds those parts of a database's schema that the client needs.
type schema struct {
	version string
	columns map[string][]string        // by watched table: those of its columns that are there
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

// readSchema finds the watched columns, and refuses a database that lacks a needed one.
func readSchema(raw json.RawMessage) (*schema, error) {
	var text schemaText
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if text.Name != Database {
		return nil, fmt.Errorf("schema: it is that of database %q, not %s", text.Name, Database)
	}
	s := &schema{version: text.Version, columns: map[string][]string{}, many: map[string]map[string]bool{}}
	for _, table := range sortedKeys(watched) {
		there, ok := text.Tables[table]
		if !ok {
			return nil, fmt.Errorf("schema %s has no table %s: Open vSwitch 2.4 or newer is needed", text.Version, table)
		}
		s.many[table] = map[string]bool{}
		for _, c := range watched[table] {
			described, ok := there.Columns[c.name]
			switch {
			case ok:
				s.columns[table] = append(s.columns[table], c.name)
				s.many[table][c.name] = holdsMany(described.Type)
			case !c.optional:
				return nil, fmt.Errorf("schema %s has no column %s.%s: Open vSwitch 2.4 or newer is needed", text.Version, table, c.name)
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
