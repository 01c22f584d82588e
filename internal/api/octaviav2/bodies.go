package octaviav2

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/strictjson"
)

// Limits of request bodies.
const (
	maxDepth  = 32     // objects and lists in each other
	maxValues = 50_000 // texts, numbers, objects, lists and so on
)

// op is an operation that has a body.
type op uint8

const (
	create op = iota + 1
	update
)

// none is the default of an attribute that is left out unless a request names it.
type none struct{}

// attribute is a row of a resource's table: when it may be set, and what to.
type attribute struct {
	name      string
	create    bool
	update    bool
	mandatory bool // a create has to name it
	def       any  // its value at create if it is not given, and when it is null; none{} = it stays away
	parse     parser
}

// parser reads a value of a request that is not null. Its error is a complaint or an outrage.
type parser func(b *body, raw json.RawMessage) (any, error)

// complaint refuses a value of an attribute.
type complaint string

func (c complaint) Error() string { return string(c) }

// outrage refuses a value of the wrong type, for which Octavia shows the whole request.
type outrage string

func (o outrage) Error() string { return string(o) }

// body is a request's body while it is read.
type body struct {
	op  op
	arg string // Octavia's name of the argument that it is
	raw json.RawMessage
	c   neutron.Caller
}

// members splits an object. Of members given twice the last counts.
func members(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	return m, json.Unmarshal(raw, &m) == nil && m != nil
}

// readBody reads a body with one object under a key, as argument arg, and lets read take it.
func readBody(r *http.Request, o op, arg, key string, read func(b *body, value json.RawMessage) error) error {
	err := api.DecodeBody(r, strictjson.Limits{Depth: maxDepth, Values: maxValues}, func(raw []byte) error {
		if len(bytes.TrimSpace(raw)) == 0 {
			return missing(arg)
		}
		b := &body{op: o, arg: arg, raw: raw, c: caller(r)}
		root, ok := members(raw)
		if !ok {
			return b.refuse(outrage("Value not a valid object"), arg, raw)
		}
		for _, name := range slices.Sorted(maps.Keys(root)) {
			if name != key {
				return badRequest("Unknown attribute for argument " + arg + ": " + name)
			}
		}
		value, given := root[key]
		if !given || string(value) == "null" {
			return missing(arg)
		}
		return read(b, value)
	})
	if wrong := (*strictjson.Error)(nil); errors.As(err, &wrong) && wrong.Fault == strictjson.Syntax {
		return badRequest("Request is not in valid JSON format")
	}
	return err
}

func missing(arg string) error { return badRequest(`Missing argument: "` + arg + `"`) }

// refuse returns the answer to a value of an attribute that parse refused.
func (b *body) refuse(err error, name string, raw json.RawMessage) error {
	var (
		what complaint
		all  outrage
	)
	switch {
	case errors.As(err, &all):
		return badRequest("Invalid input for field/attribute " + b.arg + ". Value: '" + pyRepr(b.raw) + "'. " + string(all))
	case errors.As(err, &what):
		return badRequest("Invalid input for field/attribute " + name + ". Value: '" + pyText(raw) + "'. " + string(what))
	}
	return err
}

// object reads an object by a table of attributes, of which some are not for it. path is where it
// is in the argument.
func (b *body) object(table []*attribute, path string, raw json.RawMessage, without ...string) (neutron.Values, error) {
	given, ok := members(raw)
	if !ok {
		return nil, b.refuse(outrage("Value not a valid object: "+pyRepr(raw)), path, raw)
	}
	row := func(name string) *attribute {
		i := slices.IndexFunc(table, func(a *attribute) bool { return a.name == name })
		if i < 0 || slices.Contains(without, name) || b.op == create && !table[i].create || b.op == update && !table[i].update {
			return nil
		}
		return table[i]
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if row(name) == nil {
			return nil, badRequest("Unknown attribute for argument " + b.arg + "." + path + ": " + name)
		}
	}
	v := neutron.Values{}
	for _, a := range table {
		if row(a.name) == nil {
			continue
		}
		raw, named := given[a.name]
		isNull := !named || string(raw) == "null"
		switch {
		case isNull && a.mandatory && (b.op == create || named):
			return nil, b.refuse(complaint("Mandatory field missing."), a.name, json.RawMessage("null"))
		case !isNull:
			value, err := a.parse(b, raw)
			if err != nil {
				return nil, b.refuse(err, a.name, raw)
			}
			v[a.name] = value
		case named && a.def == any(none{}):
			v[a.name] = nil
		case named, b.op == create && a.def != any(none{}):
			v[a.name] = a.def
		}
	}
	return v, nil
}

// settleProject fills in the project of a new object, and refuses another one than the caller's.
func settleProject(c neutron.Caller, v neutron.Values) error {
	project := v.Text("project_id")
	if project == "" {
		project = v.Text("tenant_id")
	}
	delete(v, "tenant_id")
	if project == "" {
		project = c.ProjectID
	}
	if project == "" || project != c.ProjectID && !c.LBAdmin() {
		return neutron.LBForbidden("create")
	}
	v["project_id"] = project
	return nil
}
