package records

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// TestGuardSweeper: a guard key is removed once it has not changed between two sweeps; one in use
// stays, and what a missing key guards is guarded as before.
func TestGuardSweeper(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	type note struct{ ID string }
	notes := NewTable("note", "/t/notes/", func(n *note) string { return n.ID })
	rep := replica.New(st, replica.Options{Watch: "/"}, notes)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-rep.Ready()
	db := NewDB(st, rep)
	made := 0
	use := func(key string) {
		t.Helper()
		made++
		if _, err := db.Update(t.Context(), func(tx *Tx) error {
			tx.Heed(key)
			tx.Mark(key + "/far")
			return notes.Put(tx, &note{ID: fmt.Sprint(made)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(keys ...string) {
		t.Helper()
		kvs, _, err := st.List(t.Context(), "/heddle/guard/")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range kvs {
			got = append(got, kv.Key)
		}
		if !slices.Equal(got, keys) {
			t.Fatalf("guard keys %v, want %v", got, keys)
		}
	}
	g := NewGuardSweeper(db, slog.New(slog.DiscardHandler))
	const gone, used = "quota/gone/port", "quota/used/port"
	use(gone)
	use(used)
	before := g.sweep(t.Context(), 0)
	want(guardKey(gone+"/far"), guardKey(used+"/far"))
	use(used)
	before = g.sweep(t.Context(), before)
	want(guardKey(used + "/far"))
	g.sweep(t.Context(), before)
	want()
	use(gone)
	want(guardKey(gone + "/far"))

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Run(stopped); err != nil {
		t.Error(err)
	}
	<-g.Ready()
}
