package neutron

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table joins a resource's attributes with their values in an object T: JSON, filters, sort keys.
type Table[T any] struct {
	Resource Resource
	columns  []column[T]
	shown    [2]*Encoder[T] // show and list, for members and for admins
	created  [2]*Encoder[T] // answers to create
	whole    *Encoder[T]
}

// column joins an attribute with its value in an object.
type column[T any] struct {
	*Attribute
	value[T]
}

// value extracts an attribute from an object. append writes it as JSON; the rest may be nil.
type value[T any] struct {
	append func(b []byte, o T) []byte
	key    func(o T) Key                                 // to filter and sort by
	match  func(values []string) (func(o T) bool, error) // to filter by, where equality with key will not do
	omit   func(o T, created bool) bool                  // leave the attribute out of this object
}

// Key is a value that can be compared: null, a text, a number or a flag.
type Key struct {
	Kind   KeyKind
	Text   string
	Number int64 // also a flag, as 0 or 1
}

// KeyKind is the type of a Key's value.
type KeyKind uint8

// The kinds of Key.
const (
	NullKey KeyKind = iota
	TextKey
	NumberKey
	FlagKey
)

// Compare orders keys of one attribute; null comes first.
func (k Key) Compare(o Key) int {
	switch {
	case k.Kind != o.Kind:
		return int(k.Kind) - int(o.Kind)
	case k.Number != o.Number:
		if k.Number < o.Number {
			return -1
		}
		return 1
	}
	return strings.Compare(k.Text, o.Text)
}

// newTable joins rows of attribute and value.
func newTable[T any](r Resource, columns []column[T]) *Table[T] {
	t := &Table[T]{Resource: r, columns: columns}
	for i, admin := range []bool{false, true} {
		t.shown[i] = t.encoder(admin, false, nil)
		t.created[i] = t.encoder(admin, true, nil)
	}
	t.whole = &Encoder[T]{}
	for i := range columns {
		if columns[i].append != nil {
			t.whole.add(&columns[i])
		}
	}
	return t
}

func (t *Table[T]) attributes() []*Attribute {
	rows := make([]*Attribute, len(t.columns))
	for i, c := range t.columns {
		rows[i] = c.Attribute
	}
	return rows
}

func (t *Table[T]) column(name string) *column[T] {
	i := slices.IndexFunc(t.columns, func(c column[T]) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.columns[i]
}

// Encoder writes objects of one kind for one role as JSON.
type Encoder[T any] struct {
	created bool
	parts   []part[T]
}

// part is one attribute of an answer.
type part[T any] struct {
	name   string // `"name":`
	append func(b []byte, o T) []byte
	omit   func(o T, created bool) bool
}

// Encoder returns the one for answers to show and list: what the role may see, of that the named
// attributes if any are named. Names that are not attributes are ignored.
func (t *Table[T]) Encoder(admin bool, fields []string) *Encoder[T] {
	if len(fields) > 0 {
		return t.encoder(admin, false, fields)
	}
	return t.shown[roleIndex(admin)]
}

// Created returns the encoder for answers to create.
func (t *Table[T]) Created(admin bool) *Encoder[T] { return t.created[roleIndex(admin)] }

// Whole returns the encoder for answers that hide nothing, whatever the role.
func (t *Table[T]) Whole() *Encoder[T] { return t.whole }

func roleIndex(admin bool) int {
	if admin {
		return 1
	}
	return 0
}

func (t *Table[T]) encoder(admin, created bool, fields []string) *Encoder[T] {
	e := &Encoder[T]{created: created}
	for i := range t.columns {
		c := &t.columns[i]
		if c.Hidden || c.append == nil || c.See == AdminOnly && !admin || fields != nil && !slices.Contains(fields, c.Name) {
			continue
		}
		e.add(c)
	}
	return e
}

// add adds an attribute to the answers.
func (e *Encoder[T]) add(c *column[T]) {
	e.parts = append(e.parts, part[T]{`"` + c.Name + `":`, c.append, c.omit})
}

// Append appends one object.
func (e *Encoder[T]) Append(b []byte, o T) []byte {
	b = append(b, '{')
	empty := len(b)
	for i := range e.parts {
		p := &e.parts[i]
		if p.omit != nil && p.omit(o, e.created) {
			continue
		}
		if len(b) > empty {
			b = append(b, ',')
		}
		b = append(b, p.name...)
		b = p.append(b, o)
	}
	return append(b, '}')
}

// Filter makes the test for one filter of a list, which any of the values passes. It is nil for a
// name that the caller cannot filter by: Neutron ignores those.
func (t *Table[T]) Filter(admin bool, name string, values []string) (func(o T) bool, error) {
	c := t.column(name)
	if c == nil || !c.Attribute.Filter || c.See == AdminOnly && !admin {
		return nil, nil
	}
	if c.match != nil {
		return c.match(values)
	}
	want, err := c.keys(values)
	if err != nil {
		return nil, err
	}
	return func(o T) bool {
		k := c.key(o)
		return slices.ContainsFunc(want, func(w Key) bool { return w == k })
	}, nil
}

// keys reads filter values: flags as flags, anything else both as text and as a number.
func (c *column[T]) keys(values []string) ([]Key, error) {
	keys := make([]Key, 0, len(values)*2)
	for _, s := range values {
		if c.Type == "boolean" {
			b, ok := parseBool(s)
			if !ok {
				return nil, invalidInput("'%s' cannot be converted to boolean", s)
			}
			keys = append(keys, flagKey(b))
			continue
		}
		keys = append(keys, Key{Kind: TextKey, Text: s})
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil {
			keys = append(keys, Key{Kind: NumberKey, Number: n})
		}
	}
	return keys, nil
}

// SortKey returns the key to sort by, or nil for a name that is no sort key.
func (t *Table[T]) SortKey(name string) func(o T) Key {
	c := t.column(name)
	if c == nil || !c.Sort {
		return nil
	}
	return c.key
}

// NeedsComputed reports whether answering these fields (none: all) needs other objects.
func (t *Table[T]) NeedsComputed(fields []string) bool {
	return slices.ContainsFunc(t.columns, func(c column[T]) bool {
		return c.Computed && (len(fields) == 0 || slices.Contains(fields, c.Name))
	})
}

func flagKey(b bool) Key {
	k := Key{Kind: FlagKey}
	if b {
		k.Number = 1
	}
	return k
}

// The kinds of values, by how they are written and compared.

func textValue[T any](get func(o T) string) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendString(b, get(o)) },
		key:    func(o T) Key { return Key{Kind: TextKey, Text: get(o)} },
	}
}

// textOrNullValue writes "" as null.
func textOrNullValue[T any](get func(o T) string) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendStringOrNull(b, get(o)) },
		key: func(o T) Key {
			if s := get(o); s != "" {
				return Key{Kind: TextKey, Text: s}
			}
			return Key{}
		},
	}
}

func numberValue[T any](get func(o T) int64) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return strconv.AppendInt(b, get(o), 10) },
		key:    func(o T) Key { return Key{Kind: NumberKey, Number: get(o)} },
	}
}

func numberOrNullValue[T any](get func(o T) *int) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendIntOrNull(b, get(o)) },
		key: func(o T) Key {
			if n := get(o); n != nil {
				return Key{Kind: NumberKey, Number: int64(*n)}
			}
			return Key{}
		},
	}
}

func flagValue[T any](get func(o T) bool) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return strconv.AppendBool(b, get(o)) },
		key:    func(o T) Key { return flagKey(get(o)) },
	}
}

func timeValue[T any](get func(o T) time.Time) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendTime(b, get(o)) },
		key:    func(o T) Key { return Key{Kind: TextKey, Text: get(o).UTC().Format(timeFormat)} },
	}
}

// textsValue returns a list of strings; a filter wants any of them in it.
func textsValue[T any](get func(o T) []string) value[T] {
	return value[T]{
		append: func(b []byte, o T) []byte { return appendList(b, get(o), appendString) },
		match: func(values []string) (func(o T) bool, error) {
			return func(o T) bool {
				return slices.ContainsFunc(get(o), func(s string) bool { return slices.Contains(values, s) })
			}, nil
		},
	}
}

// jsonValue is written and not compared.
func jsonValue[T any](write func(b []byte, o T) []byte) value[T] { return value[T]{append: write} }

// constant returns the same JSON in every object; sorting by it changes nothing.
func constant[T any](json string) value[T] {
	return value[T]{
		append: func(b []byte, _ T) []byte { return append(b, json...) },
		key: func(T) Key {
			if json == "null" {
				return Key{}
			}
			return Key{Kind: TextKey, Text: strings.Trim(json, `"`)}
		},
	}
}
