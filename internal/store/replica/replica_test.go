package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
	"heddle/internal/telemetry"
)

// words are records that are their own text, indexed by each of their words.
func words(name, prefix string) snapshot.Source {
	return snapshot.Source{
		Name:   name,
		Prefix: prefix,
		Decode: func(_ string, value []byte) (any, error) {
			if strings.HasPrefix(string(value), "!") {
				return nil, errors.New("bad")
			}
			return string(value), nil
		},
		Indexes: []snapshot.Index{{Name: "word", Values: func(r any) []string { return strings.Fields(r.(string)) }}},
	}
}

// run starts the replica and stops it at the end of the test.
func run(t testing.TB, r *replica.Replica) {
	t.Helper()
	t.Cleanup(start(t, r))
}

// start starts the replica; stop stops it.
func start(t testing.TB, r *replica.Replica) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("run:", err)
		}
	}
}

func each(t *testing.T, body func(t *testing.T, s store.Store, compact func(rev int64))) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := store.NewMemory()
		body(t, s, s.Compact)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		s := embedded(t, t.TempDir())
		body(t, s, func(rev int64) {
			if err := s.Compact(t.Context(), rev); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func embedded(t testing.TB, dir string) *backend.Etcd {
	t.Helper()
	s, err := backend.Open(t.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: dir, Tick: 10 * time.Millisecond, NoFsync: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(key, value string) store.Op { return store.Op{Key: key, Value: []byte(value)} }

func commit(t testing.TB, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), nil, ops)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// text is the snapshot's tables as text: "id=record".
func text(s *snapshot.Snapshot, tables ...string) string {
	var b strings.Builder
	for _, name := range tables {
		fmt.Fprintf(&b, "%s:", name)
		for e := range s.All(name) {
			fmt.Fprintf(&b, " %s=%v", e.ID, e.Record)
		}
		b.WriteString("; ")
	}
	return b.String()
}

func at(t testing.TB, r *replica.Replica, rev int64) *snapshot.Snapshot {
	t.Helper()
	s, err := r.At(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ids(s *snapshot.Snapshot, table, word string) []string {
	var out []string
	for e := range s.By(table, "word", word) {
		out = append(out, e.ID)
	}
	return out
}

func TestFollows(t *testing.T) {
	for _, watch := range []string{"", "/"} {
		t.Run("watch="+watch, func(t *testing.T) {
			each(t, func(t *testing.T, s store.Store, _ func(int64)) {
				commit(t, s, put("/a/1", "red fish"), put("/b/1", "blue"), put("/other", "x"))
				r := replica.New(s, replica.Options{Watch: watch}, words("a", "/a/"), words("b", "/b/"))
				if got := r.Snapshot(); got.Revision != 0 || got.Len("a") != 0 {
					t.Errorf("before Run: revision %d with %d records, want an empty snapshot", got.Revision, got.Len("a"))
				}
				run(t, r)
				<-r.Ready()
				first := r.Snapshot()
				rev := commit(t, s, put("/a/2", "green fish"), put("/b/1", "grey"))
				second := at(t, r, rev)
				third := at(t, r, commit(t, s, store.Op{Key: "/a/1", Delete: true}, put("/a/2", "green bird")))
				for i, tt := range []struct {
					s    *snapshot.Snapshot
					text string
					fish []string
				}{
					{first, "a: 1=red fish; b: 1=blue; ", []string{"1"}},
					{second, "a: 1=red fish 2=green fish; b: 1=grey; ", []string{"1", "2"}},
					{third, "a: 2=green bird; b: 1=grey; ", nil},
				} {
					if diff := cmp.Diff(tt.text, text(tt.s, "a", "b")); diff != "" {
						t.Errorf("snapshot %d: %s", i, diff)
					}
					if diff := cmp.Diff(tt.fish, ids(tt.s, "a", "fish")); diff != "" || tt.s.CountBy("a", "word", "fish") != len(tt.fish) {
						t.Errorf("snapshot %d: fish, of which %d: %s", i, tt.s.CountBy("a", "word", "fish"), diff)
					}
				}
				if e := third.Get("a", "2"); e.Create != rev || e.Mod != third.Revision {
					t.Errorf("record of revisions %d, %d; want %d, %d", e.Create, e.Mod, rev, third.Revision)
				}
			})
		})
	}
}

// A revision that touched only other prefixes must not keep readers waiting.
func TestFreshAfterForeignCommit(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func(int64)) {
		r := replica.New(s, replica.Options{}, words("a", "/a/"), words("b", "/b/"))
		run(t, r)
		for range 10 {
			rev := commit(t, s, put("/other", "x"))
			got, err := r.Fresh(t.Context())
			if err != nil || got.Revision < rev {
				t.Fatalf("fresh snapshot: %v, %v; want revision %d", got, err, rev)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := r.At(ctx, 1<<40); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a revision that never comes: %v", err)
		}
	})
}

func TestOnChange(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func(int64)) {
		commit(t, s, put("/a/1", "one"), put("/a/2", "two"))
		r := replica.New(s, replica.Options{}, words("a", "/a/"))
		var got []string
		done := make(chan struct{})
		r.OnChange(func(u snapshot.Update) {
			for _, c := range u.Changed {
				got = append(got, fmt.Sprintf("%s/%s %v→%v", c.Source, c.ID, c.Old, c.New))
			}
			if u.Next.Get("a", "end") != nil {
				close(done)
			}
		})
		run(t, r)
		<-r.Ready()
		commit(t, s, put("/a/1", "uno"), store.Op{Key: "/a/2", Delete: true}, put("/a/3", "!"))
		commit(t, s, put("/a/3", "three"))
		commit(t, s, put("/a/3", "!"))
		commit(t, s, put("/a/end", ""))
		<-done
		slices.Sort(got[:2]) // the listing has no order
		// Changes close together may come as one.
		want := "a/1 <nil>→one a/2 <nil>→two a/1 one→uno a/2 two→<nil> a/3 <nil>→three a/3 three→<nil> a/end <nil>→"
		coalesced := strings.Replace(want, " a/3 <nil>→three a/3 three→<nil>", "", 1)
		if text := strings.Join(got, " "); text != want && text != coalesced {
			t.Errorf("changes:\n%s\nwant:\n%s", text, want)
		}
	})
}

// Hosts choose keys and values: of a long key the log has the beginning. Each table has limits of
// its own on how often it is logged.
func TestLogOfInvalidObjects(t *testing.T) {
	t.Parallel()
	s := store.NewMemory()
	var log strings.Builder
	limited := telemetry.LimitWarnings(slog.NewTextHandler(&log, nil))
	r := replica.New(s, replica.Options{Log: slog.New(limited)}, words("a", "/a/"), words("b", "/b/"))
	stop := start(t, r)
	<-r.Ready()
	var rev int64
	for range 200 {
		rev = commit(t, s, put("/a/"+strings.Repeat("\x00", 900_000), "!"))
		if _, err := r.At(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
	}
	rev = commit(t, s, put("/b/1", "!"))
	if _, err := r.At(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	stop()
	if text := log.String(); len(text) > 100_000 || !strings.Contains(text, "(900003 bytes)") || !strings.Contains(text, "key=/b/1") {
		t.Errorf("the log has %d bytes, want 100000 at most, the length of the long key, and the key of the other table: %.2000s", len(text), text)
	}
}

// After compaction behind its back the replica lists anew and tells only what differs.
func TestResumesAfterCompaction(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, compact func(int64)) {
		for i := range 100 {
			commit(t, s, put(fmt.Sprintf("/a/%d", i), "same"))
		}
		cut := newCuttable(s)
		r := replica.New(cut, replica.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, words("a", "/a/"), words("b", "/b/"))
		updates := make(chan snapshot.Update, 10)
		r.OnChange(func(u snapshot.Update) { updates <- u })
		run(t, r)
		if u := <-updates; len(u.Changed) != 100 {
			t.Fatalf("first update has %d changes, want 100", len(u.Changed))
		}
		before := r.Snapshot().Get("a", "5")
		cut.cut()
		commit(t, s, put("/a/1", "other"))
		commit(t, s, store.Op{Key: "/a/2", Delete: true}, put("/b/9", "new"))
		rev := commit(t, s, put("/elsewhere", ""))
		compact(rev)
		if got := r.Snapshot().Get("a", "1").Record; got != "same" {
			t.Errorf("while the store is away the snapshot says %q, want what it was", got)
		}
		cut.mend()
		u := <-updates
		var got []string
		for _, c := range u.Changed {
			got = append(got, fmt.Sprintf("%s/%s %v→%v", c.Source, c.ID, c.Old, c.New))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a/1 same→other", "a/2 same→<nil>", "b/9 <nil>→new"}, got); diff != "" {
			t.Error(diff)
		}
		if r.Snapshot().Get("a", "5") != before {
			t.Error("what did not change was read again")
		}
	})
}

// cuttable is a store whose watches can be cut off; new ones then wait until it is mended.
type cuttable struct {
	store.Store
	mu     sync.Mutex
	away   context.Context // ends when the store is cut off
	cutOff context.CancelFunc
	back   chan struct{} // closed when watches can be had
}

func newCuttable(s store.Store) *cuttable {
	c := &cuttable{Store: s, back: make(chan struct{})}
	c.away, c.cutOff = context.WithCancel(context.Background())
	close(c.back)
	return c
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back = make(chan struct{})
	c.cutOff()
}

func (c *cuttable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away, c.cutOff = context.WithCancel(context.Background())
	close(c.back)
}

func (c *cuttable) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan store.Change, func() error) {
	c.mu.Lock()
	back := c.back
	c.mu.Unlock()
	<-back
	c.mu.Lock()
	away := c.away
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(away, cancel)
	changes, failed := c.Store.Watch(ctx, from, prefixes...)
	return changes, func() error {
		if !stop() {
			return store.ErrUnavailable
		}
		return failed()
	}
}
