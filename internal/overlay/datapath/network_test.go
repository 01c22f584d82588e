package datapath_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

// host is a namespace with a datapath and a small agent that knows where every MAC is.
type host struct {
	t    testing.TB
	ns   *netlab.Namespace
	net  *hostnet.Linux
	opts datapath.Options
	ip   netip.Addr

	others []*host // those with a tunnel from this one

	*datapath.Datapath
	stop func() // ends Run and closes the datapath

	mu      sync.Mutex
	where   map[packet.MAC]datapath.Output
	seen    []string                          // reasons of upcalls
	states  chan string                       // state messages
	answers map[string]func(*datapath.Upcall) // by reason, instead of forwarding
	noCache bool
}

// network is a lab with one host, or two joined by an underlay.
type network struct {
	t     testing.TB
	lab   *netlab.Lab
	hosts []*host
}

func newNetwork(t testing.TB, hosts int) *network {
	n := &network{t: t, lab: netlab.ForTest(t)}
	for i := range hosts {
		h := &host{t: t, ns: n.lab.MustNamespace(t, fmt.Sprintf("h%d", i+1)), ip: netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}),
			where: map[packet.MAC]datapath.Output{}, states: make(chan string, 16), answers: map[string]func(*datapath.Upcall){}}
		open, err := hostnet.OpenNamespace(h.ns.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { open.Close() })
		if h.net, err = hostnet.NewLinux(open); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.net.Close() })
		h.opts = datapath.Options{Name: "test-" + rand.Text()[:10], Namespace: open, MaxFlows: 4096}
		n.hosts = append(n.hosts, h)
	}
	if hosts == 2 {
		n.lab.MustVeth(t, n.hosts[0].ns, "under", n.hosts[1].ns, "under")
	}
	for _, h := range n.hosts {
		if hosts == 2 {
			h.ns.MustIP(t, fmt.Sprintf("addr add %s/24 dev under", h.ip))
		}
		t.Cleanup(func() {
			h.stop()
			if err := datapath.Cleanup(h.opts); err != nil {
				t.Errorf("clean up: %v", err)
			}
		})
		h.open()
	}
	return n
}

// open opens the host's datapath, as an agent that starts does, and serves it.
func (h *host) open() {
	h.t.Helper()
	h.stop = func() {}
	d, err := datapath.Open(h.opts)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Datapath = d
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, h.handle) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			h.t.Errorf("end the agent of %s: %v", h.ns.Name, err)
		}
	})
}

// underlay attaches the underlay and makes a tunnel to the other host.
func (n *network) underlay() {
	n.t.Helper()
	for i, h := range n.hosts {
		other := n.hosts[1-i]
		if err := h.AttachUnderlay("under", h.ip); err != nil {
			n.t.Fatal(err)
		}
		mine, err := h.net.Link("under")
		if err != nil {
			n.t.Fatal(err)
		}
		theirs, err := other.net.Link("under")
		if err != nil {
			n.t.Fatal(err)
		}
		_, err = h.SetTunnel(datapath.TunnelPath{Interface: mine.Index, Local: h.ip, Remote: other.ip,
			SrcMAC: mine.MAC, DstMAC: theirs.MAC, MTU: mine.MTU})
		if err != nil {
			n.t.Fatal(err)
		}
		h.others = []*host{other}
		h.peer(other, 0)
	}
}

// secret is the one in frames from one host to another, of one generation.
func secret(from, to *host, generation uint32) uint32 {
	a, b := from.ip.As4(), to.ip.As4()
	return 0x5ec00000 | uint32(a[3])<<12 | uint32(b[3])<<4 | generation
}

// peer accepts the secret of a generation from the other host, and that of the one before, and
// sends the former.
func (h *host) peer(other *host, generation uint32) {
	h.t.Helper()
	accept := []uint32{secret(other, h, generation)}
	if generation > 0 {
		accept = append(accept, secret(other, h, generation-1))
	}
	if err := h.SetPeer(other.ip, datapath.Peer{Send: secret(h, other, generation), Accept: accept, Ways: datapath.Plain}); err != nil {
		h.t.Fatal(err)
	}
}

// tunnel is the number of the only tunnel.
func (h *host) tunnel() datapath.Tunnel {
	for t := range h.Tunnels() {
		return t
	}
	return 0
}

// workload is a namespace with one interface that is a port.
type workload struct {
	*netlab.Namespace
	host *host
	name string // of the port
	mac  packet.MAC
	v4   netip.Addr
	v6   netip.Addr
	key  uint32
	port datapath.Port
}

// workload makes the number-th workload, on h, and tells every host where it is.
func (n *network) workload(h *host, number int) *workload {
	n.t.Helper()
	w := &workload{host: h, name: fmt.Sprintf("port-%d", number), key: uint32(1000 + number),
		Namespace: n.lab.MustNamespace(n.t, fmt.Sprintf("w%d", number)),
		mac:       packet.MAC{2, 0, 0, 0, 0, byte(number)}, v4: netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}),
		v6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", number))}
	tap := fmt.Sprintf("tap%d", number)
	n.lab.MustVeth(n.t, h.ns, tap, w.Namespace, "eth0")
	w.MustIP(n.t, fmt.Sprintf("link set eth0 address %s mtu 1450", w.mac),
		fmt.Sprintf("addr add %s/24 dev eth0", w.v4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", w.v6))
	w.attach(tap)
	for _, other := range n.hosts {
		other.mu.Lock()
		if other == h {
			other.where[w.mac] = datapath.Output{Port: w.port}
		} else {
			other.where[w.mac] = datapath.Output{Tunnel: other.tunnel(), TunnelKey: w.key}
		}
		other.mu.Unlock()
	}
	return w
}

func (w *workload) attach(tap string) {
	w.host.t.Helper()
	p, err := w.host.AttachPort(w.name, tap, datapath.PortOptions{TunnelKey: w.key, MTU: 1450})
	if err != nil {
		w.host.t.Fatal(err)
	}
	w.port = p
	senders := map[netip.Addr]bool{}
	for _, other := range w.host.others {
		senders[other.ip] = true
	}
	w.host.SetSenders(p, senders)
}

// handle is the agent: it forwards by destination MAC, floods the rest and caches what it can.
func (h *host) handle(u *datapath.Upcall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, u.Reason.String())
	if f := h.answers[u.Reason.String()]; f != nil {
		f(u)
		return
	}
	if u.Reason == datapath.State {
		h.states <- fmt.Sprintf("%s: %s", u.From, u.Frame)
		return
	}
	h.forward(u)
}

func (h *host) forward(u *datapath.Upcall) {
	dst := packet.MAC(u.Frame[:6])
	out, ok := h.where[dst]
	if !ok {
		for mac, o := range h.where {
			if mac != packet.MAC(u.Frame[6:12]) {
				h.send(o, u)
			}
		}
		return
	}
	if key, ok := u.Key(); ok && !h.noCache {
		if err := h.Install([]datapath.Flow{{Key: key, Out: out, Tags: h.Tags(datapath.SlotOf("all"))}}); err != nil {
			h.t.Errorf("install: %v", err)
		}
	}
	h.send(out, u)
}

func (h *host) send(o datapath.Output, u *datapath.Upcall) {
	if err := h.Send(o, u.Frame, u.Offload); err != nil {
		h.t.Errorf("send %d bytes that went up as %s: %v", len(u.Frame), u.Reason, err)
	}
}

// upcalls counts those of one reason.
func (h *host) upcalls(reason datapath.Reason) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, s := range h.seen {
		if s == reason.String() {
			n++
		}
	}
	return n
}

// path is a way to measure from a to b.
func path(a, b *workload, to netip.Addr) netlab.Path {
	return netlab.Path{Name: a.Name + " to " + b.Name, Client: a.Namespace, Server: b.Namespace, Address: to}
}

// checkTraffic sends all kinds of traffic both ways and checks that no checksum was wrong.
func checkTraffic(t *testing.T, a, b *workload) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, to := range []netip.Addr{b.v4, b.v6} {
		for _, size := range []string{"56", "1300", "4000"} { // the last in fragments
			if _, err := a.Output(ctx, "ping", "-c", "3", "-i", "0.01", "-W", "2", "-s", size, to.String()); err != nil {
				t.Errorf("%v", err)
			}
		}
		for _, p := range []netlab.Path{path(a, b, to), path(b, a, map[bool]netip.Addr{true: a.v4, false: a.v6}[to.Is4()])} {
			if _, err := p.RoundTrips(200); err != nil {
				t.Error(err)
			}
			bits, err := p.Stream(100 * time.Millisecond)
			if err != nil || bits == 0 {
				t.Errorf("%s: stream of %.0f Mbit/s, %v", p.Name, bits/1e6, err)
			}
			checkBlast(t, p)
		}
	}
	for _, w := range []*workload{a, b} {
		checkNoChecksumErrors(t, w.Namespace)
	}
}

func checkNoChecksumErrors(t *testing.T, ns *netlab.Namespace) {
	t.Helper()
	out, err := ns.Output(t.Context(), "nstat", "-asz", "TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors", "IcmpInCsumErrors", "Icmp6InCsumErrors")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 2 && strings.HasSuffix(f[0], "CsumErrors") && f[1] != "0" {
			t.Errorf("%s: %s", ns.Name, strings.TrimSpace(line))
		}
	}
}

func TestOneHost(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2)
	checkTraffic(t, a, b)
	if t.Failed() {
		t.Logf("%+v", counters(t, n.hosts[0]))
	}
}

func TestTwoHosts(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2)
	checkTraffic(t, a, b)
	if t.Failed() {
		for _, h := range n.hosts {
			t.Logf("%+v", counters(t, h))
		}
	}
}

func counters(t testing.TB, h *host) datapath.Counters {
	t.Helper()
	c, err := h.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitForFlow waits until a flow of the host has carried that many bytes.
func waitForFlow(t *testing.T, h *host, size uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := netlab.Until(ctx, "a busy flow", func() (found bool, err error) {
		err = h.Dump(func(f datapath.FlowState) bool {
			found = found || f.Bytes >= size
			return !found
		})
		return found, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkBlast sends datagrams as fast as it can. On a busy machine a receiver may not get its turn
// in the time of one blast.
func checkBlast(t *testing.T, p netlab.Path) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		rate, err := p.Blast(100, 30*time.Millisecond)
		if err == nil && rate.Received > 0 {
			return
		}
		if err != nil || time.Now().After(until) {
			t.Errorf("%s: blast: %+v, %v", p.Name, rate, err)
			return
		}
	}
}
