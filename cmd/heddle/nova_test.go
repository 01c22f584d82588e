package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/netlab"
)

// novaURL is the URL of the tests' Nova.
const novaURL = "http://127.0.0.1:8774/v2.1"

// novaReceiver takes events as Nova's API os-server-external-events does.
type novaReceiver struct {
	mu      sync.Mutex
	servers map[string]bool // by id; false: no host has been chosen for it
	away    bool            // answers 503
	tokens  map[string]bool // that it was called with
	taken   []string        // events that were accepted: "NAME TAG"
	offered int             // requests
}

// startNova starts one in a namespace.
func startNova(t *testing.T, ns *netlab.Namespace) *novaReceiver {
	t.Helper()
	n := &novaReceiver{servers: map[string]bool{}, tokens: map[string]bool{}}
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:8774")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: n}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return n
}

type novaEvent struct {
	Name   string `json:"name"`
	Server string `json:"server_uuid"`
	Status string `json:"status"`
	Tag    string `json:"tag"`
	Code   int    `json:"code"`
}

func (n *novaReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offered++
	n.tokens[r.Header.Get("X-Auth-Token")] = true
	var body struct{ Events []novaEvent }
	known := []string{"network-vif-plugged", "network-vif-unplugged", "network-vif-deleted", "network-changed"}
	switch {
	case n.away:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.Method != http.MethodPost || r.URL.Path != "/v2.1/os-server-external-events":
		http.NotFound(w, r)
		return
	case json.NewDecoder(r.Body).Decode(&body) != nil || slices.ContainsFunc(body.Events, func(e novaEvent) bool {
		return !slices.Contains(known, e.Name) || uuid.Validate(e.Server) != nil || e.Status != "completed"
	}):
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status, accepted := http.StatusOK, 0
	for i := range body.Events {
		e := &body.Events[i]
		hosted, there := n.servers[e.Server]
		switch {
		case !there:
			e.Code, e.Status, status = http.StatusNotFound, "failed", http.StatusMultiStatus
		case !hosted:
			e.Code, e.Status, status = http.StatusUnprocessableEntity, "failed", http.StatusMultiStatus
		default:
			e.Code = http.StatusOK
			n.taken = append(n.taken, e.Name+" "+e.Tag)
			accepted++
		}
	}
	if accepted == 0 {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"itemNotFound": {"code": 404, "message": "No instances found for any event"}}`)
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (n *novaReceiver) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// wait waits until Nova has taken an event, and checks that it did so once.
func (n *novaReceiver) wait(t *testing.T, name string, port object) {
	t.Helper()
	event := name + " " + port.ID
	count := func() (times int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, e := range n.taken {
			if e == event {
				times++
			}
		}
		return times
	}
	within(t, event, func() bool { return count() > 0 })
	if times := count(); times != 1 {
		t.Errorf("%s was sent %d times", event, times)
	}
	n.set(func() { n.taken = slices.DeleteFunc(n.taken, func(e string) bool { return e == event }) })
}

// TestNova: Nova is notified of the ports of its servers, whether it was away or the server was,
// and no call of the API waits for it.
func TestNova(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	nova := startNova(t, s.ctl)
	refuse(t, s.ctl, 2, "--nova-url needs --nova-credentials", "serve", "--data", s.data, "--nova-url", novaURL)
	refuse(t, s.ctl, 2, "--nova-credentials: stat /nowhere", "serve", "--data", s.data, "--nova-credentials", "/nowhere")
	restart := func() {
		t.Helper()
		s.server.stop(t)
		s.server = start(t, s.ctl, "serve", "--data", s.data, "--nova-credentials", filepath.Join(s.data, "clouds.yaml"), "--nova-url", novaURL)
	}
	restart()
	machine := func(name string, number int) object {
		t.Helper()
		id := uuid.NewString()
		nova.set(func() { nova.servers[id] = true })
		return s.api.mustCreate(t, "port", map[string]any{"network_id": s.network.ID, "name": name, "device_owner": "compute:nova", "device_id": id,
			"fixed_ips": []map[string]string{{"ip_address": fmt.Sprintf("10.0.0.%d", number)}}})
	}
	put := func(port object, attributes map[string]any) {
		t.Helper()
		if err := s.api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID, map[string]any{"port": attributes}, nil); err != nil {
			t.Fatal(err)
		}
	}
	vm := s.lab.MustNamespace(t, "vm") // stands in for all machines
	boot := func(name string) {
		t.Helper()
		if r := s.plug(t, name, "--netns", vm.Path(), "--interface", name); r.Status != "ACTIVE" {
			t.Errorf("port %s is %s", name, r.Status)
		}
	}
	web, db := machine("web", 11), machine("db", 12)
	boot("web")
	nova.wait(t, "network-vif-plugged", web)
	nova.set(func() {
		if len(nova.tokens) != 1 || nova.tokens[""] {
			t.Errorf("Nova was called with %d tokens, want one", len(nova.tokens))
		}
	})
	put(web, map[string]any{"fixed_ips": []map[string]string{{"ip_address": "10.0.0.21"}}})
	nova.wait(t, "network-changed", web)

	// What happens while Nova is away, and then the server, is made up for.
	nova.set(func() { nova.away = true })
	boot("db")
	succeed(t, s.ctl, s.args("unplug", "web")...)
	within(t, "Nova to be asked", func() bool {
		nova.mu.Lock()
		defer nova.mu.Unlock()
		return nova.offered > 2
	})
	nova.set(func() { nova.away = false })
	restart()
	nova.wait(t, "network-vif-plugged", db)
	nova.wait(t, "network-vif-unplugged", web)

	// Ports of no server of Nova's, and of one that it does not know, keep no others waiting.
	unknown, mine := machine("unknown", 13), s.newPort(t, "mine", 14)
	nova.set(func() { clear(nova.servers) })
	boot(unknown.Name)
	boot(mine.Name)
	for _, port := range []object{db, mine} {
		if err := s.api.call(t.Context(), http.MethodDelete, "/v2.0/ports/"+port.ID, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	last := machine("last", 15)
	boot(last.Name)
	nova.wait(t, "network-vif-plugged", last)
	nova.set(func() {
		if len(nova.taken) > 0 {
			t.Errorf("Nova has taken %q too", nova.taken)
		}
	})
	_, metrics, err := s.server.page(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	has(t, metrics, "heddle_nova_notifying 1", "heddle_nova_ports_waiting 0")
}
