package records_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
	"heddle/internal/store/records"
)

// TestForkIsAStore runs the same transactions at random in a fork and in the store that it was
// forked from: both refuse and do the same, the store has nothing of the fork's, and the fork
// tells what they have changed.
func TestForkIsAStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		st := store.NewMemory()
		w, db := open(t, st)
		r := rand.New(rand.NewPCG(seed, 0))
		for range 30 {
			_, _ = db.Update(t.Context(), w.random(r)) // refusals are among what is tested below
		}
		before := keys(t, st)
		snap := view(t, db)
		fork := records.NewFork(snap, nil, w.tables()...)
		var outcomes []string
		r = rand.New(rand.NewPCG(seed, 1))
		for range 30 {
			_, err := fork.DB().Update(t.Context(), w.random(r))
			outcomes = append(outcomes, fmt.Sprint(err))
		}
		if now := keys(t, st); !slices.Equal(before, now) {
			t.Fatalf("seed %d: the store has %v, had %v", seed, now, before)
		}
		if now := w.contents(t, view(t, db)); !maps.Equal(now, w.contents(t, snap)) {
			t.Fatalf("seed %d: the snapshot has changed: %v", seed, now)
		}
		r = rand.New(rand.NewPCG(seed, 1))
		for i := range 30 {
			if _, err := db.Update(t.Context(), w.random(r)); fmt.Sprint(err) != outcomes[i] {
				t.Fatalf("seed %d, transaction %d: %v in the fork, %v in the store", seed, i, outcomes[i], err)
			}
		}
		old, want := w.contents(t, snap), w.contents(t, view(t, db))
		if got := w.contents(t, fork.Snap()); !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
		changes, err := fork.Changes()
		if err != nil {
			t.Fatal(err)
		}
		if compared, err := records.Compare(snap, fork.Snap(), w.tables()...); err != nil || !cmp.Equal(compared, changes) {
			t.Errorf("seed %d: %v, %v, not %v", seed, compared, err, changes)
		}
		for _, c := range changes {
			if string(c.Before) != old[c.Key] || string(c.After) != want[c.Key] || old[c.Key] == want[c.Key] {
				t.Errorf("seed %d: %s: said to change from %s to %s", seed, c.Key, c.Before, c.After)
			}
			if delete(old, c.Key); c.After != nil {
				old[c.Key] = string(c.After)
			}
		}
		if !maps.Equal(old, want) {
			t.Errorf("seed %d: the changes make %v, not %v", seed, old, want)
		}
	}
}

func view(t *testing.T, db *records.DB) *records.Snap {
	t.Helper()
	snap, err := db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// random returns a transaction that puts or deletes some records.
func (w world) random(r *rand.Rand) func(tx *records.Tx) error {
	pick := func(kind string) string { return fmt.Sprint(kind, r.IntN(4)) }
	s := &shelf{ID: pick("s"), Room: pick("r")}
	b := &box{ID: pick("b"), Shelf: pick("s"), Likes: []string{pick("b")}, Number: r.IntN(4)}
	th := &thing{ID: pick("t"), Box: pick("b"), Name: pick("n"), Labels: []string{pick("l")}}
	gone, kind := pick(""), r.IntN(8)
	return func(tx *records.Tx) error {
		switch kind {
		case 0:
			return w.shelves.Delete(tx, "s"+gone)
		case 1:
			return w.boxes.Delete(tx, "b"+gone)
		case 2:
			return w.things.Delete(tx, "t"+gone)
		case 3:
			return w.puts(&label{ID: "l" + gone}, s)(tx)
		case 4:
			return w.puts(s, b)(tx)
		case 5:
			return w.puts(b)(tx)
		}
		return w.puts(th)(tx)
	}
}

// contents returns the values of all records by key.
func (w world) contents(t *testing.T, snap *records.Snap) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(key string, record any) {
		value, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		all[key] = string(value)
	}
	for s := range w.shelves.All(snap) {
		add(w.shelves.KeyOf(s), s)
	}
	for b := range w.boxes.All(snap) {
		add(w.boxes.KeyOf(b), b)
	}
	for th := range w.things.All(snap) {
		add(w.things.KeyOf(th), th)
	}
	for l := range w.labels.All(snap) {
		add(w.labels.KeyOf(l), l)
	}
	return all
}

// TestForkReadsKeysThrough: keys of no table are those of the store until the fork writes them.
func TestForkReadsKeysThrough(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	w, db := open(t, st)
	update(t, db, func(tx *records.Tx) error {
		tx.PutKey("/other/a", []byte("1"))
		return w.puts(&label{ID: "l"})(tx)
	})
	fork := records.NewFork(view(t, db), st, w.tables()...)
	read := func(want string) {
		t.Helper()
		kv, err := fork.DB().Store().Get(t.Context(), "/other/a")
		if want == "" && errors.Is(err, store.ErrNotFound) {
			return
		}
		if err != nil || string(kv.Value) != want {
			t.Errorf("got %s, %v, want %q", kv.Value, err, want)
		}
	}
	read("1")
	update(t, fork.DB(), func(tx *records.Tx) error { tx.PutKey("/other/a", []byte("2")); return nil })
	read("2")
	update(t, fork.DB(), func(tx *records.Tx) error { tx.DeleteKey("/other/a"); return nil })
	read("")
	if kv, err := st.Get(t.Context(), "/other/a"); err != nil || string(kv.Value) != "1" {
		t.Errorf("the store has %s, %v", kv.Value, err)
	}
}
