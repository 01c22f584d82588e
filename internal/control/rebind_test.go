package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// following is a world whose server runs a task. changed tells of changes of the store.
type following struct {
	*world
	changed chan struct{}
}

// follow returns a world whose server binds ports as hosts come and go.
func follow(t testing.TB, st store.Store) following {
	t.Helper()
	return followWith(t, st, func(s *control.Service, r *replica.Replica, log *slog.Logger) task.Task {
		return control.NewBindings(s, r, log)
	})
}

func followWith(t testing.TB, st store.Store, newTask func(*control.Service, *replica.Replica, *slog.Logger) task.Task) following {
	t.Helper()
	f := following{changed: make(chan struct{}, 1)}
	var task task.Task
	f.world = openBefore(t, st, control.Options{Quotas: map[string]int{"port": -1}}, func(s *control.Service, r *replica.Replica) {
		task = newTask(s, r, slog.New(slog.DiscardHandler))
		r.OnChange(func(snapshot.Update) {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		})
	})
	apitest.Run(t, task)
	return f
}

// until waits for a state of the store.
func (f following) until(what string, holds func(r records.Reader) bool) {
	f.t.Helper()
	for {
		snap, err := f.db.View(f.t.Context())
		if err != nil {
			f.t.Fatalf("%s: %v", what, err)
		}
		if holds(snap) {
			return
		}
		select {
		case <-f.changed:
		case <-f.t.Context().Done():
			f.t.Fatal(what)
		}
	}
}

func bound(hostID string, n int) func(records.Reader) bool {
	return func(r records.Reader) bool { return schema.Ports.CountBy(r, "bound_host", hostID) == n }
}

func (w *world) putHost(id, name string) {
	w.t.Helper()
	w.edit(func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: id, Name: name}) })
}

func (w *world) dropHost(id string) {
	w.t.Helper()
	w.edit(func(tx *records.Tx) error { return schema.Hosts.Delete(tx, id) })
}

func (w *world) edit(f func(tx *records.Tx) error) {
	w.t.Helper()
	if _, err := w.db.Update(context.Background(), f); err != nil {
		w.t.Fatal(err)
	}
}

// portsOn makes ports that are to be on a host, in one request.
func (w *world) portsOn(networkID, host string, n int) []string {
	w.t.Helper()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"network_id":%q,"binding:host_id":%q}`, networkID, host)
	}
	views, err := w.create(w.admin, neutron.Ports, texts...)
	if err != nil {
		w.t.Fatal(err)
	}
	ids := make([]string, n)
	for i, v := range views {
		ids[i] = v.(*neutron.PortView).ID
	}
	return ids
}

// agrees checks that a port, what is derived from it and what clients are told say the same.
func (w *world) agrees(id, vif, hostID, previous string) {
	w.t.Helper()
	p, err := w.Ports().Show(w.t.Context(), w.admin, id)
	if err != nil {
		w.t.Fatal(err)
	}
	tp := w.bundle("port", id).Ports[0]
	if p.VIFType != vif || p.BoundHostID != hostID || p.PreviousHostID != previous || tp.HostID != hostID || tp.PreviousHostID != previous ||
		(hostID == "") != (p.InterfaceName == "") || tp.InterfaceName != p.InterfaceName {
		w.t.Errorf("port %s is %s, bound %q, before %q; its bundle has host %q, before %q, interface %q; want %s %q %q",
			id, p.VIFType, p.BoundHostID, p.PreviousHostID, tp.HostID, tp.PreviousHostID, tp.InterfaceName, vif, hostID, previous)
	}
}

// TestPortsFollowTheirHosts: ports of a host are bound when it comes and failed when it goes, in
// more than one transaction; each changes once.
func TestPortsFollowTheirHosts(t *testing.T) {
	t.Parallel()
	const n = 150
	w := follow(t, store.NewMemory())
	network := w.network(`{}`).ID
	ids := w.portsOn(network, "h1", n)
	unbound := must[*neutron.PortView](w.world, w.admin, neutron.Ports, `{"network_id":"`+network+`","binding:host_id":"h1","binding:profile":null}`).ID
	elsewhere := w.portsOn(network, "h2", 1)[0]
	w.agrees(ids[0], "binding_failed", "", "")

	w.putHost("first", "h1")
	w.until("ports bound to the host that came", bound("first", n))
	w.dropHost("first")
	w.until("no ports bound to the host that went", bound("first", 0))
	for _, id := range ids {
		w.agrees(id, "binding_failed", "", "first")
	}
	w.putHost("second", "h1")
	w.until("ports bound to the next host of the name", bound("second", n))
	for _, id := range ids {
		w.agrees(id, "tap", "second", "first")
		if p, _ := w.Ports().Show(t.Context(), w.admin, id); p.RevisionNumber != 4 {
			t.Errorf("revision %d after three changes", p.RevisionNumber)
		}
	}
	w.agrees(unbound, "unbound", "", "")
	w.agrees(elsewhere, "binding_failed", "", "")
}

// TestOneInterfaceBindsOnePort: of two ports that wait for one interface of a host one is bound;
// the other fails until a request names another.
func TestOneInterfaceBindsOnePort(t *testing.T) {
	t.Parallel()
	w := follow(t, store.NewMemory())
	network := w.network(`{}`).ID
	var ids []string
	for range 2 {
		ids = append(ids, must[*neutron.PortView](w.world, w.admin, neutron.Ports,
			`{"network_id":"`+network+`","binding:host_id":"h1","binding:profile":{"interface_name":"eth0"}}`).ID)
	}
	w.putHost("first", "h1")
	w.until("one port bound", bound("first", 1))
	if w.bundle("port", ids[0]).Ports[0].HostID == "" {
		ids[0], ids[1] = ids[1], ids[0]
	}
	w.agrees(ids[0], "tap", "first", "")
	w.agrees(ids[1], "binding_failed", "", "")
	w.update(ids[1], `{"binding:profile":{"interface_name":"eth1"}}`)
	w.agrees(ids[1], "tap", "first", "")

	// A host that has the interface of a port whose own host went.
	w.putHost("next", "h2")
	w.update(ids[1], `{"binding:host_id":"h2","binding:profile":{"interface_name":"eth0"}}`)
	w.edit(func(tx *records.Tx) error {
		if err := schema.Hosts.Delete(tx, "next"); err != nil {
			return err
		}
		p, err := schema.Ports.Get(tx, ids[1])
		if err != nil {
			return err
		}
		moved := *p
		moved.HostID = "h1"
		return schema.Ports.Put(tx, &moved)
	})
	w.until("nothing bound to the host that went", bound("next", 0))
	w.agrees(ids[1], "binding_failed", "", "next")
}

// TestHostsWentMeanwhile: a server that starts finds what happened while no server ran.
func TestHostsWentMeanwhile(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	before := open(t, st, control.Options{})
	before.hosts("h1", "h2")
	network := before.network(`{}`).ID
	lost, kept := before.portsOn(network, "h1", 1)[0], before.portsOn(network, "h2", 1)[0]
	waiting := before.portsOn(network, "h3", 1)[0]
	before.dropHost("id-h1")
	before.hosts("h3")

	w := follow(t, st)
	w.until("bindings made true", func(r records.Reader) bool { return bound("id-h1", 0)(r) && bound("id-h3", 1)(r) })
	w.agrees(lost, "binding_failed", "", "id-h1")
	w.agrees(kept, "tap", "id-h2", "")
	w.agrees(waiting, "tap", "id-h3", "")
}

// TestTwoServersBindOnce: two servers see the same host, and bind each port once, while clients
// change the ports.
func TestTwoServersBindOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	st := inEtcd(t, false)
	ws := [2]following{follow(t, st), follow(t, st)}
	ids := ws[0].portsOn(ws[0].network(`{}`).ID, "h1", n)
	ws[0].putHost("first", "h1")
	got := together(20, func(i int) error {
		_, err := ws[i%2].change(ws[0].admin, neutron.Ports, ids[i], `{"name":"changed"}`)
		return err
	})
	if got[""] != 20 {
		t.Errorf("outcomes %v", got)
	}
	for _, w := range ws {
		w.until("ports bound", bound("first", n))
	}
	for _, id := range ids[20:] {
		if p, _ := ws[0].Ports().Show(t.Context(), ws[0].admin, id); p.RevisionNumber != 2 {
			t.Errorf("port %s has revision %d: it was bound more than once", id, p.RevisionNumber)
		}
	}
}

// failingStore refuses commits while told to.
type failingStore struct {
	store.Store
	refuse atomic.Int32 // how many commits
}

func (s *failingStore) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if s.refuse.Add(-1) >= 0 {
		return 0, errors.New("the disk is full")
	}
	return s.Store.Commit(ctx, conds, ops)
}

// TestBindingIsTriedAgain after a failure of the store.
func TestBindingIsTriedAgain(t *testing.T) {
	t.Parallel()
	st := &failingStore{Store: store.NewMemory()}
	other := open(t, st.Store, control.Options{})
	w := follow(t, st)
	id := w.portsOn(w.network(`{}`).ID, "h1", 1)[0]
	st.refuse.Store(2)
	other.putHost("first", "h1")
	w.until("the port bound", bound("first", 1))
	w.agrees(id, "tap", "first", "")
	if st.refuse.Load() >= 0 {
		t.Error("nothing was refused")
	}
}

// TestAmbiguousHostName: a name that two hosts have, as an earlier version let a host write it,
// binds no port. The ports are bound when the name is one host's again.
func TestAmbiguousHostName(t *testing.T) {
	t.Parallel()
	w := follow(t, store.NewMemory())
	network := w.network(`{}`).ID
	w.putHost("victim", "h1")
	w.putHost("thief", "h2")
	rename := func(name string) {
		t.Helper()
		value, err := json.Marshal(&topology.Host{ID: "thief", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.db.Store().Commit(t.Context(), nil, []store.Op{{Key: schema.Hosts.Key("thief"), Value: value}}); err != nil {
			t.Fatal(err)
		}
		w.until("the name of the host", func(r records.Reader) bool {
			h, ok := schema.Hosts.Peek(r, "thief")
			return ok && h.Name == name
		})
	}
	early := w.portsOn(network, "h2", 1)[0]
	w.agrees(early, "tap", "thief", "")
	rename("h1")
	w.until("the port of the host that is called otherwise now", bound("thief", 0))
	id := w.portsOn(network, "h1", 1)[0]
	w.agrees(id, "binding_failed", "", "")
	rename("h2")
	w.until("the port bound to the host that has the name", bound("victim", 1))
	w.agrees(id, "tap", "victim", "")
	w.until("the port bound to the host that has its name again", bound("thief", 1))
	w.agrees(early, "tap", "thief", "thief")
}
