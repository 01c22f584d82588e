package xapi

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// What Linux takes for the MTU of a bridge, in bytes.
const leastMTU, mostMTU = 68, 65535

// generic carries out a call that the model implies (spec 3).
func (c *call) generic() (any, error) {
	switch c.Verb {
	case model.SetField, model.AddTo, model.RemoveFrom, model.Add, model.Remove:
		return nil, c.write()
	}
	if c.Class.Name == "session" {
		one, err := c.ownSession()
		if err != nil {
			return nil, err
		}
		return c.part(one.record()), nil
	}
	value, err := c.read(c.server.now())
	if err == nil {
		return value, nil
	}
	// What is not here may have been made at another server a moment ago.
	fresh, unreachable := c.view()
	if unreachable != nil {
		return nil, err
	}
	return c.read(fresh)
}

// part returns what the call asks of one record.
func (c *call) part(r model.Record) any {
	if c.Verb == model.GetField {
		return r[c.Field.Name]
	}
	return r
}

func (c *call) read(r records.Reader) (any, error) {
	class := c.Class.Name
	table := objects.Table(class)
	switch c.Verb {
	case model.GetAll:
		return refsIn(table.All(r)), nil
	case model.GetByNameLabel:
		return refsIn(table.By(r, "name_label", c.text("label"))), nil
	case model.GetByUUID:
		for o := range table.By(r, "uuid", c.text("uuid")) {
			return o.Ref, nil
		}
		return nil, model.UUIDInvalid(class, c.text("uuid"))
	case model.GetAllRecords:
		return everyRecord(r, class, nil), nil
	case model.GetAllRecordsWhere:
		where, err := model.ParseWhere(class, c.text("expr"))
		if err != nil {
			return nil, model.InvalidValue("expr", err.Error())
		}
		return everyRecord(r, class, where), nil
	}
	o, err := object(r, class, c.text("self"))
	if err != nil {
		return nil, err
	}
	if c.Verb == model.GetField {
		return fieldOf(r, o, c.Field), nil
	}
	return recordOf(r, o), nil
}

// refsIn are the references of objects; an empty list for none.
func refsIn(all func(yield func(*objects.Object) bool)) []string {
	refs := []string{}
	for o := range all {
		refs = append(refs, o.Ref)
	}
	return refs
}

// everyRecord are the records of a class by reference, of those that match; nil matches all.
func everyRecord(r records.Reader, class string, where *model.Where) map[string]model.Record {
	all := map[string]model.Record{}
	for o := range objects.Table(class).All(r) {
		if record := recordOf(r, o); where == nil || where.Match(record) {
			all[o.Ref] = record
		}
	}
	return all
}

// recordOf is an object as clients see it, far sides and all. Its values must not be changed.
func recordOf(r records.Reader, o *objects.Object) model.Record {
	record := maps.Clone(o.Fields)
	class := model.Lookup(o.Class)
	for i := range class.Fields {
		if f := &class.Fields[i]; f.Far != nil || derived(f, o) {
			record[f.Name] = fieldOf(r, o, f)
		}
	}
	return record
}

// derived says of a field that is stored that its value is elsewhere all the same.
func derived(f *model.Field, o *objects.Object) bool {
	return o.Class == "host_metrics" && f.Name == "live"
}

// fieldOf is one field of an object as clients see it.
func fieldOf(r records.Reader, o *objects.Object, f *model.Field) any {
	switch {
	case f.Far != nil:
		return farSide(r, o, f)
	case derived(f, o):
		return reporting(r, o.Ref)
	}
	if v, ok := o.Fields[f.Name]; ok {
		return v
	}
	return model.Zero(f.Type)
}

// farSide are the objects that refer to this one by the field's other side.
func farSide(r records.Reader, o *objects.Object, f *model.Field) any {
	table, set := objects.Table(f.Far.Class), f.Type.Kind == model.Set
	switch none := table.CountBy(r, f.Far.Field, o.Ref) == 0; { // most have none, and counting costs least
	case none && set:
		return []string{}
	case none:
		return model.NullRef
	}
	refs := refsIn(table.By(r, f.Far.Field, o.Ref))
	if set {
		return refs
	}
	return refs[0]
}

// reporting reports whether the host with these metrics reports.
func reporting(r records.Reader, metrics string) bool {
	for host := range objects.Table("host").By(r, "metrics", metrics) {
		_, reports := objects.HostReports.Peek(r, host.Ref)
		return reports
	}
	return false
}

// write changes a field that clients may write.
func (c *call) write() error {
	class, ref := c.Class.Name, c.text("self")
	if class == "session" {
		one, err := c.ownSession()
		if err != nil {
			return err
		}
		return one.change(c)
	}
	return c.update(func(tx *records.Tx) error {
		o, err := object(tx, class, ref)
		if err != nil {
			return err
		}
		if class == "task" {
			if err := c.checkOwn(o); err != nil {
				return err
			}
		}
		value, err := c.changed(ref, fieldOf(tx, o, c.Field))
		if err != nil {
			return err
		}
		if reflect.DeepEqual(value, o.Fields[c.Field.Name]) {
			return nil // an event without a change would wake every client
		}
		if err := sensible(tx, class, c.Field, value); err != nil {
			return err
		}
		return put(tx, edited(o, model.Record{c.Field.Name: value}))
	})
}

// changed returns the field's value after the call; the old value stays as it is.
func (c *call) changed(ref string, old any) (any, error) {
	switch c.Verb {
	case model.AddTo:
		m := maps.Clone(old.(map[string]string))
		if _, there := m[c.text("key")]; there {
			return nil, model.MapDuplicateKey(c.Class.Name, c.Field.Name, ref, c.text("key"))
		}
		m[c.text("key")] = c.text("value")
		return m, nil
	case model.RemoveFrom:
		m := maps.Clone(old.(map[string]string))
		delete(m, c.text("key"))
		return m, nil
	case model.Add:
		if set := old.([]string); slices.Contains(set, c.text("value")) {
			return set, nil
		}
		return append(slices.Clone(old.([]string)), c.text("value")), nil
	case model.Remove:
		gone := c.text("value")
		return slices.DeleteFunc(slices.Clone(old.([]string)), func(v string) bool { return v == gone }), nil
	}
	return c.args["value"], nil
}

// sensible checks what a field's type does not say: that a reference is to an object, and that
// frames have a length.
func sensible(r records.Reader, class string, f *model.Field, value any) error {
	switch v := value.(type) {
	case int64:
		if class == "network" && f.Name == "MTU" && (v < leastMTU || v > mostMTU) {
			return model.InvalidValue(f.Name, strconv.FormatInt(v, 10))
		}
	case string:
		if f.Type.Kind != model.Ref || v == model.NullRef {
			return nil
		}
		if objects.Table(f.Type.Class) == nil { // a class that Heddle has no objects of
			return model.HandleInvalid(f.Type.Class, v)
		}
		_, err := object(r, f.Type.Class, v)
		return err
	}
	return nil
}
