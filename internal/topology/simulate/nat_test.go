package simulate

import (
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// An ICMP error about a translated packet reaches its sender, and quotes the packet as that sent
// it.
func TestErrorsThroughNAT(t *testing.T) {
	t.Parallel()
	hop := ip("203.0.113.9") // a router on the way
	for _, c := range []struct {
		name, from, at string
		sent           frameSpec
		udp            bool
		errorFrom      frameSpec // without what it is sent to
		want           string
	}{
		{"dynamic", "p-y", "p-up", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}, true, frameSpec{n: 4, to: 4, src: hop},
			"203.0.113.9→10.2.0.5 ICMP 11/0 of 10.2.0.5:4000→198.51.100.7:53"},
		{"dynamic, from the destination", "p-y", "p-up", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}, true, frameSpec{n: 4, to: 4, src: ipOut},
			"198.51.100.7→10.2.0.5 ICMP 11/0 of 10.2.0.5:4000→198.51.100.7:53"},
		{"dynamic, of an echo", "p-y", "p-up", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}, false, frameSpec{n: 4, to: 4, src: hop},
			"203.0.113.9→10.2.0.5 ICMP 11/0 of 10.2.0.5:7→198.51.100.7:7"},
		{"floating IP, from outside", "p-x", "p-up", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}, true, frameSpec{n: 4, to: 4, src: hop},
			"203.0.113.9→10.1.0.5 ICMP 11/0 of 10.1.0.5:4000→198.51.100.7:53"},
		{"floating IP, from its machine", "p-up", "p-x", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}, true, frameSpec{n: 1, to: 1, src: ipX},
			"172.16.0.50→198.51.100.7 ICMP 11/0 of 198.51.100.7:4000→172.16.0.50:53"},
		{"both", "p-y", "p-x", frameSpec{n: 2, to: 2, src: ipY, dst: fipA}, true, frameSpec{n: 1, to: 1, src: ipX},
			"172.16.0.50→10.2.0.5 ICMP 11/0 of 10.2.0.5:4000→172.16.0.50:53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := example()
			frame := c.sent.echo(8, 7)
			if c.udp {
				frame = c.sent.udp(4000, 53)
			}
			d := l.send(c.from, frame)
			got := delivered(t, d, frame)
			if got == nil {
				t.Fatal(walk(d))
			}
			var f packet.Frame
			if err := packet.Decode(got, &f); err != nil {
				t.Fatal(err)
			}
			c.errorFrom.dst = f.SrcIP
			l.expectAt(t, c.at, c.errorFrom.icmpError(packet.ICMPTimeExceeded, 0, got), c.from, c.want)
		})
	}
}

// Two machines ping one server with the same id: both get their own replies.
func TestEchoIDs(t *testing.T) {
	t.Parallel()
	l := example()
	l.station("y2", "net2", 9, ip("10.2.0.9"))
	first := l.expectAt(t, "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.echo(8, 7), "p-up", "172.16.0.2→198.51.100.7 echo 8 id 7")
	second := l.expectAt(t, "p-y2", frameSpec{n: 9, to: 2, src: ip("10.2.0.9"), dst: ipOut}.echo(8, 7), "p-up", "172.16.0.2→198.51.100.7 echo 8 id 1024")
	echoReply := func(s frameSpec, f *packet.Frame) []byte { return s.echo(0, f.EchoID) }
	l.expectAt(t, "p-up", replyTo(first, echoReply), "p-y", "198.51.100.7→10.2.0.5 echo 0 id 7")
	l.expectAt(t, "p-up", replyTo(second, echoReply), "p-y2", "198.51.100.7→10.2.0.9 echo 0 id 7")
}

// What is not translated to the router's own address is dropped there, and the drop is not kept:
// a translation may come.
func TestStrayReplies(t *testing.T) {
	t.Parallel()
	l := example()
	d := l.send("p-up", frameSpec{n: 4, to: 4, src: ipOut, dst: ipGW}.tcp(80, 5000))
	if d.Verdict != flow.Drop || d.Cacheable {
		t.Errorf("cacheable %v\n%s", d.Cacheable, walk(d))
	}
}

type noPorts struct {
	noState
	answer flow.NATAnswer
}

func (n noPorts) NATSource(flow.NATRequest) (b flow.NATBinding, a flow.NATAnswer) { return b, n.answer }

func TestNoPorts(t *testing.T) {
	t.Parallel()
	l := example()
	frame := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	d := l.sim.Run(Input{PortID: "p-y", Frame: frame, State: noPorts{answer: flow.NATWaiting}, Explain: true})
	if d.Verdict != flow.Postponed || d.Wait != (flow.Wait{Device: "r", NATAddr: ipGW}) || d.Cacheable || len(d.NewNATs)+len(d.NewConns) > 0 {
		t.Errorf("%+v\n%s", d.Wait, walk(d))
	}
	d = l.sim.Run(Input{PortID: "p-y", Frame: frame, State: noPorts{answer: flow.NATExhausted}, Explain: true})
	if d.Verdict != flow.ErrorDrop || d.Cacheable {
		t.Error(walk(d))
	}
}

// Fragments pass where addresses alone are exchanged, or nothing; default SNAT needs whole packets,
// and says so to the sender where it can.
func TestRoutedFragments(t *testing.T) {
	t.Parallel()
	whole := frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}.udp(4000, 53)
	fragment := func(s frameSpec, later bool) []byte {
		s.h = packet.IPv4{ID: 77, MoreFragments: !later}
		payload := whole[34:]
		if later {
			s.h.Offset, payload = 2, make([]byte, 16)
		}
		return s.ip(packet.ProtoUDP, payload)
	}
	for _, c := range []struct {
		name, from, to string
		packet         frameSpec
		want           string // of the addresses
	}{
		{"routed", "p-y", "p-x", frameSpec{n: 2, to: 2, src: ipY, dst: ipX}, "10.2.0.5→10.1.0.5"},
		{"floating IP, out", "p-x", "p-up", frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}, "172.16.0.50→198.51.100.7"},
		{"floating IP, in", "p-up", "p-x", frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}, "198.51.100.7→10.1.0.5"},
		{"default SNAT", "p-y", "", frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}, ""},
	} {
		for _, later := range []bool{false, true} {
			l := example()
			frame := fragment(c.packet, later)
			d := l.send(c.from, frame)
			if (c.to == "") != (len(d.Outputs) == 0) {
				t.Errorf("%s, later %v:\n%s", c.name, later, walk(d))
				continue
			}
			if c.to == "" {
				continue
			}
			if err := d.Rewrite.Apply(frame, false); err != nil {
				t.Error(err)
			}
			var f packet.Frame
			if err := packet.Decode(frame, &f); err != nil || outs(d)[0] != c.to || f.SrcIP.String()+"→"+f.DstIP.String() != c.want {
				t.Errorf("%s, later %v: %v→%v at %v\n%s", c.name, later, f.SrcIP, f.DstIP, outs(d), walk(d))
			}
			if !later && d.FirstFrag == nil {
				t.Errorf("%s: the first fragment is not remembered", c.name)
			}
		}
	}
}

// The later fragments of a reply pass a stateful filter behind the router, since the first did.
func TestFragmentsOfReplies(t *testing.T) {
	t.Parallel()
	l := example()
	l.group("client")
	l.port(portSpec{id: "p-x", network: "net1", host: "h1", mac: mac(1), ips: []netip.Addr{ipX}, groups: []string{"client"}})
	ask := frameSpec{n: 1, to: 1, src: ipX, dst: ipOut}
	l.expectAt(t, "p-x", ask.udp(4000, 53), "p-up", "172.16.0.50:4000→198.51.100.7:53")
	answer := frameSpec{n: 4, to: 4, src: ipOut, dst: fipA}
	payload := answer.udp(53, 4000)[34:]
	answer.h = packet.IPv4{ID: 5, Offset: 2}
	expect(t, l.send("p-up", answer.ip(packet.ProtoUDP, make([]byte, 8))), flow.Drop)
	answer.h = packet.IPv4{ID: 5, MoreFragments: true}
	expect(t, l.send("p-up", answer.ip(packet.ProtoUDP, payload)), flow.Forward, "p-x")
	answer.h = packet.IPv4{ID: 5, Offset: 2}
	expect(t, l.send("p-up", answer.ip(packet.ProtoUDP, make([]byte, 8))), flow.Forward, "p-x")
}

// A first fragment that the inbound filter of a router drops is answered: do not fragment.
func TestFirstFragmentIsAnswered(t *testing.T) {
	t.Parallel()
	l := example()
	l.Apply(owner("router", "more"), &topology.Bundle{Rules: []topology.RuleEntry{{ChainID: "r/pre", Rule: literal("no", topology.Drop, topology.Condition{})}}})
	s := frameSpec{n: 2, to: 2, src: ipY, dst: ipX, h: packet.IPv4{ID: 5, MoreFragments: true}}
	d := l.send("p-y", s.ip(packet.ProtoUDP, s.udp(1, 2)[34:]))
	if d.Verdict != flow.Drop || len(d.Emit) != 1 || headers(d.Emit[0].Frame) != "10.2.0.1→10.2.0.5 ICMP 3/4 of 10.2.0.5:1→10.1.0.5:2" {
		t.Errorf("%s %v", walk(d), d.Emit)
	}
	s.h = packet.IPv4{ID: 5, Offset: 2}
	if d := l.send("p-y", s.ip(packet.ProtoUDP, make([]byte, 8))); d.Verdict != flow.Drop || len(d.Emit) > 0 {
		t.Error(walk(d))
	}
}

// Translation of a destination to one of several servers, and back.
func TestDynamicDNAT(t *testing.T) {
	t.Parallel()
	l := example()
	vip := ip("172.16.0.77")
	forward := nat(topology.Rule{ID: "vip", Dnat: true, NatTargets: []topology.NatTarget{{NwStart: ipY, NwEnd: ipY, TpStart: 8080, TpEnd: 8080}}, Condition: &topology.Condition{NwDstIP: only(vip)}})
	reverse := nat(topology.Rule{ID: "vip/back", Dnat: true, Reverse: true, Condition: &topology.Condition{NwSrcIP: only(ipY)}})
	l.Apply(owner("vip", "1"), &topology.Bundle{Rules: []topology.RuleEntry{{ChainID: "r/pre", Place: 5, Rule: forward}, {ChainID: "r/post", Place: -5, Rule: reverse}}})
	got := l.expectAt(t, "p-z", frameSpec{n: 3, to: 3, src: ipZ, dst: vip}.tcp(4000, 80), "p-y", "10.3.0.5:4000→10.2.0.5:8080")
	l.expectAt(t, "p-y", tcpReply(got), "p-z", "172.16.0.77:80→10.3.0.5:4000")
	l.expectAt(t, "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipZ}.icmpError(3, 3, got), "p-z", "172.16.0.77→10.3.0.5 ICMP 3/3 of 10.3.0.5:4000→172.16.0.77:80")
}

// TestMissingTranslation: what no rule of several translated back rests on one missing translation.
func TestMissingTranslation(t *testing.T) {
	t.Parallel()
	l := example()
	var rules []topology.RuleEntry
	for i := range 3 {
		r := topology.Rule{ID: fmt.Sprint("back", i), Dnat: true, Reverse: true, Condition: &topology.Condition{NwSrcIP: only(ipY)}}
		rules = append(rules, topology.RuleEntry{ChainID: "r/post", Place: -5, Rule: nat(r)})
	}
	l.Apply(owner("vip", "1"), &topology.Bundle{Rules: rules})
	d := l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: ipZ}.tcp(8080, 4000))
	if expect(t, d, flow.Forward, "p-z"); !d.Cacheable || len(d.MissingNATs) != 1 {
		t.Errorf("cacheable %v, missing translations %v: want one", d.Cacheable, d.MissingNATs)
	}
}

// TestSNATIsNoBarrier: who is on the external network reaches inside addresses by the gateway's MAC
// address, as far as the machine's groups let it; the replies come from the gateway's address.
// docs/security.md says so.
func TestSNATIsNoBarrier(t *testing.T) {
	l := example()
	l.group("closed", allowFrom("members", "closed", packet.TypeIPv4))
	l.group("web", allowPort("http", packet.ProtoTCP, 80))
	to80 := frameSpec{n: 4, to: 4, src: ipUp, dst: ipY}.tcp(5000, 80)
	to81 := frameSpec{n: 4, to: 4, src: ipUp, dst: ipY}.tcp(5000, 81)
	for _, c := range []struct {
		name   string
		groups []string
		open   bool // without port security
		on81   string
		on80   string
	}{
		{name: "without port security", open: true, on80: "p-y", on81: "p-y"},
		{name: "members alone", groups: []string{"closed"}},
		{name: "port 80", groups: []string{"web"}, on80: "p-y"},
	} {
		l.port(portSpec{id: "p-y", network: "net2", host: "h1", mac: mac(2), ips: []netip.Addr{ipY}, open: c.open, groups: c.groups})
		l.expectAt(t, "p-up", to81, c.on81, "172.16.0.1:5000→10.2.0.5:81")
		if got := l.expectAt(t, "p-up", to80, c.on80, "172.16.0.1:5000→10.2.0.5:80"); got != nil {
			l.expectAt(t, "p-y", tcpReply(got), "p-up", "172.16.0.2:1024→172.16.0.1:5000")
		}
	}
}
