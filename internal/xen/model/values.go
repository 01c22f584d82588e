package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Zero is the default value of a type.
func Zero(t Type) any {
	switch t.Kind {
	case String:
		return ""
	case Enum:
		return t.Values[0]
	case Ref:
		return NullRef
	case Int:
		return int64(0)
	case Float:
		return 0.0
	case Bool:
		return false
	case Time:
		return time.Unix(0, 0).UTC()
	case Set:
		switch t.Elem.Kind {
		case Int:
			return []int64{}
		case RecordOf:
			return []Record{}
		}
		return []string{}
	case Map:
		switch t.Elem.Kind {
		case Int:
			return map[string]int64{}
		case RecordOf:
			return map[string]Record{}
		}
		return map[string]string{}
	case RecordOf:
		return Record{}
	}
	return nil
}

// New is an object of a class as it is stored, all fields at their defaults.
func New(class string) Record {
	r := Record{}
	for _, f := range Lookup(class).Fields {
		if f.Far == nil {
			r[f.Name] = f.initial()
		}
	}
	return r
}

// initial is the field's value in a new object.
func (f *Field) initial() any { return fresh(f.Type, f.Default) }

// Initial is the parameter's value where it is left out.
func (p *Param) Initial() any { return fresh(p.Type, p.Default) }

// fresh is a value of its own, which may be changed; that of the type when there is none.
func fresh(t Type, v any) any {
	switch v := v.(type) {
	case nil:
		return Zero(t)
	case map[string]string:
		return maps.Clone(v)
	case []string:
		return slices.Clone(v)
	default:
		return v
	}
}

// Marshal writes the stored fields of an object as JSON, with sorted names. A value of another Go
// type than its field's is an error.
func Marshal(class string, r Record) ([]byte, error) {
	c := Lookup(class)
	if c == nil {
		return nil, fmt.Errorf("no class %q", class)
	}
	for name, v := range r {
		f := c.Field(name)
		if f == nil || f.Far != nil {
			return nil, fmt.Errorf("%s has no stored field %q", class, name)
		}
		if err := Check(f.Type, v); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", class, name, err)
		}
	}
	return json.Marshal(r)
}

// Check returns an error unless v is of the Go type for t, and one of an enum's values.
func Check(t Type, v any) error {
	want := Zero(t)
	if reflect.TypeOf(v) != reflect.TypeOf(want) {
		return fmt.Errorf("is %T, want %T", v, want)
	}
	if s, ok := v.(string); ok && t.Kind == Enum && !slices.Contains(t.Values, s) {
		return fmt.Errorf("is %q, want one of %q", s, t.Values)
	}
	return nil
}

// Unmarshal reads what Marshal wrote. Fields that are not there get their default, fields that are
// not known are left out: the object may have been written by another version.
func Unmarshal(class string, raw []byte) (Record, error) {
	if Lookup(class) == nil {
		return nil, fmt.Errorf("no class %q", class)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, err
	}
	r := New(class)
	for _, f := range Lookup(class).Fields {
		v, ok := values[f.Name]
		if !ok || f.Far != nil {
			continue
		}
		var err error
		if r[f.Name], err = readValue(f.Type, v); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return r, nil
}

func readValue(t Type, raw []byte) (any, error) {
	v := reflect.New(reflect.TypeOf(Zero(t)))
	err := json.Unmarshal(raw, v.Interface())
	return v.Elem().Interface(), err
}
