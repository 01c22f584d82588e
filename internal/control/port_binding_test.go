package control_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// update changes a port as the admin, which has to be possible.
func (w *world) update(id, text string) *neutron.PortView {
	w.t.Helper()
	v, err := w.change(w.admin, neutron.Ports, id, text)
	if err != nil {
		w.t.Fatalf("update %s: %v", text, err)
	}
	return v.(*neutron.PortView)
}

func TestBinding(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1", "h2")
	n := w.network(`{}`)
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","device_owner":"compute:nova"}`)
	id := p.ID
	tap := "tap" + id[:11]
	type state struct{ vif, bound, iface, previous string }
	for _, step := range []struct {
		text string
		want state
	}{
		{`{"binding:host_id":"h1"}`, state{"tap", "id-h1", tap, ""}},
		{`{"binding:profile":{"interface_name":"eth0"}}`, state{"tap", "id-h1", "eth0", ""}},
		{`{"binding:host_id":"h2"}`, state{"tap", "id-h2", "eth0", "id-h1"}},
		{`{"binding:host_id":"h3"}`, state{"binding_failed", "", "", "id-h2"}},
		{`{"binding:host_id":"h3","binding:profile":{}}`, state{"binding_failed", "", "", "id-h2"}},
		{`{"binding:host_id":""}`, state{"unbound", "", "", "id-h2"}},
		{`{"binding:host_id":"h1"}`, state{"tap", "id-h1", tap, "id-h2"}},
		{`{"binding:profile":null}`, state{"unbound", "", "", "id-h1"}},
		{`{"name":"still"}`, state{"unbound", "", "", "id-h1"}},
		{`{"binding:host_id":"h2","binding:profile":null}`, state{"unbound", "", "", "id-h1"}},
		{`{"binding:profile":{}}`, state{"tap", "id-h2", tap, "id-h1"}},
		{`{"binding:profile":null}`, state{"unbound", "", "", "id-h2"}},
		{`{"binding:host_id":"h1"}`, state{"tap", "id-h1", tap, "id-h2"}},
		{`{"binding:profile":{"interface_name":"eth0"}}`, state{"tap", "id-h1", "eth0", "id-h2"}},
		{`{"binding:profile":null}`, state{"unbound", "", "", "id-h1"}},
		{`{"binding:host_id":"h3"}`, state{"binding_failed", "", "", "id-h1"}},
		{`{"binding:profile":null}`, state{"unbound", "", "", "id-h1"}},
		{`{"binding:host_id":"h1"}`, state{"tap", "id-h1", tap, "id-h1"}},
	} {
		p := w.update(id, step.text)
		if got := (state{p.VIFType, p.BoundHostID, p.InterfaceName, p.PreviousHostID}); got != step.want {
			t.Errorf("%s: got %+v, want %+v", step.text, got, step.want)
		}
		tp := w.bundle("port", id).Ports[0]
		if tp.HostID != step.want.bound || tp.InterfaceName != step.want.iface || tp.PreviousHostID != step.want.previous {
			t.Errorf("%s: topology port %+v", step.text, tp)
		}
	}
	if p := w.update(id, `{"binding:host_id":"h3"}`); p.VIFDetails["port_filter"] != nil {
		t.Errorf("details of a failed binding: %v", p.VIFDetails)
	}
	w.hosts("h3")
	if p := w.update(id, `{"name":"again"}`); p.VIFType != "tap" || p.BoundHostID != "id-h3" || p.VIFDetails["port_filter"] != true {
		t.Errorf("after its host came: %+v", p)
	}

	_, err := w.change(w.admin, neutron.Ports, id, `{"mac_address":"fa:16:3e:00:00:09"}`)
	w.expect(err, "PortBound: Unable to complete operation on port "+id+", port is already bound, port type: tap, old_mac "+
		p.MACAddress.String()+", new_mac fa:16:3e:00:00:09.")
	other := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","binding:host_id":"h3"}`)
	_, err = w.change(w.admin, neutron.Ports, other.ID, `{"binding:profile":{"interface_name":"`+tap+`"}}`)
	w.expect(err, "PortBindingError: Binding for port "+other.ID+" on host h3 could not be created: interface "+tap+" carries port "+id+
		". Name another in binding:profile.interface_name or unbind that port.")
	unbound := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","binding:host_id":"h1","binding:profile":null}`)
	if unbound.VIFType != "unbound" || unbound.BoundHostID != "" || unbound.HostID != "h1" {
		t.Errorf("made with a profile of null: %+v", unbound)
	}
	dhcp := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n.ID+`","device_owner":"network:dhcp","binding:host_id":"h1"}`)
	if dhcp.VIFType != "unbound" || dhcp.BoundHostID != "" {
		t.Errorf("a service port without an interface: %+v", dhcp)
	}
}

// TestStatus follows the port's interface on its host.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1", "h2")
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+w.network(`{}`).ID+`","binding:host_id":"h1"}`)
	status := func() string {
		v, err := w.Ports().Show(t.Context(), w.admin, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		return v.Status
	}
	served := topology.PortState{PortID: p.ID, HostID: "id-h1", Since: time.Now()}
	put := func(s topology.PortState) {
		if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error { return schema.PortStates.Put(tx, &s) }); err != nil {
			t.Fatal(err)
		}
	}
	if got := status(); got != "DOWN" {
		t.Errorf("bound, not yet served: %s", got)
	}
	put(served)
	if got := status(); got != "ACTIVE" {
		t.Errorf("served: %s", got)
	}
	if got := w.update(p.ID, `{"admin_state_up":false}`).Status; got != "DOWN" {
		t.Errorf("switched off: %s", got)
	}
	w.update(p.ID, `{"admin_state_up":true,"binding:host_id":"h2"}`)
	if got := status(); got != "DOWN" {
		t.Errorf("served by the host it was on: %s", got)
	}
}

func TestStatusOfFloatingIPs(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+w.network(`{}`).ID+`","device_owner":"network:floatingip"}`)
	if p.Status != "N/A" {
		t.Errorf("status %s", p.Status)
	}
}

func TestAgents(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err := w.db.Update(t.Context(), func(tx *records.Tx) error {
		for _, name := range []string{"dead", "live"} {
			h := &topology.Host{ID: name, Name: name + ".example", Tunnels: []topology.HostTunnel{{ZoneID: "z", IP: netip.MustParseAddr("192.0.2.1")}}}
			if err := schema.Hosts.Put(tx, h); err != nil {
				return err
			}
		}
		return schema.HostStates.Put(tx, &topology.HostState{HostID: "live", StartedAt: started, MTU: 1500})
	})
	if err != nil {
		t.Fatal(err)
	}
	if agents, err := all(w.Agents().List(t.Context(), w.member, neutron.Query{})); err != nil || len(agents) != 0 {
		t.Errorf("a member sees %v, %v", agents, err)
	}
	if _, err := w.Agents().Show(t.Context(), w.member, "live"); problem(err) != "AgentNotFound: Agent live could not be found." {
		t.Errorf("a member asks: %v", err)
	}
	agents, err := all(w.Agents().List(t.Context(), w.admin, neutron.Query{}))
	if len(agents) != 6 {
		t.Errorf("%d agents, want three of each host", len(agents))
	}
	agents = slices.DeleteFunc(agents, func(a *neutron.AgentView) bool { return a.AgentType != "Open vSwitch agent" })
	if err != nil || len(agents) != 2 || agents[0].Alive || !agents[1].Alive || agents[1].Host != "live.example" ||
		agents[1].Configurations["tunneling_ip"] != "192.0.2.1" || !agents[1].StartedAt.Equal(started) || !agents[1].AdminStateUp {
		t.Errorf("agents %+v, %v", agents, err)
	}
	v, err := parse(w.admin, neutron.Agents, neutron.Update, `{"description":"in the corner","admin_state_up":false}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Agents().Update(t.Context(), w.admin, "dead", v, nil); err != nil {
		t.Error(err)
	}
	if a, err := w.Agents().Show(t.Context(), w.admin, "dead"); err != nil || a.Description != "in the corner" || a.AdminStateUp {
		t.Errorf("after update %+v, %v", a, err)
	}
	_, err = w.Agents().Update(t.Context(), w.admin, "nobody", v, nil)
	w.expect(err, "AgentNotFound: Agent nobody could not be found.")
	if _, err = w.Agents().Update(t.Context(), w.member, "dead", v, nil); problem(err) == "" {
		t.Error("a member updated an agent")
	}
	before := w.dump("/heddle/neutron/agents/", "/heddle/idx/", "/heddle/hosts/dead", "/heddle/unique/host/name/dead")
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error { return schema.Hosts.Delete(tx, "dead") })
	if after := w.dump(); err != nil || len(after) != len(before) {
		t.Errorf("a host went, and left %v, %v", after, err)
	}
}
