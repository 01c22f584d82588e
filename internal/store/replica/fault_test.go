package replica_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/replica"
)

// serverAt opens the embedded store in dir, serving on addr.
func serverAt(t *testing.T, dir, addr string) *backend.Etcd {
	t.Helper()
	o := backend.Embedded{DataDir: dir, Listen: addr, Tick: 10 * time.Millisecond, NoFsync: true}
	s, err := backend.Open(t.Context(), backend.Options{Embedded: &o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// With the server away a replica keeps its snapshot; when the server is back it catches up, also
// when what it missed was compacted meanwhile, and also when the store was restored from a backup.
func TestServerAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serverAt(t, dir, "127.0.0.1:0")
	addr := server.Endpoint()
	agent, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{addr}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	r := replica.New(agent, replica.Options{}, words("a", "/a/"), words("b", "/b/"))
	run(t, r)
	at(t, r, commit(t, server, put("/a/1", "one"), put("/b/1", "one")))

	for round, away := range []func(offline *backend.Etcd) int64{
		func(s *backend.Etcd) int64 { return commit(t, s, put("/a/1", "two")) },
		func(s *backend.Etcd) int64 {
			commit(t, s, put("/a/2", "new"), store.Op{Key: "/b/1", Delete: true})
			rev := commit(t, s, put("/a/1", "three"))
			if err := s.Compact(t.Context(), rev); err != nil {
				t.Fatal(err)
			}
			return rev
		},
	} {
		before := text(r.Snapshot(), "a", "b")
		server.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := r.Fresh(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("round %d: fresh snapshot without the server: %v, want ErrUnavailable", round, err)
		}
		if _, err := r.Lag(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("round %d: lag without the server: %v, want ErrUnavailable", round, err)
		}
		cancel()
		if now := text(r.Snapshot(), "a", "b"); now != before {
			t.Errorf("round %d: without the server the snapshot became %s", round, now)
		}
		offline := serverAt(t, dir, "")
		rev := away(offline)
		offline.Close()
		server = serverAt(t, dir, addr)
		at(t, r, rev)
		want := []string{"a: 1=two; b: 1=one; ", "a: 1=three 2=new; b:; "}[round]
		if got := text(r.Snapshot(), "a", "b"); got != want {
			t.Errorf("round %d: %s, want %s", round, got, want)
		}
		if lag, err := r.Lag(t.Context()); lag != 0 || err != nil || !r.Following() {
			t.Errorf("round %d: lag %d, %v, following %v", round, lag, err, r.Following())
		}
	}
	// Changes go on arriving.
	for i := range 3 {
		at(t, r, commit(t, server, put("/a/1", fmt.Sprint(i))))
	}
	if got := r.Snapshot().Get("a", "1").Record; got != "2" {
		t.Errorf("after all that /a/1 is %q, want 2", got)
	}
}
