package vtep

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// TestSwitch drives the emulator of Open vSwitch with a machine behind a port that the gateway
// names: what the network has goes there, what the switch learns comes here; the database is
// killed, comes back, and comes back empty.
func TestSwitch(t *testing.T) {
	t.Parallel()
	h := netlab.VTEPForTest(t)
	machine, port, err := h.VTEPPort("m1", "10.77.0.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.VTEPctl("add-ls", "theirs", "--", "add-ucast-remote", "theirs", "02:00:00:00:00:99", "198.18.0.99"); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, h)
	s.connect(neutron.L2GatewayInterface{Name: port}, neutron.L2GatewayInterface{Name: "nowhere", VLANs: []int{5}})
	s.server("one", time.Hour)
	ls := prefix + networkID
	s.untilRows("the network's address", func(out string) bool {
		return strings.Contains(out, vmMAC.String()+" -> vxlan_over_ipv4/"+ourTunnel.String()) && strings.Contains(out, "unknown-dst -> vxlan_over_ipv4/"+ourTunnel.String())
	}, "list-remote-macs", ls)
	s.untilRows("the port's binding", func(out string) bool { return strings.Contains(out, ls) }, "list-bindings", "sw0", port)
	s.until("the fault of a port that is missing", func(r records.Reader) bool {
		st := state(r)
		return st.Connected && st.Server == "one" && fmt.Sprint(st.Switches, st.Ports) == "[sw0] ["+port+"]" && len(st.Faults) == 1 && strings.Contains(st.Faults[0], "nowhere")
	})

	// A frame of the machine has the switch learn its address, and say where floods go.
	mac := macOf(t, machine, "eth0")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	err = netlab.Until(ctx, "the machine's address", func() (bool, error) {
		_, _ = machine.Output(ctx, "ping", "-c1", "-W0.2", "10.77.0.99")
		snap, err := s.objects.Fresh(ctx)
		return err == nil && remote(records.Over(snap), mac) != nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.until("the switch for floods", func(r records.Reader) bool { return remote(r, packet.Broadcast) != nil })
	if _, err := h.VTEPctl("add-ucast-local", ls, "02:00:00:00:00:88", "198.18.0.77"); err != nil {
		t.Fatal(err)
	}
	s.until("another address behind another VTEP", func(r records.Reader) bool {
		l := remote(r, packet.MAC{2, 0, 0, 0, 0, 0x88})
		return l != nil && l.VTEP == netip.MustParseAddr("198.18.0.77") && l.NetworkID == networkID && l.BehindID == networkPort
	})

	// While the database is away, what was learned stays.
	if err := h.KillDatabase(); err != nil {
		t.Fatal(err)
	}
	s.until("the loss", func(r records.Reader) bool { return !state(r).Connected && len(state(r).Faults) == 1 })
	s.until("what was learned", func(r records.Reader) bool { return remote(r, mac) != nil })
	other := packet.MAC{2, 0, 0, 0, 0, 0x12}
	s.update(func(tx *records.Tx) error { return s.putPort(tx, "vm2", other, netip.MustParseAddr("10.77.0.12")) })
	if err := h.StartDatabase(); err != nil {
		t.Fatal(err)
	}
	s.untilRows("what has changed meanwhile", func(out string) bool { return strings.Contains(out, other.String()) }, "list-remote-macs", ls)
	if out, err := h.VTEPctl("list-remote-macs", "theirs"); err != nil || !strings.Contains(out, "02:00:00:00:00:99") {
		t.Errorf("the rows of another: %s, %v", out, err)
	}

	// A switch that comes back empty is filled again.
	if err := h.KillEmulator(); err != nil {
		t.Fatal(err)
	}
	if err := h.KillDatabase(); err != nil {
		t.Fatal(err)
	}
	if err := h.EmptyVTEP(); err != nil {
		t.Fatal(err)
	}
	if err := h.StartDatabase(); err != nil {
		t.Fatal(err)
	}
	s.untilRows("the network's addresses again", func(out string) bool {
		return strings.Contains(out, vmMAC.String()) && strings.Contains(out, other.String())
	}, "list-remote-macs", ls)
	s.until("nothing learned", func(r records.Reader) bool { return remote(r, mac) == nil && state(r).Connected })

	// The connection goes, and with it its switch and what is bound to that.
	if _, err := h.VTEPctl("add-ps", "sw1", "--", "add-port", "sw1", port); err != nil {
		t.Fatal(err)
	}
	s.untilRows("the port's binding again", func(out string) bool { return strings.Contains(out, ls) }, "list-bindings", "sw1", port)
	if _, err := h.VTEPctl("add-ucast-local", ls, "02:00:00:00:00:88", "198.18.0.77"); err != nil {
		t.Fatal(err)
	}
	s.update(func(tx *records.Tx) error { return schema.L2GatewayConnections.Delete(tx, "connection") })
	s.untilRows("no logical switch", func(out string) bool { return !strings.Contains(out, prefix) }, "list-ls")
	s.untilRows("no binding", func(out string) bool { return out == "" }, "list-bindings", "sw1", port)

	// So do they if the device goes at the same time.
	s.connect(neutron.L2GatewayInterface{Name: port})
	s.untilRows("the port's binding anew", func(out string) bool { return strings.Contains(out, ls) }, "list-bindings", "sw1", port)
	s.update(func(tx *records.Tx) error {
		return errors.Join(schema.L2GatewayConnections.Delete(tx, "connection"), schema.L2Gateways.Delete(tx, "gateway"), schema.GatewayDevices.Delete(tx, deviceID))
	})
	s.until("no state of the device", func(r records.Reader) bool { return state(r).DeviceID == "" })
	s.untilRows("no logical switch of a device that is gone", func(out string) bool { return !strings.Contains(out, prefix) }, "list-ls")
}

// macOf returns the MAC address of an interface.
func macOf(t *testing.T, ns *netlab.Namespace, name string) packet.MAC {
	t.Helper()
	out, err := ns.Output(t.Context(), "ip", "-br", "link", "show", name)
	if err != nil {
		t.Fatal(err)
	}
	mac, err := packet.ParseMAC(strings.Fields(out + " - - -")[2])
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return mac
}

// TestLostSwitch: what was learned of a switch that does not come back goes after a while, also
// when another server takes over meanwhile.
func TestLostSwitch(t *testing.T) {
	t.Parallel()
	h := netlab.VTEPForTest(t)
	s := newSite(t, h)
	s.connect()
	const kept = 3 * time.Second
	stop := s.server("one", kept)
	ls, mac := prefix+networkID, packet.MAC{2, 0, 0, 0, 0, 0x88}
	s.untilRows("the network's address", func(out string) bool { return strings.Contains(out, vmMAC.String()) }, "list-remote-macs", ls)
	if _, err := h.VTEPctl("add-ucast-local", ls, mac.String(), "198.18.0.77"); err != nil {
		t.Fatal(err)
	}
	s.until("the address behind the switch", func(r records.Reader) bool { return remote(r, mac) != nil })
	stop()
	s.server("two", kept)
	s.until("the other server", func(r records.Reader) bool { return state(r).Server == "two" && state(r).Connected })
	s.until("what was learned", func(r records.Reader) bool { return remote(r, mac) != nil })
	lost := time.Now()
	if err := h.KillDatabase(); err != nil {
		t.Fatal(err)
	}
	s.until("the loss", func(r records.Reader) bool { return !state(r).Connected })
	s.until("that it is forgotten", func(r records.Reader) bool { return remote(r, mac) == nil })
	if after := time.Since(lost); after < kept {
		t.Errorf("forgotten after %s, want at least %s", after, kept)
	}
}

// TestMoves: an address that both sides have seen is where it was seen last.
func TestMoves(t *testing.T) {
	t.Parallel()
	h := netlab.VTEPForTest(t)
	s := newSite(t, h)
	s.connect()
	s.server("one", time.Hour)
	ls, mac, other := prefix+networkID, packet.MAC{2, 0, 0, 0, 0, 0x55}, packet.MAC{2, 0, 0, 0, 0, 0x56}
	has := func(out string) bool { return strings.Contains(out, mac.String()) }
	s.update(func(tx *records.Tx) error { return s.putPort(tx, "vm2", packet.MAC{2, 0, 0, 0, 0, 0x12}, vmIP.Next()) })
	s.learn("h1", mac, "vm")
	s.untilRows("the learned address", has, "list-remote-macs", ls)
	if _, err := h.VTEPctl("add-ucast-local", ls, mac.String(), "198.18.0.77"); err != nil {
		t.Fatal(err)
	}
	s.untilRows("that it has moved to the switch", func(out string) bool { return !has(out) }, "list-remote-macs", ls)
	s.until("the address there", func(r records.Reader) bool { return remote(r, mac) != nil })
	s.learn("h2", mac, "vm2") // which is bound to another host
	s.learn("h2", other, "vm")
	s.learn("h1", mac, "vm2")
	s.untilRows("that it has moved back", has, "list-remote-macs", ls)
	s.learn("h1", mac, networkPort) // seen from the gateway itself
	s.untilRows("that it is at the switch", func(out string) bool { return !has(out) }, "list-remote-macs", ls)
	if out, err := h.VTEPctl("list-remote-macs", ls); err != nil || strings.Contains(out, other.String()) {
		t.Errorf("an address that a host reports behind another's port is at the switch: %s, %v", out, err)
	}
}
