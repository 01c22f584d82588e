package main

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
)

// mixedServers are two servers over one cluster, each of this release or of the earlier one, whose
// sockets outlive them.
type mixedServers struct {
	*site
	t       *testing.T
	earlier binary
	etcd    *storetest.Cluster
	args    [2][]string
	passed  [2]*sockets
	run     [2]*running
}

// newMixedServers starts both as the earlier release.
func newMixedServers(t *testing.T, earlier binary) *mixedServers {
	t.Helper()
	s := &mixedServers{site: newSite(t), t: t, earlier: earlier}
	s.etcd = s.startCluster(t)
	s.args[0] = s.serveOver(s.etcd)
	s.args[1] = serveAt("127.0.0.2", t.TempDir(), flags(s.etcd)...)
	for i, address := range []string{"127.0.0.1", "127.0.0.2"} {
		s.passed[i] = listenFor(t, s.ctl, address+":5000", address+":9696")
		s.start(i, true)
	}
	return s
}

func (s *mixedServers) start(i int, earlier bool) {
	s.t.Helper()
	cmd := heddle(s.args[i]...)
	if earlier {
		cmd = s.earlier.command(s.args[i]...)
	}
	s.run[i] = launchAs(s.t, s.ctl, s.passed[i].passedTo(cmd), s.args[i]...)
	s.run[i].waitReady(s.t)
}

// inTurn sends each request to the next of some servers.
type inTurn struct {
	http.RoundTripper
	servers []string // host:port
	sent    atomic.Int64
}

func (r *inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	next := req.Clone(req.Context())
	next.URL.Host = r.servers[int(r.sent.Add(1))%len(r.servers)]
	return r.RoundTripper.RoundTrip(next)
}

// upgradeServers upgrades the servers of a cluster one by one, and goes back, twice, while clients
// create, change and delete through both in turn. No call fails but those that a killed server had
// begun, nothing that was acknowledged is lost, and the earlier release leaves alone what this one
// has added to an object.
func upgradeServers(t *testing.T, earlier binary) {
	s := newMixedServers(t, earlier)
	h := s.addHost(t, "h1", "192.0.2.11")
	args := h.agent("--join", s.token(t), "--join-plain-http")
	agent := launchAs(t, h.ns, earlier.command(args...), args...)
	agent.waitReady(t)

	admin := login(t, s.ctl, "127.0.0.1", s.data)
	admin.unlimited(t)
	servers := [2]*client{admin, newClient(s.ctl, "127.0.0.2", admin.token)}
	both := newClient(s.ctl, "127.0.0.1", admin.token)
	both.http.Transport = &inTurn{RoundTripper: both.http.Transport, servers: []string{"127.0.0.1:9696", "127.0.0.2:9696"}}
	book := newLedger()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { book.load(ctx, t, w, both) })
	}
	st := openCluster(t, s.etcd)
	for i, step := range []struct {
		server  int
		earlier bool
		crash   bool
	}{
		{server: 1},
		{server: 0},
		{server: 0, earlier: true},
		{server: 1, earlier: true},
		{server: 0, crash: true},
		{server: 1},
		{server: 1, earlier: true, crash: true},
		{server: 0, earlier: true},
		{server: 1},
		{server: 0},
	} {
		failed := book.failed.Load()
		if step.crash {
			s.run[step.server].kill()
		} else {
			s.run[step.server].stop(t)
		}
		s.start(step.server, step.earlier)
		book.waitFor(t, 40)
		if failed = book.failed.Load() - failed; failed > 0 && !step.crash {
			t.Errorf("%d calls failed", failed)
		}
		if i == 0 {
			keepsMembers(t, st, servers[0], servers[1], h.name)
		}
		if t.Failed() {
			t.Fatalf("when server %d became one of the earlier release (%t), by a crash (%t)", step.server, step.earlier, step.crash)
		}
	}
	stop()
	workers.Wait()
	t.Logf("%d calls, %d failed by crashes", book.calls.Load(), book.failed.Load())
	for _, c := range servers {
		book.check(t, c)
	}
	verify(t, st)
	agent.stop(t)
}

// keepsMembers has a server of this release add an object with a member that the earlier one does
// not know to a port, and one of the earlier release rename the port: the member stays.
func keepsMembers(t *testing.T, st store.Store, older, newer *client, host string) {
	t.Helper()
	network := newer.mustCreate(t, "network", map[string]any{"name": "of both"})
	id := newer.mustCreate(t, "port", map[string]any{"network_id": network.ID, "device_owner": "compute:nova"}).ID
	if err := newer.call(t.Context(), http.MethodPost, "/v2.0/ports/"+id+"/bindings", map[string]any{"binding": map[string]any{"host": host}}, nil); err != nil {
		t.Fatal(err)
	}
	stored := func() (p neutron.Port) {
		kv, err := st.Get(t.Context(), schema.Ports.Key(id))
		if err == nil {
			err = json.Unmarshal(kv.Value, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := stored().OtherBindings
	if len(before) != 1 || before[0].BoundHostID == "" {
		t.Fatalf("the bindings of this release are %+v, want one with the host's id", before)
	}
	if err := older.call(t.Context(), http.MethodPut, "/v2.0/ports/"+id, map[string]any{"port": map[string]any{"name": "renamed"}}, nil); err != nil {
		t.Fatal(err)
	}
	if after := stored(); after.Name != "renamed" || !reflect.DeepEqual(after.OtherBindings, before) {
		t.Errorf("the earlier release left a port %q with the bindings %+v, want %+v", after.Name, after.OtherBindings, before)
	}
}
