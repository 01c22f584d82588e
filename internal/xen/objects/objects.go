// Package objects is how a pool lies in the store: the XenAPI's objects, what the server asks of
// hosts, and what hosts report. One store holds one pool.
//
//	/heddle/xen/objects/<class>/<ref>      an object's stored fields
//	/heddle/xen/orders/<host>/<id>         an order to a host, under the server's lease
//	/heddle/xen/state/<host>/alive         a host's report: while it is there the host lives
//	/heddle/xen/state/<host>/bridges/<b>   a bridge that the host's agent has made
//	/heddle/xen/state/<host>/orders/<id>   a host's answer to an order that is not for a bridge
//	/heddle/xen/expelled/<host>            a host that has left: its reports count no more
//	/heddle/xen/joining/<name>             what a host brings along that is about to join
//	/heddle/xen/membership/pool            the pool that this pool's only host has joined
//
// What is below state is under the host's lease. Hosts may read objects and their own orders, and
// write below their own state.
package objects

import (
	"encoding/json"
	"fmt"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/xen/model"
)

// Object is one object of the XenAPI. Fields holds the stored ones, not far sides.
type Object struct {
	Class, Ref string
	Account    string // whose call made it; of tasks alone, and "" of an earlier version's
	Fields     model.Record
}

// stored is an object as JSON.
type stored struct {
	Class   string          `json:"class"`
	Ref     string          `json:"ref"`
	Account string          `json:"account,omitempty"`
	Fields  json.RawMessage `json:"fields"`
}

// MarshalJSON writes the object as it is stored.
func (o *Object) MarshalJSON() ([]byte, error) {
	fields, err := model.Marshal(o.Class, o.Fields)
	if err != nil {
		return nil, err
	}
	return json.Marshal(stored{o.Class, o.Ref, o.Account, fields})
}

// UnmarshalJSON reads it. A field that older versions have not written has its default.
func (o *Object) UnmarshalJSON(raw []byte) error {
	var s stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	fields, err := model.Unmarshal(s.Class, s.Fields)
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.Class, s.Ref, err)
	}
	*o = Object{s.Class, s.Ref, s.Account, fields}
	return nil
}

// Text is a field's value, of a string, an enum or a reference.
func (o *Object) Text(field string) string { s, _ := o.Fields[field].(string); return s }

// UUID is the object's uuid.
func (o *Object) UUID() string { return o.Text("uuid") }

// Bool is a field's value.
func (o *Object) Bool(field string) bool { b, _ := o.Fields[field].(bool); return b }

// Int is a field's value.
func (o *Object) Int(field string) int64 { n, _ := o.Fields[field].(int64); return n }

// Map is a field's value; it must not be changed.
func (o *Object) Map(field string) map[string]string {
	m, _ := o.Fields[field].(map[string]string)
	return m
}

// tables are those of all classes that are stored, by class.
var tables = newTables()

func newTables() map[string]*records.Table[Object] {
	all := map[string]*records.Table[Object]{}
	for _, c := range model.Classes() {
		if !c.NoList {
			all[c.Name] = newTable(c)
		}
	}
	return all
}

// newTable is a class's table, named xen-<class>: objects are found by uuid, by name, and by each
// reference that they hold.
func newTable(c *model.Class) *records.Table[Object] {
	options := []records.Option[Object]{records.Unique("uuid", func(o *Object) []string { return []string{o.UUID()} })}
	for _, f := range c.Fields {
		switch {
		case f.Far != nil:
		case f.Name == "name_label" || f.Type.Kind == model.Ref:
			options = append(options, records.Index(f.Name, func(o *Object) []string { return []string{o.Text(f.Name)} }))
		}
	}
	options = append(options, uniques[c.Name]...)
	return records.NewTable("xen-"+c.Name, schema.XenPrefix+"objects/"+c.Name+"/", func(o *Object) string { return o.Ref }, options...)
}

// uniques lists the unique keys of classes, beside the uuid: transactions that would break them
// fail with a [records.TakenError], even under concurrent writes.
var uniques = map[string][]records.Option[Object]{
	"PIF": {
		records.Unique("host_network", func(o *Object) []string { return []string{o.Text("host") + "/" + o.Text("network")} }),
		records.Unique("host_device", func(o *Object) []string {
			return []string{fmt.Sprintf("%s/%s/%d", o.Text("host"), o.Text("device"), o.Int("VLAN"))}
		}),
	},
	"network": {records.Unique("bridge", func(o *Object) []string { return []string{o.Text("bridge")} })},
	"VIF":     {records.Unique("vm_device", func(o *Object) []string { return []string{o.Text("VM") + "/" + o.Text("device")} })},
}

// Table is the table of a class; nil for those that are not stored (session, event) or not known.
func Table(class string) *records.Table[Object] { return tables[class] }

// Tables are all of this package, as a replica takes them.
func Tables() []snapshot.Table {
	all := []snapshot.Table{Orders, OrderReports, HostReports, BridgeReports, Expelled, Joining, Memberships}
	for _, t := range tables {
		all = append(all, t)
	}
	return all
}
