package replica_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/follow"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
	"heddle/internal/store/storetest"
)

// clusterAt connects to the store that listens at addr.
func clusterAt(t *testing.T, addr string) *backend.Etcd {
	t.Helper()
	s, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{addr}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A store that is restored to an older state at the same address, or replaced by another one, is
// noticed without a restart: the replica delivers the difference to what was known, and reads and
// writes go on in the new history.
func TestReplacedStore(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, older string) string{
		"restored to an older state": func(_ *testing.T, older string) string { return older },
		"replaced by an empty one":   func(t *testing.T, _ string) string { return t.TempDir() },
		"replaced by one that is ahead": func(t *testing.T, _ string) string {
			dir := t.TempDir()
			s := serverAt(t, dir, "")
			for range 100 {
				commit(t, s, put("/a/9", "of another store"))
			}
			s.Close()
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, older := t.TempDir(), filepath.Join(t.TempDir(), "older")
			server := serverAt(t, dir, "127.0.0.1:0")
			addr := server.Endpoint()
			commit(t, server, put("/a/1", "early"), put("/a/2", "early"))
			server.Close()
			if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			server = serverAt(t, dir, addr)
			agent := clusterAt(t, addr)
			// Nothing but the lost connection makes the replica look.
			r := replica.New(agent, replica.Options{CheckEvery: time.Hour}, words("a", "/a/"))
			updates := make(chan snapshot.Update, 1000)
			r.OnChange(func(u snapshot.Update) { updates <- u })
			run(t, r)
			for range 20 {
				at(t, r, commit(t, server, put("/a/1", "late"), put("/a/3", "late")))
			}
			db := records.NewDB(agent, r)
			server.Close()

			server = serverAt(t, replace(t, older), addr)
			var u snapshot.Update
			for u = range updates {
				if u.Next.History != 0 {
					break
				}
			}
			if !u.Diverged() || u.Next.Version() <= u.Prev.Version() {
				t.Errorf("update from version %d to version %d, diverged %v", u.Prev.Version(), u.Next.Version(), u.Diverged())
			}
			kvs, _, err := server.List(t.Context(), "/a/")
			if err != nil {
				t.Fatal(err)
			}
			want := "a:"
			for _, kv := range kvs {
				want += " " + kv.Key[len("/a/"):] + "=" + string(kv.Value)
			}
			want += "; "
			if got := text(r.Snapshot(), "a"); got != want {
				t.Errorf("the replica has %s, the store %s", got, want)
			}
			// What differs is delivered, deletions too.
			for id, gone := range map[string]bool{"3": true, "1": want == "a:; "} {
				i := slices.IndexFunc(u.Changed, func(c snapshot.Changed) bool { return c.ID == id })
				if i < 0 || (u.Changed[i].New == nil) != (gone || r.Snapshot().Get("a", id) == nil) {
					t.Errorf("record %s is not among the changes %v as it should be", id, u.Changed)
				}
			}
			at(t, r, commit(t, server, put("/a/4", "after")))
			if snap, err := db.View(t.Context()); err != nil {
				t.Errorf("read: %v", err)
			} else if snap == nil || r.Snapshot().Get("a", "4").Record != "after" {
				t.Errorf("read: %s", text(r.Snapshot(), "a"))
			}
		})
	}
}

// While a replaced store was not noticed yet, readers that insist on fresh data get an error
// instead of what is over.
func TestReplacedStoreReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serverAt(t, dir, "127.0.0.1:0")
	addr := server.Endpoint()
	agent := clusterAt(t, addr)
	watched := &deaf{Etcd: agent}
	r := replica.New(watched, replica.Options{CheckEvery: time.Hour}, words("a", "/a/"))
	updates := make(chan snapshot.Update, 1000)
	r.OnChange(func(u snapshot.Update) { updates <- u })
	run(t, r)
	for range 20 {
		at(t, r, commit(t, server, put("/a/1", "late")))
	}
	server.Close()
	serverAt(t, t.TempDir(), addr)
	if _, err := r.Lag(t.Context()); err == nil && text(r.Snapshot(), "a") == "a: 1=late; " {
		t.Error("lag 0 behind a store that has none of what the replica has")
	}
	for u := range updates { // it is noticed because Lag asked
		if u.Diverged() {
			break
		}
	}
	if lag, err := r.Lag(t.Context()); lag != 0 || err != nil {
		t.Errorf("lag %d, %v after the new store was listed", lag, err)
	}
	if got := text(r.Snapshot(), "a"); got != "a:; " {
		t.Errorf("lag 0 with %s, the store has nothing", got)
	}
}

// deaf is a store whose watches do not report a new connection.
type deaf struct{ *backend.Etcd }

func (d *deaf) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan store.Change, func() error) {
	changes, err := d.Etcd.Watch(ctx, from, prefixes...)
	out := make(chan store.Change)
	go func() {
		defer close(out)
		for c := range changes {
			if c.Reconnected {
				continue
			}
			select {
			case out <- c:
			case <-ctx.Done():
			}
		}
	}()
	return out, err
}

// A replica that starts while the store is away has what an earlier one last knew, says how old
// that is, and catches up.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	dir, snapshots := t.TempDir(), t.TempDir()
	journal := func() *follow.Journal { return follow.NewJournal(snapshots, "words", "h1") }
	server := serverAt(t, dir, "127.0.0.1:0")
	addr := server.Endpoint()
	agent := clusterAt(t, addr)
	first := replica.New(agent, replica.Options{Journal: journal()}, words("a", "/a/"), words("b", "/b/"))
	stop := start(t, first)
	commit(t, server, put("/a/1", "one"), put("/b/1", "one"))
	at(t, first, commit(t, server, put("/a/2", "two"), store.Op{Key: "/b/1", Delete: true}))
	if _, ok := first.Recalled(); ok {
		t.Error("a snapshot of the store counts as one from disk")
	}
	stop()
	server.Close()

	second := replica.New(agent, replica.Options{Journal: journal()}, words("a", "/a/"), words("b", "/b/"))
	run(t, second)
	<-second.Ready()
	if got, want := text(second.Snapshot(), "a", "b"), "a: 1=one 2=two; b:; "; got != want {
		t.Errorf("without the store %s, want %s", got, want)
	}
	if confirmed, ok := second.Recalled(); !ok || time.Since(confirmed) > time.Hour {
		t.Errorf("recalled %v, %v", confirmed, ok)
	}
	server = serverAt(t, dir, addr)
	at(t, second, commit(t, server, put("/a/1", "three")))
	if got, want := text(second.Snapshot(), "a", "b"), "a: 1=three 2=two; b:; "; got != want {
		t.Errorf("with the store back %s, want %s", got, want)
	}
	if _, ok := second.Recalled(); ok {
		t.Error("after catching up the snapshot still counts as one from disk")
	}
}

// Readers that ask for fresh data while others write do not take the store for one that went back.
func TestFreshUnderWrites(t *testing.T) {
	t.Parallel()
	st := &overtaking{Memory: store.NewMemory()}
	r := replica.New(st, replica.Options{}, words("a", "/a/"))
	run(t, r)
	at(t, r, commit(t, st.Memory, put("/a/1", "one")))
	st.meanwhile = func() { at(t, r, commit(t, st.Memory, put("/a/1", "two"))) }
	if _, err := r.Fresh(t.Context()); err != nil {
		t.Error("fresh:", err)
	}
	if _, err := r.Lag(t.Context()); err != nil {
		t.Error("lag:", err)
	}
}

// overtaking is a store in which another commit reaches the replica before the answer to a question
// for the revision.
type overtaking struct {
	*store.Memory
	meanwhile func()
}

func (o *overtaking) Revision(ctx context.Context) (int64, error) {
	rev, err := o.Memory.Revision(ctx)
	if o.meanwhile != nil {
		o.meanwhile()
	}
	return rev, err
}

// A store that lost its schema version is no older state of the one that was followed: what is
// known stays, and nothing is written, until a proper one is back.
func TestWipedStore(t *testing.T) {
	t.Parallel()
	single := storetest.StartSingle(t)
	agent, other := clusterAt(t, single.Endpoint), clusterAt(t, single.Endpoint)
	commit(t, other, put(store.SchemaKey, "1"), put("/a/1", "one"))
	agent.RequireSchema()
	r := replica.New(agent, replica.Options{CheckEvery: 10 * time.Millisecond, Journal: follow.NewJournal(t.TempDir(), "words", "h1")}, words("a", "/a/"))
	updates := make(chan snapshot.Update, 1000)
	r.OnChange(func(u snapshot.Update) { updates <- u })
	run(t, r)
	at(t, r, commit(t, other, put("/a/2", "two")))
	restore := single.Wipe(t)
	if err := netlab.Until(t.Context(), "the replica to see that the store was replaced", func() (bool, error) {
		_, err := r.Lag(t.Context())
		return errors.Is(err, store.ErrReplaced) && !r.Following(), nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Commit(t.Context(), nil, []store.Op{put("/a/3", "three")}); !errors.Is(err, store.ErrReplaced) || !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("commit: %v", err)
	}
	if _, err := agent.Grant(t.Context(), time.Minute); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("grant: %v", err)
	}
	if kvs, _, err := other.List(t.Context(), ""); err != nil || len(kvs) > 0 {
		t.Errorf("the wiped store has %v, %v", kvs, err)
	}
	// What others write into it is not delivered either.
	commit(t, other, put("/a/9", "of another"))
	if got, want := text(r.Snapshot(), "a"), "a: 1=one 2=two; "; got != want {
		t.Errorf("over a wiped store %s, want %s", got, want)
	}
	restore()
	if err := netlab.Until(t.Context(), "the replica to follow again", func() (bool, error) { return r.Following(), nil }); err != nil {
		t.Fatal(err)
	}
	rev, err := agent.Commit(t.Context(), nil, []store.Op{put("/a/3", "three")})
	if err != nil {
		t.Fatal(err)
	}
	at(t, r, rev)
	if got, want := text(r.Snapshot(), "a"), "a: 1=one 2=two 3=three; "; got != want {
		t.Errorf("with the store back %s, want %s", got, want)
	}
	for len(updates) > 0 {
		if u := <-updates; u.Diverged() {
			t.Errorf("diverged: %+v", u)
		}
	}
}
