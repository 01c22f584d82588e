package overlay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/overlay/hostkey"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Reasons of the datapath's drops.
const (
	reasonUnknownHost = "tunnelled by an unknown host"
	reasonSecret      = "wrong tunnel secret"
	reasonForeign     = "tunnelled by a host without port in the network"
	reasonUnchecked   = "tunnelled and not from the underlay"
)

func (h *testHost) kernelDrops(reason string) uint64 {
	h.lab.t.Helper()
	c, err := h.agent.dp.Counters()
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return c.Drops[reason]
}

// stranger is a machine on the underlay that is no host.
func (l *lab) stranger(name, ip string) *netlab.Namespace {
	l.t.Helper()
	ns := l.MustNamespace(l.t, name)
	l.MustVeth(l.t, ns, "eth0", l.wire, name)
	l.wire.MustIP(l.t, "link set "+name+" master br0")
	ns.MustIP(l.t, "addr add "+ip+"/24 dev eth0")
	return ns
}

// vxlan is a UDP payload: a frame in a tunnel with that secret and key.
func vxlan(secret, key uint32, inner []byte) []byte {
	head := []byte{0x08, byte(secret >> 24), byte(secret >> 16), byte(secret >> 8), byte(key >> 16), byte(key >> 8), byte(key), byte(secret)}
	return append(head, inner...)
}

// inner is a datagram to the machine, from a neighbour that there is not.
func (m *machine) inner(text string) []byte {
	src := netip.MustParseAddr("10.0.0.99")
	b := packet.Ethernet{Dst: m.port.MACAddress, Src: packet.MAC{2, 9, 9, 9, 9, 9}, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{Src: src, Dst: m.v4, Proto: packet.ProtoUDP, TTL: 64}.Append(b, 8+len(text))
	return packet.UDP{SrcPort: 999, DstPort: inboxPort}.Append(b, src, m.v4, []byte(text))
}

const inboxPort = 7007

// inbox takes in what comes to the machine on inboxPort.
func (m *machine) inbox() net.PacketConn {
	t := m.lab.t
	t.Helper()
	var c net.PacketConn
	if err := m.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", ":"+strconv.Itoa(inboxPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func next(t *testing.T, c net.PacketConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	n, _, err := c.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// sendFrom sends a UDP payload to the tunnel port of an address, with any source address if that is
// valid: a raw socket lets one choose it.
func sendFrom(ns *netlab.Namespace, src, dst netip.Addr, payload []byte) error {
	return ns.Do(func() error {
		if !src.IsValid() {
			c, err := net.Dial("udp4", netip.AddrPortFrom(dst, datapath.TunnelPort).String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(payload)
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b := packet.IPv4{Src: src, Dst: dst, Proto: packet.ProtoUDP, TTL: 64}.Append(nil, 8+len(payload))
		b = packet.UDP{SrcPort: 50000, DstPort: datapath.TunnelPort}.Append(b, src, dst, payload)
		b[26], b[27] = 0, 0
		return unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: dst.As4()})
	})
}

// TestForgedTunnelFrames sends a workload frames past its security groups from everywhere that
// reaches the underlay's UDP port, with the right key. None arrives.
func TestForgedTunnelFrames(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.start()
	n, other := l.network("n"), l.network("other")
	open := l.group(everything()...)
	m := n.machine(l.hosts[0], open)
	n.machine(l.hosts[1], open)
	other.machine(l.hosts[2], open)
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	l.wait("the hosts to know each other's secrets", func() bool { return len(h1.agent.dp.Peers()) == 2 && len(h3.agent.dp.Peers()) == 2 })
	key, arrived := m.port.TunnelKey, m.inbox()

	stranger := l.stranger("stranger", "198.51.100.77")
	routed := l.MustNamespace(t, "routed") // a workload of host 2 that is routed
	l.MustVeth(t, h2.ns, "cali1", routed, "eth0")
	h2.ns.MustIP(t, "addr add 203.0.113.1/24 dev cali1")
	routed.MustIP(t, "addr add 203.0.113.2/24 dev eth0", "route add default via 203.0.113.1")
	near := l.MustNamespace(t, "near") // and one of host 1
	l.MustVeth(t, h1.ns, "cali1", near, "eth0")
	h1.ns.MustIP(t, "addr add 203.0.113.1/24 dev cali1")
	near.MustIP(t, "addr add 203.0.113.2/24 dev eth0", "route add default via 203.0.113.1")
	if err := h2.ns.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	right := h3.agent.dp.Peers()[h1.ip].Send // of host 3, that has no port in the network
	for _, c := range []struct {
		name     string
		from     *netlab.Namespace
		src, dst netip.Addr
		secret   uint32
		reason   string
	}{
		{"a stranger", stranger, netip.Addr{}, h1.ip, 0, reasonUnknownHost},
		{"a stranger with a secret of a pair", stranger, netip.Addr{}, h1.ip, right, reasonUnknownHost},
		{"a stranger as host 2, without a secret", stranger, h2.ip, h1.ip, 0, reasonSecret},
		{"a stranger as host 2, with a wrong secret", stranger, h2.ip, h1.ip, 0x12345678, reasonSecret},
		{"a stranger as host 2, with the secret of another pair", stranger, h2.ip, h1.ip, right, reasonSecret},
		{"a routed workload of host 2", routed, netip.Addr{}, h1.ip, 0, reasonUnknownHost},
		{"host 3, without a port in the network", stranger, h3.ip, h1.ip, right, reasonForeign},
		{"a routed workload of host 1", near, netip.Addr{}, h1.ip, 0, reasonUnchecked},
		{"a routed workload of host 1 as host 2", near, h2.ip, h1.ip, 0, reasonUnchecked},
		{"a process of host 1", h1.ns, netip.Addr{}, h1.ip, 0, reasonUnchecked},
		{"a process of host 1, by the loopback", h1.ns, netip.Addr{}, netip.MustParseAddr("127.0.0.1"), 0, reasonUnchecked},
	} {
		before := h1.kernelDrops(c.reason)
		if err := sendFrom(c.from, c.src, c.dst, vxlan(c.secret, key, m.inner(c.name))); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		l.wait(c.name+": its frame to be dropped as "+c.reason, func() bool { return h1.kernelDrops(c.reason) == before+1 })
	}
	// The inbox works, and nothing is in it: a frame of host 2, with its secret.
	good := h2.agent.dp.Peers()[h1.ip].Send
	if err := sendFrom(stranger, h2.ip, h1.ip, vxlan(good, key, m.inner("of host 2"))); err != nil {
		t.Fatal(err)
	}
	if got := next(t, arrived); got != "of host 2" {
		t.Errorf("the frame of %q arrived", got)
	}
	// Host 3 gets a port in the network: then it may send.
	n.machine(h3, open)
	before := h1.kernelDrops(reasonForeign)
	l.wait("host 3 to be let into the network", func() bool {
		if err := sendFrom(stranger, h3.ip, h1.ip, vxlan(right, key, m.inner("of host 3"))); err != nil {
			t.Fatal(err)
		}
		if err := arrived.SetReadDeadline(time.Now().Add(short)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		k, _, err := arrived.ReadFrom(b)
		return err == nil && string(b[:k]) == "of host 3"
	})
	t.Logf("%d frames of host 3 were dropped before it was", h1.kernelDrops(reasonForeign)-before)
	// Host 3 is removed: it is a stranger at once.
	h3.stop()
	l.commit(store.Op{Key: schema.Hosts.Key(h3.id), Delete: true})
	l.wait("host 3 to be no peer", func() bool { return len(h1.agent.dp.Peers()) == 1 })
	unknown := h1.kernelDrops(reasonUnknownHost)
	if err := sendFrom(stranger, h3.ip, h1.ip, vxlan(right, key, m.inner("of host 3, removed"))); err != nil {
		t.Fatal(err)
	}
	l.wait("its frame to be dropped", func() bool { return h1.kernelDrops(reasonUnknownHost) == unknown+1 })
}

// TestForgedSegments: a host sends one datagram of several segments, which this host's kernel cuts
// only behind the first program. The first is for a network in which the sender has a port, the
// others for one in which it has none: these come no further than each by itself would.
func TestForgedSegments(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.start()
	red, blue := l.network("red"), l.network("blue")
	open := l.group(everything()...)
	h1, h2 := l.hosts[0], l.hosts[1]
	first, victim := red.machine(h1, open), blue.machine(h1, open)
	red.machine(h2, open)
	var secret uint32
	l.wait("the secret of the two hosts", func() bool {
		secret = h2.agent.dp.Peers()[h1.ip].Send
		return secret != 0
	})
	arrived, inbox := first.inbox(), victim.inbox()
	l.wait("host 2 to be let into its network", func() bool {
		if err := sendFrom(h2.ns, netip.Addr{}, h1.ip, vxlan(secret, first.port.TunnelKey, first.inner("early"))); err != nil {
			t.Fatal(err)
		}
		if err := arrived.SetReadDeadline(time.Now().Add(short)); err != nil {
			t.Fatal(err)
		}
		_, _, err := arrived.ReadFrom(make([]byte, 100))
		return err == nil
	})
	for err := error(nil); err == nil; { // of those sent before, all that came late
		if err = arrived.SetReadDeadline(time.Now().Add(short)); err != nil {
			t.Fatal(err)
		}
		_, _, err = arrived.ReadFrom(make([]byte, 100))
	}
	dropped := h1.kernelDrops(reasonForeign)
	head := vxlan(secret, first.port.TunnelKey, first.inner("segment 0"))
	datagram := append([]byte{}, head...)
	for i := 1; i < 4; i++ {
		datagram = append(datagram, vxlan(0, victim.port.TunnelKey, victim.inner(fmt.Sprintf("segment %d", i)))...)
	}
	if err := h2.ns.Do(func() error {
		c, err := net.Dial("udp4", netip.AddrPortFrom(h1.ip, datapath.TunnelPort).String())
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		if err := errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, len(head))
		}), err); err != nil {
			return err
		}
		_, err = c.Write(datagram)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, arrived); got != "segment 0" {
		t.Errorf("%q arrived", got)
	}
	l.wait("the other segments to be dropped", func() bool { return h1.kernelDrops(reasonForeign) == dropped+3 })
	if err := inbox.SetReadDeadline(time.Now().Add(short)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if k, _, err := inbox.ReadFrom(b); err == nil {
		t.Errorf("%q arrived", b[:k])
	}
}

// TestForgedAcrossTenants: routers of two tenants are on one external network. A host that has
// ports of the one alone gets frames only to the other's ports with floating IPs, while machines
// reach all that routers lead to.
func TestForgedAcrossTenants(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	blue := l.routed()
	red := l.routedTo(blue.external, "red", "192.0.2.6")
	l.start()
	h1, h2, h3, h4 := l.hosts[0], l.hosts[1], l.hosts[2], l.hosts[3]
	client, web := blue.machine(h1), red.machine(h2)
	other, outside := red.machine(h3), blue.external.machine(h4)
	floating := red.float(web, "192.0.2.20")
	fromWeb, fromOut := web.serve(80), outside.serve(80)

	client.connect(floating, fromWeb, blue.gatewayIP) // a reply to SNAT of another tenant
	client.connect(outside.v4, fromOut, blue.gatewayIP)
	other.connect(outside.v4, fromOut, red.gatewayIP)
	outside.connect(floating, fromWeb, outside.v4)
	if err := client.ping(floating, 3); err != nil {
		t.Error(err)
	}
	forge := func(from *testHost, to *machine, at *testHost) {
		t.Helper()
		if err := sendFrom(from.ns, netip.Addr{}, at.ip, vxlan(from.agent.dp.Peers()[at.ip].Send, to.port.TunnelKey, to.inner("of "+from.name))); err != nil {
			t.Fatal(err)
		}
	}
	dropped := func(from *testHost, to *machine, at *testHost) {
		t.Helper()
		before := at.kernelDrops(reasonForeign)
		forge(from, to, at)
		l.wait("a frame of "+from.name+" to be dropped by "+at.name, func() bool { return at.kernelDrops(reasonForeign) == before+1 })
	}
	dropped(h3, client, h1) // red's, without a floating IP
	dropped(h1, other, h3)  // blue's, to a port without one
	arrived := web.inbox()
	forge(h1, web, h2)
	if got := next(t, arrived); got != "of "+h1.name {
		t.Errorf("%q arrived", got)
	}

	// With a floating IP of its own, blue's machine is reached from all of red's.
	fromClient := client.serve(80)
	own := blue.float(client, "192.0.2.21")
	l.wait("the floating IP", func() bool { return other.answers(own) })
	other.connect(own, fromClient, red.gatewayIP)
	web.connect(own, fromClient, floating)
	client.connect(floating, fromWeb, own)

	// A route by red's gateway leads to all of red's machines.
	blue.router.Routes = []neutron.HostRoute{{Destination: netip.MustParsePrefix("198.18.0.0/24"), Nexthop: red.gatewayIP}}
	b := translate.Router(&blue.router, []translate.RouterLink{blue.gateway, blue.inside})
	l.put(topology.Owner{Kind: "router", ID: blue.router.ID}, &b)
	arrived = other.inbox()
	l.wait("host 1 to be let into the network", func() bool {
		forge(h1, other, h3)
		if err := arrived.SetReadDeadline(time.Now().Add(short)); err != nil {
			t.Fatal(err)
		}
		_, _, err := arrived.ReadFrom(make([]byte, 100))
		return err == nil
	})
}

// TestHostsOfEarlierVersions: a host that publishes no keys is heard without a secret, and only
// until it does.
func TestHostsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.start()
	h1, n := l.hosts[0], l.network("n")
	open := l.group(everything()...)
	m := n.machine(h1, open)
	arrived := m.inbox()
	old := &testHost{lab: l, name: "old", id: uuid.NewString(), ip: netip.MustParseAddr("198.51.100.50")}
	wire := l.stranger("old", old.ip.String())
	op := func(key string, record any) store.Op {
		value, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		return store.Op{Key: key, Value: value}
	}
	l.commit(op(schema.Hosts.Key(old.id), &topology.Host{ID: old.id, Name: old.name, Tunnels: []topology.HostTunnel{{ZoneID: topology.DefaultTunnelZone, IP: old.ip}}}))
	n.port(old, open).bind()
	l.wait("the old host to be a peer that may send", func() bool {
		if err := sendFrom(wire, netip.Addr{}, h1.ip, vxlan(0, m.port.TunnelKey, m.inner("old"))); err != nil {
			t.Fatal(err)
		}
		if err := arrived.SetReadDeadline(time.Now().Add(short)); err != nil {
			t.Fatal(err)
		}
		_, _, err := arrived.ReadFrom(make([]byte, 100))
		return err == nil
	})
	if got := h1.agent.keys.plainHosts(); got != 1 {
		t.Errorf("%d hosts are heard without a secret, want 1", got)
	}
	ring, err := hostkey.Load(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pairs := hostkey.NewPairs(ring, old.id, 1)
	l.commit(op(schema.TunnelKeys.Key(old.id), pairs.Public()))
	l.wait("the host to need a secret", func() bool { return h1.agent.keys.plainHosts() == 0 })
	before := h1.kernelDrops(reasonSecret)
	l.wait("a frame without one to be dropped", func() bool { // the kernel may follow a moment later
		if err := sendFrom(wire, netip.Addr{}, h1.ip, vxlan(0, m.port.TunnelKey, m.inner("old"))); err != nil {
			t.Fatal(err)
		}
		return h1.kernelDrops(reasonSecret) > before
	})
	pair, err := pairs.Derive(h1.id, h1.agent.keys.pairs.Public(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sendFrom(wire, netip.Addr{}, h1.ip, vxlan(pair.Send, m.port.TunnelKey, m.inner("new"))); err != nil {
		t.Fatal(err)
	}
	for next(t, arrived) != "new" { // repeated ones of before
	}
	// What it publishes now is of no use: it is not heard at all.
	l.commit(op(schema.TunnelKeys.Key(old.id), &topology.TunnelKeys{HostID: old.id, Keys: [][]byte{{1, 2, 3}}}))
	l.wait("the host to be no peer", func() bool { return len(h1.agent.dp.Peers()) == 0 })
	l.commit(op(schema.TunnelKeys.Key(old.id), pairs.Public()))
	l.wait("the host to be a peer again", func() bool { return len(h1.agent.dp.Peers()) == 1 })
	if err := sendFrom(wire, netip.Addr{}, h1.ip, vxlan(pair.Send, m.port.TunnelKey, m.inner("again"))); err != nil {
		t.Fatal(err)
	}
	if got := next(t, arrived); got != "again" {
		t.Errorf("%q arrived", got)
	}
}

// rotate has the host take a new key, step by step as the other hosts follow, as if the times
// between had passed. arrive waits until what was sent by the old key has arrived, which those
// times are for.
func (h *testHost) rotate(arrive func(), others ...*testHost) {
	h.lab.t.Helper()
	k := h.agent.keys
	step := func(what string, done func() bool) {
		h.lab.t.Helper()
		h.lab.wait(h.name+" "+what, func() bool {
			if done() {
				return true
			}
			// By small pieces: the step after this one must not be due before this one is seen.
			h.agent.clock.ahead.Add(int64(hostkey.Settle / 16))
			select {
			case k.kick <- struct{}{}:
			default:
			}
			return done()
		})
	}
	keys := func() int { return len(k.ring.Public().Keys) }
	secret := func() uint32 { return h.agent.dp.Peers()[others[0].ip].Send }
	accepted := func(want int) bool {
		for _, o := range others {
			if len(o.agent.dp.Peers()[h.ip].Accept) != want {
				return false
			}
		}
		return k.published(h.agent.replica.Snapshot())
	}
	was := secret()
	h.agent.clock.ahead.Add(int64(hostkey.Life)) // once: a key that is older by more is the next one to go
	step("to make a key", func() bool { return keys() == 2 && accepted(2) })
	step("to send by it", func() bool { return secret() != was })
	arrive()
	step("to forget the old one", func() bool { return keys() == 1 && accepted(1) })
}

// pinging pings an address up to a thousand times a second, the first ten before it returns, until
// stop is called, which returns how many pings were answered and the gaps in their sequence. The
// last ones may be in flight, and are no gap.
func (m *machine) pinging(to netip.Addr) (stop func() (answered int, gaps []string)) {
	t := m.lab.t
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ping", "-n", "-i", "0.001", to.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var answers []pingAnswer
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sequence := regexp.MustCompile(`icmp_seq=(\d+) ttl=`)
		for s := bufio.NewScanner(out); s.Scan(); {
			f := sequence.FindStringSubmatch(s.Text())
			if f == nil {
				continue
			}
			n, _ := strconv.ParseUint(f[1], 10, 16)
			answers = append(answers, pingAnswer{uint16(n), time.Now()})
			if len(answers) == 10 {
				close(begun)
			}
		}
	}()
	select {
	case <-begun:
	case <-done:
		t.Fatalf("ping %s has ended: %v", to, cmd.Wait())
	}
	return func() (answered int, gaps []string) {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-done
		_ = cmd.Wait() // 1 when the last one was in flight
		return len(answers), pingGaps(answers)
	}
}

// pingAnswer is the sequence number of an answered ping, which wraps around, and when the answer
// arrived.
type pingAnswer struct {
	sequence uint16
	at       time.Time
}

// pingGaps describes the pings without an answer before the last answered one.
func pingGaps(answers []pingAnswer) (gaps []string) {
	seen := map[int]time.Time{}
	last := 0
	for _, a := range answers {
		n := last + int(int16(a.sequence-uint16(last)))
		seen[n] = a.at
		last = max(last, n)
	}
	for i := 1; i <= last; i++ {
		first := i
		for seen[i].IsZero() {
			i++
		}
		if i > first {
			gaps = append(gaps, fmt.Sprintf("%d from number %d, until %s", i-first, first, seen[i].UTC().Format("15:04:05.000")))
		}
	}
	return gaps
}

// TestRotationUnderTraffic rotates the keys of both hosts while packets go through the tunnel
// between them.
func TestRotationUnderTraffic(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.start()
	n := l.network("n")
	open := l.group(everything()...)
	a, b := n.machine(l.hosts[0], open), n.machine(l.hosts[1], open)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	pings := a.pinging(b.v4)
	arrive := func() {
		for _, err := range []error{a.ping(b.v4, 10), b.ping(a.v4, 10)} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	h1, h2 := l.hosts[0], l.hosts[1]
	for range 3 {
		h1.rotate(arrive, h2)
		h2.rotate(arrive, h1)
	}
	answered, gaps := pings()
	if answered < 10 || len(gaps) > 0 {
		t.Errorf("%d pings answered, lost %v", answered, gaps)
	}
	for _, h := range l.hosts {
		if n := h.kernelDrops(reasonSecret); n > 0 {
			t.Errorf("%s dropped %d frames for their secret", h.name, n)
		}
		for _, r := range []dropReason{dropForged, dropReplayed, dropStateMessage} {
			if n := h.agent.engine.count.drops[r].Load(); n > 0 {
				t.Errorf("%s dropped %d messages: %s", h.name, n, r)
			}
		}
	}
	t.Logf("%d pings", answered)
}

// connsOf are connections that nobody has.
func connsOf(m *machine, from, n int) []flow.ConnKey {
	var keys []flow.ConnKey
	for i := from; i < from+n; i++ {
		keys = append(keys, flow.ConnKey{Src: netip.AddrFrom4([4]byte{192, 0, byte(i >> 16), byte(i >> 8)}), Dst: m.v4, SrcPort: uint16(i), DstPort: 80, Proto: 6, Device: m.net.net.ID})
	}
	return keys
}

// TestForgedStateMessages: whoever has the tunnel's secret, because he reads the wire, tells a host
// nothing, and what a host has told it cannot be told again.
func TestForgedStateMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.start()
	n := l.network("n")
	open := l.group(everything()...)
	a, b := n.machine(l.hosts[0], open), n.machine(l.hosts[1], open)
	n.machine(l.hosts[2], open)
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	if err := errors.Join(a.ping(b.v4, 2), b.ping(a.v4, 2)); err != nil {
		t.Fatal(err)
	}
	drops := func(r dropReason) uint64 { return h1.agent.engine.count.drops[r].Load() }
	secret := h2.agent.dp.Peers()[h1.ip].Send
	wire := l.stranger("reader", "198.51.100.66")
	frame := func(message []byte) []byte {
		inner := packet.Ethernet{Type: 0x88b5}.Append(nil)
		return vxlan(secret, datapath.StateKey, append(append(inner, byte(len(message)>>8), byte(len(message))), message...))
	}
	send := func(messages ...[]byte) {
		t.Helper()
		for _, m := range messages {
			if err := sendFrom(wire, h2.ip, h1.ip, frame(m)); err != nil {
				t.Fatal(err)
			}
		}
	}
	seal := func(from *testHost, to string, keys []flow.ConnKey) [][]byte {
		t.Helper()
		m, err := from.agent.keys.seal(to, flowstate.State{Conns: keys})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	// A real message comes first: what follows differs from it in one thing each.
	good := seal(h2, h1.id, connsOf(a, 0, 1))[0]
	knows := func(n int) bool { return h1.agent.engine.conns.Has(connsOf(a, n, 1)[0], h1.agent.engine.clock()) }
	send(good)
	l.wait("a message of host 2", func() bool { return knows(0) })

	for name, c := range map[string]struct {
		message []byte
		reason  dropReason
	}{
		"repeated":              {good, dropReplayed},
		"truncated":             {good[:len(good)-1], dropForged},
		"truncated in the head": {good[:20], dropStateMessage},
		"of no version":         {append([]byte{9}, good[1:]...), dropStateMessage},
		"of another host":       {seal(h3, h1.id, connsOf(a, 1, 1))[0], dropForged},
		"for another host":      {seal(h2, h3.id, connsOf(a, 1, 1))[0], dropForged},
		"sent back":             {seal(h1, h2.id, connsOf(a, 1, 1))[0], dropForged},
		"changed":               {append(slices.Clone(good[:len(good)-1]), good[len(good)-1]^1), dropForged},
	} {
		was := drops(c.reason)
		send(c.message)
		l.wait("the message "+name+" to be dropped", func() bool { return drops(c.reason) == was+1 })
	}
	// 30,000 connections in messages as an earlier version believes them.
	const forged = 30000
	plain, err := (&flowstate.State{Conns: connsOf(a, 1000, forged)}).Messages(h2.id)
	if err != nil {
		t.Fatal(err)
	}
	was, upcalls := drops(dropForged), h1.kernelDrops("ring full")
	send(plain...)
	l.wait("the forged messages to be dropped", func() bool {
		return drops(dropForged)+h1.kernelDrops("ring full") == was+upcalls+uint64(len(plain))
	})
	for _, k := range connsOf(a, 1000, forged) {
		if h1.agent.engine.conns.Has(k, h1.agent.engine.clock()) {
			t.Fatalf("the forged connection %v is known", k)
		}
	}
	if err := errors.Join(a.ping(b.v4, 2), b.ping(a.v4, 2)); err != nil {
		t.Errorf("after the forged messages: %v", err)
	}

	// A restarted agent knows what has come, and is told what is new.
	h1.stop()
	h1.start()
	send(good)
	l.wait("a message of before the restart to be dropped", func() bool { return drops(dropReplayed) == 1 })
	h2.stop()
	h2.start()
	l.wait("host 2 to know host 1", func() bool { _, pair := h2.agent.keys.find(h1.id); return pair != nil })
	send(seal(h2, h1.id, connsOf(a, 2, 1))[0])
	l.wait("a message of the restarted host 2", func() bool { return knows(2) })
	// Host 2 is installed anew, and its clock is wrong.
	h2.stop()
	h2.options.StateDir = t.TempDir()
	h2.clockAhead = -time.Hour
	h2.start()
	l.wait("host 2 to know host 1", func() bool { _, pair := h2.agent.keys.find(h1.id); return pair != nil })
	l.wait("host 1 to know the new key of host 2", func() bool {
		_, pair := h1.agent.keys.find(h2.id)
		return pair.Send == h2.agent.dp.Peers()[h1.ip].Accept[0]
	})
	secret = h2.agent.dp.Peers()[h1.ip].Send
	send(seal(h2, h1.id, connsOf(a, 3, 1))[0])
	l.wait("a message of host 2 installed anew", func() bool { return knows(3) })
}

// TestHostFillsItsShare: a host of the virtual network that floods others with messages takes no
// place of theirs.
func TestHostFillsItsShare(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.hosts[0].options.MaxConnections = 200
	l.start()
	n := l.network("n")
	open := l.group(everything()...)
	a, b := n.machine(l.hosts[0], open), n.machine(l.hosts[1], open)
	n.machine(l.hosts[2], open)
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	if err := a.ping(b.v4, 1); err != nil {
		t.Fatal(err)
	}
	tell := func(from *testHost, keys []flow.ConnKey) {
		t.Helper()
		l.wait(from.name+" to reach "+h1.name, func() bool { _, ok := from.agent.engine.tunnelTo(h1.id); return ok })
		tunnel, _ := from.agent.engine.tunnelTo(h1.id)
		from.agent.engine.sendState(tunnel, h1.id, flowstate.State{Conns: keys})
	}
	conns := h1.agent.engine.conns
	has := func(k flow.ConnKey) bool { return conns.Has(k, h1.agent.engine.clock()) }
	told := connsOf(a, 0, 40)
	tell(h3, told)
	l.wait("host 3's messages", func() bool { return has(told[0]) && has(told[39]) })
	before := conns.Stats()
	for i := range 20 {
		flood := connsOf(a, 1000+100*i, 100)
		tell(h2, flood)
		l.wait("host 2's messages", func() bool { return has(flood[99]) })
	}
	for _, k := range told {
		if !has(k) {
			t.Fatalf("host 2 has pushed out what host 3 told: %v", k)
		}
	}
	s := conns.Stats()
	if own, was := s.Entries-s.Imported, before.Entries-before.Imported; own < was || s.Entries > 200 || s.EvictedImported == 0 {
		t.Errorf("%+v, before %+v: connections of this host were pushed out", s, before)
	}
}

// BenchmarkStateMessage measures the cost of a first packet's message to the host that sends it and
// the one that receives it, without the way between them.
func BenchmarkStateMessage(b *testing.B) {
	l := newLab(b, 2)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	l.wait("the hosts to know each other", func() bool {
		_, x := h1.agent.keys.find(h2.id)
		_, y := h2.agent.keys.find(h1.id)
		return x != nil && y != nil && x.Sealed()
	})
	m := &machine{lab: l, net: &network{}, v4: netip.MustParseAddr("10.0.0.1")}
	m.net.net.ID = uuid.NewString()
	keys := flowstate.State{Conns: connsOf(m, 0, 2)}
	for _, kind := range []string{"plain", "sealed"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				var messages [][]byte
				var err error
				if kind == "plain" {
					if messages, err = keys.Messages(h1.id); err == nil {
						_, err = flowstate.ParseMessage(messages[0])
					}
				} else if messages, err = h1.agent.keys.seal(h2.id, keys); err == nil {
					_, _, err = h2.agent.keys.open(h1.id, messages[0])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
