package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// The table of midonet-translations §3.5: a packet, what arrives, and what its reply becomes.
func TestInterestingCases(t *testing.T) {
	t.Parallel()
	gwPort := func(addr string) string { return addr + ":1024" }
	for _, c := range []struct {
		name, from   string
		packet       frameSpec
		to, arrives  string
		replyArrives string
	}{
		{"Y→FIP-A", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: fipA}, "p-x", gwPort("172.16.0.2") + "→10.1.0.5:80", "172.16.0.50:80→10.2.0.5:4000"},
		{"Y→FIP-B", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: fipB}, "p-x", gwPort("172.16.0.2") + "→10.1.0.5:80", "172.16.0.50:80→10.2.0.5:4000"},
		{"Z→FIP-B", "p-z", frameSpec{n: 3, to: 3, src: ipZ, dst: fipB}, "p-x", "10.3.0.5:4000→10.1.0.5:80", "10.3.0.100:80→10.3.0.5:4000"},
		{"Z→FIP-A", "p-z", frameSpec{n: 3, to: 3, src: ipZ, dst: fipA}, "p-x", "10.3.0.5:4000→10.1.0.5:80", "10.3.0.100:80→10.3.0.5:4000"},
		{"X→Z", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipZ}, "p-z", "10.3.0.100:4000→10.3.0.5:80", "10.3.0.5:80→10.1.0.5:4000"},
		{"X→Y", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipY}, "p-y", "10.1.0.5:4000→10.2.0.5:80", "10.2.0.5:80→10.1.0.5:4000"},
		{"X→internet", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}, "p-up", "172.16.0.50:4000→198.51.100.7:80", "198.51.100.7:80→10.1.0.5:4000"},
		{"Y→internet", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}, "p-up", gwPort("172.16.0.2") + "→198.51.100.7:80", "198.51.100.7:80→10.2.0.5:4000"},
		{"internet→FIP-A", "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}, "p-x", "198.51.100.7:4000→10.1.0.5:80", "172.16.0.50:80→198.51.100.7:4000"},
		{"X→FIP-A, itself", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: fipA}, "p-x", "172.16.0.50:4000→10.1.0.5:80", "172.16.0.50:80→10.1.0.5:4000"},
	} {
		for how, build := range map[string]func() *lab{"by hand": example, "translated": translated} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				l := build()
				got := l.expectAt(t, c.from, c.packet.tcp(4000, 80), c.to, c.arrives)
				if got == nil {
					return
				}
				l.expectAt(t, c.to, tcpReply(got), c.from, c.replyArrives)
				l.expectAt(t, c.from, c.packet.tcp(4000, 80), c.to, c.arrives) // by the state now
			})
		}
	}
}

// Machines with floating IPs on one router meet by these.
func TestFloatingIPToFloatingIP(t *testing.T) {
	t.Parallel()
	l := example()
	l.station("x2", "net1", 21, ip("10.1.0.21"))
	l.floating(floating{"C", gw, ip("172.16.0.60"), ipY})
	l.floating(floating{"D", gw, ip("172.16.0.61"), ip("10.1.0.21")})
	x := frameSpec{n: 1, to: 1, src: ipX, dst: ip("172.16.0.60")}
	got := l.expectAt(t, "p-x", x.tcp(4000, 80), "p-y", "172.16.0.50:4000→10.2.0.5:80")
	l.expectAt(t, "p-y", tcpReply(got), "p-x", "172.16.0.60:80→10.1.0.5:4000")
	x.dst = ip("172.16.0.61") // of a machine on the same subnet
	got = l.expectAt(t, "p-x", x.tcp(4000, 80), "p-x2", "172.16.0.50:4000→10.1.0.21:80")
	l.expectAt(t, "p-x2", tcpReply(got), "p-x", "172.16.0.61:80→10.1.0.5:4000")
}

// A machine that moves to another host is reached there by its floating IP, in the same
// translation, and the flows to its old host end.
func TestFloatingIPFollowsItsMachine(t *testing.T) {
	t.Parallel()
	l := example()
	in := frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}.tcp(4000, 80)
	got := l.expectAt(t, "p-up", in, "p-x", "198.51.100.7:4000→10.1.0.5:80")
	d := l.send("p-up", in)
	host, touched := d.Outputs[0].HostID, slices.Clone(d.Touched)
	affected := l.port(portSpec{id: "p-x", network: "net1", host: "h2", mac: mac(1), ips: []netip.Addr{ipX}, open: true})
	if !slices.Contains(affected, "p-x") || !slices.Contains(touched, "p-x") {
		t.Errorf("%v changed, the flow rests on %v", affected, touched)
	}
	if d = l.send("p-up", in); host != "h1" || d.Outputs[0].HostID != "h2" || headers(delivered(t, d, in)) != headers(got) {
		t.Errorf("to %+v, before that to host %s", d.Outputs, host)
	}
	l.expectAt(t, "p-x", tcpReply(got), "p-up", "172.16.0.50:80→198.51.100.7:4000")
}

// A machine reaches another of its subnet, which has a floating IP, through the router. Without a
// gateway that translates, the interface does.
func TestSameSubnet(t *testing.T) {
	t.Parallel()
	l := example()
	l.Apply(gw.owner(), nil)
	l.Apply(owner("floating-ip", "A"), nil)
	l.station("x2", "net1", 21, ip("10.1.0.21"))
	got := l.expectAt(t, "p-x2", frameSpec{n: 21, to: 1, src: ip("10.1.0.21"), dst: fipB}.tcp(4000, 80), "p-x", "10.1.0.1:1024→10.1.0.5:80")
	// It came by a floating IP of another interface; its answers leave by this one with that.
	l.expectAt(t, "p-x", tcpReply(got), "p-x2", "10.3.0.100:80→10.1.0.21:4000")
}

func TestRoutedFlow(t *testing.T) {
	t.Parallel()
	l := example()
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: ipX}.tcp(4000, 80)
	d := l.send("p-y", frame)
	if !d.Cacheable || d.Rewrite == nil || d.Rewrite.Hops != 1 || fmt.Sprint(d.Touched) != "[p-y r p-x]" {
		t.Fatalf("%+v rewrite %+v\n%s", d, d.Rewrite, walk(d))
	}
	w := *d.Rewrite
	want := flow.Rewrite{SrcMAC: routerMAC(1), DstMAC: mac(1), Src: ipY, Dst: ipX, SrcPort: 4000, DstPort: 80, Hops: 1}
	if w != want {
		t.Errorf("rewrite %+v, want %+v", w, want)
	}
	frame = frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	d = l.send("p-y", frame)
	if len(d.NewNATs) != 2 || len(d.NATs) != 0 || !d.Cacheable {
		t.Errorf("new connection: %+v", d)
	}
	forward := d.NewNATs[0].NATKey
	d = l.send("p-y", frame)
	if len(d.NewNATs) != 0 || len(d.NATs) != 1 || d.NATs[0] != forward || !d.Cacheable {
		t.Errorf("known connection: %+v", d)
	}
	for _, line := range []string{"route to 0.0.0.0/0", "NAT: source 10.2.0.5:4000 becomes 172.16.0.2:1024", "next hop is at " + mac(4).String()} {
		if !strings.Contains(walk(d), line) {
			t.Errorf("the walk lacks %q:\n%s", line, walk(d))
		}
	}
}

// A connection is tracked where its packets enter and leave, with the headers that they have there.
func TestConnectionsThroughNAT(t *testing.T) {
	t.Parallel()
	l := example()
	l.group("client")
	guarded := portSpec{id: "p-y", network: "net2", host: "h1", mac: mac(2), ips: []netip.Addr{ipY}, groups: []string{"client"}}
	l.port(guarded)
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	got := l.expectAt(t, "p-y", frame, "p-up", "172.16.0.2:1024→198.51.100.7:80")
	d := l.send("p-y", frame)
	want := []flow.ConnKey{
		{Src: ipOut, Dst: ipGW, SrcPort: 80, DstPort: 1024, Proto: 6, Device: "net4"},
		{Src: ipY, Dst: ipOut, SrcPort: 4000, DstPort: 80, Proto: 6, Ingress: true, Device: "net2"},
	}
	if !slices.Equal(d.NewConns, want) {
		t.Errorf("got %+v, want %+v", d.NewConns, want)
	}
	// The reply enters net4, where the key is; the filter of p-y asks with that answer.
	l.expectAt(t, "p-up", tcpReply(got), "p-y", "198.51.100.7:80→10.2.0.5:4000")
	l.expectAt(t, "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: ipY}.tcp(80, 4000), "", "")
}

func TestPing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from string
		packet     frameSpec
		want       string // "" for no answer
	}{
		{"own gateway", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("10.1.0.1")}, "10.1.0.1→10.1.0.5 echo 0 id 7"},
		{"another interface", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("10.2.0.1")}, "10.2.0.1→10.1.0.5 echo 0 id 7"},
		{"gateway's address from inside", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipGW}, "172.16.0.2→10.2.0.5 echo 0 id 7"},
		{"gateway's address from outside", "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: ipGW}, "172.16.0.2→198.51.100.7 echo 0 id 7"},
		{"TTL of 1", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("10.1.0.1"), ttl: 1}, "10.1.0.1→10.1.0.5 echo 0 id 7"},
		{"an inner address through SNAT", "p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: ip("10.1.0.1")}, ""},
	} {
		l := example()
		d := l.send(c.from, c.packet.echo(8, 7))
		switch {
		case c.want == "":
			if len(d.Emit) > 0 || d.Verdict == flow.Consumed {
				t.Errorf("%s: want no answer\n%s", c.name, walk(d))
			}
		case len(d.Emit) != 1 || d.Emit[0].PortID != c.from || d.Verdict != flow.Consumed || headers(d.Emit[0].Frame) != c.want:
			t.Errorf("%s: want %s\n%s %v", c.name, c.want, walk(d), d.Emit)
		default:
			if err := packet.VerifyChecksums(d.Emit[0].Frame); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	l := example()
	if d := l.send("p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ip("10.1.0.1")}.udp(1, 2)); d.Verdict != flow.ErrorDrop {
		t.Error(walk(d))
	}
}

// Errors come from the address of the port by which the packet came in, and quote it as it was
// then.
func TestErrorsToTheSender(t *testing.T) {
	t.Parallel()
	away := &topology.Bundle{Routes: []topology.Route{
		{ID: "hole", RouterID: "r", SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: prefix("192.0.2.0/24"), NextHop: topology.HopBlackhole, Weight: 100},
		{ID: "reject", RouterID: "r", SrcSubnet: prefix("0.0.0.0/0"), DstSubnet: prefix("192.0.2.128/25"), NextHop: topology.HopReject, Weight: 100},
	}}
	down := func(l *lab) {
		b := routerBundle("r")
		b.Routers[0].AdminStateUp = false
		l.Apply(owner("router", "r"), b)
	}
	portDown := func(l *lab) {
		b := r1.bundle()
		b.Ports[0].AdminStateUp = false
		l.Apply(r1.owner(), b)
	}
	firewall := func(l *lab) {
		group := topology.Condition{InPortGroupID: "r/rifs", InvInPortGroup: true, OutPortGroupID: "r/rifs", InvOutPortGroup: true, ConjunctionInv: true}
		l.Apply(owner("firewall", "f"), &topology.Bundle{
			Chains: []topology.Chain{{ID: "f", Name: "OS_FW_FORWARD_f", Purpose: topology.PurposeFirewall, Rules: []topology.Rule{literal("f/no", topology.Reject, topology.Condition{})}}},
			Rules:  []topology.RuleEntry{{ChainID: "r/fwd", Place: 10, Rule: topology.Rule{ID: "fw", Type: topology.Jump, Action: topology.Jump, JumpChainID: "f", Condition: &group}}},
		})
	}
	x := frameSpec{n: 1, to: 1, src: ipX}
	for _, c := range []struct {
		name    string
		prepare func(*lab)
		dst     string
		ttl     uint8
		verdict flow.Verdict
		cached  bool
		want    string
	}{
		{name: "TTL", dst: "10.2.0.5", ttl: 1, verdict: flow.ErrorDrop, want: "10.1.0.1→10.1.0.5 ICMP 11/0 of 10.1.0.5:1→10.2.0.5:2"},
		{name: "TTL to a floating IP", dst: "10.3.0.100", ttl: 1, verdict: flow.ErrorDrop, want: "10.1.0.1→10.1.0.5 ICMP 11/0 of 10.1.0.5:1→10.3.0.100:2"},
		{name: "no route", prepare: func(l *lab) { l.Apply(gw.owner(), nil) }, dst: "198.51.100.7", verdict: flow.ErrorDrop, cached: true, want: "10.1.0.1→10.1.0.5 ICMP 3/0 of 10.1.0.5:1→198.51.100.7:2"},
		{name: "blackhole", dst: "192.0.2.1", verdict: flow.ErrorDrop, cached: true},
		{name: "reject", dst: "192.0.2.200", verdict: flow.ErrorDrop, cached: true, want: "10.1.0.1→10.1.0.5 ICMP 3/13 of 10.1.0.5:1→192.0.2.200:2"},
		{name: "router down", prepare: down, dst: "10.2.0.5", verdict: flow.Drop, cached: true, want: "10.1.0.1→10.1.0.5 ICMP 3/13 of 10.1.0.5:1→10.2.0.5:2"},
		{name: "port down", prepare: portDown, dst: "10.2.0.5", verdict: flow.Drop, cached: true, want: "10.1.0.1→10.1.0.5 ICMP 3/13 of 10.1.0.5:1→10.2.0.5:2"},
		{name: "firewall", prepare: firewall, dst: "10.2.0.5", verdict: flow.Drop, cached: true, want: "10.1.0.1→10.1.0.5 ICMP 3/13 of 10.1.0.5:1→10.2.0.5:2"},
		{name: "broadcast", dst: "10.1.0.255", ttl: 1, verdict: flow.ErrorDrop},
	} {
		l := example()
		l.Apply(owner("router", "away"), away)
		if c.prepare != nil {
			c.prepare(l)
		}
		x.dst, x.ttl = ip(c.dst), c.ttl
		d := l.send("p-x", x.udp(1, 2))
		got := ""
		if len(d.Emit) == 1 && d.Emit[0].PortID == "p-x" {
			got = headers(d.Emit[0].Frame)
			if err := packet.VerifyChecksums(d.Emit[0].Frame); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if d.Verdict != c.verdict || d.Cacheable != c.cached || got != c.want || len(d.Drops) != 1 {
			t.Errorf("%s: got %q, want %q, cacheable %v\n%s", c.name, got, c.want, d.Cacheable, walk(d))
		}
	}
}
