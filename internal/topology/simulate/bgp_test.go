package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// peerAt is a BGP peer on the external network of the example, at port "p-peer".
var peerAt = ip("10.4.0.77")

// speaker gives the example's router a BGP speaker with a peer: its container is at port "q-hc" of
// host h2.
func (l *lab) speaker() topology.Port {
	c := l.container()
	l.station("peer", "net4", 77, peerAt)
	redirect := func(id string, set func(c *topology.Condition)) topology.Rule {
		port := topology.Range{Low: ptr(uint16(179)), High: ptr(uint16(179))}
		cond := topology.Condition{NwSrcIP: only(peerAt), NwProto: ptr(packet.ProtoTCP), TpDst: &port, FragmentPolicy: topology.FragUnfragmented}
		set(&cond)
		return topology.Rule{ID: id, Type: topology.L2Transform, Action: topology.Redirect, TargetPortID: c.ID, Condition: &cond}
	}
	l.Apply(owner(topology.RouterBGPOwner, "r"), &topology.Bundle{
		Chains: []topology.Chain{{ID: "r/redirect", Rules: []topology.Rule{
			redirect("r/bgp", func(*topology.Condition) {}),
			redirect("r/bgp/inv", func(c *topology.Condition) { c.TpSrc, c.TpDst = c.TpDst, nil }),
		}}},
		BgpSpeakers: []topology.BgpSpeaker{{RouterID: "r", ContainerID: "hc", RedirectChainID: "r/redirect"}},
		Routes: []topology.Route{{ID: "route.bgp", SrcSubnet: anywhere(peerAt), DstSubnet: *only(peerAt), NextHop: topology.HopPort,
			NextHopPortID: "q-gw", Weight: 100}},
	})
	return c
}

// TestRedirect: what a peer sends to or from the port of BGP goes to the speaker as it is, whoever
// opens the connection, and what the speaker sends goes to the peer as it is.
func TestRedirect(t *testing.T) {
	t.Parallel()
	l := example()
	c := l.speaker()
	gateway := gw.at.Addr()
	for _, tt := range []struct {
		name, from string
		frame      []byte
		to         string
	}{
		{"connection of the peer", "p-peer", frameSpec{n: 77, to: gw.n, src: peerAt, dst: gateway, ttl: 1}.tcp(4000, 179), "q-hc"},
		{"answer of the peer", "p-peer", frameSpec{n: 77, to: gw.n, src: peerAt, dst: gateway, ttl: 255}.tcp(179, 4000), "q-hc"},
		{"connection of the speaker", "q-hc", frameSpec{to: 30, src: gateway, dst: peerAt, ttl: 1}.tcp(4000, 179), "p-peer"},
		{"answer of the speaker", "q-hc", frameSpec{to: 30, src: gateway, dst: peerAt, ttl: 255}.tcp(179, 4000), "p-peer"},
		{"another port of the peer", "p-peer", frameSpec{n: 77, to: gw.n, src: peerAt, dst: gateway, ttl: 9}.tcp(4000, 180), ""},
		{"another sender", "p-peer", frameSpec{n: 77, to: gw.n, src: peerAt.Next(), dst: gateway, ttl: 9}.tcp(4000, 179), ""},
	} {
		var sent, got packet.Frame
		d := l.send(tt.from, tt.frame)
		frame := delivered(t, d, tt.frame)
		if tt.to == "" {
			if frame != nil {
				t.Errorf("%s: delivered\n%s", tt.name, walk(d))
			}
			continue
		}
		if err := packet.Decode(tt.frame, &sent); err != nil {
			t.Fatal(err)
		}
		if err := packet.Decode(frame, &got); err != nil || len(d.Outputs) != 1 || d.Outputs[0].PortID != tt.to {
			t.Errorf("%s: not at %s: %v\n%s", tt.name, tt.to, err, walk(l.send(tt.from, tt.frame)))
			continue
		}
		if got.TTL != sent.TTL || got.SrcIP != sent.SrcIP || got.DstIP != sent.DstIP || got.TpSrc != sent.TpSrc || got.TpDst != sent.TpDst {
			t.Errorf("%s: came as %v TTL %d, sent as %v TTL %d", tt.name, Describe(&got), got.TTL, Describe(&sent), sent.TTL)
		}
		if tt.to == "q-hc" && (got.Dst != topology.ContainerMAC(c.PortMAC) || got.Src != c.PortMAC) {
			t.Errorf("%s: from %v to %v", tt.name, got.Src, got.Dst)
		}
	}
	down := c
	down.HostID, down.InterfaceName = "", ""
	affected := l.Apply(owner(topology.ContainerOwner, "hc"), &topology.Bundle{Ports: []topology.Port{down}})
	if !slices.Contains(affected, "r") {
		t.Errorf("a container without a host affects %v, want the router", affected)
	}
	if d := l.send("p-peer", frameSpec{n: 77, to: gw.n, src: peerAt, dst: gateway}.tcp(4000, 179)); len(d.Outputs) > 0 || !strings.Contains(d.Reason, "no host runs the service container") {
		t.Errorf("without a host:\n%s", walk(d))
	}
	l.Apply(owner(topology.RouterBGPOwner, "r"), nil)
	l.Apply(owner(topology.ContainerOwner, "hc"), nil)
	if d := l.send("p-peer", frameSpec{n: 77, to: gw.n, src: peerAt, dst: gateway}.tcp(4000, 179)); strings.Contains(d.Reason, "container") {
		t.Errorf("without a speaker:\n%s", walk(d))
	}
}

// learnedBy returns a record of routes, each such as "172.16.0.0/16 10.4.0.77".
func learnedBy(host, port string, routes ...string) *topology.LearnedRoutes {
	l := &topology.LearnedRoutes{HostID: host, PortID: port}
	for _, r := range routes {
		dst, via, _ := strings.Cut(r, " ")
		l.Routes = append(l.Routes, topology.LearnedRoute{Dst: netip.MustParsePrefix(dst), Gateway: ip(via)})
	}
	return l
}

// TestLearnedRoutes: learned routes lead to their gateways, static ones of the same prefix come
// first, and several to one destination share its connections.
func TestLearnedRoutes(t *testing.T) {
	t.Parallel()
	l := example()
	l.speaker()
	l.station("peer2", "net4", 78, ip("10.4.0.78"))
	via := func(dst string, port uint16) string {
		d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip(dst)}.tcp(port, 80))
		if len(d.Outputs) != 1 {
			return "nowhere: " + d.Reason
		}
		return d.Outputs[0].PortID
	}
	before := learnedBy("h2", "q-gw", "172.16.0.0/16 10.4.0.77", "10.2.0.0/24 10.4.0.77", "172.17.0.0/16 10.4.0.77")
	l.ApplyLearnedRoutes(nil, before)
	for dst, want := range map[string]string{"172.16.1.1": "p-peer", "10.2.0.5": "p-y"} {
		if got := via(dst, 4000); got != want {
			t.Errorf("to %s: by %s, want %s", dst, got, want)
		}
	}
	both := learnedBy("h2", "q-gw", "172.16.0.0/16 10.4.0.77", "172.16.0.0/16 10.4.0.78")
	affected := l.ApplyLearnedRoutes(before, both)
	slices.Sort(affected)
	if got := fmt.Sprint(affected); got != "[r 10.2.0.0 r 172.16.0.0 r 172.17.0.0]" {
		t.Errorf("affected %s", got)
	}
	seen := map[string]int{}
	for port := range uint16(64) {
		to := via("172.16.1.1", 4000+port)
		if again := via("172.16.1.1", 4000+port); again != to {
			t.Errorf("a connection goes by %s and by %s", to, again)
		}
		seen[to]++
	}
	if len(seen) != 2 || seen["p-peer"] < 8 || seen["p-peer2"] < 8 {
		t.Errorf("connections by %v", seen)
	}
	d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("172.16.1.1")}.tcp(1, 80))
	if text := walk(d); !strings.Contains(text, "route to 172.16.0.0/16, weight 200, learned by BGP: by port q-gw to 10.4.0.7") {
		t.Errorf("the walk does not tell of the route:\n%s", text)
	}
	if !slices.Contains(d.Touched, "r 172.16.0.0") {
		t.Errorf("the decision rests on %v", d.Touched)
	}

	l.ApplyLearnedRoutes(both, nil)
	if got := via("172.16.1.1", 4000); got == "p-peer" {
		t.Error("a route that is gone is taken")
	}
	if got := l.ApplyLearnedRoutes(nil, learnedBy("h2", "q-gw", "0.0.0.0/0 10.4.0.77")); fmt.Sprint(got) != "[r]" {
		t.Errorf("a default route affects %v", got)
	}
	l.ApplyLearnedRoutes(learnedBy("h2", "q-gw", "0.0.0.0/0 10.4.0.77"), nil)
	l.ApplyLearnedRoutes(nil, learnedBy("h2", "nowhere", "172.18.0.0/16 10.4.0.77"))
	l.ApplyLearnedRoutes(learnedBy("h2", "nowhere", "172.18.0.0/16 10.4.0.77"), nil)
	if n := len(l.learned); n != 0 {
		t.Errorf("%d learned routes are left", n)
	}
}

// TestLearnedRoutesAroundLink: what is learned of networks around the router's own link outside
// leads no packets for machines there elsewhere; what is learned of such a machine does.
func TestLearnedRoutesAroundLink(t *testing.T) {
	t.Parallel()
	l := example()
	l.speaker()
	l.station("near", "net4", 78, ip("172.16.0.78"))
	for _, c := range []struct{ route, want string }{
		{"168.0.0.0/5 10.4.0.77", "p-near"},
		{"172.16.0.0/24 10.4.0.77", "p-near"},
		{"172.16.0.78/32 10.4.0.77", "p-peer"},
	} {
		learned := learnedBy("h2", "q-gw", c.route)
		l.ApplyLearnedRoutes(nil, learned)
		d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("172.16.0.78")}.tcp(4000, 80))
		if len(d.Outputs) != 1 || d.Outputs[0].PortID != c.want {
			t.Errorf("with a route to %s: %v, want %s\n%s", c.route, d.Outputs, c.want, walk(d))
		}
		l.ApplyLearnedRoutes(learned, nil)
	}
}

// TestLearnedRoutesOfOtherHosts: what a host reports counts while the container of the router's
// speaker is bound to it, whatever comes first.
func TestLearnedRoutesOfOtherHosts(t *testing.T) {
	t.Parallel()
	l := example()
	l.station("peer2", "net4", 78, ip("10.4.0.78"))
	forged := learnedBy("h3", "q-gw", "172.16.0.0/16 10.4.0.78")
	if got := l.ApplyLearnedRoutes(nil, forged); len(got) > 0 {
		t.Errorf("a report about a router without a speaker affects %v", got)
	}
	want := func(when, port string) {
		t.Helper()
		d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("172.16.1.1")}.tcp(4000, 80))
		got := ""
		if len(d.Outputs) == 1 && d.Outputs[0].PortID != "p-up" { // the configured default route
			got = d.Outputs[0].PortID
		}
		if got != port {
			t.Errorf("%s: by port %q, want %q\n%s", when, got, port, walk(d))
		}
	}
	want("no speaker", "")
	c := l.speaker()
	want("the speaker is at h2, h3 reports", "")
	l.ApplyLearnedRoutes(nil, learnedBy("h2", "q-gw", "172.16.0.0/16 10.4.0.77"))
	want("both report", "p-peer")
	bind := func(host string) []string {
		c.HostID = host
		if c.InterfaceName = "hct1"; host == "" {
			c.InterfaceName = ""
		}
		return l.Apply(owner(topology.ContainerOwner, "hc"), &topology.Bundle{Ports: []topology.Port{c}})
	}
	if got := bind("h3"); !slices.Contains(got, "r 172.16.0.0") {
		t.Errorf("the move of the container affects %v", got)
	}
	want("the speaker is at h3", "p-peer2")
	bind("")
	want("the speaker runs nowhere", "")
	bind("h2")
	want("the speaker is at h2 again", "p-peer")
	l.Apply(owner(topology.RouterBGPOwner, "r"), nil)
	want("the speaker is gone", "")
	l.ApplyLearnedRoutes(forged, nil)
	l.ApplyLearnedRoutes(learnedBy("h2", "q-gw", "172.16.0.0/16 10.4.0.77"), nil)
	if n := len(l.learned); n != 0 {
		t.Errorf("%d learned routes are left", n)
	}
}

// BenchmarkLearnedRoutes applies and withdraws routes of a speaker (services §14 row 10): all of
// 10,000 in blocks, or one of them.
func BenchmarkLearnedRoutes(b *testing.B) {
	const routes = 10_000
	blocks := map[int]*topology.LearnedRoutes{}
	for i := range routes {
		r := topology.LearnedRoute{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0}), 24), Gateway: peerAt}
		n := topology.LearnedRouteBlock(r.Dst)
		if blocks[n] == nil {
			blocks[n] = &topology.LearnedRoutes{HostID: "h2", PortID: "q-gw", Block: n}
		}
		blocks[n].Routes = append(blocks[n].Routes, r)
	}
	b.Run("apply 10000", func(b *testing.B) {
		l := example()
		l.speaker()
		for b.Loop() {
			for _, block := range blocks {
				l.ApplyLearnedRoutes(nil, block)
			}
			b.StopTimer()
			for _, block := range blocks {
				l.ApplyLearnedRoutes(block, nil)
			}
			b.StartTimer()
		}
	})
	b.Run("withdraw one", func(b *testing.B) {
		l := example()
		l.speaker()
		for _, block := range blocks {
			l.ApplyLearnedRoutes(nil, block)
		}
		one := blocks[0]
		less := *one
		less.Routes = one.Routes[1:]
		for b.Loop() {
			l.ApplyLearnedRoutes(one, &less)
			b.StopTimer()
			l.ApplyLearnedRoutes(&less, one)
			b.StartTimer()
		}
	})
	b.Run("packet", func(b *testing.B) {
		l := example()
		l.speaker()
		for _, block := range blocks {
			l.ApplyLearnedRoutes(nil, block)
		}
		frame := frameSpec{n: 1, to: 1, src: ipX, dst: ip("100.1.2.3")}.tcp(4000, 80)
		for b.Loop() {
			if d := l.send("p-x", frame); len(d.Outputs) != 1 {
				b.Fatal(d.Reason)
			}
		}
	})
}
