package records

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"heddle/internal/store"
)

// Verify reads the whole store and reports violations of the tables' rules: records that cannot be
// read, unique and index keys that are missing, stale or another record's, and dangling references.
// Other tables are ignored; those referred to must be given. A store written only through the
// tables has none, whatever failed meanwhile.
func Verify(ctx context.Context, st store.Store, tables ...Target) error {
	kvs, _, err := st.List(ctx, "/")
	if err != nil {
		return err
	}
	v := verification{kept: map[string]string{}, due: map[string]string{}, found: map[place]bool{}}
	for _, kv := range kvs {
		v.read(kv, tables)
	}
	for key, value := range v.due {
		switch kept, ok := v.kept[key]; {
		case !ok:
			v.fault("%s is missing", key)
		case kept != value:
			v.fault("%s is %q, want %q", key, kept, value)
		}
	}
	for key := range v.kept {
		if _, ok := v.due[key]; !ok {
			v.fault("%s is left over", key)
		}
	}
	for _, r := range v.references {
		if !v.found[r.to] {
			v.fault("%s %s refers to %s %s, which is not there", r.from.def.name, r.from.id, r.to.def.name, r.to.id)
		}
	}
	return errors.Join(v.faults...)
}

type verification struct {
	kept       map[string]string // unique and index keys of the store
	due        map[string]string // those that the records ask for
	found      map[place]bool    // records
	references []struct{ from, to place }
	faults     []error
}

func (v *verification) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Errorf(format, args...))
}

func (v *verification) read(kv store.KV, tables []Target) {
	if keptFor(kv.Key, tables) {
		v.kept[kv.Key] = string(kv.Value)
		return
	}
	for _, t := range tables {
		d := t.definition(nil)
		s := d.source()
		id, ok := s.RecordID(kv.Key)
		if !ok {
			continue
		}
		record, _, err := d.decodeAs(id, kv.Value)
		if err != nil {
			v.fault("%s: %w", kv.Key, err)
			return
		}
		v.record(d, id, record)
		return
	}
}

// keptFor reports whether a key is a unique or index key of one of the tables.
func keptFor(key string, tables []Target) bool {
	unique, isUnique := strings.CutPrefix(key, uniquePrefix)
	for _, t := range tables {
		name := t.definition(nil).name
		if isUnique && strings.HasPrefix(unique, name+"/") || strings.HasPrefix(key, idxRoot) && strings.Contains(key, "/"+name+".") {
			return true
		}
	}
	return false
}

func (v *verification) record(d *definition, id string, record any) {
	at := place{d, id}
	v.found[at] = true
	for _, u := range d.uniques {
		for _, value := range u.Values(record) {
			key := d.uniqueKey(u.Name, value)
			if other, ok := v.due[key]; ok {
				v.fault("%s %s is shared by %s and %s", d.name, u.Name, other, id)
			}
			v.due[key] = id
		}
	}
	for i := range d.refs {
		r := &d.refs[i]
		for _, target := range r.ids(record) {
			v.due[r.idxField(d, target)+id] = ""
			v.references = append(v.references, struct{ from, to place }{at, place{r.target, target}})
		}
	}
}
