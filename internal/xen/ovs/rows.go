package ovs

import (
	"fmt"
	"math"
	"slices"
)

// rowReader reads the columns of one row. A column that is not there has its zero value: the schema
// has been checked. The first column of a wrong type is remembered as an error.
type rowReader struct {
	row Row
	err error
}

func (r *rowReader) fail(column, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %s: %T, not %s", column, r.row[column], want)
	}
}

// one is a column's only element; nil when it has none.
func (r *rowReader) one(column string) any {
	set := elements(r.row[column])
	switch len(set) {
	case 0:
		return nil
	case 1:
		return set[0]
	}
	r.fail(column, "one value")
	return nil
}

// scalar reads a column of at most one value.
func scalar[T any](r *rowReader, column string, without T) T {
	value := r.one(column)
	if value == nil {
		return without
	}
	v, ok := value.(T)
	if !ok {
		r.fail(column, fmt.Sprintf("%T", without))
		return without
	}
	return v
}

func (r *rowReader) text(column string) string { return scalar(r, column, "") }
func (r *rowReader) uuid(column string) UUID   { return scalar(r, column, UUID("")) }
func (r *rowReader) truth(column string) bool  { return scalar(r, column, false) }

// number reads an integer; a switch writes some as reals.
func (r *rowReader) number(column string, without int64) int64 {
	if f, ok := r.one(column).(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return scalar(r, column, without)
}

// list reads a set, in order.
func list[T interface {
	~string | ~int64
}](r *rowReader, column string) []T {
	set := elements(r.row[column])
	if len(set) == 0 {
		return nil
	}
	all := make([]T, 0, len(set))
	for _, e := range set {
		v, ok := e.(T)
		if !ok {
			r.fail(column, fmt.Sprintf("a set of %T", v))
			return nil
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// strings reads a map of strings; nil when it is empty.
func (r *rowReader) strings(column string) map[string]string {
	value, ok := r.row[column]
	if !ok {
		return nil
	}
	m, ok := value.(Map)
	if !ok {
		r.fail(column, "a map")
		return nil
	}
	if len(m) == 0 {
		return nil
	}
	all := make(map[string]string, len(m))
	for k, v := range m {
		key, ok := k.(string)
		text, alsoOK := v.(string)
		if !ok || !alsoOK {
			r.fail(column, "a map of strings")
			return nil
		}
		all[key] = text
	}
	return all
}

func readRoot(id UUID, r *rowReader) *Root {
	return &Root{UUID: id, Bridges: list[UUID](r, "bridges"), Managers: list[UUID](r, "manager_options"), SSL: r.uuid("ssl"),
		NextCfg: r.number("next_cfg", 0), CurCfg: r.number("cur_cfg", 0), Version: r.text("ovs_version"),
		DatapathTypes: list[string](r, "datapath_types"), InterfaceTypes: list[string](r, "iface_types"),
		ExternalIDs: r.strings("external_ids"), OtherConfig: r.strings("other_config")}
}

func readBridge(id UUID, r *rowReader) *Bridge {
	return &Bridge{UUID: id, Name: r.text("name"), DatapathType: r.text("datapath_type"), FailMode: r.text("fail_mode"),
		Ports: list[UUID](r, "ports"), FloodVLANs: list[int64](r, "flood_vlans"),
		ExternalIDs: r.strings("external_ids"), OtherConfig: r.strings("other_config")}
}

func readPort(id UUID, r *rowReader) *Port {
	return &Port{UUID: id, Name: r.text("name"), Interfaces: list[UUID](r, "interfaces"), Tag: r.number("tag", -1),
		Protected: r.truth("protected"), ExternalIDs: r.strings("external_ids"), OtherConfig: r.strings("other_config")}
}

func readInterface(id UUID, r *rowReader) *Interface {
	return &Interface{UUID: id, Name: r.text("name"), Type: r.text("type"), Options: r.strings("options"),
		ExternalIDs: r.strings("external_ids"), OfPort: r.number("ofport", 0), Error: r.text("error"),
		AdminState: r.text("admin_state"), LinkState: r.text("link_state"), MTU: r.number("mtu", 0),
		MTURequest: r.number("mtu_request", 0), MACInUse: r.text("mac_in_use"), BFD: r.strings("bfd"),
		BFDStatus: r.strings("bfd_status")}
}

func readManager(id UUID, r *rowReader) *Manager {
	return &Manager{UUID: id, Target: r.text("target"), IsConnected: r.truth("is_connected"),
		ExternalIDs: r.strings("external_ids")}
}

func readSSL(id UUID, r *rowReader) *SSL {
	return &SSL{UUID: id, PrivateKey: r.text("private_key"), Certificate: r.text("certificate"), CACert: r.text("ca_cert"),
		ExternalIDs: r.strings("external_ids")}
}
