package ovs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"
)

// TestEdits walks a switch through what an edit can ask for. What is asked twice costs nothing.
func TestEdits(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	h := l.Hosts()[0]
	c := follow(t, h)
	twice := func(edits ...func(*ovs.Edit) error) *ovs.Snapshot {
		t.Helper()
		snap := change(t, c, edits...)
		e := ovs.NewEdit(snap, ours)
		for _, edit := range edits {
			if err := edit(e); err != nil {
				t.Fatal(err)
			}
		}
		if len(e.Ops()) > 0 {
			t.Errorf("the second time costs %v", e.Ops())
		}
		return snap
	}
	gre := ovs.PortSpec{Name: "gre0", Type: "gre", Options: map[string]string{"remote_ip": "198.18.0.9", "key": "7"},
		ExternalIDs: map[string]string{"network": "n"}, InterfaceIDs: map[string]string{"peer": "p"}}
	first := twice(bridge("xapi0"), bridge("xapi1"), port("xapi0", gre))
	if b := first.Bridge("xapi0"); b.OtherConfig["hwaddr"] != "02:00:00:00:77:01" || b.FailMode != "standalone" || b.DatapathType != "netdev" ||
		!maps.Equal(b.ExternalIDs, map[string]string{"xs-network-uuids": "net-xapi0", ours.Key: ours.Value}) {
		t.Errorf("xapi0 is %+v", b)
	}
	eventually := func(what string, is func(*ovs.Interface) bool) {
		t.Helper()
		snap, err := c.Wait(within(t, 10*time.Second), func(s *ovs.Snapshot) bool { return is(s.Interface("xapi0")) })
		if err != nil {
			t.Fatalf("%s: %v: %+v", what, err, snap.Interface("xapi0"))
		}
	}
	eventually("MAC address", func(i *ovs.Interface) bool { return i.MACInUse == "02:00:00:00:77:01" })
	if i := first.Interface("xapi0"); i.Type != "internal" || first.PortOf(i.UUID).Name != "xapi0" {
		t.Errorf("its device is %+v", i)
	}

	// Keys that others have put there stay; ours change.
	if _, err := h.Vsctl("set", "bridge", "xapi0", "external_ids:theirs=kept", "other_config:mac-table-size=100"); err != nil {
		t.Fatal(err)
	}
	snap := twice(func(e *ovs.Edit) error {
		return e.EnsureBridge(ovs.BridgeSpec{Name: "xapi0", DatapathType: "netdev", FailMode: "secure", MAC: "02:00:00:00:77:02", MTU: 1400,
			ExternalIDs: map[string]string{"xs-network-uuids": "other", "empty": ""}})
	})
	b := snap.Bridge("xapi0")
	if b.UUID != first.Bridge("xapi0").UUID || b.FailMode != "secure" ||
		!maps.Equal(b.ExternalIDs, map[string]string{"xs-network-uuids": "other", "empty": "", "theirs": "kept", ours.Key: ours.Value}) ||
		!maps.Equal(b.OtherConfig, map[string]string{"hwaddr": "02:00:00:00:77:02", "mac-table-size": "100"}) {
		t.Errorf("xapi0 is %+v", b)
	}
	eventually("MTU", func(i *ovs.Interface) bool { return i.MTURequest == 1400 && i.MTU == 1400 })

	// A port changes in place, and moves as another row.
	gre.Options, gre.ExternalIDs, gre.InterfaceIDs = map[string]string{"remote_ip": "198.18.0.8", "key": "7"}, map[string]string{"epoch": "2"}, nil
	gre.Protected, gre.Tag, gre.BFD = true, 5, map[string]string{"enable": "true"}
	snap = twice(port("xapi0", gre))
	if p := snap.Port("gre0"); p.UUID != first.Port("gre0").UUID || !p.Protected || p.Tag != 5 ||
		!maps.Equal(p.ExternalIDs, map[string]string{"epoch": "2", ours.Key: ours.Value}) {
		t.Errorf("gre0 is %+v", p)
	}
	if i := snap.Interface("gre0"); i.UUID != first.Interface("gre0").UUID || i.Options["remote_ip"] != "198.18.0.8" || i.BFD["enable"] != "true" || i.ExternalIDs != nil {
		t.Errorf("its interface is %+v", i)
	}
	gre.Tag, gre.BFD = 0, nil
	snap = twice(port("xapi1", gre))
	if p := snap.Port("gre0"); snap.BridgeOf(p.UUID).Name != "xapi1" || p.Tag != -1 || len(snap.Bridge("xapi0").Ports) != 1 {
		t.Errorf("gre0 is %+v on %s", p, snap.BridgeOf(p.UUID).Name)
	}
	if i := snap.Interface("gre0"); i.OfPort <= 0 || i.Error != "" || i.BFD != nil {
		t.Errorf("its interface is %+v", i)
	}
	snap = twice(func(e *ovs.Edit) error { return errors.Join(e.DeletePort("gre0"), e.DeleteBridge("xapi0")) })
	if snap.Port("gre0") != nil || snap.Bridge("xapi0") != nil || snap.Bridge("xapi1") == nil {
		t.Error("not what was asked for is gone")
	}
}

// TestPortsSwapKeys gives each of two tunnels what the other had, in one transaction.
func TestPortsSwapKeys(t *testing.T) {
	t.Parallel()
	l := netlab.OVSForTest(t, 1)
	c := follow(t, l.Hosts()[0])
	gre := func(name, key string) func(*ovs.Edit) error {
		return port("xapi0", ovs.PortSpec{Name: name, Type: "gre", Options: map[string]string{"remote_ip": "198.18.0.9", "key": key}})
	}
	change(t, c, bridge("xapi0"), gre("gre0", "7"), gre("gre1", "8"))
	for range 5 {
		for _, keys := range [][2]string{{"8", "7"}, {"7", "8"}} {
			snap := change(t, c, gre("gre0", keys[0]), gre("gre1", keys[1]))
			for n, name := range []string{"gre0", "gre1"} {
				if i := snap.Interface(name); i.OfPort <= 0 || i.Error != "" || i.Options["key"] != keys[n] {
					t.Errorf("%s is %+v", name, i)
				}
			}
			// The switch changes one port after the other. The first to take a key that the other
			// still has goes without a tunnel until the switch looks at its ports again.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			var out string
			err := netlab.Until(ctx, "both tunnels to have their new keys", func() (both bool, err error) {
				out, err = l.Hosts()[0].Appctl("ofproto/list-tunnels")
				both = true
				for n, name := range []string{"gre0", "gre1"} {
					both = both && strings.Contains(out, fmt.Sprintf("%s (gre: ::->198.18.0.9, key=0x%s,", name, keys[n]))
				}
				return both, err
			})
			cancel()
			if err != nil {
				t.Fatalf("%v; the switch has\n%s", err, out)
			}
		}
	}
}

// TestEditsOfAnOldSnapshot change nothing, and say so: what is put on a bridge that is gone would
// vanish without a word.
func TestEditsOfAnOldSnapshot(t *testing.T) {
	t.Parallel()
	address := database(t, asItIs)
	c := dial(t, ovsdb.Options{Address: address})
	ctx := within(t, 10*time.Second)
	commit := func(edit func(*ovs.Edit) error, snap *ovs.Snapshot) error {
		e := ovs.NewEdit(snap, ours)
		if err := edit(e); err != nil {
			t.Fatal(err)
		}
		_, err := c.Transact(ctx, e.Ops()...)
		return err
	}
	if _, err := c.Transact(ctx, ovsdb.Insert(ovs.Database, "", ovsdb.Row{})); err != nil {
		t.Fatal(err)
	}
	if err := commit(bridge("xapi0"), c.Snapshot()); err != nil {
		t.Fatal(err)
	}
	old := c.Snapshot()
	if err := commit(func(e *ovs.Edit) error { return e.DeleteBridge("xapi0") }, old); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*ovs.Edit) error{
		"port":   port("xapi0", ovs.PortSpec{Name: "gre0", Type: "gre"}),
		"bridge": func(e *ovs.Edit) error { return e.EnsureBridge(ovs.BridgeSpec{Name: "xapi0", FailMode: "secure"}) },
	} {
		var refused *ovsdb.OpError
		if err := commit(edit, old); !errors.As(err, &refused) || refused.Code != "timed out" {
			t.Errorf("%s: %v, want that it timed out", name, err)
		}
	}
	e := ovs.NewEdit(c.Snapshot(), ours)
	if err := e.EnsurePort("xapi0", ovs.PortSpec{Name: "gre0"}); err == nil {
		t.Error("a port on a bridge that is not there: no error")
	}
	if err := errors.Join(bridge("xapi0")(e), port("xapi0", ovs.PortSpec{Name: "gre0"})(e)); err != nil {
		t.Error(err)
	}
	if bridge("xapi0")(e) == nil || port("xapi0", ovs.PortSpec{Name: "gre0"})(e) == nil {
		t.Error("wanted twice: no error")
	}
}
