package vtep

import (
	"maps"
	"slices"

	"heddle/internal/ovsdb"
)

// Database is the schema by which switches offer their VTEPs (vtep(5)).
const Database = "hardware_vtep"

// model lists the tables and columns that are followed.
var model = ovsdb.Model[*tables]{
	Database: Database,
	Needs:    "a switch with schema hardware_vtep 1.3 or newer is needed",
	New:      func() *tables { return &tables{} },
	Tables: map[string][]ovsdb.Column{
		"Physical_Switch":      {{Name: "name"}, {Name: "ports"}, {Name: "tunnel_ips"}},
		"Physical_Port":        {{Name: "name"}, {Name: "vlan_bindings"}},
		"Logical_Switch":       {{Name: "name"}, {Name: "tunnel_key"}, {Name: "replication_mode", Optional: true}},
		"Ucast_Macs_Local":     macColumns("locator"),
		"Ucast_Macs_Remote":    macColumns("locator"),
		"Mcast_Macs_Local":     macColumns("locator_set"),
		"Mcast_Macs_Remote":    macColumns("locator_set"),
		"Physical_Locator_Set": {{Name: "locators"}},
		"Physical_Locator":     {{Name: "encapsulation_type"}, {Name: "dst_ip"}, {Name: "tunnel_key", Optional: true}},
	},
}

func macColumns(to string) []ovsdb.Column {
	return []ovsdb.Column{{Name: "MAC"}, {Name: "logical_switch"}, {Name: to}, {Name: "ipaddr"}}
}

// tables holds a switch's rows at one moment.
type tables struct {
	ovsdb.State
	switches    map[ovsdb.UUID]*physicalSwitch
	ports       map[ovsdb.UUID]*physicalPort
	logical     map[ovsdb.UUID]*logicalSwitch
	ucastLocal  map[ovsdb.UUID]*macRow
	ucastRemote map[ovsdb.UUID]*macRow
	mcastLocal  map[ovsdb.UUID]*macRow
	mcastRemote map[ovsdb.UUID]*macRow
	sets        map[ovsdb.UUID]*locatorSet
	locators    map[ovsdb.UUID]*locator
}

type physicalSwitch struct {
	name      string
	ports     []ovsdb.UUID
	tunnelIPs []string
}

type physicalPort struct {
	name string
	// bindings are logical switches by VLAN; 0 is frames without a tag.
	bindings map[int64]ovsdb.UUID
}

type logicalSwitch struct {
	name      string
	tunnelKey int64  // -1: none
	mode      string // of replication; "" where the switch does not have it
}

// macRow is a row of one of the four tables of MAC addresses.
type macRow struct {
	mac     string
	logical ovsdb.UUID
	to      ovsdb.UUID // a locator, or a set of such
	ip      string
}

type locatorSet struct{ locators []ovsdb.UUID }

type locator struct {
	encapsulation, dst string
	tunnelKey          int64 // -1: none
}

// Clone implements [ovsdb.Contents].
func (t *tables) Clone() *tables { c := *t; return &c }

// Take implements [ovsdb.Contents].
func (t *tables) Take(table string, rows ovsdb.Rows) (err error) {
	switch table {
	case "Physical_Switch":
		t.switches, err = ovsdb.TakeRows(t.switches, rows, readPhysicalSwitch)
	case "Physical_Port":
		t.ports, err = ovsdb.TakeRows(t.ports, rows, readPhysicalPort)
	case "Logical_Switch":
		t.logical, err = ovsdb.TakeRows(t.logical, rows, readLogicalSwitch)
	case "Ucast_Macs_Local":
		t.ucastLocal, err = ovsdb.TakeRows(t.ucastLocal, rows, readMACRow("locator"))
	case "Ucast_Macs_Remote":
		t.ucastRemote, err = ovsdb.TakeRows(t.ucastRemote, rows, readMACRow("locator"))
	case "Mcast_Macs_Local":
		t.mcastLocal, err = ovsdb.TakeRows(t.mcastLocal, rows, readMACRow("locator_set"))
	case "Mcast_Macs_Remote":
		t.mcastRemote, err = ovsdb.TakeRows(t.mcastRemote, rows, readMACRow("locator_set"))
	case "Physical_Locator_Set":
		t.sets, err = ovsdb.TakeRows(t.sets, rows, func(_ ovsdb.UUID, r *ovsdb.RowReader) *locatorSet {
			return &locatorSet{ovsdb.List[ovsdb.UUID](r, "locators")}
		})
	case "Physical_Locator":
		t.locators, err = ovsdb.TakeRows(t.locators, rows, func(_ ovsdb.UUID, r *ovsdb.RowReader) *locator {
			return &locator{r.Text("encapsulation_type"), r.Text("dst_ip"), r.Number("tunnel_key", -1)}
		})
	}
	return err
}

func readPhysicalSwitch(_ ovsdb.UUID, r *ovsdb.RowReader) *physicalSwitch {
	return &physicalSwitch{r.Text("name"), ovsdb.List[ovsdb.UUID](r, "ports"), ovsdb.List[string](r, "tunnel_ips")}
}

func readPhysicalPort(_ ovsdb.UUID, r *ovsdb.RowReader) *physicalPort {
	return &physicalPort{r.Text("name"), ovsdb.Pairs[int64, ovsdb.UUID](r, "vlan_bindings")}
}

func readLogicalSwitch(_ ovsdb.UUID, r *ovsdb.RowReader) *logicalSwitch {
	return &logicalSwitch{r.Text("name"), r.Number("tunnel_key", -1), r.Text("replication_mode")}
}

func readMACRow(to string) func(ovsdb.UUID, *ovsdb.RowReader) *macRow {
	return func(_ ovsdb.UUID, r *ovsdb.RowReader) *macRow {
		return &macRow{r.Text("MAC"), r.UUID("logical_switch"), r.UUID(to), r.Text("ipaddr")}
	}
}

// names returns the switches' names and their ports', in order.
func (t *tables) names() (switches, ports []string) {
	for _, s := range t.switches {
		switches = append(switches, s.name)
	}
	for _, p := range t.ports {
		ports = append(ports, p.name)
	}
	slices.Sort(switches)
	slices.Sort(ports)
	return switches, ports
}

// sorted returns a table's row ids, so that what is made of it is always the same.
func sorted[T any](rows map[ovsdb.UUID]*T) []ovsdb.UUID { return slices.Sorted(maps.Keys(rows)) }
