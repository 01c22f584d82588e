package simulate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// metadataLab has machine 1, whose security group lets nothing out, machine 2 without port
// security, and machine 4, which has an IPv4 address alone, on an isolated network; machine 3 on
// another network has the addresses of machine 1.
func metadataLab() *lab {
	l := newLab()
	l.network("net")
	l.network("other")
	l.Apply(owner("security-group", "closed"), &topology.Bundle{Chains: []topology.Chain{{ID: "closed/egress"}, {ID: "closed/ingress"}}})
	one, two, three := machine(1, "closed"), machine(2), machine(1, "closed")
	one.ips = append(one.ips, packet.LinkLocal(mac(1)))
	two.open = true
	three.id, three.network = "p3", "other"
	for _, p := range []portSpec{one, two, three, machine(4, "closed")} {
		l.port(p)
	}
	return l
}

// toAddress is a TCP packet of machine i to the metadata service, or to another address.
func toAddress(i int, src, dst netip.Addr, port uint16) []byte {
	t := packet.TCP{SrcPort: 4000, DstPort: port, Flags: packet.TCPSyn}.Append(nil, src, dst, nil)
	b := packet.Ethernet{Dst: flow.MetadataMAC, Src: mac(i), Type: packet.TypeIPv4}
	if src.Is6() {
		b.Type = packet.TypeIPv6
		return append(packet.IPv6{Next: packet.ProtoTCP, HopLimit: 64, Src: src, Dst: dst}.Append(b.Append(nil), len(t)), t...)
	}
	return append(packet.IPv4{Proto: packet.ProtoTCP, TTL: 64, Src: src, Dst: dst}.Append(b.Append(nil), len(t)), t...)
}

// answered runs the answer to a decision's packet and checks that it comes to port as to the
// machine's own source.
func (l *lab) answered(t *testing.T, d *flow.Decision, request []byte, port string) {
	t.Helper()
	if d.Rewrite == nil {
		t.Fatalf("the packet keeps its headers\n%s", walk(d))
	}
	before, to := decoded(t, request), *d.Rewrite
	reply := packet.TCP{SrcPort: to.DstPort, DstPort: to.SrcPort, Flags: packet.TCPSyn | packet.TCPAck}.Append(nil, to.Dst, to.Src, nil)
	frame := packet.Ethernet{Dst: flow.MetadataMAC, Src: flow.MetadataMAC, Type: before.EtherType}.Append(nil)
	if to.Src.Is6() {
		frame = packet.IPv6{Next: packet.ProtoTCP, HopLimit: 64, Src: to.Dst, Dst: to.Src}.Append(frame, len(reply))
	} else {
		frame = packet.IPv4{Proto: packet.ProtoTCP, TTL: 64, Src: to.Dst, Dst: to.Src}.Append(frame, len(reply))
	}
	back := l.sim.Run(Input{PortID: flow.MetadataPort, HostID: "h1", Frame: append(frame, reply...), State: l.mem, Explain: true})
	expect(t, back, flow.Forward, port)
	want := flow.Rewrite{SrcMAC: before.Dst, DstMAC: before.Src, Src: before.DstIP, Dst: before.SrcIP, SrcPort: before.TpDst, DstPort: before.TpSrc}
	if back.Rewrite == nil || *back.Rewrite != want || !back.Cacheable || !slices.Contains(back.Touched, port) {
		t.Errorf("the answer leaves as %+v, want %+v\n%s", back.Rewrite, want, walk(back))
	}
}

func decoded(t *testing.T, frame []byte) packet.Frame {
	t.Helper()
	var f packet.Frame
	if err := packet.Decode(frame, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMetadata: requests of all machines reach the proxy, each from an address of the host's own,
// whatever security groups say, and the answers find their machines.
func TestMetadata(t *testing.T) {
	t.Parallel()
	l := metadataLab()
	sources := map[netip.Addr]string{}
	for _, c := range []struct {
		name, port string
		machine    int
		src, dst   netip.Addr
	}{
		{"closed group", "p1", 1, addr(1), flow.MetadataIPv4},
		{"IPv6", "p1", 1, packet.LinkLocal(mac(1)), flow.MetadataIPv6},
		{"IPv6 on a port with an IPv4 address alone", "p4", 4, packet.LinkLocal(mac(4)), flow.MetadataIPv6},
		{"no port security", "p2", 2, addr(9), flow.MetadataIPv4},
		{"the same address on another network", "p3", 1, addr(1), flow.MetadataIPv4},
	} {
		frame := toAddress(c.machine, c.src, c.dst, 80)
		d := l.send(c.port, frame)
		expect(t, d, flow.Forward, flow.MetadataPort)
		if !d.Cacheable || d.Tracked || len(d.NewConns)+len(d.NewNATs) > 0 {
			t.Errorf("%s: a flow with state, or none\n%s", c.name, walk(d))
		}
		source := d.Rewrite.Src
		if other := sources[source]; other != "" || flow.MetadataSourceNumber(source) == 0 {
			t.Errorf("%s: source %s, which %q has", c.name, source, other)
		}
		sources[source] = c.name
		l.answered(t, d, frame, c.port)
	}
}

// TestMetadataRefusals: what the metadata service is not for, and sources that are not the port's.
func TestMetadataRefusals(t *testing.T) {
	t.Parallel()
	l := metadataLab()
	udp := packet.UDP{SrcPort: 4000, DstPort: 80}.Append(nil, addr(1), flow.MetadataIPv4, nil)
	datagram := append(packet.IPv4{Proto: packet.ProtoUDP, TTL: 64, Src: addr(1), Dst: flow.MetadataIPv4}.Append(
		packet.Ethernet{Dst: mac(9), Src: mac(1), Type: packet.TypeIPv4}.Append(nil), len(udp)), udp...)
	fragment := toAddress(1, addr(1), flow.MetadataIPv4, 80)
	fragment[20] |= 0x20 // more of it follow
	for name, c := range map[string]struct {
		frame []byte
		why   string
	}{
		"spoofed address":      {toAddress(1, addr(2), flow.MetadataIPv4, 80), "anti-spoofing"},
		"spoofed MAC":          {toAddress(2, addr(1), flow.MetadataIPv4, 80), "anti-spoofing"},
		"spoofed IPv6 address": {toAddress(1, packet.LinkLocal(mac(2)), flow.MetadataIPv6, 80), "anti-spoofing"},
		"another TCP port":     {toAddress(1, addr(1), flow.MetadataIPv4, 22), "metadata-only"},
		"a fragment":           {fragment, "metadata-only"},
		"IPv6, another port":   {toAddress(1, packet.LinkLocal(mac(1)), flow.MetadataIPv6, 443), "metadata-only"},
		"UDP":                  {datagram, "metadata-only"},
	} {
		d := l.send("p1", c.frame)
		if d.Verdict != flow.Drop || d.Cacheable != (name != "a fragment") || !strings.Contains(d.Reason, c.why) {
			t.Errorf("%s: want a drop because of %s\n%s", name, c.why, walk(d))
		}
	}
	for name, frame := range map[string][]byte{
		"another's link-local address and MAC": toAddress(1, packet.LinkLocal(mac(1)), flow.MetadataIPv6, 80),
		"another's link-local address":         toAddress(4, packet.LinkLocal(mac(1)), flow.MetadataIPv6, 80),
		"other IPv6":                           toAddress(4, packet.LinkLocal(mac(4)), packet.LinkLocal(mac(1)), 80),
	} {
		if d := l.send("p4", frame); d.Verdict != flow.Drop || !strings.Contains(d.Reason, "anti-spoofing") {
			t.Errorf("%s of a port with an IPv4 address alone: want a drop by anti-spoofing\n%s", name, walk(d))
		}
	}
	d := l.sim.Run(Input{PortID: flow.MetadataPort, HostID: "h1", Frame: toAddress(1, flow.MetadataIPv4, ip("100.64.7.7"), 80), State: l.mem})
	if d.Verdict != flow.Drop {
		t.Errorf("a packet from the proxy to no client\n%s", walk(d))
	}
}

// TestMetadataNeighbours: the service's addresses are answered for, to the port's own sources.
func TestMetadataNeighbours(t *testing.T) {
	t.Parallel()
	l := metadataLab()
	group := packet.SolicitedNode(flow.MetadataIPv6)
	solicit := func(i int) []byte {
		return packet.NeighborSolicit(packet.MulticastMAC(group), mac(i), packet.LinkLocal(mac(i)), group, flow.MetadataIPv6)
	}
	for name, c := range map[string]struct {
		port  string
		frame []byte
	}{
		"ARP": {"p1", packet.ARPRequestFor(flow.MetadataIPv4, mac(1), addr(1))},
		"NS":  {"p1", solicit(1)},
		"NS of a port with an IPv4 address alone": {"p4", solicit(4)},
	} {
		d := l.send(c.port, c.frame)
		if d.Verdict != flow.Consumed || len(d.Emit) != 1 || d.Emit[0].PortID != c.port {
			t.Errorf("%s\n%s", name, walk(d))
			continue
		}
		f := decoded(t, d.Emit[0].Frame)
		if got := f.SHA; f.ARPOp != 0 && got != flow.MetadataMAC {
			t.Errorf("%s: it is at %s", name, got)
		}
		if f.IsND() && (f.NDLink != flow.MetadataMAC || f.NDTarget != flow.MetadataIPv6 || packet.VerifyChecksums(d.Emit[0].Frame) != nil) {
			t.Errorf("%s: answer %+v", name, f)
		}
	}
	if d := l.send("p1", packet.ARPRequestFor(flow.MetadataIPv4, mac(1), addr(2))); len(d.Emit) > 0 {
		t.Errorf("a spoofed question is answered\n%s", walk(d))
	}
}

func TestMetadataSourceNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []uint32{1, 255, 70_000, flow.MaxMetadataSource} {
		for _, is6 := range []bool{false, true} {
			a := flow.MetadataSourceAddr(n, is6)
			if got := flow.MetadataSourceNumber(a); got != n || a.Is6() != is6 || a.Is4() && !flow.MetadataSources.Contains(a) {
				t.Errorf("number %d, IPv6 %v: %s, whose number is %d", n, is6, a, got)
			}
		}
	}
	for _, a := range []string{"100.63.255.255", "100.64.0.0", "100.127.255.255", "fe80::1", "2001:db8::6440:1", "10.0.0.1"} {
		if n := flow.MetadataSourceNumber(ip(a)); n != 0 {
			t.Errorf("%s has number %d", a, n)
		}
	}
	if n := flow.MetadataSourceNumber(netip.Addr{}); n != 0 {
		t.Errorf("no address has number %d", n)
	}
}
