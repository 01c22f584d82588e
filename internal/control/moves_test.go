package control_test

import (
	"log/slog"
	"slices"
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

// moving is a world in which moves of ports are ended, with hosts h1, h2 and h3, and a port that
// h1 serves.
type moving struct {
	following
	id, tap string
}

func newMoving(t *testing.T) moving {
	t.Helper()
	f := following{changed: make(chan struct{}, 1)}
	var task *control.Moves
	f.world = openBefore(t, store.NewMemory(), control.Options{}, func(s *control.Service, r *replica.Replica) {
		task = control.NewMoves(s, r, slog.New(slog.DiscardHandler))
		task.ForwardFor = 0
		r.OnChange(func(snapshot.Update) {
			select {
			case f.changed <- struct{}{}:
			default:
			}
		})
	})
	apitest.Run(t, task)
	f.hosts("h1", "h2", "h3")
	m := moving{following: f, id: f.portsOn(f.network(`{}`).ID, "h1", 1)[0]}
	m.tap = "tap" + m.id[:11]
	m.serve("h1", true)
	return m
}

// serve has a host report that it serves the port, or no longer.
func (m moving) serve(host string, serves bool) {
	m.t.Helper()
	state := &topology.PortState{PortID: m.id, HostID: "id-" + host}
	m.edit(func(tx *records.Tx) error {
		if serves {
			return schema.PortStates.Put(tx, state)
		}
		return schema.PortStates.Delete(tx, schema.PortStates.ID(state))
	})
}

// bind makes an inactive binding of the port to a host.
func (m moving) bind(host string) {
	m.t.Helper()
	v, err := parse(m.admin, neutron.PortBindings, neutron.Create, `{"host":"`+host+`"}`)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.PortBindings(m.id).Create(m.t.Context(), m.admin, []neutron.Values{v}); err != nil {
		m.t.Fatal(err)
	}
}

// is checks where a port is bound and which host serves it, on which interface.
func (m moving) is(when, bound, previous, previousInterface string) {
	m.t.Helper()
	r, err := m.db.View(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	p, err := schema.Ports.Get(r, m.id)
	if err != nil {
		m.t.Fatal(err)
	}
	tp := m.bundle("port", m.id).Ports[0]
	if p.BoundHostID != bound || p.PreviousHostID != previous || p.PreviousInterface != previousInterface {
		m.t.Errorf("%s: bound to %q, before %q on %q; want %q, %q, %q", when, p.BoundHostID, p.PreviousHostID, p.PreviousInterface, bound, previous, previousInterface)
	}
	if tp.HostID != p.BoundHostID || tp.PreviousHostID != p.PreviousHostID || tp.PreviousInterface != p.PreviousInterface {
		m.t.Errorf("%s: topology port %+v of %+v", when, tp, p)
	}
}

func (m moving) ended() {
	m.t.Helper()
	m.until("the previous host to be forgotten", func(r records.Reader) bool {
		p, err := schema.Ports.Get(r, m.id)
		return err == nil && p.PreviousHostID == ""
	})
}

// TestMove: the previous host serves a port until the next one does, and is forgotten then. Clients
// see one change.
func TestMove(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	before := m.update(m.id, `{"binding:host_id":"h2"}`)
	m.is("bound to h2", "id-h2", "id-h1", m.tap)
	if before.Status != "DOWN" || before.ServedBy() != "id-h1" {
		t.Errorf("status %s, served by %s", before.Status, before.ServedBy())
	}
	m.serve("h2", true)
	m.ended()
	m.is("served by h2", "id-h2", "", "")
	after, err := m.Ports().Show(t.Context(), m.admin, m.id)
	if err != nil || after.Status != "ACTIVE" || after.ServedBy() != "id-h2" || after.RevisionNumber != before.RevisionNumber {
		t.Errorf("after the move: %+v, %v", after, err)
	}
}

// TestMoveGivenUp: a port that goes back, on to a third host, or is unbound before it has arrived.
func TestMoveGivenUp(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.update(m.id, `{"binding:host_id":"h2"}`)
	m.update(m.id, `{"binding:host_id":"h3"}`)
	m.is("on to h3", "id-h3", "id-h1", m.tap)
	m.update(m.id, `{"binding:host_id":"h1"}`)
	m.ended()
	m.is("back on h1", "id-h1", "", "")

	m.update(m.id, `{"binding:host_id":"h2"}`)
	m.update(m.id, `{"binding:host_id":""}`)
	m.is("unbound", "", "id-h2", "")
	m.update(m.id, `{"binding:host_id":"h3"}`)
	m.is("bound again", "id-h3", "id-h2", "")
	m.serve("h3", true)
	m.ended()
}

// TestMoveFromDeadHost: a host that does not serve a port any more is not to serve it on.
func TestMoveFromDeadHost(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.serve("h1", false)
	m.update(m.id, `{"binding:host_id":"h2"}`)
	m.is("bound to h2", "id-h2", "id-h1", "")
}

// TestInterfaceOfMovingPort: the interface that a port still has on the host it leaves is taken.
func TestInterfaceOfMovingPort(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.update(m.id, `{"binding:host_id":"h2"}`)
	text := `{"network_id":"` + m.network(`{}`).ID + `","binding:host_id":"h1","binding:profile":{"interface_name":"` + m.tap + `"}}`
	_, err := m.create(m.admin, neutron.Ports, text)
	if err == nil {
		t.Fatal("the interface was given to another port")
	}
	m.serve("h2", true)
	m.ended()
	if _, err := m.create(m.admin, neutron.Ports, text); err != nil {
		t.Errorf("after the move: %v", err)
	}
}

// TestActivateBinding: activating a binding moves the port, and back; the host of an inactive one
// may go.
func TestActivateBinding(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.update(m.id, `{"device_owner":"compute:nova"}`)
	ops := m.PortBindings(m.id)
	activate := func(host string) {
		t.Helper()
		if _, err := ops.Activate(t.Context(), m.admin, host); err != nil {
			t.Fatal(err)
		}
	}
	m.bind("h2")
	m.bind("h3")
	m.is("bound to h1, h2 and h3", "id-h1", "", "")
	activate("h2")
	m.is("activated on h2", "id-h2", "id-h1", m.tap)
	activate("h1")
	m.ended()
	m.is("back on h1", "id-h1", "", "")
	activate("h2")
	m.serve("h2", true)
	m.ended()
	m.is("served by h2", "id-h2", "", "")

	m.edit(func(tx *records.Tx) error { return schema.Hosts.Delete(tx, "id-h3") })
	v, err := ops.Show(t.Context(), m.admin, "h3")
	if err != nil || v.Status != "INACTIVE" || v.VIFType != "binding_failed" {
		t.Errorf("its host has gone: %+v, %v", v, err)
	}
	_, err = ops.Activate(t.Context(), m.admin, "h3")
	m.expect(err, "PortBindingError: Binding for port "+m.id+" on host h3 could not be created or updated: "+
		"no host has joined under this name, see heddle host list.")
	m.is("h3 has gone", "id-h2", "", "")
	if err := m.Ports().Delete(t.Context(), m.admin, m.id, nil); err != nil {
		t.Error(err)
	}
}

// TestArrival: a binding becomes active when its host reports the machine, unless the port has just
// left that host.
func TestArrival(t *testing.T) {
	t.Parallel()
	f := followWith(t, store.NewMemory(), func(s *control.Service, r *replica.Replica, log *slog.Logger) task.Task {
		return control.NewArrivals(s, r, log)
	})
	f.hosts("h1", "h2", "h3")
	m := moving{following: f, id: f.portsOn(f.network(`{}`).ID, "h1", 1)[0]}
	m.tap = "tap" + m.id[:11]
	m.update(m.id, `{"device_owner":"compute:nova"}`)
	m.bind("h2")
	report := func(host string, arrived bool) {
		t.Helper()
		a := &topology.PortArrival{PortID: m.id, HostID: "id-" + host}
		m.edit(func(tx *records.Tx) error {
			if arrived {
				return schema.PortArrivals.Put(tx, a)
			}
			return schema.PortArrivals.Delete(tx, schema.PortArrivals.ID(a))
		})
	}
	boundTo := func(host string) {
		t.Helper()
		m.until("the port to be bound to "+host, func(r records.Reader) bool {
			p, err := schema.Ports.Get(r, m.id)
			return err == nil && p.BoundHostID == "id-"+host
		})
	}
	standbys := func(want ...topology.Standby) {
		t.Helper()
		if got := m.bundle("port", m.id).Ports[0].Standbys; !slices.Equal(got, want) {
			t.Errorf("standbys %v, want %v", got, want)
		}
	}
	standbys(topology.Standby{HostID: "id-h2", InterfaceName: m.tap})
	report("h3", true) // has no binding
	report("h2", true)
	boundTo("h2")
	standbys() // none on h1, which the machine has left
	report("h2", false)
	report("h1", true)
	m.bind("h3") // h3's report is older, and is looked at again when it comes again
	standbys(topology.Standby{HostID: "id-h3", InterfaceName: m.tap})
	report("h3", false)
	report("h3", true)
	boundTo("h3")
	v, err := m.PortBindings(m.id).Show(t.Context(), m.admin, "h1")
	if err != nil || v.Status != "INACTIVE" {
		t.Errorf("the binding to the first host: %+v, %v", v, err)
	}
}
