package wire

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"heddle/internal/xen/model"
)

// ValueError is the error of a value that has the right type but is not permitted.
type ValueError struct {
	Field string // of the record that was given; "" when it is the value itself
	Value string
	Text  string // why
}

func (e *ValueError) Error() string { return fmt.Sprintf("%s%q %s", prefix(e.Field), e.Value, e.Text) }

// TypeError is the error of a value of the wrong type.
type TypeError struct {
	Field string // of the record that was given; "" when it is the value itself
	Text  string
}

func (e *TypeError) Error() string { return prefix(e.Field) + e.Text }

func prefix(field string) string {
	if field == "" {
		return ""
	}
	return field + ": "
}

// inField is the error with the field that it is about.
func inField(field string, err error) error {
	switch e := err.(type) {
	case *ValueError:
		return &ValueError{field, e.Value, e.Text}
	case *TypeError:
		return &TypeError{field, e.Text}
	}
	return err
}

func mistyped(raw any, want string) error {
	return &TypeError{"", fmt.Sprintf("is %T, want %s", raw, want)}
}

// Coerce makes a raw value the model's Go value of a type. Integers may come as text, as XML-RPC
// has them, floats as integers. A record becomes what a constructor takes: a new object of its
// class with the fields that were given; those that clients do not give at creation, and those that
// are not known, are passed over. Errors are a [ValueError] or a [TypeError].
func Coerce(t model.Type, raw any) (any, error) {
	switch t.Kind {
	case model.Void:
		return nil, nil
	case model.String, model.Ref:
		return coerceText(raw)
	case model.Enum:
		return coerceEnum(t, raw)
	case model.Int:
		return coerceInt(raw)
	case model.Float:
		return coerceFloat(raw)
	case model.Bool:
		return as[bool](raw, "a boolean")
	case model.Time:
		return coerceTime(raw)
	case model.Set:
		return coerceSet(*t.Elem, raw)
	case model.Map:
		return coerceMap(*t.Elem, raw)
	default:
		return coerceRecord(t, raw)
	}
}

// as is a raw value that has to be a T; what says so in words.
func as[T any](raw any, what string) (T, error) {
	v, ok := raw.(T)
	if !ok {
		return v, mistyped(raw, what)
	}
	return v, nil
}

func coerceText(raw any) (string, error) {
	text, err := as[string](raw, "a string")
	if err != nil {
		return "", err
	}
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return "", &ValueError{"", text, "is not UTF-8"}
			}
		}
		if !isCharacter(r) {
			return "", &ValueError{"", text, "holds a character that XML cannot carry"}
		}
	}
	return text, nil
}

func coerceEnum(t model.Type, raw any) (string, error) {
	text, err := as[string](raw, "a string")
	if err == nil && model.Check(t, text) != nil {
		err = &ValueError{"", text, fmt.Sprintf("is none of %q", t.Values)}
	}
	return text, err
}

func coerceInt(raw any) (int64, error) {
	switch v := raw.(type) {
	case int64:
		return v, nil
	case float64:
		if n := int64(v); v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return n, nil
		}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, mistyped(raw, "an integer")
}

func coerceFloat(raw any) (float64, error) {
	switch v := raw.(type) {
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	return 0, mistyped(raw, "a number")
}

// coerceTime reads a time as the XenAPI writes it, or as ISO 8601 has it elsewhere.
func coerceTime(raw any) (time.Time, error) {
	text, err := as[string](raw, "a time")
	if err != nil {
		return time.Time{}, err
	}
	for _, layout := range []string{timeLayout, time.RFC3339, "20060102T15:04:05", "20060102T150405Z"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC().Truncate(time.Second), nil
		}
	}
	return time.Time{}, &ValueError{"", text, "is no time such as 20261121T09:00:00Z"}
}

func coerceSet(elem model.Type, raw any) (any, error) {
	elements, err := as[[]any](raw, "an array")
	if err != nil {
		return nil, err
	}
	switch elem.Kind {
	case model.Int:
		return list[int64](elem, elements)
	case model.RecordOf:
		return list[model.Record](elem, elements)
	}
	return list[string](elem, elements)
}

func list[T any](elem model.Type, elements []any) ([]T, error) {
	all := make([]T, 0, len(elements))
	for _, raw := range elements {
		v, err := Coerce(elem, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, v.(T))
	}
	return all, nil
}

func coerceMap(elem model.Type, raw any) (any, error) {
	members, err := as[map[string]any](raw, "a map")
	if err != nil {
		return nil, err
	}
	switch elem.Kind {
	case model.Int:
		return mapping[int64](elem, members)
	case model.RecordOf:
		return mapping[model.Record](elem, members)
	}
	return mapping[string](elem, members)
}

func mapping[T any](elem model.Type, members map[string]any) (map[string]T, error) {
	all := make(map[string]T, len(members))
	for name, raw := range members {
		if _, err := coerceText(name); err != nil {
			return nil, err
		}
		v, err := Coerce(elem, raw)
		if err != nil {
			return nil, err
		}
		all[name] = v.(T)
	}
	return all, nil
}

func coerceRecord(t model.Type, raw any) (any, error) {
	members, err := as[map[string]any](raw, "a record")
	if err != nil {
		return nil, err
	}
	c := model.Lookup(t.Class)
	if c == nil {
		return nil, &TypeError{"", fmt.Sprintf("a record of the class %q cannot be given", t.Class)}
	}
	r := model.New(t.Class)
	for i := range c.Fields {
		f := &c.Fields[i]
		v, given := members[f.Name]
		if !given || f.Access == model.Dynamic || f.Name == "uuid" {
			continue
		}
		if r[f.Name], err = Coerce(f.Type, v); err != nil {
			return nil, inField(f.Name, err)
		}
	}
	return r, nil
}
