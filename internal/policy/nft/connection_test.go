package nft

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/internal/netlab"
	"heddle/internal/topology/packet"
)

// timeout bounds a connection that should succeed.
const timeout = 10 * time.Second

// server listens in a namespace. It answers each line with the address of who has sent it.
func (l *lab) server(space, address string) {
	l.t.Helper()
	var listener net.Listener
	must(l.t, l.spaces[space].Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				room := make([]byte, 100)
				for {
					if _, err := c.Read(room); err != nil {
						return
					}
					fmt.Fprintln(c, c.RemoteAddr())
				}
			}()
		}
	}()
}

// dial connects from a namespace, from any address or a given one.
func (l *lab) dial(space, from, to string) net.Conn {
	l.t.Helper()
	var c net.Conn
	must(l.t, l.spaces[space].Do(func() (err error) {
		d := net.Dialer{Timeout: timeout}
		if from != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		c, err = d.Dial("tcp", to)
		return err
	}))
	l.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a line and returns who the server says has sent it.
func (l *lab) ask(c net.Conn) string {
	l.t.Helper()
	must(l.t, c.SetDeadline(time.Now().Add(timeout)))
	_, err := fmt.Fprintln(c, "who am I?")
	must(l.t, err)
	room := make([]byte, 100)
	n, err := c.Read(room)
	must(l.t, err)
	return netip.MustParseAddrPort(strings.TrimSpace(string(room[:n]))).Addr().Unmap().String()
}

// Connections go on in both directions while policy that would let none begin comes into force;
// endpoints that go away or become inactive are cut off at once.
func TestEstablished(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	l.server("w1", ":8080")
	c := l.dial("net1", "", w1+":8080")
	l.ask(c)
	l.apply(store{rulesAt("p"): `{}`})
	l.expect(tcp("net1", net1, w1, 8080, byPolicy))
	if got := l.ask(c); got != net1 {
		t.Errorf("answered to %s, want %s", got, net1)
	}
	// A packet of no connection: an answer without a request.
	p := probe{from: "net1", src: net1, dst: w1, proto: 6, sport: 7, dport: 7, flags: packet.TCPSyn | packet.TCPAck, want: "invalid-packet"}
	l.expect(p)
	s := usual()
	s.AcceptInvalid = true
	must(t, l.table.Configure(s))
	l.apply(store{rulesAt("p"): allowAll})
	p.want = forwarded
	l.expect(p)

	// An answer within the connection, when its endpoint is no longer active.
	here, there := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	ack := probe{from: "net1", src: net1, dst: w1, proto: 6, sport: uint16(here.Port), dport: uint16(there.Port), flags: packet.TCPAck, want: inactive}
	l.apply(store{workloadAt("w1"): inactiveWorkload(1)})
	l.expect(ack)
	l.apply(store{workloadAt("w1"): ""})
	ack.want = unknown
	l.expect(ack)
}

// Floating addresses, hairpins and masquerade (spec §9, §10).
func TestTranslation(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	const float1, float1b, float2, float6 = "192.0.2.20", "192.0.2.3", "192.0.2.30", "2001:db8:f::1"
	l.apply(store{
		workloadAt("w1"): workload(1, `"ipv4_nat": [{"int_ip": "10.65.0.1", "ext_ip": "192.0.2.20"}, {"int_ip": "10.65.0.1", "ext_ip": "192.0.2.3"}],
			"ipv6_nat": [{"int_ip": "fd65::1", "ext_ip": "2001:db8:f::1"}], `),
		workloadAt("w2"): workload(2, `"ipv4_nat": [{"int_ip": "10.65.0.2", "ext_ip": "192.0.2.30"}, {"int_ip": "10.65.0.2", "ext_ip": "192.0.2.20"}], `),
	})
	for _, w := range []string{"w1", "w2"} {
		l.server(w, ":8080")
	}
	l.server("net1", ":8080")
	for _, c := range []struct{ from, to, seen string }{
		{"net1", float1, net1},   // inwards; of two endpoints that claim it, the lower has it
		{"net1", float1b, net1},  //
		{"net1", float2, net1},   //
		{"net1", float6, net1v6}, //
		{"host", float1, ""},     // from this host as well
		{"w2", float1, w2},       // from another workload
		{"w1", float1b, float1},  // a hairpin comes from the first of its floating addresses, in text: 192.0.2.20 is before 192.0.2.3
		{"w1", float6, float6},   //
		{"w1", net1, w1},         // outwards nothing is translated
		{"net1", w1, net1},       // its own address still works
	} {
		got := l.ask(l.dial(c.from, "", net.JoinHostPort(c.to, "8080")))
		if got != c.seen && c.seen != "" {
			t.Errorf("%s to %s is seen as %s, want %s", c.from, c.to, got, c.seen)
		}
	}
	// The other way round once the winner has gone.
	l.apply(store{workloadAt("w1"): workload(1, "")})
	if got := l.ask(l.dial("w2", "", float1+":8080")); got != float1 {
		t.Errorf("hairpin of what is left is seen as %s, want %s", got, float1)
	}

	l.around.Pools = []Pool{{netip.MustParsePrefix("10.65.0.0/31"), true}, {netip.MustParsePrefix("10.65.0.2/31"), false},
		{netip.MustParsePrefix("fd65::/64"), true}, {netip.MustParsePrefix("192.0.2.0/24"), false}}
	l.table.Surround(l.around)
	l.commit()
	for _, c := range []struct{ from, to, seen string }{
		{"w1", net1, host1}, {"w1", net1v6, host1v6}, {"w1", w2, w1}, {"w2", net1, w2},
	} {
		if got := l.ask(l.dial(c.from, "", net.JoinHostPort(c.to, "8080"))); got != c.seen {
			t.Errorf("%s to %s is seen as %s, want %s", c.from, c.to, got, c.seen)
		}
	}
	l.around.Pools = nil
	l.table.Surround(l.around)
	l.commit()
	if got := l.ask(l.dial("w1", "", net1+":8080")); got != w1 {
		t.Errorf("without pools %s is seen as %s", w1, got)
	}
}

// Tunnelled packets come from peers alone, and go to them whatever a host endpoint says (spec §10).
func TestTunnelPeers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.around.HostInterfaces = map[string]calico.HostEndpointKey{"eth0": {Host: labHost, Endpoint: "eth0"}}
	l.around.IPIP = &IPIP{Device: "tunl0", Address: netip.MustParseAddr("10.65.9.9"), Peers: []netip.Addr{netip.MustParseAddr(net1)}}
	l.around.VXLAN = &VXLAN{Port: 4789, Peers: []netip.Addr{netip.MustParseAddr(net1), netip.MustParseAddr(net1v6)}}
	l.table.Surround(l.around)
	l.apply(store{hostAt("eth0"): `{"name": "eth0"}`})
	ipip := func(from, src, dst, want string) probe {
		return probe{from: from, src: src, dst: dst, proto: 4, want: want}
	}
	const stranger = "198.51.100.9"
	l.expect(
		ipip("net1", net1, host1, in), ipip("net1", stranger, host1, "tunnel-peer"), ipip("host", host1, net1, sent), ipip("host", host1, stranger, byPolicy),
		ipip("net2", net2, host2, "tunnel-peer"), ipip("net1", net1, net2, byPolicy), // forwarded: no tunnel of ours
		udp("net1", net1, host1, 5, 4789, in), udp("net1", net1v6, host1v6, 5, 4789, in), udp("net1", stranger, host1, 5, 4789, "tunnel-peer"),
		udp("host", host1, net1, 5, 4789, sent), udp("host", host1, stranger, 5, 4789, byPolicy), udp("net1", net1, host1, 5, 4790, byPolicy),
	)
	l.around.IPIP, l.around.VXLAN = &IPIP{Device: "tunl0", Peers: []netip.Addr{netip.MustParseAddr(stranger)}}, nil
	l.table.Surround(l.around)
	l.commit()
	l.expect(ipip("net1", net1, host1, "tunnel-peer"), ipip("net1", stranger, host1, in), udp("net1", net1, host1, 5, 4789, byPolicy))
}

// Interfaces of the overlay are left alone (spec §8.1), and the drop action says what refusal is
// (spec §14).
func TestExemptAndDropAction(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	l.around.Exempt = []string{"cali9"}
	l.table.Surround(l.around)
	l.commit()
	l.expect(
		tcp("w9", w9, net1, 80, forwarded), tcp("net1", net1, w9, 80, forwarded), tcp("w9", w9, host1, 80, in), tcp("host", host1, w9, 80, sent),
		tcp("w9", w9, w1, 80, forwarded), tcp("w9", "203.0.113.9", net1, 80, forwarded), tcp("w1", w2, w9, 80, spoofed),
	)
	l.around.Exempt = nil
	l.table.Surround(l.around)
	l.apply(store{rulesAt("p"): `{}`})
	l.expect(tcp("w9", w9, net1, 80, unknown), tcp("w1", w1, net1, 80, byPolicy))
	for action, wants := range map[DropAction][2]string{Accept: {forwarded, forwarded}, LogAndAccept: {forwarded, forwarded}, LogAndDrop: {unknown, byPolicy}} {
		s := usual()
		s.OnDrop = action
		must(t, l.table.Configure(s))
		l.commit()
		l.expect(tcp("net1", net1, w9, 80, wants[0]), tcp("w1", w1, net1, 80, wants[1]), tcp("w1", w2, net1, 80, spoofed))
	}
	counts, err := l.table.Counts(t.Context())
	must(t, err)
	if counts.Refused["source"].Packets == 0 || counts.Refused[byPolicy].Bytes == 0 {
		t.Errorf("refused packets are not counted: %v", counts.Refused)
	}
}

// ARP from a workload names only its own addresses (spec §7.5).
func TestARP(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start(usual())
	l.apply(both())
	mac := func(s string) packet.MAC { m, err := packet.ParseMAC(s); must(t, err); return m }
	own := l.links["w1"].mine
	ask := func(space string, sender packet.MAC, ip string) uint64 {
		before, k := l.counts(), l.links[space]
		frame := packet.Ethernet{Dst: k.host, Src: k.mine, Type: packet.TypeARP}.Append(nil)
		frame = packet.ARP{Op: packet.ARPRequest, SHA: sender, SPA: netip.MustParseAddr(ip), TPA: netip.MustParseAddr(host1)}.Append(frame)
		l.sendFrames(k, frame)
		l.sendFrom(k, probe{src: w1, dst: net1, proto: 47})
		l.await("sentinel", before)
		return l.counts()[refusedARP].Packets - before[refusedARP].Packets
	}
	for _, c := range []struct {
		space, ip string
		sender    packet.MAC
		refused   uint64
	}{
		{"w1", w1, own, 0}, {"w1", "0.0.0.0", own, 0}, {"w1", w2, own, 1}, {"w1", w1, mac("02:00:00:00:02:01"), 1},
		{"w9", w9, l.links["w9"].mine, 1}, {"net1", net1, l.links["net1"].mine, 0},
	} {
		if got := ask(c.space, c.sender, c.ip); got != c.refused {
			t.Errorf("ARP from %s of %s at %s: %d refused, want %d", c.space, c.ip, c.sender, got, c.refused)
		}
	}
}

// The kernel holds what the text describes: nft, given the text, lists the same.
func TestTextIsWhatTheKernelHas(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := usual()
	s.OpenStack, s.Metadata, s.OnDrop = true, netip.MustParseAddrPort("127.0.0.1:8775"), LogAndDrop
	s.WorkloadPrefixes = []string{"cali", "tap"}
	l.start(s)
	l.everything()
	text := l.table.String()
	other := netlab.ForTest(t).MustNamespace(t, "other")
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(text)
	var out strings.Builder
	load.Stdout, load.Stderr = &out, &out
	must(t, other.Start(load))
	if err := load.Wait(); err != nil {
		t.Fatalf("nft does not read our text: %v: %s\n%s", err, &out, text)
	}
	listed := func(ns *netlab.Namespace) string {
		var all string
		for _, table := range []string{"inet", "arp"} {
			out, err := ns.Output(context.Background(), "nft", "-s", "list", "table", table, tableName)
			must(t, err)
			all += sortedBlocks(out)
		}
		return all
	}
	if ours, theirs := listed(l.host), listed(other); ours != theirs {
		t.Errorf("the kernel (-) has other than what nft makes of our text (+):\n%s", cmp.Diff(strings.Split(ours, "\n"), strings.Split(theirs, "\n")))
	}
}
