package xe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/xen/model"
)

// one is the object that a command's uuid names.
func (k *kind) one(c *call) (object, error) {
	ref := c.object(k.api, "uuid")
	if c.err != nil {
		return object{}, c.err
	}
	record, err := c.api.Call(c.ctx, k.api+".get_record", ref)
	if err != nil {
		return object{}, err
	}
	return object{ref, record.(model.Record)}, nil
}

// paramList is the command C-param-list.
func (k *kind) paramList(c *call) error {
	o, err := k.one(c)
	if err != nil {
		return err
	}
	r := newReader(c.ctx, c.api, false)
	all, err := lines(r, k.fields, o.record, true)
	if err != nil {
		return err
	}
	if c.minimal {
		printMinimal(c.out, all[0].value)
		return nil
	}
	printRecord(c.out, all)
	return nil
}

// paramGet is the command C-param-get.
func (k *kind) paramGet(c *call) error {
	f, err := k.named(c)
	if err != nil {
		return err
	}
	o, err := k.one(c)
	if err != nil {
		return err
	}
	r := newReader(c.ctx, c.api, false)
	key, hasKey := c.params.get("param-key")
	if !hasKey || !f.isMap() {
		text, err := r.text(f, o.record)
		if err != nil {
			return err
		}
		c.print(text)
		return nil
	}
	v, _, err := r.value(f, o.record)
	if err != nil {
		return err
	}
	m, _ := v.(map[string]string)
	text, ok := m[key]
	if !ok {
		return failure("Key %s not found in map", key)
	}
	c.print(text)
	return nil
}

// named is the field that a command's param-name names.
func (k *kind) named(c *call) (*field, error) {
	name := c.need("param-name")
	f := k.field(name)
	if f == nil {
		return nil, &model.Error{Code: "Missing parameter", Params: []string{name}}
	}
	return f, nil
}

// paramSet is the command C-param-set: every key but uuid is a field, or a map's field and key.
func (k *kind) paramSet(c *call) error {
	changes := c.params.without(append([]string{"uuid"}, generalKeys...)...)
	var sets []func(ref string) error
	for _, a := range changes {
		set, err := k.setter(c, a)
		if err != nil {
			return err
		}
		sets = append(sets, set)
	}
	ref := c.object(k.api, "uuid")
	if c.err != nil {
		return c.err
	}
	for _, set := range sets {
		if err := set(ref); err != nil {
			return err
		}
	}
	return nil
}

// setter checks one change, and returns the function that makes it.
func (k *kind) setter(c *call, a pair) (func(ref string) error, error) {
	name, key, hasKey := strings.Cut(a.key, ":")
	f := k.field(name)
	switch {
	case f == nil:
		return nil, unknownField(name)
	case !f.writable():
		return nil, failure("Field '%s' is read-only", name)
	case f.isMap() && (!hasKey || key == ""):
		return nil, failure("Field '%s' is a map: set one of its keys with %s:KEY=VALUE", name, name)
	case f.isMap():
		return func(ref string) error {
			_ = c.do(k.api+".remove_from_"+f.own().Name, ref, key)
			return c.do(k.api+".add_to_"+f.own().Name, ref, key, a.value)
		}, nil
	case hasKey:
		return nil, failure("Field '%s' is no map: set it with %s=VALUE", name, name)
	}
	return func(ref string) error {
		v, err := c.parse(f, a.value)
		if err != nil {
			return err
		}
		return c.do(k.api+".set_"+f.own().Name, ref, v)
	}, nil
}

// parse makes a field's value of what was typed.
func (c *call) parse(f *field, text string) (any, error) {
	t := f.own().Type
	switch t.Kind {
	case model.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, failure("Field '%s' needs a whole number, not '%s'", f.name, text)
		}
		return n, nil
	case model.Bool:
		return parseBool(f.name, text)
	case model.Set:
		if text == "" {
			return []string{}, nil
		}
		return strings.Split(text, ","), nil
	case model.Ref:
		if text == "" || text == nothing {
			return model.NullRef, nil
		}
		ref := c.byUUID(t.Class, text)
		return ref, c.err
	}
	return text, nil
}

// parseBool reads a truth value, which must be one.
func parseBool(name, text string) (bool, error) {
	if isTrue(text) {
		return true, nil
	}
	switch strings.ToLower(text) {
	case "false", "f", "no", "n", "0", "off":
		return false, nil
	}
	return false, failure("'%s' must be true or false, not '%s'", name, text)
}

// addressed is the writable set or map that a command's param-name names.
func (k *kind) addressed(c *call, verb string) (*field, error) {
	f, err := k.named(c)
	if err != nil {
		return nil, err
	}
	if !f.writable() || (!f.isMap() && !f.isSet()) {
		return nil, failure("Can only %s parameters of type Set or Map", verb)
	}
	return f, nil
}

// paramAdd is the command C-param-add.
func (k *kind) paramAdd(c *call) error {
	f, err := k.addressed(c, "add to")
	if err != nil {
		return err
	}
	members := c.params.without("uuid", "param-name", "trace")
	switch _, hasKey := c.params.get("param-key"); {
	case f.isSet() && !hasKey:
		return missing("param-key")
	case f.isMap() && len(members) == 0:
		return usageError("Nothing to add: give KEY=VALUE")
	}
	ref := c.object(k.api, "uuid")
	if f.isSet() {
		return c.do(k.api+".add_"+f.own().Name, ref, c.need("param-key"))
	}
	for _, m := range members {
		_ = c.do(k.api+".add_to_"+f.own().Name, ref, m.key, m.value)
	}
	return c.err
}

// paramRemove is the command C-param-remove.
func (k *kind) paramRemove(c *call) error {
	f, err := k.addressed(c, "remove from")
	if err != nil {
		return err
	}
	o, err := k.one(c)
	if err != nil {
		return err
	}
	key := c.need("param-key")
	if f.isSet() {
		if elements, _ := o.record[f.own().Name].([]string); !slices.Contains(elements, key) {
			return failure("%s is not in set", key)
		}
		return c.do(k.api+".remove_"+f.own().Name, o.ref, key)
	}
	if m, _ := o.record[f.own().Name].(map[string]string); !hasKey(m, key) {
		return failure("Key %s is not in map", key)
	}
	return c.do(k.api+".remove_from_"+f.own().Name, o.ref, key)
}

func hasKey(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// paramClear is the command C-param-clear.
func (k *kind) paramClear(c *call) error {
	f, err := k.named(c)
	if err != nil {
		return err
	}
	t := f.own().Type
	switch {
	case !f.writable():
		return failure("Can only clear RW parameters")
	case t.Kind != model.Map && t.Kind != model.Set && t.Kind != model.String && t.Kind != model.Ref:
		return failure("Field '%s' has no empty value", f.name)
	}
	o, err := k.one(c)
	if err != nil {
		return err
	}
	if elements, ok := o.record[f.own().Name].([]string); ok && model.Calls()[k.api+".set_"+f.own().Name] == nil {
		for _, e := range elements {
			_ = c.do(k.api+".remove_"+f.own().Name, o.ref, e)
		}
		return c.err
	}
	return c.do(k.api+".set_"+f.own().Name, o.ref, model.Zero(t))
}

// unknownField is a filter, a column or a change of a field that the kind lacks.
func unknownField(name string) error { return failure("Unknown field '%s'", name) }

// failure returns an error of xe's own about a command.
func failure(format string, args ...any) error {
	return &ownFailure{"Failure: " + fmt.Sprintf(format, args...)}
}
