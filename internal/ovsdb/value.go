package ovsdb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"heddle/internal/terminal"
)

// Values are those of RFC 7047 §5.1. An atom is a string, int64, float64, bool, [UUID] or [Named];
// a column's value is an atom, a [Set] or a [Map]. A set of one element may stand for itself as a
// bare atom, in both directions, and a real without a fraction comes back as an int64.
type (
	// UUID names a row.
	UUID string
	// Named stands for the row that an [Insert] of the same transaction makes under this name.
	Named string
	// Set is atoms, of one type.
	Set []any
	// Map is atoms by atoms.
	Map map[any]any
	// Strings is a [Map] of strings by strings, as most of Open vSwitch's are.
	Strings map[string]string
	// Row is values by column.
	Row map[string]any
)

// MarshalJSON writes ["uuid", …].
func (u UUID) MarshalJSON() ([]byte, error) { return json.Marshal([2]string{"uuid", string(u)}) }

// MarshalJSON writes ["named-uuid", …].
func (n Named) MarshalJSON() ([]byte, error) { return json.Marshal([2]string{"named-uuid", string(n)}) }

// MarshalJSON writes ["set", […]].
func (s Set) MarshalJSON() ([]byte, error) {
	if s == nil {
		s = Set{}
	}
	return json.Marshal([2]any{"set", []any(s)})
}

// MarshalJSON writes ["map", [[key, value], …]], in the order of the keys' text.
func (m Map) MarshalJSON() ([]byte, error) {
	type pair struct{ key, value json.RawMessage }
	pairs := make([]pair, 0, len(m))
	for k, v := range m {
		key, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{key, value})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	list := make([][2]json.RawMessage, len(pairs))
	for i, p := range pairs {
		list[i] = [2]json.RawMessage{p.key, p.value}
	}
	return json.Marshal([2]any{"map", list})
}

// MarshalJSON writes it as a [Map].
func (s Strings) MarshalJSON() ([]byte, error) {
	m := make(Map, len(s))
	for k, v := range s {
		m[k] = v
	}
	return m.MarshalJSON()
}

// UnmarshalJSON reads a row as a database sends it. It has no [Strings]: those come as [Map].
func (r *Row) UnmarshalJSON(raw []byte) error {
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(raw, &columns); err != nil {
		return err
	}
	row := make(Row, len(columns))
	for name, raw := range columns {
		value, err := decode(raw)
		if err != nil {
			return fmt.Errorf("column %s: %w", name, err)
		}
		row[name] = value
	}
	*r = row
	return nil
}

// decode reads a column's value.
func decode(raw json.RawMessage) (any, error) {
	kind, rest, err := cutKind(raw)
	switch {
	case err != nil:
		return nil, err
	case kind == "set":
		return decodeSet(rest)
	case kind == "map":
		return decodeMap(rest)
	}
	return decodeOne(raw, kind, rest)
}

// cutKind returns the two parts of a value that is written as a list, "" for others.
func cutKind(raw json.RawMessage) (kind string, rest json.RawMessage, err error) {
	if len(raw) == 0 || raw[0] != '[' {
		return "", nil, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", nil, err
	}
	if len(parts) != 2 {
		return "", nil, fmt.Errorf("a list of %d parts, not 2", len(parts))
	}
	if err := json.Unmarshal(parts[0], &kind); err != nil {
		return "", nil, fmt.Errorf("a list that does not begin with its kind: %s", shorten(parts[0]))
	}
	return kind, parts[1], nil
}

func decodeAtom(raw json.RawMessage) (any, error) {
	kind, rest, err := cutKind(raw)
	if err != nil {
		return nil, err
	}
	return decodeOne(raw, kind, rest)
}

func decodeOne(raw json.RawMessage, kind string, rest json.RawMessage) (any, error) {
	if rest == nil {
		return decodeScalar(raw)
	}
	return decodeReference(kind, rest)
}

func decodeReference(kind string, raw json.RawMessage) (any, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("%s: not a string: %s", kind, shorten(raw))
	}
	switch kind {
	case "uuid":
		return UUID(text), nil
	case "named-uuid":
		return Named(text), nil
	}
	return nil, fmt.Errorf("a value of unknown kind %q", kind)
}

func decodeScalar(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, errors.New("no value")
	}
	switch raw[0] {
	case '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case 't', 'f':
		var b bool
		err := json.Unmarshal(raw, &b)
		return b, err
	case 'n', '{':
		return nil, fmt.Errorf("not a value: %s", shorten(raw))
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil
	}
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("not a value: %s", shorten(raw))
	}
	return f, nil
}

func decodeSet(raw json.RawMessage) (Set, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf("set: not a list: %s", shorten(raw))
	}
	set := make(Set, len(items))
	for i, item := range items {
		var err error
		if set[i], err = decodeAtom(item); err != nil {
			return nil, fmt.Errorf("set: %w", err)
		}
	}
	return set, nil
}

func decodeMap(raw json.RawMessage) (Map, error) {
	var pairs [][]json.RawMessage
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, fmt.Errorf("map: not a list of pairs: %s", shorten(raw))
	}
	m := make(Map, len(pairs))
	for _, pair := range pairs {
		if len(pair) != 2 {
			return nil, fmt.Errorf("map: a pair of %d parts", len(pair))
		}
		key, err := decodeAtom(pair[0])
		if err != nil {
			return nil, fmt.Errorf("map: %w", err)
		}
		if m[key], err = decodeAtom(pair[1]); err != nil {
			return nil, fmt.Errorf("map: %w", err)
		}
	}
	return m, nil
}

// elements are a value's as those of a set.
func elements(value any) Set {
	switch value := value.(type) {
	case nil:
		return nil
	case Set:
		return value
	}
	return Set{value}
}

// sortedKeys are a map's, so that what is made of it is always the same.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// shorten keeps foreign text readable in an error.
func shorten(raw []byte) string {
	const limit = 80
	if len(raw) > limit {
		return fmt.Sprintf("%q…", raw[:limit])
	}
	return fmt.Sprintf("%q", raw)
}

// excerpt returns the beginning of a long text of a server, for an error.
func excerpt(text string) string { return terminal.Excerpt(text, 300) }
