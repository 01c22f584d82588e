package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// openData opens the embedded store of a server that runs.
func openData(t *testing.T, data string) *backend.Etcd {
	t.Helper()
	st, err := backend.OpenDataDir(t.Context(), backend.Embedded{DataDir: data}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// What the tests of crashes rely on: that verify sees what is half-made.
func TestVerifySees(t *testing.T) {
	t.Parallel()
	const id = "b0000000-0000-4000-8000-000000000001"
	network := `{"id":"` + id + `","name":"blue"}`
	bundle := `{"owner":{"Kind":"network","ID":"` + id + `"}}`
	for _, test := range []struct {
		name string
		keys map[string]string
		want string
	}{
		{"whole", map[string]string{"/heddle/neutron/networks/" + id: network, "/heddle/topology/network/" + id: bundle}, ""},
		{"not translated", map[string]string{"/heddle/neutron/networks/" + id: network}, "is there without /heddle/topology/network/" + id},
		{"left over", map[string]string{"/heddle/topology/network/" + id: bundle}, "is there without /heddle/neutron/networks/" + id},
		{"unique key left over", map[string]string{"/heddle/unique/port/mac/x": "y"}, "is left over"},
	} {
		st := store.NewMemory()
		for key, value := range test.keys {
			if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(value)}}); err != nil {
				t.Fatal(err)
			}
		}
		err := verifyStore(t.Context(), st)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// A server with an embedded store is killed under load, again and again, each time after another
// number of calls, and once while it starts: it comes back by itself with everything that it
// acknowledged, and nothing half-made.
func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "serve")
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
	launch(t, ns, serveAt("127.0.0.1", data)...).kill()
	starting := launch(t, ns, serveAt("127.0.0.1", data)...)
	starting.waitFor(t, "/healthz", http.StatusOK, "ok") // the store is open, the APIs need not be
	starting.kill()
	start(t, ns, serveAt("127.0.0.1", data)...)
	book.check(t, login(t, ns, "127.0.0.1", data))
	verify(t, openData(t, data))
}
