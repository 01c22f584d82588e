package tunnel

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/xen/star"
)

// leading makes a leader over a store.
func leading(t *testing.T, st store.Store) leadership {
	t.Helper()
	rev, err := st.Commit(t.Context(), nil, []store.Op{{Key: leaderKey, Value: []byte("test")}})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := st.Get(t.Context(), leaderKey)
	if err != nil || kv.CreateRevision > rev {
		t.Fatal(kv, err)
	}
	return leadership{st, kv.CreateRevision}
}

func load(t *testing.T, l leadership) *intentStore {
	t.Helper()
	s, err := loadIntents(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIntents keeps what was decided over leaders, gives keys once, and has one who is deposed
// write nothing.
func TestIntents(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	l := leading(t, st)
	s := load(t, l)
	want := map[string]intent{}
	for i, network := range []string{"n1", "n2", "n3"} {
		key := s.key(network)
		if key != uint32(i+1) {
			t.Errorf("%s has key %d", network, key)
		}
		want[network] = intent{Intent: star.Intent{Key: key, Center: "h1", Epoch: 1}, Hosts: []string{"h1", "h2"}}
		s.set(network, want[network])
		if !s.pending(network) {
			t.Errorf("%s is not in the store yet", network)
		}
	}
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.drop(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	delete(want, "n2")
	again := load(t, l)
	if !reflect.DeepEqual(again.all, want) || again.identity != s.identity || again.identity == "" {
		t.Errorf("read back: %+v, want %+v", again, want)
	}
	if key := again.key("n4"); key != 4 {
		t.Errorf("after 3 comes %d, although 2 is free", key)
	}

	if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: leaderKey, Delete: true}}); err != nil {
		t.Fatal(err)
	}
	leading(t, st)
	before := maps.Clone(again.all)
	again.set("n1", intent{})
	for what, err := range map[string]error{"write": again.flush(t.Context()), "drop": again.drop(t.Context(), "n3")} {
		if !deposed(err) {
			t.Errorf("%s of a deposed leader: %v", what, err)
		}
	}
	if third := load(t, leading(t, st)); !reflect.DeepEqual(third.all, before) {
		t.Errorf("the store has %+v, want %+v", third.all, before)
	}
}

// TestIntentsUnreadable names the key that cannot be read.
func TestIntentsUnreadable(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{networksPrefix + "n1": "{", lastKeyKey: "many"} {
		st := store.NewMemory()
		l := leading(t, st)
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := loadIntents(t.Context(), l); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestStoreAway takes back what could not be written, except for keys and who may have a leg, and
// writes that when the store is back.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	l := leading(t, st)
	s := load(t, l)
	old := intent{Intent: star.Intent{Key: s.key("n1"), Center: "h1", Epoch: 1, Settled: 1}, Hosts: []string{"h1", "h2"}}
	s.set("n1", old)
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"h1", "h2", "h3"}
	s.set("n1", intent{Intent: star.Intent{Key: old.Key, Center: "h3", Previous: "h1", Epoch: 2, Settled: 1}, Hosts: hosts})
	s.set("n2", intent{Intent: star.Intent{Key: s.key("n2"), Center: "h1", Epoch: 1}, Hosts: hosts})
	want := map[string]intent{"n1": {Intent: old.Intent, Hosts: hosts}, "n2": {Intent: star.Intent{Key: 2}, Hosts: hosts}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.flush(ctx); err == nil || deposed(err) || errors.Is(err, store.ErrConflict) {
		t.Fatalf("a write whose time is over: %v", err)
	}
	for network := range want {
		if in, _ := s.get(network); !s.pending(network) || !reflect.DeepEqual(in, want[network]) {
			t.Errorf("%s is to be %+v, want %+v", network, in, want[network])
		}
	}
	if key := s.key("n3"); key != 3 {
		t.Errorf("key %d is given, want 3", key)
	}
	if err := s.flush(t.Context()); err != nil || s.pending("n1") || s.pending("n2") {
		t.Error(err)
	}
	if again := load(t, l); !reflect.DeepEqual(again.all, want) {
		t.Errorf("stored is %+v, want %+v", again.all, want)
	}
}
