package xe

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"heddle/internal/xen/model"
)

// filter is a condition on objects.
type filter struct {
	field *field
	key   string // of a map: the value of this key counts; of a set: "contains"
	want  string
	not   bool
}

// parseFilter reads a condition: field=value, map-field:key=value, the older map-field-key=value,
// or set-field:contains=value.
func (k *kind) parseFilter(key, want string) (filter, error) {
	if f := k.field(key); f != nil {
		return filter{field: f, want: want}, nil
	}
	if name, sub, ok := strings.Cut(key, ":"); ok {
		if f := k.field(name); f != nil && (f.isMap() || (f.isSet() && sub == "contains")) {
			return filter{field: f, key: sub, want: want}, nil
		}
		return filter{}, unknownField(key)
	}
	for _, f := range k.fields {
		if sub, ok := strings.CutPrefix(key, f.name+"-"); ok && f.isMap() {
			return filter{field: f, key: sub, want: want}, nil
		}
	}
	return filter{}, unknownField(key)
}

// matches reports whether an object meets the condition.
func (c filter) matches(r *reader, object model.Record) (bool, error) {
	found, err := c.found(r, object)
	return found != c.not, err
}

func (c filter) found(r *reader, object model.Record) (bool, error) {
	v, missing, err := r.value(c.field, object)
	if err != nil {
		return false, err
	}
	if missing != "" {
		return c.want == missing, nil
	}
	if c.key != "" && c.field.isMap() {
		m, _ := v.(map[string]string)
		value, ok := m[c.key]
		return ok && value == c.want, nil
	}
	if c.key != "" {
		elements, err := r.elements(c.field.last().Type, v)
		return slices.Contains(elements, c.want), err
	}
	text, err := r.format(c.field.last().Type, v)
	if c.field.name == "MAC" {
		return strings.EqualFold(text, c.want), err
	}
	return text == c.want, err
}

// generalKeys are those that all commands take and that filter nothing.
var generalKeys = []string{"params", "minimal", "multiple", "trace", "force", "all"}

// filters reads the conditions among a command's arguments.
func (k *kind) filters(p params) ([]filter, error) {
	var all []filter
	for _, a := range p.without(generalKeys...) {
		c, err := k.parseFilter(a.key, a.value)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, h := range k.hidden {
		if _, given := p.get(h.key); !given {
			all = append(all, filter{field: k.field(h.key), want: h.value})
		}
	}
	return all, nil
}

// selected are the fields that a list shows, in the kind's order.
func (k *kind) selected(p params) ([]*field, error) {
	names := k.columns
	switch choice := p.or("params", ""); choice {
	case "":
	case "all":
		return k.fields, nil
	default:
		names = strings.Split(choice, ",")
	}
	var chosen []*field
	for _, f := range k.fields {
		if slices.Contains(names, f.name) {
			chosen = append(chosen, f)
		}
	}
	for _, name := range names {
		if k.field(name) == nil {
			return nil, unknownField(name)
		}
	}
	return chosen, nil
}

// object is one of a class, and its reference.
type object struct {
	ref    string
	record model.Record
}

// find gives the objects of a kind that meet all conditions, by UUID.
func (k *kind) find(r *reader, filters []filter) ([]object, error) {
	records, err := r.api.Records(r.ctx, k.api)
	if err != nil {
		return nil, err
	}
	r.objects[k.api], r.whole[k.api] = records, true
	return k.choose(r, filters)
}

// choose is find among the objects that the reader has.
func (k *kind) choose(r *reader, filters []filter) ([]object, error) {
	var found []object
	for _, ref := range slices.Sorted(maps.Keys(r.objects[k.api])) {
		record := r.objects[k.api][ref]
		ok, err := matchAll(r, filters, record)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, object{ref, record})
		}
	}
	slices.SortStableFunc(found, func(a, b object) int { return cmp.Compare(a.record["uuid"].(string), b.record["uuid"].(string)) })
	return found, nil
}

func matchAll(r *reader, filters []filter, record model.Record) (bool, error) {
	for _, c := range filters {
		if ok, err := c.matches(r, record); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// list is the command C-list.
func (k *kind) list(c *call) error {
	filters, err := k.filters(c.params)
	if err != nil {
		return err
	}
	shown, err := k.selected(c.params)
	if err != nil {
		return err
	}
	r := newReader(c.ctx, c.api, true)
	found, err := k.find(r, filters)
	if err != nil {
		return err
	}
	if c.minimal {
		return k.listMinimal(c, r, shown[0], found)
	}
	for _, o := range found {
		lines, err := lines(r, shown, o.record, false)
		if err != nil {
			return err
		}
		printRecord(c.out, lines)
	}
	return nil
}

// listMinimal prints a field of each object on one line.
func (k *kind) listMinimal(c *call, r *reader, f *field, found []object) error {
	values := make([]string, len(found))
	for i, o := range found {
		var err error
		if values[i], err = r.text(f, o.record); err != nil {
			return err
		}
	}
	printMinimal(c.out, values...)
	return nil
}

// lines are fields of an object as they are printed, slow ones only when asked for.
func lines(r *reader, fields []*field, record model.Record, withSlow bool) ([]line, error) {
	all := make([]line, len(fields))
	for i, f := range fields {
		all[i] = line{f.label(), slow}
		if f.slow && !withSlow {
			continue
		}
		var err error
		if all[i].value, err = r.text(f, record); err != nil {
			return nil, err
		}
	}
	return all, nil
}
