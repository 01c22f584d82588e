package nova

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/api/apitest"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// aServer returns the id of one of Nova's servers.
func aServer(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

// TestEventsBetween lists what Nova is told after each change of a port.
func TestEventsBetween(t *testing.T) {
	t.Parallel()
	down := &reported{ServerID: aServer(1), Addresses: "mac 10.0.0.1"}
	up := &reported{ServerID: aServer(1), Host: "h1", Addresses: "mac 10.0.0.1"}
	moved := &reported{ServerID: aServer(1), Host: "h2", Addresses: "mac 10.0.0.1"}
	changed := &reported{ServerID: aServer(1), Host: "h1", Addresses: "mac 10.0.0.2"}
	other := &reported{ServerID: aServer(2), Host: "h1", Addresses: "mac 10.0.0.1"}
	for _, c := range []struct {
		what        string
		before, now *reported
		want        string
	}{
		{"a port that is down", nil, down, ""},
		{"a port that is up at once", nil, up, vifPlugged},
		{"plugged", down, up, vifPlugged},
		{"unplugged", up, down, vifUnplugged},
		{"on another host", up, moved, vifPlugged},
		{"other addresses", up, changed, networkChanged},
		{"plugged with other addresses", down, changed, vifPlugged + " " + networkChanged},
		{"of another server", up, other, vifPlugged},
		{"of no server", up, nil, ""},
	} {
		var names []string
		for _, e := range eventsBetween("p", c.before, c.now) {
			if e.ServerID != c.now.ServerID || e.PortID != "p" || e.Status != "completed" {
				t.Errorf("%s: event %+v", c.what, e)
			}
			names = append(names, e.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: events %q, want %q", c.what, got, c.want)
		}
	}
}

// world is a store with ports of Nova's servers, and a Nova.
type world struct {
	t  testing.TB
	st store.Store
	db *records.DB

	mu      sync.Mutex
	up      map[string]bool // ports that are ACTIVE
	away    bool            // Nova does not answer
	codes   map[string]int  // Nova's for a server, if not 200
	taken   []string        // events: "NAME PORT"
	batches int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	apitest.Run(t, rep)
	w := &world{t: t, st: st, db: records.NewDB(st, rep), up: map[string]bool{}, codes: map[string]int{}}
	w.change(func(tx *records.Tx) error {
		return schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: "n"}, NetworkType: "vxlan"})
	})
	return w
}

// Send implements [Client].
func (w *world) Send(_ context.Context, events []Event) (codes []int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches++
	if w.away {
		return nil, errors.New("connection refused")
	}
	for _, e := range events {
		code := w.codes[e.ServerID]
		if code == 0 {
			code = http.StatusOK
			w.taken = append(w.taken, e.Name+" "+e.PortID)
		}
		codes = append(codes, code)
	}
	return codes, nil
}

func (w *world) change(f func(tx *records.Tx) error) {
	w.t.Helper()
	if _, err := w.db.Update(context.Background(), func(tx *records.Tx) error { return f(tx) }); err != nil {
		w.t.Fatal(err)
	}
}

// port makes or changes a port of a server.
func (w *world) port(id, server, owner string, last byte) {
	w.t.Helper()
	w.change(func(tx *records.Tx) error {
		return schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: id}, NetworkID: "n", DeviceID: server, DeviceOwner: owner, HostID: "h1",
			MACAddress: [6]byte{2, 0, 0, 0, 0, last}, FixedIPs: []neutron.FixedIP{{IPAddress: netip.AddrFrom4([4]byte{10, 0, 0, last})}}})
	})
}

// notifier starts one over a replica of its own, and returns a function that stops it.
func (w *world) notifier(keepTrying time.Duration) (n *Notifier, stop func()) {
	w.t.Helper()
	rep := replica.New(w.st, replica.Options{Watch: schema.Root}, schema.All()...)
	n = New(Options{Store: w.st, Objects: rep, Client: w, Log: slog.New(slog.DiscardHandler), KeepTrying: keepTrying,
		Status: func(_ records.Reader, p *neutron.Port) string {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.up[p.ID] {
				return "ACTIVE"
			}
			return "DOWN"
		}})
	apitest.Run(w.t, rep)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	w.t.Cleanup(stop)
	return n, stop
}

// set changes what the world is like.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// wait waits until Nova has taken exactly these events, in any order.
func (w *world) wait(events ...string) {
	w.t.Helper()
	slices.Sort(events)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	var taken []string
	err := netlab.Until(ctx, "Nova's events", func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		taken = slices.Sorted(slices.Values(w.taken))
		if len(taken) > len(events) {
			return false, errors.New("there are too many")
		}
		return slices.Equal(taken, events), nil
	})
	if err != nil {
		w.t.Fatalf("Nova has taken %q, want %q: %v", taken, events, err)
	}
}

// forget forgets what Nova has taken.
func (w *world) forget() { w.set(func() { w.taken = nil }) }

// TestNotifier: each change of a port of Nova's is told once, by one of several servers, and what
// happened while none ran is made up for.
func TestNotifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.port("a", aServer(1), "compute:nova", 1)
	w.port("b", aServer(2), "compute:nova", 2)
	w.port("mine", "my-machine", "compute:me", 3)
	w.port("router", aServer(3), "network:dhcp", 4)
	w.set(func() { w.up["a"], w.up["mine"], w.up["router"] = true, true, true })
	first, stopFirst := w.notifier(time.Hour)
	w.wait(vifPlugged + " a")
	second, stopSecond := w.notifier(time.Hour)

	w.forget()
	w.set(func() { w.up["b"] = true })
	first.Recheck()
	w.wait(vifPlugged + " b")
	w.forget()
	w.port("b", aServer(2), "compute:nova", 5)
	w.wait(networkChanged + " b")

	// The other one goes on, and tells nothing twice.
	stopFirst()
	w.forget()
	w.port("c", aServer(4), "compute:nova", 6)
	w.set(func() { w.up["c"] = true })
	w.change(func(tx *records.Tx) error { return schema.Ports.Delete(tx, "a") })
	taken := func(events ...string) func() bool {
		return func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !slices.ContainsFunc(events, func(e string) bool { return !slices.Contains(w.taken, e) })
		}
	}
	second.Recheck()
	within(t, taken(vifDeleted+" a", vifPlugged+" c"))
	w.port("d", aServer(5), "compute:nova", 7)
	w.change(func(tx *records.Tx) error {
		return schema.FloatingIPs.Put(tx, &neutron.FloatingIP{Standard: neutron.Standard{ID: "fip"}, PortID: "c", FixedIPAddress: netip.MustParseAddr("10.0.0.6"),
			FloatingNetworkID: "n", FloatingIPAddress: netip.MustParseAddr("203.0.113.10")})
	})
	within(t, taken(networkChanged+" c"))

	// Nobody notifies for a while.
	stopSecond()
	w.forget()
	w.set(func() { w.up["b"], w.up["d"] = false, true })
	w.notifier(time.Hour)
	w.wait(vifUnplugged+" b", vifPlugged+" d")
}

// within waits until a condition holds.
func within(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "the condition", func() (bool, error) { return holds(), nil }); err != nil {
		t.Fatal(err)
	}
}

// TestNovaRefuses: what Nova does not take is sent again, but not for ever if it has no host for
// the server, nor at all if it does not know it.
func TestNovaRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(func() {
		w.away = true
		w.codes[aServer(2)], w.codes[aServer(3)] = http.StatusNotFound, http.StatusUnprocessableEntity
		for _, id := range []string{"a", "gone", "early"} {
			w.up[id] = true
		}
	})
	w.port("a", aServer(1), "compute:nova", 1)
	w.port("gone", aServer(2), "compute:nova", 2)
	w.port("early", aServer(3), "compute:nova", 3)
	n, stop := w.notifier(time.Hour)
	waiting := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.figures.waiting
	}
	within(t, func() bool { return waiting() == 3 })
	w.set(func() { w.away = false })
	w.wait(vifPlugged + " a")
	within(t, func() bool { return waiting() == 1 })
	w.forget()
	w.set(func() { w.up["other"] = true })
	w.port("other", aServer(4), "compute:nova", 4)
	w.wait(vifPlugged + " other") // while one waits
	stop()

	n, _ = w.notifier(time.Nanosecond)
	within(t, func() bool { // given up, after it was tried twice
		kvs, _, err := w.st.List(t.Context(), reportedPrefix)
		if err != nil {
			t.Fatal(err)
		}
		return len(kvs) == 4 && waiting() == 0
	})
}
