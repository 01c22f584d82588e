package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
)

// UnknownMembers tests what an update by this version does to members of records that only a newer
// one knows.
type UnknownMembers struct {
	Tables []snapshot.Table // each a *records.Table
	// Derived has the names of the tables whose records are written without such members.
	Derived []string
	// Change, if set, changes the sample of a table's record. In samples all strings are "x", so
	// that records refer to each other, and all else has some value.
	Change func(table string, record any)
}

// Test stores a record of each table with random members beside the known ones in its objects at
// all depths, as a newer version might. Then it changes each through a transaction of its own, and
// compares what the store has. The store is an etcd.
func (u UnknownMembers) Test(t *testing.T) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	st := Open(t, t.TempDir())
	var all []*sampleRecord
	var ops []store.Op
	for _, table := range u.Tables {
		s := newSample(table)
		if u.Change != nil {
			u.Change(s.name, s.record)
		}
		newer := extraMembers{rand.New(rand.NewPCG(seed, 0)), map[string]string{}}
		value := newer.addTo(t, encode(t, s.record))
		if len(newer.added) == 0 {
			t.Fatalf("%s: no members were added to %s", table.Source().Name, value)
		}
		s.extra = newer.added
		all, ops = append(all, s), append(ops, store.Op{Key: s.key(), Value: value})
	}
	if err := Write(t.Context(), st, ops...); err != nil {
		t.Fatal(err)
	}
	rep := replica.New(st, replica.Options{}, u.Tables...)
	go rep.Run(t.Context())
	db := records.NewDB(st, rep)
	for _, s := range all {
		if _, err := db.Update(t.Context(), func(tx *records.Tx) error { return s.update(t, tx) }); err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		kv, err := st.Get(t.Context(), s.key())
		if err != nil {
			t.Fatal(err)
		}
		want := s.extra
		if slices.Contains(u.Derived, s.name) {
			want = map[string]string{}
		}
		found := map[string]string{}
		collectExtra(t, kv.Value, found)
		if !maps.Equal(found, want) {
			t.Errorf("%s: the update left the members %v, want %v; value: %s", s.name, found, want, kv.Value)
		}
		now := reflect.New(s.recordType())
		if err := json.Unmarshal(kv.Value, now.Interface()); err != nil || !bytes.Equal(encode(t, now.Interface()), s.changed) {
			t.Errorf("%s: the update wrote %s, want the members %s; %v", s.name, kv.Value, s.changed, err)
		}
	}
}

// sampleRecord is a record of a table whose type is not known here.
type sampleRecord struct {
	name    string
	table   reflect.Value
	record  any
	extra   map[string]string // values of the members added, by name
	changed []byte            // the record after update, encoded
}

func newSample(table snapshot.Table) *sampleRecord {
	s := &sampleRecord{name: table.Source().Name, table: reflect.ValueOf(table)}
	record := reflect.New(s.recordType())
	fill(record.Elem(), 0)
	s.record = record.Interface()
	return s
}

func (s *sampleRecord) recordType() reflect.Type {
	return s.table.MethodByName("ID").Type().In(0).Elem()
}

func (s *sampleRecord) call(method string, args ...any) []reflect.Value {
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		in[i] = reflect.ValueOf(a)
	}
	return s.table.MethodByName(method).Call(in)
}

func (s *sampleRecord) key() string { return s.call("KeyOf", s.record)[0].String() }

// update reads the record, flips its flags outside lists, and puts it.
func (s *sampleRecord) update(t *testing.T, tx *records.Tx) error {
	got := s.call("Get", tx, s.call("ID", s.record)[0].Interface())
	if err, failed := got[1].Interface().(error); failed {
		return err
	}
	record := reflect.New(s.recordType())
	if err := json.Unmarshal(encode(t, got[0].Interface()), record.Interface()); err != nil {
		return err
	}
	flip(record.Elem())
	s.changed = encode(t, record.Interface())
	err, _ := s.call("Put", tx, record.Interface())[0].Interface().(error)
	return err
}

func encode(t *testing.T, record any) []byte {
	t.Helper()
	value, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// deepest bounds how deep fill goes, for types that contain themselves.
const deepest = 8

// fill gives a value to all that v holds.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_000_000_000, 0).UTC()))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`"x"`))
		return
	}
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("x"))
		}
	}
}

// flip negates the flags that v holds, except in lists.
func flip(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Pointer:
		if !v.IsNil() {
			flip(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				flip(v.Field(i))
			}
		}
	}
}

// extraMembers adds members to objects, and records them by their names, all of which differ.
type extraMembers struct {
	random *rand.Rand
	added  map[string]string
}

// extraPrefix begins the names of members that no version knows.
const extraPrefix = "ofNewer"

// addTo returns the JSON value with members added to most of the objects that it holds.
func (e extraMembers) addTo(t *testing.T, value []byte) []byte {
	switch value[0] {
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			object[name] = e.addTo(t, object[name])
		}
		if _, isMap := object["x"]; !isMap { // the names in a map are data
			e.add(object)
		}
		return encode(t, object)
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			t.Fatal(err)
		}
		for i := range list {
			list[i] = e.addTo(t, list[i])
		}
		return encode(t, list)
	}
	return value
}

func (e extraMembers) add(object map[string]json.RawMessage) {
	values := []string{`null`, `0`, `-1.5e300`, `18446744073709551615`, `""`, `"ü"`, `false`, `[]`, `{}`, `[{"id":"x"},1]`, `{"x":{"y":[null]}}`}
	for range 1 + e.random.IntN(2) {
		name := fmt.Sprint(extraPrefix, len(e.added))
		e.added[name] = values[e.random.IntN(len(values))]
		object[name] = json.RawMessage(e.added[name])
	}
}

// collectExtra finds the members that were added.
func collectExtra(t *testing.T, value []byte, found map[string]string) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch value[0] {
	case '{':
		if err := json.Unmarshal(value, &object); err != nil {
			t.Fatal(err)
		}
	case '[':
		if err := json.Unmarshal(value, &list); err != nil {
			t.Fatal(err)
		}
	}
	for name, member := range object {
		if strings.HasPrefix(name, extraPrefix) {
			found[name] = string(member)
			continue
		}
		collectExtra(t, member, found)
	}
	for _, element := range list {
		collectExtra(t, element, found)
	}
}
