package simulate

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

var (
	ip6X, ip6Y = ip("2001:db8:1::5"), ip("2001:db8:2::5")
	r61        = link{id: "r61", router: "r", network: "net1", n: 11, at: prefix("2001:db8:1::1/64")}
	r62        = link{id: "r62", router: "r", network: "net2", n: 12, at: prefix("2001:db8:2::1/64")}
	gw6        = link{id: "gw6", router: "r", network: "net4", n: 14, at: prefix("2001:db8:4::2/64"), via: ip("2001:db8:4::1")}
)

// example6 is the example with IPv6 beside IPv4.
func example6() *lab {
	l := example()
	for _, k := range []link{r61, r62, gw6} {
		l.link(k)
	}
	l.station("x", "net1", 1, ipX, ip6X)
	l.station("y", "net2", 2, ipY, ip6Y)
	l.station("up", "net4", 4, ipUp, ip("2001:db8:4::1"))
	return l
}

func routed6(n, to int, src, dst netip.Addr, hops uint8, proto uint8, payload []byte) []byte {
	b := packet.Ethernet{Dst: routerMAC(to), Src: mac(n), Type: packet.TypeIPv6}.Append(nil)
	return append(packet.IPv6{HopLimit: hops, Next: proto, Src: src, Dst: dst}.Append(b, len(payload)), payload...)
}

func routedTCP6(n, to int, src, dst netip.Addr, hops uint8) []byte {
	return routed6(n, to, src, dst, hops, packet.ProtoTCP, packet.TCP{SrcPort: 4000, DstPort: 80, Flags: packet.TCPSyn}.Append(nil, src, dst, nil))
}

func TestRoutingOfIPv6(t *testing.T) {
	t.Parallel()
	l := example6()
	l.expectAt(t, "p-x", routedTCP6(1, 11, ip6X, ip6Y, 64), "p-y", "2001:db8:1::5:4000→2001:db8:2::5:80")
	out := ip("2001:db8:ffff::1")
	l.expectAt(t, "p-x", routedTCP6(1, 11, ip6X, out, 64), "p-up", "2001:db8:1::5:4000→2001:db8:ffff::1:80") // no NAT
	d := l.send("p-x", routedTCP6(1, 11, ip6X, ip6Y, 64))
	if !d.Cacheable || d.Rewrite.Hops != 1 {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"hop limit", routedTCP6(1, 11, ip6X, ip6Y, 1), "2001:db8:1::1→2001:db8:1::5 ICMP 3/0 of 2001:db8:1::5:4000→2001:db8:2::5:80"},
		{"ping", routed6(1, 11, ip6X, ip("2001:db8:2::1"), 1, packet.ProtoICMPv6, packet.ICMP{Type: 128, Rest: packet.EchoRest(7, 1)}.AppendV6(nil, ip6X, ip("2001:db8:2::1"), nil)), "2001:db8:2::1→2001:db8:1::5 echo 129 id 7"},
		{"ping of the link-local address", routed6(1, 11, packet.LinkLocal(mac(1)), packet.LinkLocal(routerMAC(11)), 1, packet.ProtoICMPv6,
			packet.ICMP{Type: 128, Rest: packet.EchoRest(7, 1)}.AppendV6(nil, packet.LinkLocal(mac(1)), packet.LinkLocal(routerMAC(11)), nil)), packet.LinkLocal(routerMAC(11)).String() + "→" + packet.LinkLocal(mac(1)).String() + " echo 129 id 7"},
	} {
		d := l.send("p-x", c.frame)
		if len(d.Emit) != 1 || d.Emit[0].PortID != "p-x" || headers(d.Emit[0].Frame) != c.want {
			t.Errorf("%s: want %s\n%s", c.name, c.want, walk(d))
			continue
		}
		if err := packet.VerifyChecksums(d.Emit[0].Frame); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if d := l.send("p-x", routedTCP6(1, 11, packet.LinkLocal(mac(1)), ip6Y, 64)); d.Verdict != flow.Drop || len(d.Emit) > 0 {
		t.Errorf("a link-local source left its link\n%s", walk(d))
	}
	l.Apply(gw6.owner(), nil)
	if d := l.send("p-x", routedTCP6(1, 11, ip6X, out, 64)); len(d.Emit) != 1 || headers(d.Emit[0].Frame) != "2001:db8:1::1→2001:db8:1::5 ICMP 1/0 of 2001:db8:1::5:4000→2001:db8:ffff::1:80" {
		t.Errorf("no route\n%s", walk(d))
	}
}

func TestNeighbourDiscoveryOfRouters(t *testing.T) {
	t.Parallel()
	l := example6()
	quiet := ip("2001:db8:2::77")
	l.station("quiet", "net2", 77)
	frame := routedTCP6(1, 11, ip6X, quiet, 64)
	d := l.send("p-x", frame)
	if d.Verdict != flow.Postponed || d.Wait != (flow.Wait{Device: "net2", Neighbour: quiet}) || len(d.Emit) != 2 {
		t.Fatalf("%+v\n%s", d.Wait, walk(d))
	}
	var ask packet.Frame
	if err := packet.Decode(d.Emit[0].Frame, &ask); err != nil || ask.NDTarget != quiet || ask.SrcIP != r62.at.Addr() || ask.NDLink != routerMAC(12) {
		t.Errorf("asked by %+v %v", ask, err)
	}
	d = l.send("p-quiet", packet.NeighborAdvert(routerMAC(12), mac(77), r62.at.Addr(), quiet, packet.NDSolicited|packet.NDOverride))
	if d.Verdict != flow.Consumed || d.LearnNeighbour == nil {
		t.Fatal(walk(d))
	}
	l.learnNeighbour(d, 1)
	l.expectAt(t, "p-x", frame, "p-quiet", "2001:db8:1::5:4000→2001:db8:2::77:80")
	// Machines find the router by its link-local address, which no table has.
	local := packet.LinkLocal(routerMAC(12))
	group := packet.SolicitedNode(local)
	d = l.send("p-y", packet.NeighborSolicit(packet.MulticastMAC(group), mac(2), ip6Y, group, local))
	var f packet.Frame
	if len(d.Emit) != 1 || packet.Decode(d.Emit[0].Frame, &f) != nil || f.NDTarget != local || f.NDLink != routerMAC(12) || f.NDFlags != packet.NDRouter|packet.NDSolicited|packet.NDOverride {
		t.Errorf("flags %x\n%s", f.NDFlags, walk(d))
	}
}

func TestRouterAdvertisements(t *testing.T) {
	t.Parallel()
	l := example6()
	solicit := packet.ICMP{Type: packet.ICMPv6RouterSolicit}
	all := ip("ff02::2")
	src := packet.LinkLocal(mac(1))
	b := packet.Ethernet{Dst: packet.MulticastMAC(all), Src: mac(1), Type: packet.TypeIPv6}.Append(nil)
	b = packet.IPv6{HopLimit: 255, Next: packet.ProtoICMPv6, Src: src, Dst: all}.Append(b, 8)
	frame := solicit.AppendV6(b, src, all, nil)
	if d := l.send("p-x", frame); len(d.Emit) > 0 {
		t.Errorf("answered without a subnet\n%s", walk(d))
	}
	subnet := topology.DhcpV6{ID: "s6", NetworkID: "net1", SubnetAddress: prefix("2001:db8:1::/64"), RAMode: "slaac", Enabled: true, InterfaceMTU: 1400, DNSServerAddress: []netip.Addr{ip("2001:db8::53")}}
	apply := func() { l.Apply(owner("subnet", "s6"), &topology.Bundle{DhcpV6s: []topology.DhcpV6{subnet}}) }
	apply()
	d := l.send("p-x", frame)
	if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != "p-x" {
		t.Fatal(walk(d))
	}
	got := d.Emit[0].Frame
	want := packet.RouterAdvert{Lifetime: 1800, MTU: 1400, DNS: []netip.Addr{ip("2001:db8::53")}, DNSLifetime: 1800,
		Prefixes: []packet.AdvertPrefix{{Prefix: prefix("2001:db8:1::/64"), Autonomous: true, Valid: 86400, Preferred: 14400}}}
	if string(got) != string(want.Frame(mac(1), routerMAC(11), src)) {
		t.Errorf("got %x", got)
	}
	if err := packet.VerifyChecksums(got); err != nil {
		t.Error(err)
	}
	subnet.RAMode = "dhcpv6-stateful"
	apply()
	l.Apply(r61.owner(), nil)
	want.Managed, want.Other, want.Lifetime, want.Prefixes[0].Autonomous = true, true, 0, false
	unasked, ok := l.Advertisement("net1")
	if everybody := ip("ff02::1"); !ok || string(unasked.ToAll()) != string(want.Frame(packet.MulticastMAC(everybody), responderMAC, everybody)) {
		t.Errorf("unasked, without a router: %v %x", ok, unasked.ToAll())
	}
	subnet.Enabled = false
	apply()
	if _, ok := l.Advertisement("net1"); ok {
		t.Error("a disabled subnet is advertised")
	}
}

// The addresses of routers are in their networks' tables, and are reported as these come and go.
func TestRoutersAreNeighbours(t *testing.T) {
	t.Parallel()
	changed := map[netip.Addr]int{}
	w := NewWorld(Options{NeighbourChanged: func(_ string, ip netip.Addr) { changed[ip]++ }})
	l := &lab{w, watched{NewSimulator(w)}, NewMemory()}
	l.network("net1")
	l.router("r")
	l.link(r61)
	addresses := []netip.Addr{r61.at.Addr(), packet.LinkLocal(routerMAC(11))}
	for _, a := range addresses {
		if mac, router, ok := w.Neighbour("net1", a); !ok || !router || mac != routerMAC(11) || !slices.Contains(w.NeighbourAddrs("net1"), a) || changed[a] == 0 {
			t.Errorf("%v: %v %v %v, changed %d times", a, mac, router, ok, changed[a])
		}
	}
	clear(changed)
	moved := r61
	moved.at = prefix("2001:db8:1::9/64")
	l.Apply(r61.owner(), moved.bundle())
	for _, a := range append(addresses, moved.at.Addr()) {
		if changed[a] == 0 {
			t.Errorf("the change of %v is not reported", a)
		}
	}
	if _, router, ok := w.Neighbour("net1", r61.at.Addr()); router || !ok { // the port's own seed
		t.Errorf("an address that the router has given up: %v %v", router, ok)
	}
	clear(changed)
	l.Apply(r61.owner(), nil)
	if _, _, ok := w.Neighbour("net1", addresses[1]); ok || changed[addresses[1]] == 0 {
		t.Errorf("the link-local address of a router that is gone: %v, changed %d times", ok, changed[addresses[1]])
	}
}
