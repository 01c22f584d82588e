package model

import (
	"cmp"
	"maps"
	"slices"
)

// Verb is a kind of call.
type Verb uint8

// Verbs. F is the call's field.
const (
	GetAll             Verb = iota // () → set of ref
	GetAllRecords                  // () → map ref → record
	GetAllRecordsWhere             // (expr) → map ref → record; see [ParseWhere]
	GetRecord                      // (self) → record
	GetByUUID                      // (uuid) → ref
	GetByNameLabel                 // (label) → set of ref
	GetField                       // get_F(self) → value
	SetField                       // set_F(self, value)
	AddTo                          // add_to_F(self, key, value), of maps
	RemoveFrom                     // remove_from_F(self, key), of maps
	Add                            // add_F(self, value), of sets
	Remove                         // remove_F(self, value), of sets
	Create                         // the constructor: a message create that takes a record of its class
	Do                             // any other message
)

// Call is one that clients may make, implied by a class and its fields or one of its messages.
type Call struct {
	Name     string // C.m
	Class    *Class // for system.…, one that is not among [Classes]
	Verb     Verb
	Field    *Field   // of GetField, SetField, AddTo, RemoveFrom, Add and Remove
	Message  *Message // of Create and Do
	Params   []Param  // without the session
	Required int      // of Params; those after may be left out
	Result   Type
	Role     Role // least role that may make it, see [Role.Includes]
	Async    bool // Async.C.m is there too
	NoLogin  bool // takes no session
}

// Calls are all calls by name, without their forms with Async. They must not be changed. The
// underscore form C_m is the server's matter, and so is the text after the colon of
// system.isAlive:TEXT.
func Calls() map[string]*Call { return calls }

var calls = func() map[string]*Call {
	all := map[string]*Call{}
	for _, c := range append(slices.Clone(classes), &systemClass) {
		for _, call := range c.calls() {
			all[call.Name] = call
		}
	}
	return all
}()

// CallNames are the names of all calls in order, as system.listMethods answers them.
func CallNames() []string { return slices.Sorted(maps.Keys(calls)) }

// calls are all calls of a class.
func (c *Class) calls() []*Call {
	var all []*Call
	if !c.NoList {
		all = append(all, c.listing()...)
	}
	if !c.Value && len(c.Fields) > 0 {
		all = append(all, c.looking()...)
		for i := range c.Fields {
			all = append(all, c.writing(&c.Fields[i])...)
		}
	}
	for i := range c.Messages {
		all = append(all, c.message(&c.Messages[i]))
	}
	return all
}

// reading is a call that changes nothing.
func (c *Class) reading(name string, v Verb, result Type, params ...Param) *Call {
	return &Call{Name: c.Name + "." + name, Class: c, Verb: v, Params: params, Required: len(params), Result: result, Role: ReadOnly}
}

// listing are the calls that answer many objects.
func (c *Class) listing() []*Call {
	records := mapOf(c.record())
	all := []*Call{
		c.reading("get_all", GetAll, refs(c.Name)),
		c.reading("get_all_records", GetAllRecords, records),
		c.reading("get_all_records_where", GetAllRecordsWhere, records, need("expr", text)),
	}
	if c.Field("name_label") != nil {
		all = append(all, c.reading("get_by_name_label", GetByNameLabel, refs(c.Name), need("label", text)))
	}
	return all
}

func (c *Class) record() Type { return Type{Kind: RecordOf, Class: c.Name} }

// looking are the calls that answer of one object.
func (c *Class) looking() []*Call {
	all := []*Call{
		c.reading("get_record", GetRecord, c.record(), self(c.Name)...),
		c.reading("get_by_uuid", GetByUUID, ref(c.Name), need("uuid", text)),
	}
	for i := range c.Fields {
		f := &c.Fields[i]
		call := c.reading("get_"+f.Name, GetField, f.Type, self(c.Name)...)
		call.Field = f
		all = append(all, call)
	}
	return all
}

// writing are the calls that change a field; none when clients may not.
func (c *Class) writing(f *Field) []*Call {
	if f.Access != Writable {
		return nil
	}
	role := f.SetRole
	role = cmp.Or(role, c.Role)
	change := func(name string, v Verb, params ...Param) *Call {
		params = append(self(c.Name), params...)
		return &Call{Name: c.Name + "." + name + f.Name, Class: c, Verb: v, Field: f, Params: params, Required: len(params), Role: role}
	}
	all := []*Call{change("set_", SetField, need("value", f.Type))}
	switch f.Type.Kind {
	case Map:
		all = append(all, change("add_to_", AddTo, need("key", text), need("value", *f.Type.Elem)), change("remove_from_", RemoveFrom, need("key", text)))
	case Set:
		all = append(all, change("add_", Add, need("value", *f.Type.Elem)), change("remove_", Remove, need("value", *f.Type.Elem)))
	}
	return all
}

// message is the call for a message.
func (c *Class) message(m *Message) *Call {
	call := &Call{Name: c.Name + "." + m.Name, Class: c, Verb: Do, Message: m, Params: m.Params, Result: m.Result, Role: m.Role, Async: m.Async, NoLogin: m.NoLogin}
	call.Role = cmp.Or(call.Role, c.Role)
	for _, p := range m.Params {
		if !p.Optional {
			call.Required++
		}
	}
	if m.Name == "create" && len(m.Params) == 1 && m.Params[0].Type.Kind == RecordOf {
		call.Verb = Create
	}
	return call
}
