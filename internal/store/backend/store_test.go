package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"

	"heddle/internal/store"
)

// each runs the same body over every implementation.
func each(t *testing.T, body func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := store.NewMemory()
		t.Cleanup(func() { s.Close() })
		body(t, s)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		body(t, openTest(t, Embedded{}))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		server := openTest(t, Embedded{Listen: "127.0.0.1:0"})
		s, err := Open(t.Context(), Options{Cluster: &Cluster{Endpoints: []string{server.Endpoint()}}, Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		body(t, s)
	})
}

// openTest starts an embedded store that is fast and forgets with the machine.
func openTest(t testing.TB, o Embedded) *Etcd {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	o.Tick, o.NoFsync = 10*time.Millisecond, true
	s, err := Open(t.Context(), Options{Embedded: &o, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// testLog shows what went wrong with a failed test.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func put(key, value string) store.Op { return store.Op{Key: key, Value: []byte(value)} }

// mustCommit commits without conditions and returns the revision.
func mustCommit(t testing.TB, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), nil, ops)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestGetAndList(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()
		if _, err := s.Get(ctx, "/a"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("get of a missing key: %v, want ErrNotFound", err)
		}
		r1 := mustCommit(t, s, put("/a/1", "one"), put("/a/2", "two"), put("/b", "other"))
		r2 := mustCommit(t, s, put("/a/2", "zwei"))
		if r2 != r1+1 {
			t.Errorf("revisions %d, %d: want one per commit", r1, r2)
		}
		got, err := s.Get(ctx, "/a/2")
		want := store.KV{Key: "/a/2", Value: []byte("zwei"), CreateRevision: r1, ModRevision: r2}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("get: %v %s", err, diff)
		}
		kvs, rev, err := s.List(ctx, "/a/")
		if err != nil || rev != r2 {
			t.Fatalf("list: revision %d, %v; want %d", rev, err, r2)
		}
		if diff := cmp.Diff([]store.KV{{Key: "/a/1", Value: []byte("one"), CreateRevision: r1, ModRevision: r1}, want}, kvs); diff != "" {
			t.Error("list:", diff)
		}
		if all, _, err := s.List(ctx, ""); err != nil || len(all) != 3 {
			t.Errorf("list of everything: %d keys, %v; want 3", len(all), err)
		}
		if rev, err := s.Revision(ctx); err != nil || rev != r2 {
			t.Errorf("revision: %d, %v; want %d", rev, err, r2)
		}
	})
}

func TestListInPages(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		const n = 2*listPage + 7
		for from := 0; from < n; from += 5000 {
			var ops []store.Op
			for i := from; i < min(n, from+5000); i++ {
				ops = append(ops, put(fmt.Sprintf("/n/%06d", i), "x"))
			}
			mustCommit(t, s, ops...)
		}
		kvs, _, err := s.List(t.Context(), "/n/")
		if err != nil || len(kvs) != n {
			t.Fatalf("%d keys, %v; want %d", len(kvs), err, n)
		}
		for i, kv := range kvs {
			if kv.Key != fmt.Sprintf("/n/%06d", i) {
				t.Fatalf("key %d is %s", i, kv.Key)
			}
		}
	})
}

func TestCommitConditions(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()
		r1 := mustCommit(t, s, put("/k", "1"), put("/p/a", "1"))
		r2 := mustCommit(t, s, put("/k", "2"))
		tests := []struct {
			name string
			cond store.Cond
			want bool
		}{
			{"mod", store.Cond{Key: "/k", Mod: r2}, true},
			{"older mod", store.Cond{Key: "/k", Mod: r1}, false},
			{"missing", store.Cond{Key: "/none"}, true},
			{"not missing", store.Cond{Key: "/k"}, false},
			{"create", store.Cond{Key: "/k", Create: r1}, true},
			{"other create", store.Cond{Key: "/k", Create: r2}, false},
			{"create of a missing key", store.Cond{Key: "/none", Create: r1}, false},
			{"prefix unchanged", store.Cond{Prefix: "/p/", Mod: r1}, true},
			{"prefix changed", store.Cond{Prefix: "/p/", Mod: r1 - 1}, false},
			{"prefix empty", store.Cond{Prefix: "/q/", Mod: r1}, true},
		}
		for _, tt := range tests {
			rev, err := s.Commit(ctx, []store.Cond{tt.cond}, []store.Op{put("/out/"+tt.name, "")})
			if got := err == nil; got != tt.want || (err != nil && !errors.Is(err, store.ErrConflict)) {
				t.Errorf("%s: %v, want it to hold: %v", tt.name, err, tt.want)
			}
			if now, _ := s.Revision(ctx); rev != now {
				t.Errorf("%s: revision %d, want %d", tt.name, rev, now)
			}
		}
		if kvs, _, _ := s.List(ctx, "/out/"); len(kvs) != 5 {
			t.Errorf("%d of the commits wrote, want 5", len(kvs))
		}
	})
}

func TestCommitOps(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()
		mustCommit(t, s, put("/d/1", ""), put("/d/2", ""), put("/e", ""))
		mustCommit(t, s, store.Op{Key: "/d/", DeletePrefix: true}, store.Op{Key: "/e", Delete: true}, store.Op{Key: "/e", Delete: true}, put("/f", ""))
		kvs, rev, _ := s.List(ctx, "/")
		if len(kvs) != 1 || kvs[0].Key != "/f" {
			t.Errorf("left: %v, want /f alone", kvs)
		}
		if got := mustCommit(t, s, store.Op{Key: "/none", Delete: true}); got != rev {
			t.Errorf("deleting nothing made revision %d after %d", got, rev)
		}
		for name, ops := range map[string][]store.Op{
			"put twice":            {put("/x", "1"), put("/x", "2")},
			"put and delete":       {put("/x", "1"), {Key: "/x", Delete: true}},
			"put in a gone prefix": {put("/x/y", "1"), {Key: "/x/", DeletePrefix: true}},
		} {
			if _, err := s.Commit(ctx, nil, ops); err == nil || errors.Is(err, store.ErrConflict) {
				t.Errorf("%s: %v, want it refused", name, err)
			}
		}
	})
}

// TestLargeCommit makes a commit of the size up to which Heddle makes any: larger cascades go in
// several. etcd's limit of a request, some seconds, is for far more of them.
func TestLargeCommit(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		var ops []store.Op
		for i := range 4096 {
			ops = append(ops, put(fmt.Sprintf("/large/%05d", i), "some two hundred bytes would be usual"))
		}
		rev := mustCommit(t, s, ops...)
		changes, _ := s.Watch(t.Context(), rev-1, "/large/")
		if c := <-changes; c.Revision != rev || len(c.Events) != len(ops) {
			t.Errorf("watched revision %d with %d events, want %d with all %d", c.Revision, len(c.Events), rev, len(ops))
		}
	})
}

// collect reads changes until revision upTo and returns the events as text, with a bar between
// revisions.
func collect(t *testing.T, changes <-chan store.Change, failed func() error, upTo int64) []string {
	t.Helper()
	var out []string
	for c := range changes {
		last := int64(0)
		for _, e := range c.Events {
			if last != 0 && e.ModRevision != last {
				out = append(out, "|")
			}
			last = e.ModRevision
			if e.Deleted {
				out = append(out, "-"+e.Key)
			} else {
				out = append(out, e.Key+"="+string(e.Value))
			}
		}
		if len(c.Events) > 0 {
			out = append(out, "|")
		}
		if c.Revision >= upTo {
			return out
		}
	}
	t.Fatalf("watch ended before revision %d: %v; so far %q", upTo, failed(), out)
	return nil
}

func TestWatch(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		start := mustCommit(t, s, put("/w/0", "before"))
		mustCommit(t, s, put("/w/1", "a"), put("/x/1", "b"), put("/other", "no"))
		changes, failed := s.Watch(t.Context(), start, "/w/", "/x/")
		mustCommit(t, s, put("/x/1", "c"))
		last := mustCommit(t, s, store.Op{Key: "/w/", DeletePrefix: true}, put("/x/2", "d"))
		want := []string{"/w/1=a", "/x/1=b", "|", "/x/1=c", "|", "-/w/0", "-/w/1", "/x/2=d", "|"}
		if diff := cmp.Diff(want, collect(t, changes, failed, last)); diff != "" {
			t.Error(diff)
		}
		foreign := mustCommit(t, s, put("/other", "again"))
		s.Nudge(foreign)
		if got := collect(t, changes, failed, foreign); len(got) != 0 {
			t.Errorf("events of another prefix: %q", got)
		}
	})
}

// Revisions stay whole across prefixes, whatever the order in which etcd's watchers speak.
func TestWatchWholeRevisions(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		start, _ := s.Revision(t.Context())
		changes, failed := s.Watch(t.Context(), start, "/p/", "/q/", "/r/")
		const n = 200
		done := make(chan int64)
		go func() {
			var rev int64
			for i := range n {
				v := fmt.Sprint(i)
				rev, _ = s.Commit(context.Background(), nil, []store.Op{put("/p/"+v, v), put("/q/"+v, v), put("/r/"+v, v)})
			}
			done <- rev
		}()
		seen := 0
		for c := range changes {
			if len(c.Events)%3 != 0 {
				t.Fatalf("%d events up to revision %d: want three for each", len(c.Events), c.Revision)
			}
			if seen += len(c.Events) / 3; seen == n {
				<-done
				return
			}
		}
		t.Fatal("watch ended:", failed())
	})
}

func TestWatchEnds(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		changes, failed := s.Watch(ctx, mustCommit(t, s, put("/w", "")), "/w", "/v")
		cancel()
		for range changes {
		}
		if err := failed(); err != nil {
			t.Errorf("a stopped watch fails with %v", err)
		}
		changes, failed = s.Watch(t.Context(), 1, "/w")
		<-changes
		s.Close()
		for range changes {
		}
		if err := failed(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("watch of a closed store: %v, want ErrUnavailable", err)
		}
	})
}

func TestLease(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()
		l, err := s.Grant(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		rev := mustCommit(t, s, store.Op{Key: "/l/1", Lease: l}, store.Op{Key: "/l/2", Lease: l}, put("/l/3", ""))
		if kv, _ := s.Get(ctx, "/l/1"); kv.Lease != l {
			t.Errorf("key's lease is %d, want %d", kv.Lease, l)
		}
		mustCommit(t, s, put("/l/2", "no longer leased"))
		changes, failed := s.Watch(ctx, rev+1, "/l/")
		if diff := cmp.Diff([]string{"-/l/1", "|"}, collect(t, changes, failed, rev+2)); diff != "" {
			t.Error("at the lease's end:", diff)
		}
		if err := s.KeepAlive(ctx, l); !errors.Is(err, store.ErrLeaseGone) {
			t.Errorf("keeping a lease that is gone: %v", err)
		}
		if _, err := s.Commit(ctx, nil, []store.Op{{Key: "/l/4", Lease: l}}); !errors.Is(err, store.ErrLeaseGone) {
			t.Errorf("put under a lease that is gone: %v", err)
		}
		if err := s.Revoke(ctx, l); !errors.Is(err, store.ErrLeaseGone) {
			t.Errorf("revoking a lease that is gone: %v", err)
		}
	})
}

func TestKeepAliveAndRevoke(t *testing.T) {
	each(t, func(t *testing.T, s store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// The second lease's end proves that the first one would have ended too.
		kept, _ := s.Grant(ctx, time.Second)
		left, _ := s.Grant(ctx, time.Second)
		kept2 := make(chan error)
		go func() { kept2 <- s.KeepAlive(ctx, kept) }()
		rev := mustCommit(t, s, store.Op{Key: "/l/kept", Lease: kept}, store.Op{Key: "/l/left", Lease: left})
		changes, failed := s.Watch(ctx, rev, "/l/")
		if diff := cmp.Diff([]string{"-/l/left", "|"}, collect(t, changes, failed, rev+1)); diff != "" {
			t.Error(diff)
		}
		if err := s.Revoke(ctx, kept); err != nil {
			t.Error("revoke:", err)
		}
		if diff := cmp.Diff([]string{"-/l/kept", "|"}, collect(t, changes, failed, rev+2)); diff != "" {
			t.Error(diff)
		}
		if err := <-kept2; !errors.Is(err, store.ErrLeaseGone) {
			t.Errorf("keeping a revoked lease: %v, want ErrLeaseGone", err)
		}
	})
}

// A cluster with etcd's default limits is refused at the start, with the flag to set.
func TestLimitsOfACluster(t *testing.T) {
	t.Parallel()
	for flag, change := range map[string]func(*embed.Config){
		"--max-txn-ops":       func(c *embed.Config) { c.MaxTxnOps = embed.DefaultMaxTxnOps },
		"--max-request-bytes": func(c *embed.Config) { c.MaxRequestBytes = embed.DefaultMaxRequestBytes },
	} {
		o := Embedded{DataDir: t.TempDir(), Tick: 10 * time.Millisecond, NoFsync: true}
		config := o.config(testLog(t))
		change(config)
		m := &member{}
		if err := m.start(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		defer m.etcd.Close()
		cluster := &Cluster{Endpoints: []string{"unix://" + o.memberSocket()}}
		_, err := Open(t.Context(), Options{Cluster: cluster})
		if !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v: want ErrTooLarge with %s", err, flag)
		}
		cluster.SkipLimits = true
		s, err := Open(t.Context(), Options{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		large := make([]store.Op, 1000)
		for i := range large {
			large[i] = put(fmt.Sprintf("/large/%d", i), strings.Repeat("x", 3000))
		}
		if _, err := s.Commit(t.Context(), nil, large); !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), flag) {
			t.Errorf("large commit: %v: want ErrTooLarge with %s", err, flag)
		}
		s.Close()
	}
}

// Checking a cluster's limits, whether they suffice or not, proposes nothing to it: neither its
// revision nor its log moves.
func TestLimitsAreLearnedByReading(t *testing.T) {
	t.Parallel()
	for _, ops := range []uint{embed.DefaultMaxTxnOps, MaxTxnOps} {
		o := Embedded{DataDir: t.TempDir(), Tick: 10 * time.Millisecond, NoFsync: true}
		config := o.config(testLog(t))
		config.MaxTxnOps = ops
		m := &member{}
		if err := m.start(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		defer m.etcd.Close()
		cluster := &Cluster{Endpoints: []string{"unix://" + o.memberSocket()}, SkipLimits: true}
		s, err := Open(t.Context(), Options{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// The leader of a new cluster writes its version into the log, once.
		for m.etcd.Server.ClusterVersion() == nil {
			if err := t.Context().Err(); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		rev := mustCommit(t, s, put("/other", "program's"))
		before := m.etcd.Server.CommittedIndex()

		cluster.SkipLimits = false
		checked, err := Open(t.Context(), Options{Cluster: cluster})
		if tooSmall := ops < store.LeastTxnOps; tooSmall != errors.Is(err, store.ErrTooLarge) {
			t.Errorf("open over a cluster that allows %d operations: %v", ops, err)
		}
		if err == nil {
			defer checked.Close()
		}
		if after := m.etcd.Server.CommittedIndex(); after != before {
			t.Errorf("with %d operations allowed, the check put %d entries into the cluster's log", ops, after-before)
		}
		if now, err := s.Revision(t.Context()); err != nil || now != rev {
			t.Errorf("with %d operations allowed, the check moved the revision from %d to %d (%v)", ops, rev, now, err)
		}
	}
}

// A cluster that does not answer within the time there is for it is used unchecked: its servers
// start.
func TestBusyClusterIsNotRefused(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Listen: "127.0.0.1:0"})
	s, err := Open(t.Context(), Options{Cluster: &Cluster{Endpoints: []string{server.Endpoint()}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := s.checkLimits(late); err != nil {
		t.Errorf("check without an answer: %v, want none", err)
	}
}
