package control_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// tapsIn returns what is derived from all taps.
func (w *world) tapsIn() (mirrors []topology.Mirror, entries []topology.MirrorEntry) {
	w.t.Helper()
	snap, err := w.db.View(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for b := range schema.Bundles.All(snap) {
		mirrors = append(mirrors, b.Bundle.Mirrors...)
		entries = append(entries, b.Bundle.MirrorEntries...)
	}
	return mirrors, entries
}

// TestTaps: services and flows are in the topology as mirrors and entries at ports, which leave the
// ports' own bundles alone; they go with their port or service and leave nothing.
func TestTaps(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	start := w.dump()
	source, monitor, other := w.port(n.ID, ""), w.port(n.ID, ""), w.port(n.ID, "")
	bundle := w.bundle("port", source.ID)
	service := func(port string) *neutron.TapServiceView {
		return must[*neutron.TapServiceView](w, w.member, neutron.TapServices, `{"port_id":"`+port+`"}`)
	}
	flow := func(service, source, more string) *neutron.TapFlowView {
		return must[*neutron.TapFlowView](w, w.member, neutron.TapFlows, `{"tap_service_id":"`+service+`","source_port":"`+source+`",`+more+`}`)
	}
	s := service(monitor.ID)
	both, again := flow(s.ID, source.ID, `"direction":"BOTH"`), flow(s.ID, source.ID, `"direction":"BOTH"`)
	in := flow(s.ID, source.ID, `"direction":"IN","vlan_filter":"0,5-7"`)
	if got, want := w.bundle("tap-service", s.ID), translate.TapService(s.TapService); cmp.Diff(want, got) != "" || got.Mirrors[0].ToPortID != monitor.ID {
		t.Errorf("service: %+v", got)
	}
	entry := func(p topology.MirrorPosition, vlans ...topology.VLANRange) topology.MirrorEntry {
		return topology.MirrorEntry{PortID: source.ID, MirrorID: s.ID, Position: p, VLANs: vlans}
	}
	for f, want := range map[*neutron.TapFlowView][]topology.MirrorEntry{
		both:  {entry(topology.PreOutFilter), entry(topology.PostInFilter)},
		again: {entry(topology.PreOutFilter), entry(topology.PostInFilter)},
		in:    {entry(topology.PreOutFilter, topology.VLANRange{}, topology.VLANRange{First: 5, Last: 7})},
	} {
		if d := cmp.Diff(want, w.bundle("tap-flow", f.ID).MirrorEntries); d != "" {
			t.Errorf("flow %s (-want +got):\n%s", f.Direction, d)
		}
	}
	if got := w.bundle("port", source.ID); !reflect.DeepEqual(bundle, got) {
		t.Errorf("the port's own bundle changed from %+v to %+v", bundle, got)
	}
	if err := w.remove(w.member, neutron.TapFlows, again.ID); err != nil {
		t.Fatal(err)
	}
	if _, entries := w.tapsIn(); len(entries) != 3 {
		t.Errorf("after one of three flows went: entries %v", entries)
	}

	// The source port takes its flows along, the monitor's its service with all flows.
	second := service(other.ID)
	flow(second.ID, monitor.ID, `"direction":"OUT"`)
	if err := w.remove(w.member, neutron.Ports, source.ID); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.member, neutron.TapFlows, both.ID), "TapFlowNotFound: Tap Flow  "+both.ID+" does not exist")
	if mirrors, entries := w.tapsIn(); len(mirrors) != 2 || len(entries) != 1 {
		t.Errorf("after the source went: mirrors %v, entries %v", mirrors, entries)
	}
	flow(s.ID, other.ID, `"direction":"OUT"`)
	if err := w.remove(w.member, neutron.Ports, other.ID); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.member, neutron.TapServices, second.ID), "TapServiceNotFound: Tap Service  "+second.ID+" does not exist")
	if mirrors, entries := w.tapsIn(); len(mirrors) != 1 || len(entries) != 0 {
		t.Errorf("after the monitor went: mirrors %v, entries %v", mirrors, entries)
	}
	for _, gone := range []error{w.remove(w.member, neutron.TapServices, s.ID), w.remove(w.member, neutron.Ports, monitor.ID)} {
		if gone != nil {
			t.Fatal(gone)
		}
	}
	if d := cmp.Diff(start, w.dump()); d != "" {
		t.Errorf("left behind:\n%s", d)
	}
}

// TestTapsOfDeletedService: a service takes its flows along.
func TestTapsOfDeletedService(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	source, monitor := w.port(n.ID, ""), w.port(n.ID, "")
	before := w.dump()
	s := must[*neutron.TapServiceView](w, w.member, neutron.TapServices, `{"port_id":"`+monitor.ID+`"}`)
	f := must[*neutron.TapFlowView](w, w.member, neutron.TapFlows, `{"tap_service_id":"`+s.ID+`","source_port":"`+source.ID+`","direction":"IN"}`)
	if err := w.remove(w.member, neutron.TapServices, s.ID); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.member, neutron.TapFlows, f.ID), "TapFlowNotFound: Tap Flow  "+f.ID+" does not exist")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left behind:\n%s", d)
	}
}

// TestTapsRefused: taps that would copy what is nobody's to see, or nothing, are refused and leave
// no trace. No port has more flows than the limit.
func TestTapsRefused(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	source, monitor := w.port(n.ID, ""), w.port(n.ID, "")
	s := must[*neutron.TapServiceView](w, w.member, neutron.TapServices, `{"port_id":"`+monitor.ID+`"}`)
	make := func(direction string) error {
		_, err := w.create(w.member, neutron.TapFlows, `{"tap_service_id":"`+s.ID+`","source_port":"`+source.ID+`","direction":"`+direction+`"}`)
		return err
	}
	for range neutron.MaxList {
		if err := make("IN"); err != nil {
			t.Fatal(err)
		}
	}
	before := w.dump()
	w.expect(make("OUT"), "HTTPBadRequest: Invalid input for tap_flows. Reason: '101' entries are too many - there may be no more than '100'.")
	_, err := w.create(w.member, neutron.TapFlows, `{"tap_service_id":"`+s.ID+`","source_port":"`+monitor.ID+`","direction":"IN"}`)
	w.expect(err, "BadRequest: Bad tap_flow request: Port "+monitor.ID+" is that of tap service "+s.ID+" itself.")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refusals left traces:\n%s", d)
	}
}
