package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/storetest"
)

// history returns the last changes, and in short those of keys of this test.
func history(t *testing.T, st store.Store) (h storeHistory, short string) {
	t.Helper()
	h, err := lastChanges(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range h.Changes {
		if _, key, ours := strings.Cut(c.Key, "/test/"); ours {
			short += c.Change + " " + key + "\n"
		}
	}
	return h, short
}

// TestLastChanges: of an empty store, of one with history, and of one that was compacted.
func TestLastChanges(t *testing.T) {
	t.Parallel()
	if h, short := history(t, store.NewMemory()); short != "" || h.Revision != 1 || h.Note != "" || h.Changes == nil {
		t.Errorf("an empty store: %+v", h)
	}
	st := storetest.Open(t, t.TempDir())
	commit := func(ops ...store.Op) int64 {
		t.Helper()
		rev, err := st.Commit(t.Context(), nil, ops)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	made := commit(store.Op{Key: "/heddle/test/a", Value: []byte(`{"updated_at": "2026-02-03T04:05:06Z", "secret": "marker"}`)}, store.Op{Key: "/calico/test/b", Value: []byte("marker")})
	commit(store.Op{Key: "/elsewhere/test/c"})
	last := commit(store.Op{Key: "/heddle/test/a", Value: []byte(`["marker"]`)}, store.Op{Key: "/calico/test/b", Delete: true})
	h, short := history(t, st)
	if want := "created b\ncreated a\ndeleted b\nchanged a\n"; short != want || h.Note != "" {
		t.Errorf("got %q, want %q; %s", short, want, h.Note)
	}
	if all := fmt.Sprintf("%+v", h); strings.Contains(all, "marker") || !strings.Contains(all, "2026-02-03 04:05:06") {
		t.Errorf("want the time and no value: %s", all)
	}
	if c := h.Changes[len(h.Changes)-1]; c.Revision != last || c.Created != made || !c.Time.IsZero() {
		t.Errorf("got %+v, want revision %d of a key that was created in %d", c, last, made)
	}

	var many []store.Op
	for i := range mostChanges {
		many = append(many, store.Op{Key: fmt.Sprintf("/heddle/test/many/%03d", i)})
	}
	commit(many...)
	last = commit(store.Op{Key: "/heddle/test/last"})
	if h, short := history(t, st); len(h.Changes) != mostChanges || strings.Contains(short, "many/000") || !strings.HasSuffix(short, "created last\n") || h.Revision < last {
		t.Errorf("%d changes at revision %d:\n%s", len(h.Changes), h.Revision, short)
	}

	for _, c := range []struct {
		upTo int64
		want string
	}{{last - 1, "created last\n"}, {last, ""}} {
		if err := st.Compact(t.Context(), c.upTo); err != nil {
			t.Fatal(err)
		}
		if h, short := history(t, st); short != c.want || h.Note != fmt.Sprintf("the store was compacted: what changed up to revision %d is forgotten", c.upTo) {
			t.Errorf("compacted up to %d: got %q with the note %q", c.upTo, short, h.Note)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := lastChanges(ended, st); err == nil {
		t.Error("no error after the end of the context")
	}
}
