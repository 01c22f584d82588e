package snapshot_test

import (
	"fmt"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/snapshot"
)

// TestChangedSince: a snapshot knows where it differs from those before it, but from none of
// another line, and from none with too many changes in between.
func TestChangedSince(t *testing.T) {
	t.Parallel()
	tables := snapshot.Of(snapshot.Source{Name: "word", Prefix: "/word/", Decode: func(_ string, value []byte) (any, error) { return string(value), nil }})
	put := func(id string, rev int64) store.Event {
		return store.Event{KV: store.KV{Key: "/word/" + id, Value: []byte(id), CreateRevision: rev, ModRevision: rev}}
	}
	apply := func(s *snapshot.Snapshot, events ...store.Event) *snapshot.Snapshot {
		u, _ := tables.Apply(s, events, s.Revision+1)
		return u.Next
	}
	want := func(earlier, later *snapshot.Snapshot, text string) {
		t.Helper()
		places, known := later.ChangedSince(earlier)
		if got := fmt.Sprint(places, known); got != text {
			t.Errorf("from revision %d to %d: %s, want %s", earlier.Revision, later.Revision, got, text)
		}
	}
	a := apply(tables.Empty(), put("a", 1))
	b := apply(a, put("b", 2), put("c", 2))
	elsewhere := apply(b) // a commit of other tables
	c := apply(elsewhere, store.Event{KV: store.KV{Key: "/word/a"}, Deleted: true})
	fork := apply(a, put("x", 2))

	want(a, a, "[] true")
	want(a, b, "[{word b} {word c}] true")
	want(b, elsewhere, "[] true")
	want(a, c, "[{word a} {word b} {word c}] true")
	want(a, fork, "[{word x}] true")
	want(fork, c, "[] false")
	want(c, b, "[] false")
	want(tables.Empty(), c, "[] false")

	last := c
	for i := range 5000 {
		last = apply(last, put("d", int64(i+10)))
	}
	if places, known := last.ChangedSince(c); !known || len(places) != 5000 {
		t.Errorf("%d changes, %t", len(places), known)
	}
	for i := range 5000 {
		last = apply(last, put("d", int64(i+10_000)))
	}
	want(c, last, "[] false")

	var many []store.Event
	for i := range 5000 {
		many = append(many, put(fmt.Sprint(i), 20_000))
	}
	listed := apply(last, many...)
	want(last, listed, "[] false")
	want(listed, apply(listed, put("e", 20_001)), "[{word e}] true")
}
