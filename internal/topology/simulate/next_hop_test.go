package simulate

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

func (l *lab) learnNeighbour(d *flow.Decision, version uint64) []string {
	n := d.LearnNeighbour
	return l.LearnNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: n.NetworkID, IP: n.IP, MAC: n.MAC}, version)
}

// An unknown neighbour is asked for on its network, and the packet goes on when it has answered.
func TestUnknownNextHop(t *testing.T) {
	t.Parallel()
	l := example()
	quiet := ip("10.2.0.77")
	l.station("quiet", "net2", 77) // its address is in no table
	frame := frameSpec{n: 1, to: 1, src: ipX, dst: quiet}.tcp(4000, 80)
	d := l.send("p-x", frame)
	if d.Verdict != flow.Postponed || d.Wait != (flow.Wait{Device: "net2", Neighbour: quiet}) || d.Cacheable {
		t.Fatalf("%+v\n%s", d.Wait, walk(d))
	}
	var to []string
	for _, e := range d.Emit {
		to = append(to, e.PortID)
		var f packet.Frame
		if err := packet.Decode(e.Frame, &f); err != nil || f.ARPOp != packet.ARPRequest || f.DstIP != quiet || f.SrcIP != r2.at.Addr() || f.Src != routerMAC(2) {
			t.Errorf("asked by %+v %v", f, err)
		}
	}
	if fmt.Sprint(to) != "[p-quiet p-y]" {
		t.Errorf("asked %v", to)
	}
	reply := arp(routerMAC(2), packet.ARP{Op: packet.ARPReply, SHA: mac(77), SPA: quiet, THA: routerMAC(2), TPA: r2.at.Addr()})
	d = l.send("p-quiet", reply)
	if d.Verdict != flow.Consumed || d.LearnNeighbour == nil || *d.LearnNeighbour != (flow.LearnedNeighbour{NetworkID: "net2", IP: quiet, MAC: mac(77)}) {
		t.Fatalf("%+v\n%s", d.LearnNeighbour, walk(d))
	}
	l.learnNeighbour(d, 1)
	l.expectAt(t, "p-x", frame, "p-quiet", "10.1.0.5:4000→10.2.0.77:80")
	// Flows to it end when the address moves.
	if d := l.send("p-x", frame); !d.Cacheable || fmt.Sprint(d.Touched) != "[p-x r p-quiet]" {
		t.Errorf("touched %v", d.Touched)
	}
	wantAffected(t, "the neighbour moves", l.LearnNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: "net2", IP: quiet, MAC: mac(2)}, 2), "p-quiet")
	wantAffected(t, "it goes", l.ForgetNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: "net2", IP: quiet}), "p-y")
}

// What others say about seeded addresses and the router's own is not learned.
func TestNeighboursAreNotStolen(t *testing.T) {
	t.Parallel()
	l := example()
	for _, stolen := range []netip.Addr{ipY, r2.at.Addr(), ip("10.9.0.1")} {
		reply := arp(routerMAC(2), packet.ARP{Op: packet.ARPReply, SHA: mac(66), SPA: stolen, THA: routerMAC(2), TPA: r2.at.Addr()})
		if d := l.send("p-y", reply); d.LearnNeighbour != nil {
			t.Errorf("learned %v\n%s", stolen, walk(d))
		}
	}
}

// uplink is the router of the example with an exterior port in place of the gateway.
func uplink() *lab {
	l := example()
	l.Apply(gw.owner(), nil)
	k := link{id: "up", router: "r", n: 8, at: prefix("172.16.0.2/24"), via: ipUp}
	p := k.port()
	p.PeerID, p.HostID, p.InterfaceName = "", "h2", "eth7"
	l.Apply(k.owner(), &topology.Bundle{Ports: []topology.Port{p}, Routes: k.routes()})
	return l
}

func TestUplink(t *testing.T) {
	t.Parallel()
	l := uplink()
	out := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	d := l.send("p-y", out)
	if d.Verdict != flow.Postponed || d.Wait != (flow.Wait{Device: "r", Neighbour: ipUp}) || len(d.Emit) != 1 || d.Emit[0].PortID != "q-up" || d.Emit[0].HostID != "h2" {
		t.Fatalf("%+v\n%s", d, walk(d))
	}
	up := packet.MAC{2, 0, 0, 0, 0, 1}
	d = l.send("q-up", arp(routerMAC(8), packet.ARP{Op: packet.ARPReply, SHA: up, SPA: ipUp, THA: routerMAC(8), TPA: ipGW}))
	if d.LearnNeighbour == nil || *d.LearnNeighbour != (flow.LearnedNeighbour{NetworkID: "r", IP: ipUp, MAC: up}) {
		t.Fatalf("%+v\n%s", d.LearnNeighbour, walk(d))
	}
	l.learnNeighbour(d, 1)
	l.expectAt(t, "p-y", out, "q-up", "10.2.0.5:4000→198.51.100.7:80")
	if d = l.send("p-y", out); !d.Cacheable || fmt.Sprint(d.Touched) != "[p-y r q-up]" || d.Rewrite.DstMAC != up {
		t.Errorf("touched %v\n%s", d.Touched, walk(d))
	}
	in := frameSpec{to: 8, src: ipOut, dst: ipY}.tcp(80, 4000)
	l.expectAt(t, "q-up", in, "p-y", "198.51.100.7:80→10.2.0.5:4000")
	wantAffected(t, "the neighbour goes", l.ForgetNeighbour(topology.LearnedNeighbour{HostID: "h1", NetworkID: "r", IP: ipUp}), "q-up", "r")

	request := arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: up, SPA: ipUp, TPA: ipGW})
	d = l.send("q-up", request)
	if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.LearnNeighbour == nil {
		t.Fatalf("%+v\n%s", d, walk(d))
	}
	var f packet.Frame
	if err := packet.Decode(d.Emit[0].Frame, &f); err != nil || f.ARPOp != packet.ARPReply || f.SHA != routerMAC(8) || f.SrcIP != ipGW || f.Dst != up {
		t.Errorf("answer %+v %v", f, err)
	}
	expect(t, l.send("q-up", arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: up, SPA: ipUp, TPA: fipA})), flow.Drop)
	expect(t, l.send("q-up", toMAC(in, packet.Broadcast)), flow.Drop)
	expect(t, l.send("q-up", toMAC(in, mac(66))), flow.Drop)
}

// The routers' own addresses are answered by the network for machines that ask.
func TestRouterAddressIsAnswered(t *testing.T) {
	t.Parallel()
	l := example()
	l.Apply(owner("port", "b-r1"), &topology.Bundle{Ports: r1.neutronPort().Ports}) // no seeds
	d := l.send("p-x", arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: mac(1), SPA: ipX, TPA: r1.at.Addr()}))
	var f packet.Frame
	if len(d.Emit) != 1 || packet.Decode(d.Emit[0].Frame, &f) != nil || f.SHA != routerMAC(1) {
		t.Fatal(walk(d))
	}
	l.expectAt(t, "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipY}.tcp(1, 2), "p-y", "10.1.0.5:1→10.2.0.5:2")
	// Somebody who takes the router's MAC address gets no packets by that.
	d = l.send("p-x", fromMAC(frameSpec{n: 1, to: 1, src: ipX, dst: ipY}.tcp(1, 2), routerMAC(1)))
	if d.Learn != nil {
		t.Errorf("learned the router's MAC address: %+v", d.Learn)
	}
}

// twoRouters are r, and s which is reached by way of net4; w is a machine behind s.
func twoRouters() (l *lab, behind netip.Addr) {
	l = example()
	l.network("net5")
	l.router("s")
	l.link(link{id: "s5", router: "s", network: "net5", n: 5, at: prefix("10.5.0.1/24")})
	s4 := link{id: "s4", router: "s", network: "net4", n: 6, at: prefix("172.16.0.9/24"), via: ipGW}
	l.link(s4)
	l.station("w", "net5", 55, ip("10.5.0.5"))
	b := routerBundle("r")
	b.Routes = []topology.Route{{ID: "extra", SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: prefix("10.5.0.0/16"), NextHop: topology.HopPort, NextHopPortID: "q-gw", NextHopGateway: s4.at.Addr(), Weight: 100}}
	l.Apply(owner("router", "r"), b)
	return l, ip("10.5.0.5")
}

func TestTwoRouters(t *testing.T) {
	t.Parallel()
	l, w := twoRouters()
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: w}.tcp(4000, 80)
	got := l.expectAt(t, "p-y", frame, "p-w", "172.16.0.2:1024→10.5.0.5:80")
	d := l.send("p-y", frame)
	if d.Rewrite.Hops != 2 || fmt.Sprint(d.Touched) != "[p-y r b-s4 s p-w]" && fmt.Sprint(d.Touched) != "[p-y r b-gw s p-w]" || !d.Cacheable {
		t.Errorf("hops %d touched %v", d.Rewrite.Hops, d.Touched)
	}
	l.expectAt(t, "p-w", tcpReply(got), "p-y", "10.5.0.5:80→10.2.0.5:4000")
	// The second router's answer finds its way back through the first, and its translations.
	frame = frameSpec{n: 2, to: 2, src: ipY, dst: w, ttl: 2}.udp(4000, 53)
	d = l.send("p-y", frame)
	if d.Verdict != flow.ErrorDrop || d.Cacheable || len(d.NewNATs) > 0 {
		t.Error(walk(d))
	}
	if len(d.Emit) != 1 || d.Emit[0].PortID != "p-y" || headers(d.Emit[0].Frame) != "172.16.0.9→10.2.0.5 ICMP 11/0 of 10.2.0.5:4000→10.5.0.5:53" {
		t.Errorf("%s", walk(d))
		for _, e := range d.Emit {
			t.Error(e.PortID, headers(e.Frame))
		}
	}
}

// Two routers that send a packet to each other stop when it has passed enough devices.
func TestRoutingLoop(t *testing.T) {
	t.Parallel()
	l, _ := twoRouters()
	d := l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ip("10.5.7.7")}.tcp(1, 2)) // s sends it back
	if d.Verdict != flow.ErrorDrop || len(d.Emit) > 0 {
		t.Error(walk(d))
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	l := example()
	l.Apply(gw.owner(), nil)
	l.station("n2", "net2", 22, ip("10.2.0.22"))
	route := func(id, src, dst, by, via string, weight int) topology.Route {
		r := topology.Route{ID: id, DstSubnet: prefix(dst), NextHop: topology.HopPort, NextHopPortID: by, NextHopGateway: ip(via), Weight: weight}
		if src != "" {
			r.SrcSubnet = prefix(src)
		}
		return r
	}
	set := func(routes ...topology.Route) { l.Apply(owner("router", "routes"), &topology.Bundle{Routes: routes}) }
	send := func(dst string, port uint16) string {
		d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip(dst)}.tcp(port, 80))
		return fmt.Sprint(outs(d))
	}
	wide := route("wide", "0.0.0.0/0", "192.0.2.0/24", "q-r2", "10.2.0.5", 100)
	narrow := route("narrow", "0.0.0.0/0", "192.0.2.128/25", "q-r3", "10.3.0.5", 200)
	set(wide, narrow)
	if a, b := send("192.0.2.1", 1), send("192.0.2.200", 1); a != "[p-y]" || b != "[p-z]" {
		t.Errorf("longest prefix: %s %s", a, b)
	}
	narrow.SrcSubnet = prefix("10.9.0.0/16")
	set(wide, narrow)
	if a := send("192.0.2.200", 1); a != "[p-y]" {
		t.Errorf("a longer prefix for other sources: %s", a)
	}
	narrow.SrcSubnet = prefix("10.1.0.0/24")
	set(wide, narrow)
	if a := send("192.0.2.200", 1); a != "[p-z]" {
		t.Errorf("a longer prefix for this source: %s", a)
	}
	lighter := route("lighter", "", "192.0.2.0/24", "q-r3", "10.3.0.5", 50)
	set(wide, lighter)
	if a := send("192.0.2.1", 1); a != "[p-z]" {
		t.Errorf("the lower weight: %s", a)
	}
	down := r3.bundle()
	down.Ports[0].AdminStateUp = false
	l.Apply(r3.owner(), down)
	if a := send("192.0.2.1", 1); a != "[p-y]" {
		t.Errorf("a route by a port that is down: %s", a)
	}
	l.Apply(r3.owner(), r3.bundle())
	lighter.Weight = 100
	set(wide, lighter)
	seen := map[string]int{}
	for port := range uint16(200) {
		first := send("192.0.2.1", port)
		seen[first]++
		if again := send("192.0.2.1", port); again != first {
			t.Fatalf("a connection changes its path from %s to %s", first, again)
		}
	}
	if seen["[p-y]"] < 50 || seen["[p-z]"] < 50 {
		t.Errorf("two routes of one weight: %v", seen)
	}
}

// A packet to a MAC address of the router's own port comes in there again.
func TestReentry(t *testing.T) {
	t.Parallel()
	l := example()
	// Packets to this address go out by R3, whose neighbour table leads back to R3.
	odd := ip("10.3.0.200")
	l.Apply(owner("port", "odd"), &topology.Bundle{
		Neighbours: []topology.NeighbourEntry{{NetworkID: "net3", IP: odd, MAC: routerMAC(3)}}})
	dnat := nat(topology.Rule{ID: "odd", Dnat: true, NatTargets: natTo(ipX, false), Condition: &topology.Condition{NwDstIP: only(odd), InPortIDs: []string{"q-r3"}, FragmentPolicy: topology.FragAny}})
	l.Apply(owner("rule", "odd"), &topology.Bundle{Rules: []topology.RuleEntry{{ChainID: "r/pre", Place: 1, Rule: dnat}}})
	d := l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: odd}.tcp(1, 2))
	if fmt.Sprint(outs(d)) != "[p-x]" || d.Rewrite.Hops != 2 || d.Rewrite.Dst != ipX {
		t.Error(walk(d))
	}
}
