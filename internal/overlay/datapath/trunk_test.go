package datapath_test

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/overlay/datapath"
)

const noSubport = "VLAN tag of no subport"

// trunk makes a workload's port a subport: its interface becomes that of a parent, and the workload
// tags what it sends.
func (n *network) trunk(w *workload, vlan uint16) {
	n.t.Helper()
	tap := w.host.Ports()[0].Interface
	for _, p := range w.host.Ports() {
		if p.Name == w.name {
			tap = p.Interface
		}
	}
	n.detach(w)
	subport := datapath.PortOptions{TunnelKey: w.key, MTU: 1450, VLAN: vlan}
	if _, err := w.host.AttachPort(w.name, tap, subport); err == nil {
		n.t.Fatal("a subport was attached to an interface without a trunk")
	}
	if _, err := w.host.AttachPort("parent-of-"+w.name, tap, datapath.PortOptions{MTU: 1450, Trunk: true}); err != nil {
		n.t.Fatal(err)
	}
	p, err := w.host.AttachPort(w.name, tap, subport)
	if err != nil {
		n.t.Fatal(err)
	}
	w.port = p
	senders := map[netip.Addr]bool{}
	for _, other := range w.host.others {
		senders[other.ip] = true
	}
	w.host.SetSenders(p, senders)
	w.host.mu.Lock()
	w.host.where[w.mac] = datapath.Output{Port: p}
	w.host.mu.Unlock()
	tagFrames(n.t, w.Namespace, "eth0", vlan)
}

// detach takes a workload's port away, to which its host sends nothing from then on.
func (n *network) detach(w *workload) {
	n.t.Helper()
	w.host.mu.Lock()
	delete(w.host.where, w.mac)
	w.host.mu.Unlock()
	if err := w.host.DetachPort(w.name); err != nil {
		n.t.Fatal(err)
	}
}

// TestTrunk sends all kinds of traffic to and from subports, on one host and between two, restarts
// the agent, and takes the subport away: then no subport has its tag.
func TestTrunk(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b, c := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	n.trunk(a, 101)
	n.trunk(c, 4094)
	checkTraffic(t, a, b)
	checkTraffic(t, b, a)
	checkTraffic(t, a, c)
	h := n.hosts[0]
	before := h.Ports()
	h.stop()
	h.open()
	if after := h.Ports(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart: %+v, before %+v", after, before)
	}
	checkTraffic(t, c, a)
	drops := counters(t, h).Drops
	for _, reason := range []string{"refused by the kernel", "no such port", noSubport} {
		if drops[reason] > 0 {
			t.Errorf("%d frames were dropped: %s", drops[reason], reason)
		}
	}

	n.detach(a)
	if _, err := a.Output(t.Context(), "ping", "-c", "1", "-W", "1", b.v4.String()); err == nil {
		t.Error("a frame with the tag of a subport that is gone was answered")
	}
	if counters(t, h).Drops[noSubport] == 0 {
		t.Error("nothing was dropped for its tag")
	}
	if err := h.DetachPort("parent-of-" + a.name); err != nil {
		t.Error(err)
	}
	for _, p := range h.Ports() {
		if p.Name != b.name {
			t.Errorf("left behind: %+v", p)
		}
	}
}
