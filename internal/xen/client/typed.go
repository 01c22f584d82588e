package client

import (
	"fmt"
	"maps"

	"heddle/internal/xen/model"
	"heddle/internal/xen/wire"
)

// typed makes the Go type for t of what came; nil means an unknown type.
func typed(t *model.Type, raw any) (any, error) {
	if t == nil {
		return raw, nil
	}
	switch {
	case t.Kind == model.RecordOf:
		return record(t.Class, raw)
	case t.Kind == model.Map && t.Elem.Kind == model.RecordOf:
		members, ok := raw.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%T is no map", raw)
		}
		records := make(map[string]model.Record, len(members))
		for ref, v := range members {
			r, err := record(t.Elem.Class, v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ref, err)
			}
			records[ref] = r
		}
		return records, nil
	case t.Kind == model.Set && t.Elem.Kind == model.RecordOf:
		elements, ok := raw.([]any)
		if !ok {
			return nil, fmt.Errorf("%T is no set", raw)
		}
		records := make([]model.Record, len(elements))
		for i, v := range elements {
			r, err := record(t.Elem.Class, v)
			if err != nil {
				return nil, err
			}
			records[i] = r
		}
		return records, nil
	}
	return wire.Coerce(loose(*t), raw)
}

// loose is a type with text instead of its enums: another server may know more values.
func loose(t model.Type) model.Type {
	switch {
	case t.Kind == model.Enum:
		t.Kind = model.String
	case t.Elem != nil && t.Elem.Kind == model.Enum:
		t.Elem = &model.Type{Kind: model.String}
	}
	return t
}

// record makes a record of what came. One of a class that the model lacks keeps all its members as
// they came; of the others each field has its type, and its default when the server lacks it or
// leaves it empty.
func record(class string, raw any) (model.Record, error) {
	members, ok := raw.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%T is no record", raw)
	}
	c := model.Lookup(class)
	if c == nil {
		return maps.Clone(members), nil
	}
	r := make(model.Record, len(c.Fields))
	var defaults model.Record // of stored fields; made when one is missing
	for i := range c.Fields {
		f := &c.Fields[i]
		v, ok := members[f.Name]
		var err error
		switch {
		case ok && v != nil:
			r[f.Name], err = typed(&f.Type, v)
		case f.Far != nil:
			r[f.Name] = model.Zero(f.Type)
		default:
			if defaults == nil {
				defaults = model.New(class)
			}
			r[f.Name] = defaults[f.Name]
		}
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", class, f.Name, err)
		}
	}
	return r, nil
}
