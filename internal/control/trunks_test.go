package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// subports reads those of a request.
func subports(t *testing.T, text string) []neutron.SubportRequest {
	t.Helper()
	var list any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&list); err != nil {
		t.Fatal(err)
	}
	requests, err := neutron.ParseSubports(map[string]any{"sub_ports": list})
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// vlan returns an entry of sub_ports.
func vlan(port *neutron.PortView, id int) string {
	return fmt.Sprintf(`{"port_id":"%s","segmentation_type":"vlan","segmentation_id":%d}`, port.ID, id)
}

func (w *world) trunk(parent *neutron.PortView, subs ...string) *neutron.TrunkView {
	w.t.Helper()
	return must[*neutron.TrunkView](w, w.member, neutron.Trunks, `{"port_id":"`+parent.ID+`","sub_ports":[`+strings.Join(subs, ",")+`]}`)
}

func (w *world) showTrunk(id string) *neutron.TrunkView {
	w.t.Helper()
	return must2(w.Trunks().Show(w.t.Context(), w.member, id))
}

// placed returns where a port is in the topology.
func (w *world) placed(p *neutron.PortView) string {
	w.t.Helper()
	t := w.bundle("port", p.ID).Ports[0]
	return fmt.Sprintf("%s %s.%d %v", t.HostID, t.InterfaceName, t.VlanID, t.Trunk)
}

// serve has hosts report ports as served.
func (w *world) serve(host string, ports ...*neutron.PortView) {
	w.t.Helper()
	w.edit(func(tx *records.Tx) error {
		for _, p := range ports {
			if err := schema.PortStates.Put(tx, &topology.PortState{PortID: p.ID, HostID: host}); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestTrunkLife: subports have the binding of their parent while they are in the trunk, and nothing
// of it is left after.
func TestTrunkLife(t *testing.T) {
	t.Parallel()
	w := open(t, inMemory(t).st, control.Options{NoDefaultGroups: true})
	w.hosts("h1", "h2")
	n, other := w.network(`{}`), w.network(`{}`)
	parent, a, b := w.port(n.ID, ""), w.port(n.ID, ""), w.port(other.ID, "")
	tap := "tap" + parent.ID[:11]

	tr := w.trunk(parent, vlan(a, 5))
	if tr.Status != "DOWN" || tr.RevisionNumber != 0 || len(tr.Subports) != 1 || tr.Subports[0].PortID != a.ID || tr.Subports[0].SegmentationID != 5 {
		t.Errorf("made %+v", tr)
	}
	if p := w.showPort(a.ID); p.DeviceOwner != "trunk:subport" || p.VIFType != "unbound" || p.Trunk != nil {
		t.Errorf("subport %+v", p)
	}
	if d := w.showPort(parent.ID).Trunk; d == nil || d.TrunkID != tr.ID || len(d.Subports) != 1 || d.Subports[0].MACAddress != a.MACAddress.String() {
		t.Errorf("details %+v", d)
	}
	w.update(parent.ID, `{"binding:host_id":"h1"}`)
	added := must2(w.Trunks().AddSubports(t.Context(), w.member, tr.ID, subports(t, "["+vlan(b, 6)+"]")))
	if len(added.Subports) != 2 || added.RevisionNumber == 0 {
		t.Errorf("after an addition %+v", added)
	}
	for p, want := range map[*neutron.PortView]string{parent: "id-h1 " + tap + ".0 true", a: "id-h1 " + tap + ".5 false", b: "id-h1 " + tap + ".6 false"} {
		if got := w.placed(p); got != want {
			t.Errorf("port at %s, want %s", got, want)
		}
	}
	if p := w.showPort(a.ID); p.HostID != "h1" || p.VIFType != "tap" {
		t.Errorf("bound subport %+v", p)
	}
	for _, step := range []struct {
		served []*neutron.PortView
		status string
	}{{[]*neutron.PortView{a}, "DOWN"}, {[]*neutron.PortView{parent}, "BUILD"}, {[]*neutron.PortView{b}, "ACTIVE"}} {
		w.serve("id-h1", step.served...)
		if got := w.showTrunk(tr.ID).Status; got != step.status {
			t.Errorf("status %s, want %s", got, step.status)
		}
	}

	// The parent moves, and its subports with it.
	w.update(parent.ID, `{"binding:host_id":"h2"}`)
	for p, id := range map[*neutron.PortView]int{parent: 0, a: 5, b: 6} {
		moved := w.bundle("port", p.ID).Ports[0]
		if moved.HostID != "id-h2" || moved.PreviousHostID != "id-h1" || moved.PreviousInterface != tap || int(moved.VlanID) != id {
			t.Errorf("moved %+v", moved)
		}
	}
	if got := w.showTrunk(tr.ID).Status; got != "DOWN" {
		t.Errorf("status of a moving trunk: %s", got)
	}
	w.update(parent.ID, `{"binding:profile":null}`)
	if p := w.showPort(a.ID); p.VIFType != "unbound" || p.BoundHostID != "" {
		t.Errorf("subport of an unbound parent %+v", p)
	}
	w.update(parent.ID, `{"binding:host_id":"nowhere"}`)
	if p := w.showPort(a.ID); p.VIFType != "binding_failed" {
		t.Errorf("subport without a host: %s", p.VIFType)
	}

	must2(w.Trunks().RemoveSubports(t.Context(), w.member, tr.ID, subports(t, `[{"port_id":"`+a.ID+`"}]`)))
	if p := w.showPort(a.ID); p.DeviceOwner != "" || p.HostID != "" || w.placed(a) != " .0 false" {
		t.Errorf("removed %+v", p)
	}
	if err := w.remove(w.member, neutron.Trunks, tr.ID); err != nil {
		t.Fatal(err)
	}
	if p := w.showPort(b.ID); p.DeviceOwner != "" || p.HostID != "" || w.showPort(parent.ID).Trunk != nil || strings.HasSuffix(w.placed(parent), "true") {
		t.Errorf("port of a deleted trunk %+v", p)
	}
	for _, p := range []*neutron.PortView{parent, a, b} {
		if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
			t.Error(err)
		}
	}
	w.verifyStore()
}

// TestTrunkRefusals: what the reference refuses, by its types and in its words.
func TestTrunkRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n, wide := w.network(`{}`), must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"mtu":1400,"tenant_id":"`+w.member.ProjectID+`"}`)
	parent, a, b, free := w.port(n.ID, ""), w.port(n.ID, ""), w.port(n.ID, ""), w.port(n.ID, "")
	low := w.port(wide.ID, "")
	used := w.port(n.ID, `"device_id":"vm"`)
	foreign := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`).ID+`"}`)
	tr := w.trunk(parent, vlan(a, 5))
	off := must[*neutron.TrunkView](w, w.member, neutron.Trunks, `{"port_id":"`+b.ID+`","admin_state_up":false}`)
	lowTrunk := w.trunk(low)

	create := func(text string) error {
		_, err := w.create(w.member, neutron.Trunks, text)
		return err
	}
	w.expect(create(`{"port_id":"`+parent.ID+`"}`), "ParentPortInUse: Port "+parent.ID+" is currently in use and is not eligible for use as a parent port.")
	w.expect(create(`{"port_id":"`+a.ID+`"}`), "TrunkPortInUse: Port "+a.ID+" is in use by another trunk.")
	w.expect(create(`{"port_id":"`+foreign.ID+`"}`), "PortNotFound: Port "+foreign.ID+" could not be found.")
	w.expect(create(`{"port_id":"`+free.ID+`","sub_ports":[`+vlan(used, 4095)+`]}`), "InvalidInput: Invalid input for operation: Segmentation ID '4095' is not in range.")
	w.expect(create(`{"port_id":"`+free.ID+`","sub_ports":[{"port_id":"`+used.ID+`","segmentation_type":"gre","segmentation_id":"7"}]}`),
		"InvalidInput: Invalid input for operation: Unknown segmentation_type 'gre'.")
	for _, refused := range []struct{ trunk, subs, want string }{
		{tr.ID, vlan(parent, 7), "ParentPortInUse: Port " + parent.ID + " is currently in use and is not eligible for use as a parent port."},
		{tr.ID, vlan(b, 7), "ParentPortInUse: Port " + b.ID + " is currently in use and is not eligible for use as a parent port."},
		{tr.ID, vlan(a, 7), "TrunkPortInUse: Port " + a.ID + " is in use by another trunk."},
		{tr.ID, vlan(free, 5), "DuplicateSubPort: segmentation_type vlan and segmentation_id 5 already in use on trunk " + tr.ID + "."},
		{tr.ID, vlan(foreign, 7), "PortNotFound: Port " + foreign.ID + " could not be found."},
		{tr.ID, vlan(used, 7), "PortInUse: Unable to complete operation on port " + used.ID + " for network " + n.ID + ". Port already has an attached device vm."},
		{tr.ID, `{"port_id":"` + free.ID + `"}`, "InvalidInput: Invalid input for operation: Invalid subport details '{'port_id': '" + free.ID +
			"'}': missing segmentation information. Must specify both segmentation_id and segmentation_type."},
		{tr.ID, `{"port_id":"` + free.ID + `","segmentation_type":"vlan","segmentation_id":"x"}`,
			"InvalidInput: Invalid input for operation: Invalid subport details: segmentation_id 'x' is not an integer."},
		{tr.ID, `{"port_id":"` + free.ID + `","segmentation_type":"inherit"}`, "InvalidInput: Invalid input for operation: Unknown segmentation_type 'vxlan'."},
		{off.ID, vlan(free, 5), "TrunkDisabled: Trunk " + off.ID + " is currently disabled."},
		{lowTrunk.ID, vlan(free, 5), "SubPortMtuGreaterThanTrunkPortMtu: MTU 1450 of subport " + free.ID + " cannot be greater than MTU 1400 of trunk " + low.ID + "."},
		{"nosuch", vlan(free, 5), "TrunkNotFound: Trunk nosuch could not be found."},
	} {
		_, err := w.Trunks().AddSubports(t.Context(), w.member, refused.trunk, subports(t, "["+refused.subs+"]"))
		w.expect(err, refused.want)
	}
	_, err := w.Trunks().RemoveSubports(t.Context(), w.member, tr.ID, subports(t, "["+vlan(free, 5)+"]"))
	w.expect(err, "SubPortNotFound: SubPort "+free.ID+" on trunk "+tr.ID+" could not be found.")
	_, err = w.Trunks().RemoveSubports(t.Context(), w.member, off.ID, nil)
	w.expect(err, "TrunkDisabled: Trunk "+off.ID+" is currently disabled.")
	w.expect(w.remove(w.member, neutron.Trunks, off.ID), "TrunkDisabled: Trunk "+off.ID+" is currently disabled.")
	w.expect(w.remove(w.member, neutron.Ports, parent.ID), "PortInUseAsTrunkParent: Port "+parent.ID+" is currently a parent port for trunk "+tr.ID+".")
	w.expect(w.remove(w.member, neutron.Ports, a.ID), "PortInUseAsSubPort: Port "+a.ID+" is currently a subport for trunk "+tr.ID+".")
	_, err = w.change(w.admin, neutron.Ports, a.ID, `{"binding:host_id":"h9"}`)
	w.expect(err, "PortInUseAsSubPort: Port "+a.ID+" is currently a subport for trunk "+tr.ID+".")
	if len(w.showTrunk(tr.ID).Subports) != 1 || w.showPort(free.ID).SubportVLAN != 0 {
		t.Error("a refused request left something")
	}
}

// TestTrunkSteps: a trunk with more subports than one step has is moved and deleted in several
// commits.
func TestTrunkSteps(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1", "h2")
	n := w.network(`{}`)
	parent := w.port(n.ID, "")
	w.update(parent.ID, `{"binding:host_id":"h1"}`)
	var subs []string
	var ports []*neutron.PortView
	for i := range neutron.MaxSubports {
		p := w.port(n.ID, "")
		ports = append(ports, p)
		subs = append(subs, vlan(p, i+1))
	}
	tr := w.trunk(parent, subs...)
	on := func(host string) int {
		snap, count := must2(w.db.View(t.Context())), 0
		for _, p := range ports {
			if stored, ok := schema.Ports.Peek(snap, p.ID); ok && stored.BoundHostID == host {
				count++
			}
		}
		return count
	}
	if on("id-h1") != len(ports) {
		t.Fatalf("%d of %d subports are bound", on("id-h1"), len(ports))
	}
	w.update(parent.ID, `{"binding:host_id":"h2"}`)
	if moved := on("id-h2"); moved != 64 {
		t.Errorf("%d moved in the first commit", moved)
	}
	if err := w.Rebind(t.Context(), &topology.Host{ID: "id-h1", Name: "h1"}); err != nil {
		t.Fatal(err)
	}
	if on("id-h2") != len(ports) {
		t.Errorf("%d of %d subports have moved", on("id-h2"), len(ports))
	}
	if err := w.remove(w.member, neutron.Trunks, tr.ID); err != nil {
		t.Fatal(err)
	}
	if on("") != len(ports) {
		t.Errorf("%d subports are still bound", len(ports)-on(""))
	}
	w.finished()
	w.verifyStore()
}

// TestTrunkFollowsItsHost: the host of a trunk goes and comes back, and another one takes the
// trunk over: all its subports follow, more of them than one commit takes, and clients need do
// nothing. What was made goes without a trace.
func TestTrunkFollowsItsHost(t *testing.T) {
	t.Parallel()
	w := follow(t, store.NewMemory())
	n := w.network(`{}`)
	before := w.dump("/heddle/hosts/", "/heddle/unique/host/")
	parent := w.port(n.ID, "")
	var subs []string
	for i := range 70 {
		subs = append(subs, vlan(w.port(n.ID, ""), i+1))
	}
	tr := w.trunk(parent, subs...)
	all := 1 + len(subs)
	w.update(parent.ID, `{"binding:host_id":"h1"}`)
	one := tr.Subports[0].PortID
	w.agrees(one, "binding_failed", "", "")
	w.putHost("first", "h1")
	w.until("the trunk bound to the host that came", bound("first", all))
	w.agrees(one, "tap", "first", "")
	w.dropHost("first")
	w.until("the trunk bound nowhere", bound("first", 0))
	w.agrees(one, "binding_failed", "", "first")
	w.putHost("second", "h1")
	w.until("the trunk bound to the next host of the name", bound("second", all))
	w.putHost("third", "h3")
	w.update(parent.ID, `{"binding:host_id":"h3"}`)
	w.until("the trunk bound to another host", bound("third", all))
	w.agrees(one, "tap", "third", "second")

	if err := w.remove(w.member, neutron.Trunks, tr.ID); err != nil {
		t.Fatal(err)
	}
	for _, sub := range tr.Subports {
		if err := w.remove(w.member, neutron.Ports, sub.PortID); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.remove(w.member, neutron.Ports, parent.ID); err != nil {
		t.Fatal(err)
	}
	if after := w.dump("/heddle/hosts/", "/heddle/unique/host/"); !slices.Equal(after, before) {
		t.Errorf("left behind:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	w.verifyStore()
}
