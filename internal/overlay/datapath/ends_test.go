package datapath

import (
	"fmt"
	"testing"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestNotesEnd: a flow that notes the end of its connection has a FIN until a SYN, and a RST until
// any frame follows. The first frame of a connection goes up if other hosts have to know.
func TestNotesEnd(t *testing.T) {
	l := newLab(t, PortOptions{})
	const ack = packet.TCPAck
	for _, version := range []struct {
		name  string
		frame func(flags uint8) []byte
	}{
		{"IPv4", func(flags uint8) []byte { return ipv4(packet.IPv4{Proto: protoTCP}, tcpWith(flags)) }},
		{"IPv6", func(flags uint8) []byte { return ipv6(protoTCP, tcpWith(flags)) }},
		{"IPv6 with an extension", func(flags uint8) []byte { return extended([]uint8{0}, protoTCP, tcpWith(flags), hopByHop) }},
	} {
		for _, way := range []struct {
			name    string
			rewrite func(Key) *flow.Rewrite
			out     Output
		}{
			{"as they came", func(Key) *flow.Rewrite { return nil }, Output{Port: l.out}},
			{"to a port", translated, Output{Port: l.out}},
			{"into a tunnel", translated, Output{Tunnel: l.tunnel, TunnelKey: testKey}},
		} {
			t.Run(fmt.Sprintf("%s, %s", version.name, way.name), func(t *testing.T) {
				key := l.keyOf(version.frame(ack))
				f := Flow{Key: key, Out: way.out, Rewrite: way.rewrite(key), Tags: l.Tags(1, 2, 3, 4, 5, 6), NotesEnd: true}
				l.install(f)
				for i, step := range []struct {
					flags         uint8
					syn, fin, rst bool
				}{
					{ack, false, false, false},
					{packet.TCPRst, false, false, true},
					{ack, false, false, false},
					{packet.TCPFin | ack, false, true, false},
					{ack, false, true, false},
					{packet.TCPRst | ack, false, true, true},
					{ack, false, true, false},
					{packet.TCPSyn, true, false, false},
					{ack, true, false, false},
					{packet.TCPFin | ack, true, true, false},
					{packet.TCPSyn | ack, true, false, false},
				} {
					l.workload(version.frame(step.flags))
					s, found, err := l.Lookup(key)
					if err != nil || !found || s.Stale || !s.NotesEnd || s.Shared || s.SYN != step.syn || s.FIN != step.fin || s.RST != step.rst || len(s.Tags) != 6 {
						t.Errorf("step %d: the flow is %+v, %v, want SYN %v, FIN %v, RST %v", i, s, err, step.syn, step.fin, step.rst)
					}
				}
				f.Shared = true
				l.install(f)
				for _, flags := range []uint8{packet.TCPFin | ack, packet.TCPSyn, packet.TCPSyn | ack} {
					up := flags == packet.TCPSyn
					l.workload(version.frame(flags))
					if u := l.upcall(); (u != nil) != up || up && (u.Reason != Stale || u.TCPFlags() != flags) {
						t.Errorf("of a shared connection flags %#x went up: %+v, want it to: %v", flags, u, up)
					}
				}
				if s, _, err := l.Lookup(key); err != nil || !s.Shared || !s.SYN || s.FIN || s.Packets != 2 {
					t.Errorf("the flow of a shared connection is %+v, %v", s, err)
				}
				f.Shared = false
				f.NotesEnd = false
				l.install(f)
				for _, flags := range []uint8{packet.TCPSyn, packet.TCPFin | ack, packet.TCPRst} {
					l.workload(version.frame(flags))
				}
				if s, _, err := l.Lookup(key); err != nil || s.NotesEnd || s.FIN || s.RST || s.Packets != 3 || l.upcall() != nil {
					t.Errorf("a flow that notes nothing is %+v, %v", s, err)
				}
			})
		}
	}
}

// TestNotesEndStale: what a flow has noted does not keep its tags from stopping it.
func TestNotesEndStale(t *testing.T) {
	l := newLab(t, PortOptions{})
	frame := ipv4(packet.IPv4{Proto: protoTCP}, tcpWith(packet.TCPFin|packet.TCPAck))
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Port: l.out}, Tags: l.Tags(7), NotesEnd: true})
	l.workload(frame)
	if l.upcall() != nil {
		t.Fatal("the flow is not there")
	}
	l.Bump(7)
	l.workload(frame)
	if u := l.upcall(); u == nil || u.Reason != Stale {
		t.Errorf("went up: %+v, want it to, as stale", u)
	}
	if s, _, err := l.Lookup(l.keyOf(frame)); err != nil || !s.Stale || !s.FIN {
		t.Errorf("the flow is %+v, %v", s, err)
	}
}

// TestTCPFlags: only whole TCP packets have flags.
func TestTCPFlags(t *testing.T) {
	fin := tcpWith(packet.TCPFin)
	for _, c := range []struct {
		name  string
		frame []byte
		want  uint8
	}{
		{"TCP", ipv4(packet.IPv4{Proto: protoTCP}, fin), packet.TCPFin},
		{"a first fragment", ipv4(packet.IPv4{Proto: protoTCP, MoreFragments: true}, fin), 0},
		{"UDP", udp4([]byte("a payload that is long enough")), 0},
		{"cut short", ipv4(packet.IPv4{Proto: protoTCP}, fin[:13]), 0},
		{"nothing", nil, 0},
	} {
		if got := (&Upcall{Frame: c.frame, Length: len(c.frame)}).TCPFlags(); got != c.want {
			t.Errorf("%s: flags %#x, want %#x", c.name, got, c.want)
		}
	}
}

// tcpWith is a TCP header with flags.
func tcpWith(flags uint8) []byte {
	return packet.TCP{SrcPort: 1000, DstPort: 80, Flags: flags}.Append(nil, ipA, ipB, nil)
}
