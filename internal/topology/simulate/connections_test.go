package simulate

import (
	"net/netip"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

func udp(i, j int, sport, dport uint16) []byte {
	return ipv4(i, j, packet.IPv4{Proto: packet.ProtoUDP}, packet.UDP{SrcPort: sport, DstPort: dport}.Append(nil, addr(i), addr(j), nil))
}

func ping(i, j int, typ uint8, id uint16) []byte {
	return ipv4(i, j, packet.IPv4{Proto: packet.ProtoICMP}, packet.ICMP{Type: typ, Rest: packet.EchoRest(id, 1)}.Append(nil, nil))
}

// ipv6 is a packet of machine i to machine j.
func ipv6(i, j int, h packet.IPv6, payload []byte) []byte {
	h.Src, h.Dst, h.HopLimit = addr6(i), addr6(j), 64
	b := packet.Ethernet{Dst: mac(j), Src: mac(i), Type: packet.TypeIPv6}.Append(nil)
	return append(h.Append(b, len(payload)), payload...)
}

func ping6(i, j int, typ uint8, id uint16) []byte {
	return ipv6(i, j, packet.IPv6{Next: packet.ProtoICMPv6}, packet.ICMP{Type: typ, Rest: packet.EchoRest(id, 1)}.AppendV6(nil, addr6(i), addr6(j), nil))
}

func tcp6(i, j int, sport, dport uint16) []byte {
	return ipv6(i, j, packet.IPv6{Next: packet.ProtoTCP}, packet.TCP{SrcPort: sport, DstPort: dport}.Append(nil, addr6(i), addr6(j), nil))
}

// client and server: p1 may open anything, p2 lets everything in; what p1 gets must be replies.
func clientAndServer() *lab {
	l := newLab()
	l.network("net")
	l.group("client")
	l.group("server", literal("all", topology.Accept, topology.Condition{}))
	for i, g := range map[int]string{1: "client", 2: "server"} {
		p := machine(i, g)
		p.ips = append(p.ips, addr6(i))
		l.port(p)
	}
	return l
}

func TestReplies(t *testing.T) {
	t.Parallel()
	gre := func(i, j int) []byte { return ipv4(i, j, packet.IPv4{Proto: 47}, []byte{0, 0, 8, 0}) }
	for _, c := range []struct {
		name         string
		packet       []byte
		reply, other []byte
	}{
		{"TCP", tcp(1, 2, 4000, 80), tcp(2, 1, 80, 4000), tcp(2, 1, 80, 4001)},
		{"UDP", udp(1, 2, 4000, 53), udp(2, 1, 53, 4000), udp(2, 1, 54, 4000)},
		{"echo", ping(1, 2, 8, 7), ping(2, 1, 0, 7), ping(2, 1, 0, 8)},
		{"other protocol", gre(1, 2), gre(2, 1), ipv4(2, 1, packet.IPv4{Proto: 4}, nil)},
		{"IPv6 TCP", tcp6(1, 2, 4000, 80), tcp6(2, 1, 80, 4000), tcp6(2, 1, 81, 4000)},
		{"IPv6 echo", ping6(1, 2, 128, 7), ping6(2, 1, 129, 7), ping6(2, 1, 129, 8)},
	} {
		l := clientAndServer()
		expect(t, l.send("p2", c.reply), flow.Drop)
		d := l.send("p1", c.packet)
		expect(t, d, flow.Forward, "p2")
		if !d.Cacheable || d.Return || len(d.NewConns) != 2 || d.NewConns[0].Ingress || !d.NewConns[1].Ingress {
			t.Errorf("%s: %+v", c.name, d)
		}
		d = l.send("p2", c.reply)
		expect(t, d, flow.Forward, "p1")
		if !d.Return || !d.Cacheable || len(d.NewConns) > 0 {
			t.Errorf("%s: reply %+v", c.name, d)
		}
		expect(t, l.send("p2", c.other), flow.Drop)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	d := clientAndServer().send("p1", tcp(1, 2, 4000, 80))
	asked := flow.ConnKey{Src: addr(1), Dst: addr(2), SrcPort: 4000, DstPort: 80, Proto: 6, Device: "net"}
	reply := flow.ConnKey{Src: addr(2), Dst: addr(1), SrcPort: 80, DstPort: 4000, Proto: 6, Device: "net"}
	ingress := asked
	ingress.Ingress = true
	if d.Lookup != asked || d.NewConns[0] != reply || d.NewConns[1] != ingress {
		t.Errorf("asked %+v\nnew %+v", d.Lookup, d.NewConns)
	}
}

func TestNetworksDoNotShareConnections(t *testing.T) {
	t.Parallel()
	l := clientAndServer()
	l.network("net2")
	for i, g := range map[int]string{1: "client", 2: "server"} {
		p := machine(i, g)
		p.id, p.network = "q"+p.id[1:], "net2"
		l.port(p)
	}
	expect(t, l.send("p1", tcp(1, 2, 4000, 80)), flow.Forward, "p2")
	expect(t, l.send("q2", tcp(2, 1, 80, 4000)), flow.Drop)
}

func TestDroppedPacketsLeaveNothing(t *testing.T) {
	t.Parallel()
	l := clientAndServer()
	l.group("server")
	d := l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Drop)
	if !d.Tracked || len(d.NewConns) > 0 {
		t.Errorf("got %+v", d)
	}
}

func TestUntracked(t *testing.T) {
	t.Parallel()
	if d := threeOpen().send("p1", tcp(1, 2, 4000, 80)); d.Tracked || len(d.NewConns) > 0 || !d.Cacheable {
		t.Errorf("nobody asked, and it is tracked: %+v", d)
	}
	l := clientAndServer()
	l.group("client", literal("icmp6", topology.Accept, topology.Condition{NwProto: ptr(packet.ProtoICMPv6)}))
	d := l.send("p2", packet.NeighborSolicit(mac(1), mac(2), addr6(2), addr6(3), addr6(3)))
	expect(t, d, flow.Forward, "p1")
	if d.Tracked || len(d.NewConns) > 0 {
		t.Errorf("neighbour discovery is tracked: %+v", d)
	}
}

// icmpError is an error from machine i about a packet, sent to its source.
func icmpError(t *testing.T, i int, about []byte, from netip.Addr) []byte {
	t.Helper()
	b, err := packet.TooBig(about, 1400, from, mac(i))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRelatedErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		out, in  []byte
		from1    netip.Addr
		from2    netip.Addr
		unknown  []byte
		unknown1 []byte
	}{
		{"IPv4", tcp(1, 2, 4000, 80), tcp(2, 1, 80, 4000), addr(1), addr(2), tcp(1, 2, 4001, 80), tcp(2, 1, 80, 4001)},
		{"IPv6", tcp6(1, 2, 4000, 80), tcp6(2, 1, 80, 4000), addr6(1), addr6(2), tcp6(1, 2, 4001, 80), tcp6(2, 1, 80, 4001)},
		{"echo", ping(1, 2, 8, 7), ping(2, 1, 0, 7), addr(1), addr(2), ping(1, 2, 8, 8), ping(2, 1, 0, 8)},
	} {
		l := clientAndServer()
		l.send("p1", c.out)
		// p2 lets everything in; make it as strict as p1 now that the connection is open.
		l.group("server")
		d := l.send("p2", icmpError(t, 2, c.out, c.from2))
		expect(t, d, flow.Forward, "p1")
		if d.Cacheable || !d.Return || len(d.NewConns) > 0 {
			t.Errorf("%s: %+v", c.name, d)
		}
		expect(t, l.send("p1", icmpError(t, 1, c.in, c.from1)), flow.Forward, "p2")
		expect(t, l.send("p2", icmpError(t, 2, c.unknown, c.from2)), flow.Drop)
		d = l.send("p1", icmpError(t, 1, c.unknown1, c.from1))
		expect(t, d, flow.Drop)
		if d.Return {
			t.Errorf("%s: an error about nothing known is taken for a reply", c.name)
		}
	}
}

func TestErrorMustGoToWhoIsQuoted(t *testing.T) {
	t.Parallel()
	l := clientAndServer()
	p3 := machine(3, "client")
	l.port(p3)
	l.send("p1", tcp(1, 2, 4000, 80))
	// p2 quotes the live connection of p1, but sends the error to p3.
	forged := icmpError(t, 2, tcp(1, 2, 4000, 80), addr(2))
	payload := forged[34:]
	expect(t, l.send("p2", ipv4(2, 3, packet.IPv4{Proto: packet.ProtoICMP}, payload)), flow.Drop)
}

func TestFragments(t *testing.T) {
	t.Parallel()
	datagram := packet.UDP{SrcPort: 4000, DstPort: 53}.Append(nil, addr(1), addr(2), make([]byte, 32))
	first := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoUDP, ID: 5, MoreFragments: true}, datagram[:16])
	later := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoUDP, ID: 5, Offset: 2}, datagram[16:])
	other := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoUDP, ID: 6, Offset: 2}, datagram[16:])
	l := newLab()
	l.network("net")
	l.group("dns", allowPort("dns53", packet.ProtoUDP, 53))
	l.port(machine(1, "dns"))
	l.port(machine(2, "dns"))
	d := l.send("p1", later)
	expect(t, d, flow.Drop)
	if d.Cacheable {
		t.Error("a later fragment that waits for its first must not be kept out for good")
	}
	d = l.send("p1", first)
	expect(t, d, flow.Forward, "p2")
	want := flow.FragKey{Src: addr(1), Dst: addr(2), Proto: 17, ID: 5, Device: "net"}
	if d.FirstFrag == nil || *d.FirstFrag != want || d.FragPorts != [2]uint16{4000, 53} || d.Cacheable || len(d.NewConns) != 2 {
		t.Errorf("got %+v", d)
	}
	d = l.send("p1", later)
	expect(t, d, flow.Forward, "p2")
	if d.Cacheable || len(d.NewConns) > 0 {
		t.Errorf("got %+v", d)
	}
	expect(t, l.send("p1", other), flow.Drop)
	// A reply in fragments meets the flow clause with the ports of its first fragment.
	back := packet.UDP{SrcPort: 53, DstPort: 4000}.Append(nil, addr(2), addr(1), make([]byte, 32))
	expect(t, l.send("p2", ipv4(2, 1, packet.IPv4{Proto: packet.ProtoUDP, ID: 9, MoreFragments: true}, back[:16])), flow.Forward, "p1")
	expect(t, l.send("p2", ipv4(2, 1, packet.IPv4{Proto: packet.ProtoUDP, ID: 9, Offset: 2}, back[16:])), flow.Forward, "p1")
}

func TestFragmentedEcho(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	l.group("icmp", literal("echo", topology.Accept, topology.Condition{DlType: packet.TypeIPv4, NwProto: ptr(packet.ProtoICMP),
		TpSrc: &topology.Range{Low: ptr(uint16(8)), High: ptr(uint16(8))}, FragmentPolicy: topology.FragHeader}))
	l.port(machine(1, "icmp"))
	l.port(machine(2, "icmp"))
	whole := packet.ICMP{Type: 8, Rest: packet.EchoRest(7, 1)}.Append(nil, make([]byte, 32))
	expect(t, l.send("p1", ipv4(1, 2, packet.IPv4{Proto: 1, ID: 5, MoreFragments: true}, whole[:16])), flow.Forward, "p2")
	expect(t, l.send("p1", ipv4(1, 2, packet.IPv4{Proto: 1, ID: 5, Offset: 2}, whole[16:])), flow.Forward, "p2")
	reply := packet.ICMP{Type: 0, Rest: packet.EchoRest(7, 1)}.Append(nil, make([]byte, 32))
	expect(t, l.send("p2", ipv4(2, 1, packet.IPv4{Proto: 1, ID: 8, MoreFragments: true}, reply[:16])), flow.Forward, "p1")
	expect(t, l.send("p2", ipv4(2, 1, packet.IPv4{Proto: 1, ID: 8, Offset: 2}, reply[16:])), flow.Forward, "p1")
}

func TestLaterFragmentsWithoutRulesOnPorts(t *testing.T) {
	t.Parallel()
	later := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoUDP, ID: 5, Offset: 2}, make([]byte, 16))
	d := threeOpen().send("p1", later)
	expect(t, d, flow.Forward, "p2")
	if !d.Cacheable || d.FirstFrag != nil {
		t.Errorf("got %+v", d)
	}
}
