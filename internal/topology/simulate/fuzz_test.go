package simulate

import (
	"bytes"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// strict are three ports: what enters at "closed" meets a filter that denies everything but ARP, as
// a port without groups does; "guarded" is an untrusted port in a group that lets out TCP to port
// 80 of "open" only.
func strict() *lab {
	l := newLab()
	l.network("net")
	l.Apply(owner("security-group", "web"), &topology.Bundle{
		IPAddrGroups: []topology.IPAddrGroup{{ID: "web"}},
		Chains: []topology.Chain{
			{ID: "web/egress", Rules: []topology.Rule{allowPort("http", packet.ProtoTCP, 80)}},
			{ID: "web/ingress"},
		},
	})
	closed, guarded := machine(1), machine(2, "web")
	l.port(closed)
	l.port(guarded)
	deny := machine(4)
	b := deny.bundle()
	b.Chains = []topology.Chain{{ID: "p4/in", Rules: []topology.Rule{literal("deny", topology.Drop, topology.Condition{})}}, {ID: "p4/out"}}
	l.Apply(deny.owner(), b)
	l.port(open(3))
	return l
}

// Hostile frames do not make the simulator panic, and none passes a filter that should hold it:
// nothing at all leaves a port that denies everything; from a guarded port only what is allowed,
// whole and with its own addresses.
func FuzzRun(f *testing.F) {
	for _, frame := range probes() {
		f.Add(frame)
	}
	f.Add(tcp(2, 3, 4000, 80))
	f.Add(packet.NeighborAdvert(mac(3), mac(2), addr6(3), addr6(2), packet.NDOverride))
	f.Add(ipv6(2, 3, packet.IPv6{Next: packet.ProtoTCP, Fragment: true, MoreFragments: true}, make([]byte, 24)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		l := strict()
		if d := l.send("p4", frame); len(d.Outputs) > 0 {
			t.Fatalf("a frame passed a port that denies all\n%s", walk(d))
		}
		for _, port := range []string{"p1", "p2"} {
			d := l.send(port, frame)
			if len(d.Outputs) == 0 {
				continue
			}
			if err := allowed(port, frame); err != "" {
				t.Fatalf("%s, and it went out\n%s", err, walk(d))
			}
		}
		d := l.send("p3", frame)
		if d.Verdict == 0 || (len(d.Outputs) > 0) != (d.Verdict == flow.Forward) || (d.Reason == "") != (d.Verdict == flow.Forward || d.Verdict == flow.Consumed) {
			t.Fatalf("contradictory decision\n%s", walk(d))
		}
	})
}

// allowed returns what is wrong with a frame that went out of p1, which is in no group, or of p2.
func allowed(port string, frame []byte) string {
	var f packet.Frame
	if err := packet.Decode(frame, &f); err != nil {
		return err.Error()
	}
	own := map[string]int{"p1": 1, "p2": 2}[port]
	switch {
	case f.EtherType == packet.TypeARP && f.SrcIP == addr(own):
		return ""
	case port == "p1":
		return "p1 may send nothing but ARP"
	case f.Src != mac(own) || f.SrcIP != addr(own):
		return "the source is not its own"
	case f.Proto != packet.ProtoTCP || f.TpDst != 80 || f.Frag == packet.FragLater:
		return "it is no TCP to port 80"
	}
	return ""
}

// Hostile frames to a router do not make the simulator panic. What goes out can be rewritten, its
// checksums are right if they were, and what the router says for itself is well formed.
func FuzzRouted(f *testing.F) {
	y := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}
	sent := y.udp(4000, 53)
	for _, frame := range [][]byte{
		sent, y.tcp(1, 2), y.echo(8, 7), frameSpec{n: 2, to: 2, src: ipY, dst: fipA}.tcp(1, 2), frameSpec{n: 2, to: 2, src: ipY, dst: ipX, ttl: 1}.udp(1, 2),
		frameSpec{n: 2, to: 2, src: ipY, dst: r2.at.Addr()}.echo(8, 7), frameSpec{n: 2, to: 2, src: ipY, dst: ipX}.icmpError(3, 3, sent),
		routedTCP6(2, 12, ip6Y, ip6X, 64), arp(routerMAC(2), packet.ARP{Op: packet.ARPReply, SHA: mac(2), SPA: ipY, TPA: r2.at.Addr()}),
		packet.NeighborAdvert(routerMAC(12), mac(2), r62.at.Addr(), ip6Y, packet.NDSolicited), frameSpec{n: 2, to: 2, src: ipY, dst: ipOut, h: packet.IPv4{Offset: 3}}.udp(1, 2),
	} {
		f.Add(frame)
	}
	l := example6()
	f.Fuzz(func(t *testing.T, frame []byte) {
		right := packet.VerifyChecksums(frame) == nil
		for _, port := range []string{"p-y", "p-up"} {
			d := l.send(port, frame)
			if d.Verdict == 0 || (len(d.Outputs) > 0) != (d.Verdict == flow.Forward) || (d.Reason == "") != (d.Verdict == flow.Forward || d.Verdict == flow.Consumed) {
				t.Fatalf("contradictory decision\n%s", walk(d))
			}
			if d.Rewrite != nil {
				got := bytes.Clone(frame)
				if err := d.Rewrite.Apply(got, false); err != nil {
					t.Fatalf("%v\n%s", err, walk(d))
				}
				if err := packet.VerifyChecksums(got); right && err != nil {
					t.Fatalf("%v: %x became %x\n%s", err, frame, got, walk(d))
				}
			}
			for _, e := range d.Emit {
				if err := packet.VerifyChecksums(e.Frame); err != nil {
					t.Fatalf("%v in %x\n%s", err, e.Frame, walk(d))
				}
			}
		}
	})
}
