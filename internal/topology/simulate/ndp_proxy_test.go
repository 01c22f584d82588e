package simulate

import (
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// proxy has the gateway gw6 answer for an address inside, as a translated NDP proxy.
func (l *lab) proxy(a netip.Addr) []string {
	return l.Apply(owner("ndp-proxy", "x"), &topology.Bundle{
		Neighbours: []topology.NeighbourEntry{{NetworkID: "net4", IP: a, MAC: routerMAC(gw6.n)}},
	})
}

// TestProxiedNeighbour: a machine on the network of a gateway asks for an address inside and gets
// the gateway's MAC address, by which it reaches the address. One that looks for duplicates of it
// hears that it is taken.
func TestProxiedNeighbour(t *testing.T) {
	t.Parallel()
	l := example6()
	outside := ip("2001:db8:4::1")
	group := packet.SolicitedNode(ip6X)
	ask := packet.NeighborSolicit(packet.MulticastMAC(group), mac(4), outside, group, ip6X)
	probe := packet.NeighborSolicit(packet.MulticastMAC(group), mac(4), netip.IPv6Unspecified(), group, ip6X)
	for name, frame := range map[string][]byte{"question": ask, "probe": probe} {
		if d := l.send("p-up", frame); len(d.Emit) != 0 {
			t.Errorf("%s without a proxy: %d answers\n%s", name, len(d.Emit), walk(d))
		}
	}
	l.proxy(ip6X)
	answer := func(frame []byte) packet.Frame {
		t.Helper()
		d := l.send("p-up", frame)
		var f packet.Frame
		if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != "p-up" {
			t.Fatalf("%d answers\n%s", len(d.Emit), walk(d))
		}
		if err := packet.Decode(d.Emit[0].Frame, &f); err != nil {
			t.Fatal(err)
		}
		if f.NDTarget != ip6X || f.NDLink != routerMAC(gw6.n) || uint8(f.TpSrc) != packet.ICMPv6NeighborAdvert || packet.VerifyChecksums(d.Emit[0].Frame) != nil {
			t.Errorf("answer %+v", f)
		}
		return f
	}
	if f := answer(ask); f.DstIP != outside || f.NDFlags != packet.NDSolicited|packet.NDOverride {
		t.Errorf("the question is answered to %s with flags %#x", f.DstIP, f.NDFlags)
	}
	if f := answer(probe); f.DstIP != allNodes || f.Dst != packet.MulticastMAC(allNodes) || f.NDFlags != 0 {
		t.Errorf("the probe is answered to %s at %s with flags %#x", f.DstIP, f.Dst, f.NDFlags)
	}
	l.expectAt(t, "p-up", routedTCP6(4, gw6.n, outside, ip6X, 64), "p-x", "2001:db8:4::1:4000→2001:db8:1::5:80")

	// Machines defend their own addresses.
	own := ip("2001:db8:4::77")
	l.station("own", "net4", 7, own)
	group = packet.SolicitedNode(own)
	if d := l.send("p-up", packet.NeighborSolicit(packet.MulticastMAC(group), mac(4), netip.IPv6Unspecified(), group, own)); len(d.Emit) != 0 || d.Verdict != flow.Forward {
		t.Errorf("a probe for a machine's address\n%s", walk(d))
	}
	l.Apply(owner("ndp-proxy", "x"), nil)
	if d := l.send("p-up", ask); len(d.Emit) != 0 {
		t.Errorf("answered without the proxy\n%s", walk(d))
	}
}
