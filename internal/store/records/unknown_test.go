package records_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
)

// parcel is a record in all whose parts a newer version may have members more.
type parcel struct {
	ID      string            `json:"id"`
	Name    string            `json:"name,omitempty"`
	Address *address          `json:"address,omitempty"`
	Notes   map[string]note   `json:"notes,omitempty"`
	Items   []item            `json:"items,omitempty"`
	Tags    []note            `json:"tags,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

type address struct {
	Street string `json:"street,omitempty"`
}

type note struct {
	Text string `json:"text"`
}

type item struct {
	ID    string `json:"id"`
	Count int    `json:"count"`
}

// opaque is a record with an encoding of its own, to which json's strictness is unknown.
type opaque struct{ id, name string }

func (o *opaque) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"id": o.id, "name": o.name})
}

func (o *opaque) UnmarshalJSON(raw []byte) error {
	var s struct{ ID, Name string }
	err := json.Unmarshal(raw, &s)
	o.id, o.name = s.ID, s.Name
	return err
}

var (
	parcels   = records.NewTable("parcel", "/t/parcels/", func(p *parcel) string { return p.ID })
	summaries = records.NewDerivedTable("summary", "/t/summaries/", func(p *parcel) string { return p.ID })
	opaques   = records.NewTable("opaque", "/t/opaques/", func(o *opaque) string { return o.id })
)

// openParcels stores values of newer versions and returns a DB over them.
func openParcels(t *testing.T, values map[string]string) (store.Store, *records.DB) {
	t.Helper()
	st := store.NewMemory()
	for key, value := range values {
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	rep := replica.New(st, replica.Options{Watch: "/t/"}, parcels, summaries, opaques)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return st, records.NewDB(st, rep)
}

// stored returns the JSON value of a key.
func stored(t *testing.T, st store.Store, key string) any {
	t.Helper()
	kv, err := st.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(kv.Value))
}

func parse(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// TestUnknownMembers: each case changes a record that a newer version has stored.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stored string
		change       func(p *parcel)
		want         string
	}{
		{"of the record", `{"id":"p","new":[1,{"x":null}],"huge":123456789012345678901234567890}`, func(p *parcel) { p.Name = "a" },
			`{"id":"p","name":"a","new":[1,{"x":null}],"huge":123456789012345678901234567890}`},
		{"beside a known one that is cleared", `{"id":"p","name":"a","new":1}`, func(p *parcel) { p.Name = "" },
			`{"id":"p","new":1}`},
		{"of an object", `{"id":"p","address":{"street":"s","new":1}}`, func(p *parcel) { p.Address = &address{Street: "t"} },
			`{"id":"p","address":{"street":"t","new":1}}`},
		{"of an object that is removed", `{"id":"p","address":{"street":"s","new":1}}`, func(p *parcel) { p.Address = nil },
			`{"id":"p"}`},
		{"of a map's element", `{"id":"p","notes":{"a":{"text":"1","new":1},"b":{"text":"2","new":2}}}`,
			func(p *parcel) { p.Notes = map[string]note{"a": {"3"}, "c": {"4"}} },
			`{"id":"p","notes":{"a":{"text":"3","new":1},"c":{"text":"4"}}}`},
		{"of elements with ids", `{"id":"p","items":[{"id":"1","count":1,"new":1},{"id":"2","count":2,"new":2}]}`,
			func(p *parcel) { p.Items = []item{{"3", 3}, {"2", 9}} },
			`{"id":"p","items":[{"id":"3","count":3},{"id":"2","count":9,"new":2}]}`},
		{"of elements without ids", `{"id":"p","tags":[{"text":"a","new":1},{"text":"a","new":2},{"text":"b","new":3},{"text":"c","new":4}]}`,
			func(p *parcel) { p.Tags = []note{{"b"}, {"changed"}, {"a"}, {"a"}, {"a"}} },
			`{"id":"p","tags":[{"text":"b","new":3},{"text":"changed"},{"text":"a","new":1},{"text":"a","new":2},{"text":"a"}]}`},
		{"none in a map of the record's own data", `{"id":"p","labels":{"a":"1","b":"2"},"new":1}`, func(p *parcel) { p.Labels = map[string]string{"b": "3"} },
			`{"id":"p","labels":{"b":"3"},"new":1}`},
	}
	for _, tt := range tests {
		st, db := openParcels(t, map[string]string{"/t/parcels/p": tt.stored, "/t/summaries/p": tt.stored})
		var plain []byte
		for range 2 { // what is kept once is kept the next time
			update(t, db, func(tx *records.Tx) error {
				old, err := parcels.Get(tx, "p")
				if err != nil {
					return err
				}
				changed := *old
				tt.change(&changed)
				if plain, err = json.Marshal(changed); err != nil {
					return err
				}
				if err := parcels.Put(tx, &changed); err != nil {
					return err
				}
				return summaries.Put(tx, &changed)
			})
			if diff := cmp.Diff(parse(t, tt.want), stored(t, st, "/t/parcels/p")); diff != "" {
				t.Errorf("%s: %s", tt.name, diff)
			}
			if diff := cmp.Diff(parse(t, string(plain)), stored(t, st, "/t/summaries/p")); diff != "" {
				t.Errorf("%s, in a derived table: %s", tt.name, diff)
			}
		}
	}
}

// TestUnknownMembersOfOpaque: a type with a decoder of its own keeps them too.
func TestUnknownMembersOfOpaque(t *testing.T) {
	t.Parallel()
	st, db := openParcels(t, map[string]string{"/t/opaques/o": `{"id":"o","name":"a","new":1}`})
	update(t, db, func(tx *records.Tx) error { return opaques.Put(tx, &opaque{"o", "b"}) })
	if diff := cmp.Diff(parse(t, `{"id":"o","name":"b","new":1}`), stored(t, st, "/t/opaques/o")); diff != "" {
		t.Error(diff)
	}
}

// TestUnknownMembersOfReplaced: a record that is deleted and put again is another one.
func TestUnknownMembersOfReplaced(t *testing.T) {
	t.Parallel()
	st, db := openParcels(t, map[string]string{"/t/parcels/p": `{"id":"p","name":"a","new":1}`})
	update(t, db, func(tx *records.Tx) error {
		if err := parcels.Delete(tx, "p"); err != nil {
			return err
		}
		if err := parcels.Put(tx, &parcel{ID: "p", Name: "b"}); err != nil {
			return err
		}
		return parcels.Put(tx, &parcel{ID: "p", Name: "c"})
	})
	if diff := cmp.Diff(parse(t, `{"id":"p","name":"c"}`), stored(t, st, "/t/parcels/p")); diff != "" {
		t.Error(diff)
	}
}

// TestStoredValues: the snapshot keeps the values of records that lack something, and no others.
func TestStoredValues(t *testing.T) {
	t.Parallel()
	const known, unknown = `{"id":"p"}`, `{"id":"p","new":1}`
	tables := snapshot.Of(parcels, summaries, opaques)
	snap := tables.Empty()
	for i, tt := range []struct{ table, key, value, want string }{
		{"parcel", "/t/parcels/p", known, ""},
		{"parcel", "/t/parcels/p", unknown, unknown},
		{"parcel", "/t/parcels/p", known, ""},
		{"parcel", "/t/parcels/p", unknown, unknown},
		{"parcel", "/t/parcels/p", "", ""},
		{"summary", "/t/summaries/p", unknown, ""},
		{"opaque", "/t/opaques/p", `{"id":"p","name":""}`, ""},
		{"opaque", "/t/opaques/p", unknown, unknown},
	} {
		e := store.Event{KV: store.KV{Key: tt.key, Value: []byte(tt.value), ModRevision: int64(i + 1)}, Deleted: tt.value == ""}
		u, invalid := tables.Apply(snap, []store.Event{e}, int64(i+1))
		if len(invalid) > 0 {
			t.Fatal(invalid)
		}
		before := snap.Stored(tt.table, "p")
		if got := string(u.Next.Stored(tt.table, "p")); got != tt.want {
			t.Errorf("step %d: value %q, want %q", i, got, tt.want)
		}
		if after := snap.Stored(tt.table, "p"); string(after) != string(before) {
			t.Errorf("step %d changed the snapshot before it", i)
		}
		snap = u.Next
	}
}

// BenchmarkDecode decodes a record as a replica does, and as encoding/json alone does.
func BenchmarkDecode(b *testing.B) {
	p := parcel{ID: "p", Name: "a parcel", Address: &address{Street: "a street"}, Labels: map[string]string{"a": "1", "b": "2"}}
	for i := range 8 {
		p.Items, p.Tags = append(p.Items, item{ID: fmt.Sprint(i), Count: i}), append(p.Tags, note{fmt.Sprint("note ", i)})
	}
	value, err := json.Marshal(p)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(value, new(parcel)); err != nil {
				b.Fatal(err)
			}
		}
	})
	source := parcels.Source()
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := source.Decode("p", value); err != nil {
				b.Fatal(err)
			}
		}
	})
}
