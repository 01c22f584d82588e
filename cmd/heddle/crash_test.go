package main

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"heddle/internal/nettest"
	"heddle/internal/store"
)

// openData opens the embedded store of a server that runs.
func openData(t *testing.T, data string) *store.Etcd {
	t.Helper()
	st, err := store.OpenDataDir(t.Context(), data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// A server with an embedded store is killed under load, again and again, each time after another number of calls: it
// comes back by itself with everything that it acknowledged, and nothing half-made.
func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	ns := nettest.ForTest(t).MustNamespace(t, "serve")
	data := t.TempDir()
	book := newLedger()
	for round, calls := range []int64{13, 40, 71} {
		server := start(t, ns, serveAt("127.0.0.1", data)...)
		admin := login(t, ns, "127.0.0.1", data)
		if round == 0 {
			admin.unlimited(t)
		} else {
			book.check(t, admin)
			verify(t, openData(t, data))
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for w := range 4 {
			running.Go(func() { book.load(ctx, t, w, admin) })
		}
		book.waitFor(t, calls)
		server.kill()
		stop()
		running.Wait()
	}
	start(t, ns, serveAt("127.0.0.1", data)...)
	book.check(t, login(t, ns, "127.0.0.1", data))
	verify(t, openData(t, data))
}
