package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// translation is a router with a server behind it: the client reaches it at the public address, and
// the server sees the client as source, with other ports.
type translation struct {
	client, server   *workload
	public4, source4 netip.Addr
	public6, source6 netip.Addr
	ports            uint16 // the bits of the client's ports, and ids of echoes, that differ
}

var routerMAC = packet.MAC{2, 0, 0, 0, 0xff, 1}

// translate makes every host translate between the two workloads.
func (n *network) translate(client, server *workload, ports uint16) *translation {
	n.t.Helper()
	tr := &translation{client: client, server: server, ports: ports,
		// Addresses whose sum differs from that of the workloads' own.
		public4: netip.MustParseAddr("203.0.113.9"), source4: netip.MustParseAddr("203.0.113.170"),
		public6: netip.MustParseAddr("2001:db8:9::9"), source6: netip.MustParseAddr("2001:db8:9::1:170")}
	for _, w := range []*workload{client, server} {
		w.MustIP(n.t, "route add 203.0.113.0/24 via 192.0.2.254", "route add 2001:db8:9::/64 via 2001:db8::fe dev eth0",
			fmt.Sprintf("neigh replace 192.0.2.254 lladdr %s dev eth0 nud permanent", routerMAC),
			fmt.Sprintf("neigh replace 2001:db8::fe lladdr %s dev eth0 nud permanent", routerMAC))
	}
	for _, h := range n.hosts {
		h.mu.Lock()
		h.answers["miss"] = func(u *datapath.Upcall) { tr.handle(h, u) }
		h.answers["stale"] = h.answers["miss"]
		h.answers["expired"] = func(*datapath.Upcall) {} // an answer to the sender is the simulator's
		h.mu.Unlock()
	}
	return tr
}

// rewrite is the router's decision about a frame, nil if none.
func (tr *translation) rewrite(k datapath.Key) *flow.Rewrite {
	r := &flow.Rewrite{SrcMAC: routerMAC, SrcPort: k.SrcPort, DstPort: k.DstPort, Hops: 1}
	switch k.Dst {
	case tr.public4:
		r.DstMAC, r.Src, r.Dst = tr.server.mac, tr.source4, tr.server.v4
	case tr.public6:
		r.DstMAC, r.Src, r.Dst = tr.server.mac, tr.source6, tr.server.v6
	case tr.source4:
		r.DstMAC, r.Src, r.Dst = tr.client.mac, tr.public4, tr.client.v4
	case tr.source6:
		r.DstMAC, r.Src, r.Dst = tr.client.mac, tr.public6, tr.client.v6
	default:
		return nil
	}
	switch {
	case k.Frag != datapath.Whole:
	case k.Proto == packet.ProtoICMP || k.Proto == packet.ProtoICMPv6:
		r.SrcPort = k.SrcPort ^ tr.ports
		r.DstPort = r.SrcPort
	case r.DstMAC == tr.server.mac:
		r.SrcPort ^= tr.ports
	default:
		r.DstPort ^= tr.ports
	}
	return r
}

// handle installs the flow of a frame, on one host that of the replies too, and sends the frame.
func (tr *translation) handle(h *host, u *datapath.Upcall) {
	key, ok := u.Key()
	r := tr.rewrite(key)
	if !ok || r == nil {
		h.forward(u)
		return
	}
	out, tags := h.where[r.DstMAC], h.Tags(datapath.SlotOf("all"))
	flows := []datapath.Flow{{Key: key, Out: out, Rewrite: r, Tags: tags}}
	if out.Port != 0 {
		back, undo := key.ReverseRewritten(out.Port, r)
		flows = append(flows, datapath.Flow{Key: back, Out: datapath.Output{Port: key.Port}, Rewrite: undo, Tags: tags})
	}
	if err := h.Install(flows); err != nil {
		h.t.Errorf("install: %v", err)
	}
	if err := h.Send(out, datapath.RewriteByHand(u.Frame, r), u.Offload); err != nil {
		h.t.Errorf("send %d bytes that went up as %s: %v", len(u.Frame), u.Reason, err)
	}
}

// paths are those of the client to the server, by IPv4 and by IPv6.
func (tr *translation) paths() []netlab.Path {
	v4, v6 := path(tr.client, tr.server, tr.server.v4), path(tr.client, tr.server, tr.server.v6)
	v4.Dialed, v6.Dialed = tr.public4, tr.public6
	return []netlab.Path{v4, v6}
}

// check sends all kinds of traffic through the router and checks that no checksum was wrong, and
// that offload frames passed whole.
func (tr *translation) check(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, p := range tr.paths() {
		for _, size := range []string{"56", "1300", "4000"} { // the last in fragments
			if _, err := tr.client.Output(ctx, "ping", "-c", "3", "-i", "0.01", "-W", "2", "-s", size, p.Dialed.String()); err != nil {
				t.Errorf("%v", err)
			}
		}
		if _, err := p.RoundTrips(200); err != nil {
			t.Error(err)
		}
		if bits, err := p.Stream(100 * time.Millisecond); err != nil || bits == 0 {
			t.Errorf("%s: stream of %.0f Mbit/s, %v", p.Name, bits/1e6, err)
		}
		if err := download(p, 8<<20); err != nil {
			t.Errorf("%s: download: %v", p.Name, err)
		}
		checkBlast(t, p)
	}
	checkNoChecksumErrors(t, tr.client.Namespace)
	checkNoChecksumErrors(t, tr.server.Namespace)
}

// download has the server of a path send so many bytes to the client.
func download(p netlab.Path, size int64) error {
	var l *net.TCPListener
	err := p.Server.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Address, 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := l.AcceptTCP()
		if err == nil {
			_, err = io.CopyN(c, zeros{}, size)
			err = errors.Join(err, c.Close())
		}
		sent <- err
	}()
	var c *net.TCPConn
	err = p.Client.Do(func() (err error) {
		to := netip.AddrPortFrom(p.Dialed, uint16(l.Addr().(*net.TCPAddr).Port))
		c, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, c); err != nil || n != size {
		return fmt.Errorf("%d bytes of %d came: %w", n, size, err)
	}
	return <-sent
}

// zeros is an endless source.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// checkSegments checks that TCP left whole for the hardware to cut, in both directions.
func (tr *translation) checkSegments(t *testing.T, h *host, out func(datapath.FlowState) bool) {
	t.Helper()
	large := 0
	err := h.Dump(func(f datapath.FlowState) bool {
		if f.Proto == packet.ProtoTCP && f.Bytes > 4<<20 && out(f) {
			large++
			if mean := f.Bytes / f.Packets; mean < 3000 {
				t.Errorf("%s: frames from %s to %s have %d bytes: they were cut", h.ns.Name, f.Src, f.Dst, mean)
			}
			if f.Rewrite == nil {
				t.Errorf("%s: the flow from %s to %s has no rewrite", h.ns.Name, f.Src, f.Dst)
			}
		}
		return true
	})
	if err != nil || large == 0 {
		t.Errorf("%s: %d bulk flows, %v; want some", h.ns.Name, large, err)
	}
}

func anyFlow(datapath.FlowState) bool { return true }

func TestTranslateOnOneHost(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), 0x5a5a)
	tr.check(t)
	for _, source := range []netip.Addr{tr.client.v4, tr.server.v4, tr.client.v6, tr.server.v6} {
		tr.checkSegments(t, n.hosts[0], func(f datapath.FlowState) bool { return f.Src == source })
	}
}

// TestTranslateFinished has workloads finish their checksums, and check those of others.
func TestTranslateFinished(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	tr := n.translate(n.workload(h, 1), n.workload(h, 2), 0x5a5a)
	for i, w := range []*workload{tr.client, tr.server} {
		ethtool(t, w.Namespace, "eth0", "tx", "off")
		ethtool(t, h.ns, fmt.Sprintf("tap%d", i+1), "rx", "off") // else it says that they were checked
	}
	tr.check(t)
}

func ethtool(t *testing.T, ns *netlab.Namespace, device string, settings ...string) {
	t.Helper()
	if _, err := ns.Output(t.Context(), "ethtool", append([]string{"-K", device}, settings...)...); err != nil {
		t.Fatal(err)
	}
}

// TestTranslateBetweenHosts sends offload frames through the tunnel, whole or cut and finished on
// the wire, where nothing but their bytes arrives.
func TestTranslateBetweenHosts(t *testing.T) {
	t.Parallel()
	for _, finished := range []bool{false, true} {
		t.Run(fmt.Sprintf("finished %v", finished), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			n.underlay()
			if finished {
				n.finishOnTheWire(t)
			}
			tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2), 0x5a5a)
			tr.check(t)
			for _, h := range n.hosts {
				tr.checkSegments(t, h, anyFlow)
			}
		})
	}
}

// finishOnTheWire makes the underlay cut frames, and finish and check their sums.
func (n *network) finishOnTheWire(t *testing.T) {
	t.Helper()
	for _, h := range n.hosts {
		ethtool(t, h.ns, "under", "tso", "off", "gso", "off", "gro", "on", "tx-udp-segmentation", "off", "tx", "off", "rx", "off")
	}
}

// TestTranslateVirtualMachine has a guest behind a tap as client.
func TestTranslateVirtualMachine(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	n.finishOnTheWire(t)
	far := n.workload(n.hosts[1], 2)
	n.translate(n.guest(), far, 0x5a5a).check(t)
}

// TestTranslateTunnelInWorkload has workloads with a tunnel of their own through the router. What
// is left to hardware lies behind its outer headers, whose checksum may be finished.
func TestTranslateTunnelInWorkload(t *testing.T) {
	t.Parallel()
	for _, sums := range []string{"udpcsum", "noudpcsum"} {
		t.Run(sums, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			n.underlay()
			n.finishOnTheWire(t)
			tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2), 0)
			tr.client.MustIP(t, fmt.Sprintf("link add inner type vxlan id 5 remote %s dstport 4789 dev eth0 %s", tr.public4, sums))
			tr.server.MustIP(t, fmt.Sprintf("link add inner type vxlan id 5 remote %s dstport 4789 dev eth0 %s", tr.source4, sums))
			for i, w := range []*workload{tr.client, tr.server} {
				w.MustIP(t, "link set inner up", fmt.Sprintf("addr add 10.9.9.%d/24 dev inner", i+1))
			}
			p := path(tr.client, tr.server, netip.MustParseAddr("10.9.9.2"))
			if rr, err := p.RoundTrips(50); err != nil || rr.P99 > 200*time.Millisecond {
				t.Errorf("round trips in the inner tunnel: %+v, %v", rr, err)
			}
			if bits, err := p.Stream(100 * time.Millisecond); err != nil || bits == 0 {
				t.Errorf("stream in the inner tunnel: %.0f Mbit/s, %v", bits/1e6, err)
			}
			checkNoChecksumErrors(t, tr.client.Namespace)
			checkNoChecksumErrors(t, tr.server.Namespace)
		})
	}
}

// TestTranslateMidStream changes the topology while bulk TCP runs: the giants that miss are
// rewritten by the agent.
func TestTranslateMidStream(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	n.finishOnTheWire(t)
	tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2), 0x5a5a)
	for _, p := range tr.paths() {
		ctx, cancel := context.WithCancel(t.Context())
		noticed := n.hosts[0].changeWhenNoticed(ctx)
		bits, err := p.Stream(300 * time.Millisecond)
		cancel()
		if changes := <-noticed; err != nil || bits == 0 || changes < 3 {
			t.Errorf("%s: %.0f Mbit/s, %v; %d changes noticed, want 3 and more", p.Name, bits/1e6, err, changes)
		}
	}
	checkNoChecksumErrors(t, tr.client.Namespace)
	checkNoChecksumErrors(t, tr.server.Namespace)
}

// TestTranslateDatagrams follows datagrams with and without a checksum, the first up through the
// agent and the next through the cache, and one whose TTL is over.
func TestTranslateDatagrams(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	n.finishOnTheWire(t)
	tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2), 0x5a5a)
	for _, p := range tr.paths() {
		for _, summed := range []bool{true, false} {
			if !summed && p.Address.Is6() {
				continue // IPv6 has no datagrams without
			}
			out, in := listenUDP(t, p.Client, netip.IPv6Unspecified()), listenUDP(t, p.Server, p.Address)
			setOption(t, out, unix.SOL_SOCKET, unix.SO_NO_CHECK, map[bool]int{true: 0, false: 1}[summed])
			to := netip.AddrPortFrom(p.Dialed, in.LocalAddr().(*net.UDPAddr).AddrPort().Port())
			port := out.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			send := func(text string) {
				t.Helper()
				if _, err := out.WriteToUDPAddrPort([]byte(text), to); err != nil {
					t.Fatal(err)
				}
			}
			b := make([]byte, 100)
			exchange := func(text string) {
				t.Helper()
				send(text)
				k, from, err := in.ReadFromUDPAddrPort(b)
				if err != nil || string(b[:k]) != text || from.Port() != port^tr.ports || from.Addr().Unmap() != map[bool]netip.Addr{true: tr.source4, false: tr.source6}[p.Address.Is4()] {
					t.Fatalf("to %s, checksum %v: %q came from %s, %v; want %q from port %d", to, summed, b[:k], from, err, text, port^tr.ports)
				}
				if _, err := in.WriteToUDPAddrPort(bytes.ToUpper(b[:k]), from); err != nil {
					t.Fatal(err)
				}
				k, from, err = out.ReadFromUDPAddrPort(b)
				if err != nil || string(b[:k]) != string(bytes.ToUpper([]byte(text))) || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != to {
					t.Fatalf("%q was answered by %q from %s, %v; want %s", text, b[:k], from, err, to)
				}
			}
			exchange("missed")
			misses := n.hosts[0].upcalls(datapath.Miss)
			exchange("cached")
			setOption(t, out, unix.IPPROTO_IP, unix.IP_TTL, 1)
			setOption(t, out, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
			before := n.hosts[0].upcalls(datapath.Expired)
			send("expired")
			if err := netlab.Until(t.Context(), "an expired datagram", func() (bool, error) {
				return n.hosts[0].upcalls(datapath.Expired) > before, nil
			}); err != nil {
				t.Fatal(err)
			}
			setOption(t, out, unix.IPPROTO_IP, unix.IP_TTL, 2)
			setOption(t, out, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 2)
			exchange("last hop")
			if got := n.hosts[0].upcalls(datapath.Miss); got != misses {
				t.Errorf("%d misses after the first datagram to %s, want none", got-misses, to)
			}
		}
	}
	checkNoChecksumErrors(t, tr.client.Namespace)
	checkNoChecksumErrors(t, tr.server.Namespace)
}

func setOption(t *testing.T, c *net.UDPConn, level, option, value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) }
	if e := raw.Control(set); e != nil || err != nil {
		t.Fatalf("socket option %d of level %d: %v, %v", option, level, e, err)
	}
}

// BenchmarkNATRoundTrip compares round trips through a router on one host, whose flows are cached,
// with those over a veth pair with nothing between, in slices that alternate.
func BenchmarkNATRoundTrip(b *testing.B) {
	n := newNetwork(b, 1)
	tr := n.translate(n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), 0x5a5a)
	direct, err := netlab.DirectPath(netlab.ForTest(b))
	if err != nil {
		b.Fatal(err)
	}
	paths := []netlab.Path{direct, path(tr.client, tr.server, tr.server.v4), tr.paths()[0]}
	slices := make([][]float64, len(paths))
	for b.Loop() {
		got, err := netlab.Alternate(b.Context(), paths, 2, func(p netlab.Path) (float64, error) {
			rr, err := p.RoundTripsFor(50 * time.Millisecond)
			return float64(rr.P50), err
		})
		if err != nil {
			b.Fatal(err)
		}
		for i := range got {
			slices[i] = append(slices[i], got[i]...)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(netlab.Ratios(slices[1], slices[0]).Median, "×-direct-as-it-came")
	b.ReportMetric(netlab.Ratios(slices[2], slices[0]).Median, "×-direct-translated")
}
