package policy

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/hostnet"
)

// TestTunnels: devices are made, mended and removed as pools ask, and a VXLAN knows the hosts there are.
func TestTunnels(t *testing.T) {
	t.Parallel()
	n := hostnet.NewFake(nil)
	if _, err := n.AddLink(hostnet.LinkSpec{Name: "eth0", Kind: hostnet.Veth, Peer: "far", MTU: 9000}); err != nil {
		t.Fatal(err)
	}
	if err := n.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24")); err != nil {
		t.Fatal(err)
	}
	tunnels := tunnels{net: n, log: slog.New(slog.DiscardHandler)}
	want := tunnelling{vxlans: []string{"vxlan0"}, peers: []netip.Addr{ip("192.0.2.2"), ip("192.0.2.3")}, mtu: 1440}
	if failed := tunnels.put(want); failed["vxlan0"] == nil {
		t.Error("a host that does not know its address makes a VXLAN")
	}
	want.local, want.address = ip("192.0.2.1"), ip("10.65.0.0")
	well := func(when string) {
		t.Helper()
		for range 2 { // the second time there is nothing to do
			if failed := tunnels.put(want); len(failed) > 0 {
				t.Fatalf("%s: %v", when, failed)
			}
		}
	}
	hosts := func() (out []netip.Addr) {
		t.Helper()
		forwards, err := n.Forwards("vxlan0")
		if err != nil {
			t.Fatal(err)
		}
		neighbours, err := n.Neighbours()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forwards {
			if slices.ContainsFunc(neighbours, func(x hostnet.Neighbour) bool { return x.Link == "vxlan0" && x.IP == f.Remote && x.MAC == f.MAC }) {
				out = append(out, f.Remote)
			}
		}
		return out
	}
	well("at first")
	l, err := n.Link("vxlan0")
	if err != nil || !l.Up || l.MTU != 9000-vxlanOverhead || l.MAC != tunnelMAC(want.local) || l.VXLAN.Local != want.local {
		t.Errorf("made %+v, %v", l, err)
	}
	if got := hosts(); !slices.Equal(got, want.peers) {
		t.Errorf("it knows %v, want %v", got, want.peers)
	}
	if a, _ := n.Addresses("vxlan0"); !slices.Equal(a, []netip.Prefix{netip.MustParsePrefix("10.65.0.0/32")}) {
		t.Errorf("its addresses are %v", a)
	}
	// Somebody changes it, a host goes, another comes.
	if err := n.AddAddress("vxlan0", netip.MustParsePrefix("10.65.0.9/32")); err != nil {
		t.Fatal(err)
	}
	if err := n.DeleteNeighbour("vxlan0", ip("192.0.2.3")); err != nil {
		t.Fatal(err)
	}
	want.peers = []netip.Addr{ip("192.0.2.3"), ip("192.0.2.4")}
	well("with other hosts")
	if got := hosts(); !slices.Equal(got, want.peers) {
		t.Errorf("it knows %v, want %v", got, want.peers)
	}
	if a, _ := n.Addresses("vxlan0"); len(a) != 1 {
		t.Errorf("its addresses are %v", a)
	}
	// This host has another address: the device is another one.
	before := l.Index
	want.local = ip("192.0.2.77")
	well("at another address")
	if l, err = n.Link("vxlan0"); err != nil || l.Index == before || l.VXLAN.Local != want.local {
		t.Errorf("after the host has another address it is %+v, %v", l, err)
	}
	want.vxlans, want.ipip = []string{"vxlan1"}, ipipDevice
	well("of another name, beside IPIP")
	if _, err := n.Link("vxlan0"); err == nil {
		t.Error("a device that no pool asks for is left")
	}
	if l, err := n.Link(ipipDevice); err != nil || l.MTU != 1440 || !l.Up {
		t.Errorf("IPIP is %+v, %v", l, err)
	}
	if a, _ := n.Addresses("vxlan1"); len(a) != 0 {
		t.Errorf("both devices have the address: %v", a)
	}
	if _, err := n.AddLink(hostnet.LinkSpec{Name: "vxlan9", Kind: hostnet.Tap}); err != nil {
		t.Fatal(err)
	}
	want.vxlans = []string{"vxlan9"}
	if failed := tunnels.put(want); failed["vxlan9"] == nil {
		t.Error("somebody else's device is taken for a tunnel")
	}
}
