package datapath

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/topology/packet"
)

func arpRequest(dst, sha packet.MAC, spa, tpa netip.Addr) []byte {
	b := packet.Ethernet{Dst: dst, Src: macA, Type: packet.TypeARP}.Append(nil)
	return packet.ARP{Op: packet.ARPRequest, SHA: sha, SPA: spa, TPA: tpa}.Append(b)
}

// asking is a lab whose port in may ask from macA, ipA and ip6A about ipB and ip6B, which are
// macB's.
func asking(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, PortOptions{})
	n := NetworkOf("net")
	for _, ip := range []netip.Addr{ipA, ip6A} {
		if err := l.SetAsker(Asker{Port: l.in, MAC: macA, IP: ip}, n, l.Tags(SlotOf("in"))[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetNeighbours(n, Neighbour{IP: ipA, MAC: macA}, Neighbour{IP: ip6A, MAC: macA}, Neighbour{IP: ipB, MAC: macB}, Neighbour{IP: ip6B, MAC: macB}); err != nil {
		t.Fatal(err)
	}
	return l
}

// answers gives a frame to the program and returns its answer; nil when the frame went up.
func (l *lab) answers(frame []byte) []byte {
	l.t.Helper()
	verdict, after := l.workload(bytes.Clone(frame))
	if verdict == tcxRedirect {
		return after
	}
	if verdict != tcxDrop {
		l.t.Fatalf("frame %x: verdict %d", frame, verdict)
	}
	if u := l.upcall(); u == nil || !bytes.Equal(u.Frame, frame) {
		l.t.Fatalf("frame %x was neither answered nor given up whole: %+v", frame, u)
	}
	return nil
}

func TestNeighboursAnswered(t *testing.T) {
	t.Parallel()
	l := asking(t)
	group := packet.SolicitedNode(ip6B)
	reply := packet.ARP{Op: packet.ARPReply, SHA: macB, SPA: ipB, THA: macA, TPA: ipA}.Append(
		packet.Ethernet{Dst: macA, Src: macB, Type: packet.TypeARP}.Append(nil))
	advert := packet.NeighborAdvert(macA, macB, ip6A, ip6B, packet.NDSolicited|packet.NDOverride)
	toAll, probe := arpRequest(packet.Broadcast, macA, ipA, ipB), arpRequest(macB, macA, ipA, ipB)
	solicit := packet.NeighborSolicit(packet.MulticastMAC(group), macA, ip6A, group, ip6B)
	probe6 := packet.NeighborSolicit(macB, macA, ip6A, ip6B, ip6B)
	flow := bytes.Clone(solicit)
	flow[14], flow[15], flow[17] = 0x6e, 0xa1, 0x23 // traffic class and flow label
	for name, c := range map[string]struct{ question, answer []byte }{
		"to everybody":         {toAll, reply},
		"padded":               {append(bytes.Clone(toAll), make([]byte, 18)...), reply},
		"probe":                {probe, reply},
		"solicitation":         {solicit, advert},
		"padded solicitation":  {append(bytes.Clone(solicit), 0, 0), advert},
		"labelled":             {flow, advert},
		"probing solicitation": {probe6, advert},
	} {
		if got := l.answers(c.question); !bytes.Equal(got, c.answer) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, c.answer)
		} else if err := packet.VerifyChecksums(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := l.counters().Answered; n != 7 {
		t.Errorf("%d answers are counted, want 7", n)
	}
	if err := l.SetNeighbours(NetworkOf("net"), Neighbour{IP: ip6B, MAC: macB, Router: true}); err != nil {
		t.Fatal(err)
	}
	byRouter := packet.NeighborAdvert(macA, macB, ip6A, ip6B, packet.NDRouter|packet.NDSolicited|packet.NDOverride)
	if got := l.answers(solicit); !bytes.Equal(got, byRouter) || packet.VerifyChecksums(got) != nil {
		t.Errorf("of a router:\n got %x\nwant %x", got, byRouter)
	}

	changed := func(frame []byte, at int, to byte) []byte {
		frame = bytes.Clone(frame)
		frame[at] = to
		return frame
	}
	for name, question := range map[string][]byte{
		"unknown target":             arpRequest(packet.Broadcast, macA, ipA, farIP),
		"its own address":            arpRequest(packet.Broadcast, macA, ipA, ipA),
		"from another's address":     arpRequest(packet.Broadcast, macA, hostIP, ipB),
		"from nobody's address":      arpRequest(packet.Broadcast, macA, netip.IPv4Unspecified(), ipB),
		"in another's name":          arpRequest(packet.Broadcast, macB, ipA, ipB),
		"to another machine":         arpRequest(farMAC, macA, ipA, ipB),
		"to a group":                 arpRequest(packet.MAC{1, 0, 0x5e, 0, 0, 1}, macA, ipA, ipB),
		"a reply":                    changed(toAll, 21, 2),
		"other hardware":             changed(toAll, 15, 6),
		"cut short":                  toAll[:41],
		"DAD":                        packet.NeighborSolicit(packet.MulticastMAC(group), macA, netip.IPv6Unspecified(), group, ip6B),
		"unknown IPv6 target":        packet.NeighborSolicit(packet.MulticastMAC(group), macA, ip6A, group, netip.MustParseAddr("2001:db8::99")),
		"solicitation from another":  packet.NeighborSolicit(packet.MulticastMAC(group), macA, ip6B, group, ip6B),
		"solicitation to another":    packet.NeighborSolicit(farMAC, macA, ip6A, ip6B, ip6B),
		"from beyond the link":       changed(solicit, 21, 64),
		"code":                       changed(solicit, 55, 1),
		"advertisement":              changed(solicit, 54, 136),
		"foreign link-layer address": changed(solicit, 85, 0x77),
		"another option":             changed(solicit, 78, 14),
		"no option":                  append(changed(solicit, 19, 24)[:78], make([]byte, 8)...),
		"two options":                append(changed(solicit, 19, 40), 14, 1, 0, 0, 0, 0, 0, 0),
	} {
		if got := l.answers(question); got != nil {
			t.Errorf("%s is answered: %x", name, got)
		}
	}
	tagged := packet.Ethernet{Dst: packet.Broadcast, Src: macA, Tagged: true, VLAN: 7, Type: packet.TypeARP}.Append(nil)
	if verdict, _ := l.workload(packet.ARP{Op: packet.ARPRequest, SHA: macA, SPA: ipA, TPA: ipB}.Append(tagged)); verdict == tcxRedirect {
		t.Error("a tagged question is answered")
	}
}

// TestAnswersStop: each of the three things that an answer rests on stops it at once.
func TestAnswersStop(t *testing.T) {
	t.Parallel()
	l := asking(t)
	n, question := NetworkOf("net"), arpRequest(packet.Broadcast, macA, ipA, ipB)
	if l.answers(question) == nil {
		t.Fatal("not answered")
	}
	l.Bump(SlotOf("in"))
	if l.answers(question) != nil {
		t.Error("answered after the port has changed")
	}
	a := Asker{Port: l.in, MAC: macA, IP: ipA}
	if err := l.SetAsker(a, n, l.Tags(SlotOf("in"))[0]); err != nil {
		t.Fatal(err)
	}
	if err := l.SetNeighbours(n, Neighbour{IP: ipB, MAC: farMAC}); err != nil {
		t.Fatal(err)
	}
	if got := l.answers(question); got == nil || packet.MAC(got[6:12]) != farMAC {
		t.Errorf("the owner's MAC has changed, and the answer is %x", got)
	}
	if err := l.DeleteNeighbours(n, ipB, ipB); err != nil {
		t.Fatal(err)
	}
	if l.answers(question) != nil {
		t.Error("answered about an address that is gone")
	}
	if err := l.SetNeighbours(n, Neighbour{IP: ipB, MAC: macB}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.DeleteAsker(a), l.DeleteAsker(a)); err != nil {
		t.Fatal(err)
	}
	if l.answers(question) != nil {
		t.Error("answered to an asker that is gone")
	}
}

// TestAnswersOutliveTheAgent: maps are pinned, and the next agent lists what it finds.
func TestAnswersOutliveTheAgent(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	n := NetworkOf("net")
	want := make([]Neighbour, 5000) // more than one batch
	for i := range want {
		want[i] = Neighbour{IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), MAC: macB, Router: i == 9}
	}
	want[7].IP = ip6B
	asker := Asker{Port: 0x10001, MAC: macA, IP: ip6A}
	if err := errors.Join(d.SetNeighbours(n, want...), d.SetAsker(asker, n, d.Tags(3)[0]), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = openWith(t, opts)
	askers, err := d.Askers()
	if err != nil || len(askers) != 1 || askers[0] != asker {
		t.Errorf("askers %v, %v; want %v", askers, err, asker)
	}
	got := map[Neighbour]bool{}
	if err := d.EachNeighbours(func(networks []Network, ns []Neighbour) {
		for i := range ns {
			got[ns[i]] = networks[i] == n
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || slices.ContainsFunc(want, func(x Neighbour) bool { return !got[x] }) {
		t.Errorf("%d neighbours are there, want the %d that were", len(got), len(want))
	}
}

// FuzzAnswers: whatever is sent, the program answers only the one who asks, about a known
// neighbour, with sound sums.
func FuzzAnswers(f *testing.F) {
	group := packet.SolicitedNode(ip6B)
	f.Add(arpRequest(packet.Broadcast, macA, ipA, ipB))
	f.Add(packet.NeighborSolicit(packet.MulticastMAC(group), macA, ip6A, group, ip6B))
	f.Add(packet.NeighborSolicit(macB, macA, ip6A, ip6B, ip6B))
	needRoot(f)
	l := newLab(f, PortOptions{})
	n := NetworkOf("net")
	for _, ip := range []netip.Addr{ipA, ip6A} {
		if err := l.SetAsker(Asker{Port: l.in, MAC: macA, IP: ip}, n, l.Tags(SlotOf("in"))[0]); err != nil {
			f.Fatal(err)
		}
	}
	if err := l.SetNeighbours(n, Neighbour{IP: ipB, MAC: macB}, Neighbour{IP: ip6B, MAC: macB}); err != nil {
		f.Fatal(err)
	}
	l.upcall() // opens the ring for as long as all inputs take
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 54 || len(frame) > 1500 { // what can be given to a program by hand
			return
		}
		l.t = t
		before := l.counters().Answered
		_, after := l.workload(bytes.Clone(frame))
		if l.counters().Answered == before { // it went up, by the ring or the tap
			l.upcall()
			return
		}
		var q, a packet.Frame
		if err := errors.Join(packet.Decode(frame, &q), packet.Decode(after, &a), packet.VerifyChecksums(after)); err != nil {
			t.Fatalf("%x answered by %x: %v", frame, after, err)
		}
		if a.Dst != macA || q.Src != macA || a.Src != macB || a.DstIP != q.SrcIP {
			t.Fatalf("%x answered by %x", frame, after)
		}
	})
}
