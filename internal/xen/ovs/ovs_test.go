package ovs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"
)

var ours = ovs.Mark{Key: "heddle-test", Value: "yes"}

// within bounds a test's waiting.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// logger writes what the client logs when the test fails.
func logger(t testing.TB) *slog.Logger {
	var log netlab.Log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("client: %s", log.String())
		}
	})
	return slog.New(slog.NewTextHandler(&log, nil))
}

// follow dials a host's database; the client ends with the test.
func follow(t testing.TB, h *netlab.OVSHost, set ...func(*ovsdb.Options)) *ovs.Client {
	t.Helper()
	o := ovsdb.Options{Address: h.DB(), Log: logger(t)}
	for _, f := range set {
		f(&o)
	}
	c, err := ovs.Dial(within(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// change applies an edit of the client's snapshot and returns the one that shows the outcome.
func change(t testing.TB, c *ovs.Client, edits ...func(*ovs.Edit) error) *ovs.Snapshot {
	t.Helper()
	e := ovs.NewEdit(c.Snapshot(), ours)
	for _, edit := range edits {
		if err := edit(e); err != nil {
			t.Fatal(err)
		}
	}
	snap, _, err := c.Apply(within(t, 20*time.Second), e.Ops()...)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func bridge(name string) func(*ovs.Edit) error {
	return func(e *ovs.Edit) error {
		return e.EnsureBridge(ovs.BridgeSpec{Name: name, DatapathType: "netdev", FailMode: "standalone", MAC: "02:00:00:00:77:01",
			ExternalIDs: map[string]string{"xs-network-uuids": "net-" + name}})
	}
}

func port(bridge string, spec ovs.PortSpec) func(*ovs.Edit) error {
	return func(e *ovs.Edit) error { return e.EnsurePort(bridge, spec) }
}

// leg is a tunnel's end.
func leg(kind string, peer *netlab.OVSHost, key int) ovs.PortSpec {
	return ovs.PortSpec{Name: fmt.Sprintf("t%s-%d", peer.Name, key), Type: kind,
		Options: map[string]string{"remote_ip": peer.Address.String(), "key": fmt.Sprint(key)}}
}

// TestStars joins machines of three hosts by a star of each kind of tunnel, over bridges and ports
// that the client makes.
func TestStars(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"gre", "vxlan"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := netlab.OVSForTest(t, 3)
			machines := star(t, l, kind)
			ctx := within(t, 20*time.Second)
			// Pitfall 3: one byte more than fits is lost without a word (xenapi-tunnel §10.3).
			room := map[string]int{"gre": 1600 - 42, "vxlan": 1600 - 50}[kind]
			for i, m := range machines {
				m.MustIP(t, "link set eth0 mtu 2000")
				l.Hosts()[i].Space.MustIP(t, fmt.Sprintf("link set vm%d mtu 2000", i+1))
			}
			if err := machines[1].Reach(ctx, "10.77.0.1"); err != nil {
				t.Fatal(err)
			}
			for size, fits := range map[int]bool{room: true, room + 1: false} {
				_, err := machines[1].Output(ctx, "ping", "-n", "-q", "-c3", "-i0.05", "-W1", "-M", "do", "-s", fmt.Sprint(size-28), "10.77.0.1")
				if (err == nil) != fits {
					t.Errorf("an IP packet of %d bytes: %v, want that it fits: %v", size, err, fits)
				}
			}
			for i, m := range machines {
				for j := range machines {
					if i != j {
						if err := m.Reach(ctx, fmt.Sprintf("10.77.0.%d", j+1)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// star makes a bridge, a machine and legs on each host; the first is the center.
func star(t testing.TB, l *netlab.OVSLab, kind string) []*netlab.Namespace {
	t.Helper()
	var machines []*netlab.Namespace
	hosts := l.Hosts()
	for i, h := range hosts {
		m, end, err := h.Machine(fmt.Sprintf("m%d", i+1), fmt.Sprintf("10.77.0.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		machines = append(machines, m)
		edits := []func(*ovs.Edit) error{bridge("xapi0"), port("xapi0", ovs.PortSpec{Name: end})}
		for j, other := range hosts {
			if i != j && (i == 0 || j == 0) {
				edits = append(edits, port("xapi0", leg(kind, other, 7)))
			}
		}
		snap := change(t, follow(t, h), edits...)
		for _, p := range snap.PortsOf(snap.Bridge("xapi0")) {
			if i := snap.InterfaceOf(p); i.OfPort == 0 || i.Error != "" {
				t.Fatalf("host %s: interface %s has ofport %d, error %q", h.Name, i.Name, i.OfPort, i.Error)
			}
		}
	}
	return machines
}

// TestTunnelsAreUniqueInASwitch is pitfall 5: a second port with the same type, peer and key is
// taken by the database, and refused by the switch.
func TestTunnelsAreUniqueInASwitch(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	same := map[string]string{"remote_ip": "198.18.0.9", "key": "7"}
	snap := change(t, c, bridge("xapi0"), bridge("xapi1"), port("xapi0", ovs.PortSpec{Name: "one", Type: "gre", Options: same}))
	if i := snap.Interface("one"); i.OfPort <= 0 || i.Error != "" {
		t.Fatalf("the first has ofport %d, error %q", i.OfPort, i.Error)
	}
	snap = change(t, c, port("xapi1", ovs.PortSpec{Name: "two", Type: "gre", Options: same}))
	if i := snap.Interface("two"); i.OfPort != -1 || !strings.Contains(i.Error, "File exists") {
		t.Fatalf("the second has ofport %d, error %q; want -1 and a reason", i.OfPort, i.Error)
	}
	snap = change(t, c, port("xapi1", ovs.PortSpec{Name: "two", Type: "gre", Options: map[string]string{"remote_ip": "198.18.0.9", "key": "8"}}))
	if i := snap.Interface("two"); i.OfPort <= 0 || i.Error != "" {
		t.Fatalf("with a key of its own it has ofport %d, error %q", i.OfPort, i.Error)
	}
}

// TestForeignRowsStay shows that an edit neither deletes nor changes what lacks its mark.
func TestForeignRowsStay(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	if _, err := h.Vsctl("add-br", "xenbr0", "--", "set", "bridge", "xenbr0", "datapath_type=netdev", "external_ids:theirs=kept",
		"--", "add-port", "xenbr0", "gre0", "--", "set", "interface", "gre0", "type=gre", "options:remote_ip=198.18.0.9", "options:key=9"); err != nil {
		t.Fatal(err)
	}
	c := follow(t, h)
	before := c.Snapshot()
	e := ovs.NewEdit(before, ours)
	for what, err := range map[string]error{
		"delete bridge": e.DeleteBridge("xenbr0"),
		"ensure bridge": e.EnsureBridge(ovs.BridgeSpec{Name: "xenbr0"}),
		"delete port":   e.DeletePort("gre0"),
		"ensure port":   e.EnsurePort("xenbr0", ovs.PortSpec{Name: "gre0", Type: "vxlan"}),
	} {
		if !errors.Is(err, ovs.ErrForeign) {
			t.Errorf("%s: %v, want %v", what, err, ovs.ErrForeign)
		}
	}
	if len(e.Ops()) > 0 {
		t.Errorf("operations all the same: %v", e.Ops())
	}
	// A port of ours on their bridge comes and goes, and theirs stay as they were.
	snap := change(t, c, port("xenbr0", ovs.PortSpec{Name: "gre1", Type: "gre", Options: map[string]string{"remote_ip": "198.18.0.9", "key": "10"}}))
	if b := snap.Bridge("xenbr0"); snap.BridgeOf(snap.Port("gre1").UUID) != b {
		t.Fatal("gre1 is not on xenbr0")
	}
	after := change(t, c, func(e *ovs.Edit) error { return e.DeletePort("gre1") })
	if ids := ovsdb.Changed(before.Ports, after.Ports); len(ids) > 0 {
		t.Errorf("ports %v have changed", ids)
	}
	if !slices.Equal(before.Bridge("xenbr0").Ports, after.Bridge("xenbr0").Ports) {
		t.Errorf("xenbr0 has ports %v, had %v", after.Bridge("xenbr0").Ports, before.Bridge("xenbr0").Ports)
	}
}
