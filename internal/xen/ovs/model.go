package ovs

import (
	"maps"
	"slices"

	"heddle/internal/ovsdb"
)

// Database is the one that switches are set up by.
const Database = "Open_vSwitch"

// model lists the columns that the client follows, by table. Counters would change all the time.
// Optional are those that Open vSwitch 2.5, as hosts of XenServer 8 have, or older lacks.
var model = ovsdb.Model[*Snapshot]{
	Database: Database,
	Needs:    "Open vSwitch 2.4 or newer is needed",
	New:      func() *Snapshot { return &Snapshot{} },
	Tables: map[string][]ovsdb.Column{
		Database: {{Name: "bridges"}, {Name: "cur_cfg"}, {Name: "next_cfg"}, {Name: "external_ids"}, {Name: "manager_options"},
			{Name: "other_config"}, {Name: "ovs_version"}, {Name: "ssl"}, {Name: "datapath_types", Optional: true},
			{Name: "iface_types", Optional: true}},
		"Bridge": {{Name: "name"}, {Name: "datapath_type"}, {Name: "external_ids"}, {Name: "fail_mode"}, {Name: "flood_vlans"},
			{Name: "other_config"}, {Name: "ports"}},
		"Port": {{Name: "name"}, {Name: "external_ids"}, {Name: "interfaces"}, {Name: "other_config"}, {Name: "tag"},
			{Name: "protected", Optional: true}},
		"Interface": {{Name: "name"}, {Name: "admin_state"}, {Name: "bfd"}, {Name: "bfd_status"}, {Name: "error", Optional: true},
			{Name: "external_ids"}, {Name: "link_state"}, {Name: "mac_in_use"}, {Name: "mtu"}, {Name: "mtu_request", Optional: true},
			{Name: "ofport"}, {Name: "options"}, {Name: "type"}},
		"Manager": {{Name: "target"}, {Name: "external_ids"}, {Name: "is_connected"}},
		"SSL":     {{Name: "ca_cert"}, {Name: "certificate"}, {Name: "external_ids"}, {Name: "private_key"}},
	},
}

// Clone implements [ovsdb.Contents].
func (s *Snapshot) Clone() *Snapshot {
	return &Snapshot{Root: s.Root, Bridges: s.Bridges, Ports: s.Ports, Interfaces: s.Interfaces, Managers: s.Managers, SSLs: s.SSLs,
		State: s.State}
}

// Take implements [ovsdb.Contents].
func (s *Snapshot) Take(table string, rows ovsdb.Rows) (err error) {
	switch table {
	case Database:
		var roots map[ovsdb.UUID]*Root
		if s.Root != nil {
			roots = map[ovsdb.UUID]*Root{s.Root.UUID: s.Root}
		}
		if roots, err = ovsdb.TakeRows(roots, rows, readRoot); err != nil {
			return err
		}
		s.Root = nil
		for _, id := range slices.Sorted(maps.Keys(roots)) {
			s.Root = roots[id]
		}
	case "Bridge":
		s.Bridges, err = ovsdb.TakeRows(s.Bridges, rows, readBridge)
	case "Port":
		s.Ports, err = ovsdb.TakeRows(s.Ports, rows, readPort)
	case "Interface":
		s.Interfaces, err = ovsdb.TakeRows(s.Interfaces, rows, readInterface)
	case "Manager":
		s.Managers, err = ovsdb.TakeRows(s.Managers, rows, readManager)
	case "SSL":
		s.SSLs, err = ovsdb.TakeRows(s.SSLs, rows, readSSL)
	}
	return err
}
