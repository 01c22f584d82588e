package datapath_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
)

// TestChangeMidStream bumps while bulk TCP and large UDP run: the giants that miss go up through
// the tap and on, whole.
func TestChangeMidStream(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b, c := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2), n.workload(n.hosts[0], 3)
	for _, p := range []netlab.Path{path(a, b, b.v4), path(a, c, c.v6)} {
		ctx, cancel := context.WithCancel(t.Context())
		noticed := n.hosts[0].changeWhenNoticed(ctx)
		bits, err := p.Stream(500 * time.Millisecond)
		cancel()
		if err != nil || bits == 0 {
			t.Errorf("%s: %.0f Mbit/s, %v", p.Name, bits/1e6, err)
		}
		if changes := <-noticed; changes < 3 {
			t.Errorf("%s: the stream noticed %d changes, want 3 and more", p.Name, changes)
		}
	}
	for _, w := range []*workload{a, b, c} {
		checkNoChecksumErrors(t, w.Namespace)
		t.Logf("%s: %d timeouts", w.Name, counter(t, w.Namespace, "TcpExtTCPTimeouts"))
	}
	drops := counters(t, n.hosts[0]).Drops
	for _, reason := range []string{"refused by the kernel", "bad instruction", "no such port", "no such tunnel", "ring full"} {
		if drops[reason] > 0 {
			t.Errorf("%d frames were dropped: %s", drops[reason], reason)
		}
	}
	t.Logf("drops: %v", drops)
}

// changeWhenNoticed changes the topology each time packets have gone up because of the change
// before, from the first new flow on until ctx ends, and then sends how many changes were noticed.
// However slow the host is, each change is one in the middle of a flow.
func (h *host) changeWhenNoticed(ctx context.Context) <-chan int {
	noticed := make(chan int, 1)
	misses, stale := h.upcalls(datapath.Miss), h.upcalls(datapath.Stale)
	go func() {
		changes := 0
		_ = netlab.Until(ctx, "the stream to end", func() (bool, error) {
			if changes == 0 && h.upcalls(datapath.Miss) == misses || changes > 0 && h.upcalls(datapath.Stale) == stale {
				return false, nil
			}
			stale = h.upcalls(datapath.Stale)
			h.Bump(datapath.SlotOf("all"))
			changes++
			return false, nil
		})
		noticed <- max(changes-1, 0) // nobody waited for the last
	}()
	return noticed
}

// TestRestart closes the datapath and opens it again while a packet is always under way: none is
// lost, and everything is found again.
func TestRestart(t *testing.T) {
	t.Parallel()
	testRestarts(t, func(*host) {})
}

// TestRestartOfOtherVersion is TestRestart with maps of other shapes each time, as versions before
// and after this one have them.
func TestRestartOfOtherVersion(t *testing.T) {
	t.Parallel()
	testRestarts(t, func(h *host) {
		names, err := datapath.Reshape(h.opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"flows4", "flows6", "ports", "tunnels", "peers", "senders", "config", "table_ports"} {
			if !slices.Contains(names, name) {
				t.Errorf("of the pinned maps only %v have another shape, want %s too", names, name)
			}
		}
	})
}

func testRestarts(t *testing.T, between func(*host)) {
	n := newNetwork(t, 2)
	n.underlay()
	a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2)
	p := path(a, b, b.v4)
	done := make(chan error, 1)
	go func() {
		_, err := p.RoundTrips(20000)
		done <- err
	}()
	h := n.hosts[0]
	waitForFlow(t, h, 10000)
	tunnels, ports := h.Tunnels(), h.Ports()
	misses := h.upcalls(datapath.Miss)
	restarts := 0
	for running := true; running; restarts++ {
		h.stop()
		between(h)
		h.open()
		if got := h.Tunnels(); fmt.Sprint(got) != fmt.Sprint(tunnels) {
			t.Errorf("tunnels after a restart: %v, before: %v", got, tunnels)
		}
		if got := h.Ports(); fmt.Sprint(got) != fmt.Sprint(ports) {
			t.Errorf("ports after a restart: %v, before: %v", got, ports)
		}
		n.underlay()
		number := a.port
		a.attach("tap1")
		if a.port != number {
			t.Errorf("port number after a restart: %#x, before: %#x", a.port, number)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running = false
		default:
		}
	}
	if again := h.upcalls(datapath.Miss) - misses; again > 0 {
		t.Errorf("%d misses after %d restarts: flows were lost", again, restarts)
	}
	if lost := counter(t, a.Namespace, "TcpRetransSegs") - counter(t, a.Namespace, "TcpExtTCPDSACKRecv"); lost > 0 {
		t.Errorf("%d segments were lost over %d restarts", lost, restarts)
	}
}

// counter reads one of the kernel's counters in the namespace.
func counter(t *testing.T, ns *netlab.Namespace, name string) int {
	t.Helper()
	out, err := ns.Output(t.Context(), "nstat", "-asz", name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		var got string
		var n int
		if _, err := fmt.Sscan(line, &got, &n); err == nil && got == name {
			return n
		}
	}
	t.Fatalf("%s: no counter %s in %s", ns.Name, name, out)
	return 0
}

// TestSegmentedUnderlay forces segments of 1500 bytes onto the wire, as a network card does.
func TestSegmentedUnderlay(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	for _, h := range n.hosts {
		if _, err := h.ns.Output(t.Context(), "ethtool", "-K", "under", "tso", "off", "gso", "off", "gro", "on", "tx-udp-segmentation", "off"); err != nil {
			t.Fatal(err)
		}
	}
	checkTraffic(t, n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2))
}

func TestStateBetweenHosts(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b := n.hosts[0], n.hosts[1]
	most := a.Tunnels()[a.tunnel()].MTU - datapath.Overhead - 2 // bytes of its length
	for _, size := range []int{1, 64, most} {
		message := bytes.Repeat([]byte{'x'}, size)
		if err := a.SendState(a.tunnel(), message); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-b.states:
			if want := fmt.Sprintf("%s: %s", a.ip, message); got != want {
				t.Errorf("message of %d bytes came as %q", size, got)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("message of %d bytes did not come; counters %+v", size, counters(t, b))
		}
	}
	if err := a.SendState(a.tunnel(), make([]byte, most+1)); err == nil {
		t.Error("a message that is too long was sent")
	}
}

// TestTunnelInWorkload has workloads with a tunnel of their own, whose inner checksums the agent
// cannot know.
func TestTunnelInWorkload(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2)
	for i, w := range []*workload{a, b} {
		other := []*workload{b, a}[i]
		w.MustIP(t, fmt.Sprintf("link add inner type vxlan id 5 remote %s dstport 4789 dev eth0", other.v4),
			"link set inner up", fmt.Sprintf("addr add 203.0.113.%d/24 dev inner", i+1))
	}
	p := netlab.Path{Name: "tunnel in tunnel", Client: a.Namespace, Server: b.Namespace, Address: netip.MustParseAddr("203.0.113.2")}
	if rr, err := p.RoundTrips(50); err != nil {
		t.Error(err)
	} else if rr.P99 > 200*time.Millisecond {
		t.Errorf("round trips in the inner tunnel: %+v: packets were lost", rr)
	}
	if bits, err := p.Stream(100 * time.Millisecond); err != nil || bits == 0 {
		t.Errorf("stream in the inner tunnel: %.0f Mbit/s, %v", bits/1e6, err)
	}
	for _, w := range []*workload{a, b} {
		checkNoChecksumErrors(t, w.Namespace)
	}
}

// TestRouterInWorkload has a workload forward what came through a tunnel into another tunnel.
func TestRouterInWorkload(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, c, router := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	if err := router.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	if err := router.Sysctl("net/ipv4/conf/all/send_redirects", "0"); err != nil {
		t.Fatal(err)
	}
	if err := router.Sysctl("net/ipv4/conf/eth0/send_redirects", "0"); err != nil {
		t.Fatal(err)
	}
	a.MustIP(t, fmt.Sprintf("route add 203.0.113.2/32 via %s", router.v4))
	c.MustIP(t, "addr add 203.0.113.2/32 dev eth0", fmt.Sprintf("route add %s/32 via %s", a.v4, router.v4))
	router.MustIP(t, "route add 203.0.113.2/32 dev eth0")
	p := netlab.Path{Name: "by a router", Client: a.Namespace, Server: c.Namespace, Address: netip.MustParseAddr("203.0.113.2")}
	if rr, err := p.RoundTrips(50); err != nil || rr.P99 > 200*time.Millisecond {
		t.Errorf("round trips: %+v, %v", rr, err)
	}
	if bits, err := p.Stream(200 * time.Millisecond); err != nil || bits == 0 {
		t.Errorf("stream: %.0f Mbit/s, %v; drops %v", bits/1e6, err, counters(t, n.hosts[1]).Drops)
	} else {
		t.Logf("stream: %.0f Mbit/s; segments sent again: %d", bits/1e6, counter(t, a.Namespace, "TcpRetransSegs"))
	}
	for _, w := range []*workload{a, c} {
		checkNoChecksumErrors(t, w.Namespace)
	}
}

// TestPortComesAndGoes attaches, replaces and detaches interfaces.
func TestPortComesAndGoes(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	a, b := n.workload(h, 1), n.workload(h, 2)
	p := path(a, b, b.v4)
	if _, err := p.RoundTrips(10); err != nil {
		t.Fatal(err)
	}
	// The machine of port 2 is started again: another interface, the same port.
	h.ns.MustIP(t, "link del tap2")
	n.lab.MustVeth(t, h.ns, "tap2", b.Namespace, "eth0")
	b.MustIP(t, fmt.Sprintf("link set eth0 address %s mtu 1450", b.mac), fmt.Sprintf("addr add %s/24 dev eth0", b.v4))
	number := b.port
	b.attach("tap2")
	if b.port != number {
		t.Errorf("port number %#x after its interface was replaced, before %#x", b.port, number)
	}
	if _, err := p.RoundTrips(10); err != nil {
		t.Error(err)
	}
	if _, err := h.AttachPort("another", "tap2", datapath.PortOptions{}); err == nil {
		t.Error("one interface became two ports")
	}
	if _, err := h.AttachPort("missing", "nowhere", datapath.PortOptions{}); err == nil {
		t.Error("a missing interface became a port")
	}
	n.detach(b)
	if err := h.DetachPort(b.name); err != nil {
		t.Errorf("detach twice: %v", err)
	}
	if ports := h.Ports(); len(ports) != 1 || ports[0].Name != a.name {
		t.Errorf("ports %+v, want %s alone", ports, a.name)
	}
}

// TestSecondAgent refuses to serve one namespace twice.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	opts := n.hosts[0].opts
	opts.Name += "-2"
	if d, err := datapath.Open(opts); err == nil {
		d.Close()
		t.Fatal("a second agent opened the namespace's datapath")
	}
	// Its vxlan device is the first one's, so only what is pinned goes.
}

// TestCleanup leaves nothing behind.
func TestCleanup(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	n.workload(h, 1)
	h.stop()
	if err := datapath.Cleanup(h.opts); err != nil {
		t.Fatal(err)
	}
	if err := datapath.Cleanup(h.opts); err != nil {
		t.Errorf("clean up twice: %v", err)
	}
	links, err := h.net.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Kind == hostnet.VXLAN || l.Kind == hostnet.Tap {
			t.Errorf("device %s is left", l.Name)
		}
	}
	out, err := h.ns.Output(t.Context(), "ip", "-d", "link", "show", "dev", "tap1")
	if err != nil || bytes.Contains([]byte(out), []byte("tcx")) {
		t.Errorf("the port's interface after cleaning up: %s, %v", out, err)
	}
	h.stop = func() {}
}
