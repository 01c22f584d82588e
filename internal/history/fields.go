package history

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"heddle/internal/api/operator"
)

// unsaid has the fields that change with every other one.
var unsaid = map[string]bool{"updated_at": true, "created_at": true, "revision_number": true}

// fieldChanges returns the fields in which two values differ, by name; nil for a value that is no
// object.
func fieldChanges(before, after []byte) []operator.ChangedField {
	old, now := members(before), members(after)
	names := slices.Sorted(maps.Keys(now))
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, both := now[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var changes []operator.ChangedField
	for _, name := range names {
		if !unsaid[name] {
			changes = append(changes, fieldChange(name, old[name], now[name])...)
		}
	}
	return changes
}

// members returns the members of an object that are not null.
func members(raw []byte) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil // the value of another program, in a form of its own
	}
	maps.DeleteFunc(all, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return all
}

// fieldChange returns how a field differs: of lists, by their entries.
func fieldChange(name string, before, after json.RawMessage) []operator.ChangedField {
	if bytes.Equal(before, after) {
		return nil
	}
	old, isList := entries(before)
	now, stillList := entries(after)
	if !isList || !stillList {
		return []operator.ChangedField{{Name: name, Before: before, After: after}}
	}
	var changes []operator.ChangedField
	for _, e := range old {
		if i := slices.IndexFunc(now, func(n entry) bool { return n.key == e.key }); i < 0 {
			changes = append(changes, operator.ChangedField{Name: e.name(name), Before: e.raw})
		} else if !bytes.Equal(now[i].raw, e.raw) {
			changes = append(changes, operator.ChangedField{Name: e.name(name), Before: e.raw, After: now[i].raw})
		}
	}
	for _, n := range now {
		if !slices.ContainsFunc(old, func(e entry) bool { return e.key == n.key }) {
			changes = append(changes, operator.ChangedField{Name: n.name(name), After: n.raw})
		}
	}
	if changes == nil { // the order alone
		return []operator.ChangedField{{Name: name, Before: before, After: after}}
	}
	return changes
}

// entry is an entry of a list.
type entry struct {
	id  string // of an object that has one
	key string // what tells it from others: its id, or else all of it
	raw json.RawMessage
}

func (e entry) name(list string) string { return list + "[" + e.id + "]" }

// entries returns the entries of a list; a value that is missing or null is an empty one.
func entries(raw json.RawMessage) (all []entry, isList bool) {
	var list []json.RawMessage
	if len(raw) > 0 && json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	for _, one := range list {
		var object struct{ ID string }
		_ = json.Unmarshal(one, &object) // entries of another form have no id
		e := entry{id: object.ID, key: object.ID, raw: one}
		if e.id == "" {
			e.key = string(one)
		}
		all = append(all, e)
	}
	return all, true
}
