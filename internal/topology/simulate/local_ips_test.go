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

// localIPHosts are hosts h1 to h3 with the clients p11 to p13; p21 and p22 on h1 and h2 are what
// the address of p9, on h3, stands for there.
func localIPHosts(passthrough bool) *lab {
	l := newLab()
	l.network("net")
	l.group("g", literal("g/in", topology.Accept, topology.Condition{DlType: packet.TypeIPv4}))
	for i := 1; i <= 3; i++ {
		l.port(onLocalHost(10+i, i))
	}
	l.localHome(3)
	for i := 1; i <= 2; i++ {
		l.backend(20+i, i, passthrough)
	}
	return l
}

// localHome makes machine 9, on a host, the one that has the address.
func (l *lab) localHome(host int) (affected []string) {
	p := onLocalHost(9, host)
	b := p.bundle()
	b.LocalIPs = []topology.LocalIP{{ID: "local", NetworkID: "net", Address: addr(9), PortID: p.id, MAC: p.mac}}
	return l.Apply(p.owner(), b)
}

func onLocalHost(i, host int) portSpec {
	p := machine(i, "g")
	p.host = fmt.Sprint("h", host)
	return p
}

// backend makes machine i, on a host, the one that the address of machine 9 stands for there.
func (l *lab) backend(i, host int, passthrough bool) (affected []string) {
	p := onLocalHost(i, host)
	if passthrough {
		p.ips = append(p.ips, addr(9)) // an allowed address pair
	}
	b := p.bundle()
	if passthrough {
		b.Neighbours = b.Neighbours[:1]
	}
	b.LocalIPs = []topology.LocalIP{{ID: fmt.Sprint("local", i), NetworkID: "net", Address: addr(9), PortID: p.id, MAC: p.mac, FixedIP: addr(i), Passthrough: passthrough}}
	return l.Apply(p.owner(), b)
}

// headersOf returns the headers with which the packet of a decision leaves.
func headersOf(t *testing.T, d *flow.Decision) flow.Rewrite {
	t.Helper()
	if d.Rewrite == nil {
		t.Fatalf("the packet leaves as it came\n%s", walk(d))
	}
	return *d.Rewrite
}

func tcpBetween(src, dst int, a, b netip.Addr, sport, dport uint16) []byte {
	t := packet.TCP{SrcPort: sport, DstPort: dport, Flags: packet.TCPSyn}.Append(nil, a, b, nil)
	f := packet.Ethernet{Dst: mac(dst), Src: mac(src), Type: packet.TypeIPv4}.Append(nil)
	return append(packet.IPv4{Proto: packet.ProtoTCP, Src: a, Dst: b, TTL: 64}.Append(f, len(t)), t...)
}

// TestLocalIPTranslated: on each host the address leads to the machine there, whatever MAC address
// it was sent to, replies bear it, and a host without a machine for it reaches the owner.
func TestLocalIPTranslated(t *testing.T) {
	t.Parallel()
	l := localIPHosts(false)
	for host := 1; host <= 2; host++ {
		client, backend := 10+host, 20+host
		for _, to := range []int{9, 21, 22} {
			d := l.send(fmt.Sprint("p", client), tcpBetween(client, to, addr(client), addr(9), 1000, 80))
			expect(t, d, flow.Forward, fmt.Sprint("p", backend))
			h := headersOf(t, d)
			if h.Dst != addr(backend) || h.DstMAC != mac(backend) || h.Src != addr(client) || h.SrcMAC != mac(client) || h.DstPort != 80 || h.Hops != 0 || !d.Cacheable {
				t.Errorf("to the local IP: %+v, cacheable %v", h, d.Cacheable)
			}
		}
		d := l.send(fmt.Sprint("p", backend), tcpBetween(backend, client, addr(backend), addr(client), 80, 1000))
		expect(t, d, flow.Forward, fmt.Sprint("p", client))
		if h := headersOf(t, d); h.Src != addr(9) || h.SrcMAC != mac(backend) || h.Dst != addr(client) || h.SrcPort != 80 || !d.Cacheable {
			t.Errorf("reply: %+v, cacheable %v", h, d.Cacheable)
		}
		d = l.send(fmt.Sprint("p", backend), tcpBetween(backend, client, addr(backend), addr(client), 80, 1001))
		if expect(t, d, flow.Forward, fmt.Sprint("p", client)); d.Rewrite != nil || len(d.MissingNATs) == 0 || !d.Cacheable {
			t.Errorf("what is no reply: %+v, rests on no translation %v", d.Rewrite, d.MissingNATs)
		}
		d = l.send(fmt.Sprint("p", client), tcpBetween(client, backend, addr(client), addr(backend), 1001, 80))
		if expect(t, d, flow.Forward, fmt.Sprint("p", backend)); d.Rewrite != nil {
			t.Errorf("to the machine's own address: %+v", d.Rewrite)
		}
	}
	d := l.send("p13", tcpBetween(13, 9, addr(13), addr(9), 1000, 80))
	if expect(t, d, flow.Forward, "p9"); d.Rewrite != nil {
		t.Errorf("on a host without: %+v", d.Rewrite)
	}
	d = l.send("p13", tcpBetween(13, 21, addr(13), addr(9), 1000, 80)) // which was on h1
	if expect(t, d, flow.Forward, "p9"); headersOf(t, d).DstMAC != mac(9) || headersOf(t, d).Dst != addr(9) {
		t.Errorf("on a host without, to the MAC address of another's: %+v", d.Rewrite)
	}
	d = l.send("p21", tcpBetween(21, 9, addr(21), addr(9), 1000, 80))
	if expect(t, d, flow.Forward, "p9"); d.Rewrite != nil {
		t.Errorf("from the machine itself: %+v", d.Rewrite)
	}
}

// TestLocalIPMessages: echoes and errors are translated, and what cannot be is dropped and says so.
func TestLocalIPMessages(t *testing.T) {
	t.Parallel()
	l := localIPHosts(false)
	echo := func(i, j int, typ uint8) []byte {
		return ipv4(i, j, packet.IPv4{Proto: packet.ProtoICMP}, packet.ICMP{Type: typ, Rest: packet.EchoRest(7, 1)}.Append(nil, []byte("x")))
	}
	d := l.send("p11", echo(11, 9, packet.ICMPEchoRequest))
	if expect(t, d, flow.Forward, "p21"); headersOf(t, d).Dst != addr(21) {
		t.Errorf("echo: %+v", d.Rewrite)
	}
	d = l.send("p21", echo(21, 11, packet.ICMPEchoReply))
	if expect(t, d, flow.Forward, "p11"); headersOf(t, d).Src != addr(9) {
		t.Errorf("echo reply: %+v", d.Rewrite)
	}

	l.send("p11", tcp(11, 9, 1000, 80))
	seen := tcpBetween(11, 21, addr(11), addr(21), 1000, 80)[14:] // as the machine gets it
	unreachable := packet.ICMP{Type: packet.ICMPUnreachable, Code: 3}.Append(nil, seen)
	d = l.send("p21", ipv4(21, 11, packet.IPv4{Proto: packet.ProtoICMP}, unreachable))
	if expect(t, d, flow.Forward, "p11"); d.Rewrite == nil || d.Rewrite.Src != addr(9) || d.Rewrite.Quote == nil || d.Rewrite.Quote.Dst != addr(9) {
		t.Errorf("error: %+v\n%s", d.Rewrite, walk(d))
	}

	fragment := ipv4(11, 9, packet.IPv4{Proto: packet.ProtoUDP, MoreFragments: true}, make([]byte, 64))
	other := ipv4(11, 9, packet.IPv4{Proto: 47}, make([]byte, 64))
	for name, frame := range map[string][]byte{"fragment": fragment, "GRE": other} {
		d := l.send("p11", frame)
		if expect(t, d, flow.Drop); !strings.Contains(d.Reason, "local IP "+addr(9).String()+" takes no fragments") {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}

// TestLocalIPPassthrough: packets keep the address, and only the MAC address is the machine's.
func TestLocalIPPassthrough(t *testing.T) {
	t.Parallel()
	l := localIPHosts(true)
	for host := 1; host <= 2; host++ {
		client, backend := 10+host, 20+host
		d := l.send(fmt.Sprint("p", client), tcpBetween(client, 9, addr(client), addr(9), 1000, 80))
		expect(t, d, flow.Forward, fmt.Sprint("p", backend))
		if h := headersOf(t, d); h.Dst != addr(9) || h.DstMAC != mac(backend) || len(d.NewNATs) > 0 {
			t.Errorf("to the local IP: %+v, translations %v", h, d.NewNATs)
		}
		d = l.send(fmt.Sprint("p", backend), tcpBetween(backend, client, addr(9), addr(client), 80, 1000))
		if expect(t, d, flow.Forward, fmt.Sprint("p", client)); d.Rewrite != nil {
			t.Errorf("reply: %+v", d.Rewrite)
		}
		fragment := ipv4(client, 9, packet.IPv4{Proto: packet.ProtoUDP, MoreFragments: true}, make([]byte, 64))
		expect(t, l.send(fmt.Sprint("p", client), fragment), flow.Forward, fmt.Sprint("p", backend))
	}
	expect(t, l.send("p13", tcpBetween(13, 22, addr(13), addr(9), 1000, 80)), flow.Forward, "p9")
}

// TestLocalIPAsked: questions for the address are answered with the MAC address of the host's
// machine, and the kernel answers none.
func TestLocalIPAsked(t *testing.T) {
	t.Parallel()
	l := localIPHosts(false)
	for client, want := range map[int]int{11: 21, 12: 22, 13: 9, 21: 9} {
		q := packet.ARP{Op: packet.ARPRequest, SHA: mac(client), SPA: addr(client), TPA: addr(9)}
		d := l.send(fmt.Sprint("p", client), arp(packet.Broadcast, q))
		var f packet.Frame
		if len(d.Emit) != 1 || packet.Decode(d.Emit[0].Frame, &f) != nil || f.SHA != mac(want) || f.SrcIP != addr(9) {
			t.Errorf("p%d is answered %v, want the MAC address of p%d\n%s", client, f.SHA, want, walk(d))
		}
	}
	if _, _, ok := l.Neighbour("net", addr(9)); ok {
		t.Error("the table has one answer for all")
	}
	l.port(onLocalHost(21, 1))
	l.port(onLocalHost(22, 2))
	if _, _, ok := l.Neighbour("net", addr(9)); ok {
		t.Error("the table has an answer for a local IP")
	}
	l.port(onLocalHost(9, 3))
	if got, _, ok := l.Neighbour("net", addr(9)); !ok || got != mac(9) {
		t.Errorf("without a local IP the table has %v, %v", got, ok)
	}
}

// TestLocalIPChanges: a change that decides otherwise about a packet touches what its decision
// rested on.
func TestLocalIPChanges(t *testing.T) {
	t.Parallel()
	l := localIPHosts(false)
	frames := map[string][]byte{
		"p11": tcp(11, 9, 1000, 80), "p12": tcp(12, 9, 1000, 80), "p13": tcpBetween(13, 21, addr(13), addr(9), 1000, 80),
		"p21": tcpBetween(21, 11, addr(21), addr(11), 80, 1000),
	}
	type decided struct {
		text    string
		touched []string
	}
	decide := func() map[string]decided {
		all := map[string]decided{}
		for port, frame := range frames {
			d := l.send(port, frame)
			var headers any
			if d.Rewrite != nil {
				headers = *d.Rewrite
			}
			all[port] = decided{fmt.Sprint(d.Verdict, outs(d), headers), slices.Clone(d.Touched)}
		}
		return all
	}
	down := func() []string {
		p := onLocalHost(21, 1)
		b := p.bundle()
		b.Ports[0].AdminStateUp = false
		b.LocalIPs = []topology.LocalIP{{ID: "local21", NetworkID: "net", Address: addr(9), PortID: p.id, MAC: p.mac, FixedIP: addr(21)}}
		return l.Apply(p.owner(), b)
	}
	changed := 0
	for i, change := range []func() []string{
		func() []string { return l.port(onLocalHost(21, 1)) }, // no association
		func() []string { return l.backend(21, 1, false) },    // again
		func() []string { return l.backend(21, 1, true) },     // in the other mode
		func() []string { return l.backend(21, 2, false) },    // moved
		func() []string { return l.backend(20, 1, false) },    // another
		func() []string { return l.backend(21, 1, false) },    // moved back: the other is first
		down, // one that does not count
		func() []string { return l.Apply(owner("port", "p20"), nil) },
		func() []string { return l.backend(21, 1, false) },
		func() []string { return l.localHome(1) }, // the owner moves
		func() []string { return l.port(onLocalHost(21, 1)) },
		func() []string { return l.port(onLocalHost(22, 2)) },
		func() []string { return l.port(onLocalHost(9, 1)) }, // no local IP any more
	} {
		before := decide()
		affected, after := change(), decide()
		for port, was := range before {
			if is := after[port]; is.text != was.text {
				changed++
				if !slices.ContainsFunc(was.touched, func(id string) bool { return slices.Contains(affected, id) }) {
					t.Errorf("change %d: the decision for %s became %s, was %s: it rested on %v, and %v changed", i, port, is.text, was.text, was.touched, affected)
				}
			}
		}
	}
	if changed < 5 {
		t.Errorf("%d decisions changed: the changes prove nothing", changed)
	}
	for _, p := range []int{9, 11, 12, 13, 20, 21, 22} {
		l.Apply(owner("port", fmt.Sprint("p", p)), nil)
	}
	l.Apply(owner("network", "net"), nil)
	l.Apply(owner("security-group", "g"), nil)
	if !l.Empty() {
		t.Error("something is left in the world")
	}
}
