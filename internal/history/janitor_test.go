package history

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"heddle/internal/audit"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

func put(t *testing.T, st store.Store, key string, value any) int64 {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: raw}})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func left(t *testing.T, st store.Store) int {
	t.Helper()
	kvs, _, err := st.List(t.Context(), audit.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	return len(kvs)
}

// TestJanitor: a record goes once every server has journalled it, or after ten minutes.
func TestJanitor(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	j := NewJanitor(st, slog.New(slog.DiscardHandler))
	began := time.Now()
	sweep := func(after time.Duration) {
		t.Helper()
		if err := j.sweep(t.Context(), began.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	report := func(id string, journalled int64) {
		put(t, st, schema.ServersPrefix+id, schema.Server{ID: id, Role: "serve", Journalled: journalled})
	}
	first := put(t, st, audit.Prefix+"1", audit.Record{})
	second := put(t, st, audit.Prefix+"2", audit.Record{})
	sweep(0)
	if n := left(t, st); n != 2 {
		t.Fatalf("%d records before any server reports, want 2", n)
	}
	report("a", second)
	report("b", first)
	put(t, st, schema.ServersPrefix+"x", schema.Server{ID: "x", Role: "xapi"})
	sweep(time.Second)
	if n := left(t, st); n != 1 {
		t.Fatalf("%d records while server b lacks one, want 1", n)
	}
	report("b", second)
	sweep(2 * time.Second)
	if n := left(t, st); n != 0 {
		t.Fatalf("%d records that all have, want 0", n)
	}
	put(t, st, audit.Prefix+"3", audit.Record{})
	sweep(time.Minute)
	sweep(time.Minute + mostWait - time.Second)
	if n := left(t, st); n != 1 {
		t.Fatalf("%d records within ten minutes, want 1", n)
	}
	sweep(time.Minute + mostWait)
	if n := left(t, st); n != 0 {
		t.Fatalf("%d records after ten minutes, want 0", n)
	}
}
