package backend

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
)

// A server counts what hosts have anew when its cluster is restored to an older state.
func TestHostAccountsOfARestoredStore(t *testing.T) {
	t.Parallel()
	dir, older := t.TempDir(), filepath.Join(t.TempDir(), "older")
	put := func(s *Etcd, keys ...string) {
		t.Helper()
		for _, key := range keys {
			if _, err := s.Commit(t.Context(), nil, []store.Op{{Key: "/heddle/state/" + key, Value: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	server := openTest(t, Embedded{DataDir: dir, Listen: "127.0.0.1:0"})
	address := server.Endpoint()
	put(server, "h1/a", "h2/a")
	server.Close()
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	server = openTest(t, Embedded{DataDir: dir, Listen: address})
	cluster, err := Open(t.Context(), Options{Cluster: &Cluster{Endpoints: []string{address}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Close() })
	run(t, NewHostAccounts(cluster, testLog(t)))
	counts := func(h1, h2 int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l := cluster.ledger
		if err := netlab.Until(ctx, "the counts of keys", func() (bool, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.of("h1").keys == h1 && l.of("h2").keys == h2, nil
		}); err != nil {
			t.Fatalf("%v: want %d and %d", err, h1, h2)
		}
	}
	put(server, "h1/b", "h1/c", "h1/d")
	counts(4, 1)
	server.Close()
	server = openTest(t, Embedded{DataDir: older, Listen: address})
	counts(1, 1)
	put(server, "h2/b")
	counts(1, 2)
}
