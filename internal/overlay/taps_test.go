package overlay

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// monitor is a machine that gets copies, and what it has seen: UDP datagrams by their ports.
type monitor struct {
	*machine
	service *neutron.TapService
	wire    *netlab.Wire
	seen    map[[2]uint16]int
}

// monitor makes a machine without filters the port of a tap service.
func (n *network) monitor(h *testHost) *monitor {
	n.lab.t.Helper()
	m := &monitor{machine: n.machine(h), seen: map[[2]uint16]int{}}
	var err error
	if m.wire, err = m.Wire("eth0"); err != nil {
		n.lab.t.Fatal(err)
	}
	n.lab.t.Cleanup(m.wire.Close)
	m.service = &neutron.TapService{Standard: neutron.Standard{ID: uuid.NewString()}, PortID: m.port.ID}
	b := translate.TapService(m.service)
	n.lab.put(topology.Owner{Kind: "tap-service", ID: m.service.ID}, &b)
	return m
}

// tap has packets of a machine copied to a monitor; stop ends that.
func (l *lab) tap(to *monitor, source *machine, direction string) (stop func()) {
	l.t.Helper()
	f := &neutron.TapFlow{Standard: neutron.Standard{ID: uuid.NewString()}, TapServiceID: to.service.ID, SourcePortID: source.port.ID, Direction: direction}
	b := translate.TapFlow(f)
	owner := topology.Owner{Kind: "tap-flow", ID: f.ID}
	l.put(owner, &b)
	return func() { l.put(owner, &topology.Bundle{}) }
}

// count returns how many datagrams from one port to another the monitor has seen.
func (m *monitor) count(from, to uint16) int {
	m.lab.t.Helper()
	for {
		frame, ok, err := m.wire.Take()
		if errors.Is(err, unix.ENETDOWN) {
			continue // it says so once
		}
		if err != nil {
			m.lab.t.Fatal(err)
		}
		if !ok {
			return m.seen[[2]uint16{from, to}]
		}
		var f packet.Frame
		if packet.Decode(frame, &f) == nil && f.Proto == packet.ProtoUDP {
			m.seen[[2]uint16{f.TpSrc, f.TpDst}]++
		}
	}
}

// datagramPort returns the local port of a UDP socket.
func datagramPort(c net.Conn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// kernelCopies returns the copies that flows of the host have sent.
func (h *testHost) kernelCopies() uint64 {
	h.lab.t.Helper()
	c, err := h.agent.dp.Counters()
	if err != nil {
		h.lab.t.Fatal(err)
	}
	return c.Copies
}

// anyTimes is a number of sightings that does not matter.
const anyTimes = -1

// watched exchanges datagrams with an echo until all monitors see them, and then so many more, of
// which each must be seen as often as said: requests and, unless that is anyTimes, replies.
func watched(t *testing.T, from, to *machine, n, requests, replies int, monitors ...*monitor) {
	t.Helper()
	u := from.dialUDP(to.v4, 9)
	port := datagramPort(u)
	from.lab.wait("copies", func() bool {
		exchangeDatagrams(t, u, []byte("ready"), 1)
		for _, m := range monitors {
			if requests > 0 && m.count(port, 9) == 0 || replies > 0 && m.count(9, port) == 0 {
				return false
			}
		}
		return true
	})
	before := map[*monitor][2]int{}
	for _, m := range monitors {
		before[m] = [2]int{m.count(port, 9), m.count(9, port)}
	}
	exchangeDatagrams(t, u, make([]byte, 300), n)
	for i, m := range monitors {
		want := [2]int{before[m][0] + n*requests, before[m][1] + n*replies}
		if replies == anyTimes {
			want[1] = m.count(9, port)
		}
		from.lab.wait(fmt.Sprint("all copies at monitor ", i), func() bool { return m.count(port, 9) >= want[0] && m.count(9, port) >= want[1] })
		if got := [2]int{m.count(port, 9), m.count(9, port)}; got[0] != want[0] || replies != anyTimes && got[1] != want[1] {
			t.Errorf("monitor %d: %v requests and replies, want %v, %v of them from before", i, got, want, before[m])
		}
	}
}

// TestTaps: monitors on the same host and on another, on the same network and on another, get what
// a tapped machine sends and receives, each packet once; up to four copies are made by flows in the
// kernel, more by the agent.
func TestTaps(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n, watch := l.network("blue"), l.networkAt("watch", "198.51.100.0/24")
	g := l.group(allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "udp", 9))
	l.start()
	a, b, c := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[1], g)
	b.echoUDP(9)
	c.echoUDP(9)
	var monitors []*monitor
	for i := range 5 {
		on := n
		if i%2 == 1 {
			on = watch
		}
		monitors = append(monitors, on.monitor(l.hosts[i/2%2])) // here, here, there, there, here
	}
	stop := l.tap(monitors[0], b, neutron.TapBoth)
	l.tap(monitors[1], b, neutron.TapIn)
	watched(t, a, b, 40, 1, 1, monitors[0])
	watched(t, a, b, 40, 1, 0, monitors[1])

	// Between hosts: the copies of what goes to c are made where it comes from.
	l.tap(monitors[1], c, neutron.TapBoth)
	l.tap(monitors[2], c, neutron.TapBoth)
	watched(t, a, c, 40, 1, 1, monitors[1], monitors[2])

	// Four at once, all by one flow.
	l.tap(monitors[2], b, neutron.TapIn)
	l.tap(monitors[3], b, neutron.TapIn)
	before := l.hosts[0].kernelCopies()
	watched(t, a, b, 100, 1, anyTimes, monitors[:4]...)
	if made := l.hosts[0].kernelCopies() - before; made < 400 {
		t.Errorf("flows sent %d copies of 100 packets, want 400 at least", made)
	}

	// Five are the agent's, one again the kernel's.
	stopFifth := l.tap(monitors[4], b, neutron.TapIn)
	watched(t, a, b, 40, 1, anyTimes, monitors...)
	stopFifth()
	stop()
	u := a.dialUDP(b.v4, 9)
	l.wait("no more copies of the two that are gone", func() bool {
		seen := [2]int{}
		for i, m := range []*monitor{monitors[0], monitors[4]} {
			seen[i] = m.count(datagramPort(u), 9)
		}
		before := monitors[1].count(datagramPort(u), 9)
		exchangeDatagrams(t, u, []byte("gone?"), 5)
		l.wait("copies of the same packets for another", func() bool { return monitors[1].count(datagramPort(u), 9) >= before+5 })
		return monitors[0].count(datagramPort(u), 9) == seen[0] && monitors[4].count(datagramPort(u), 9) == seen[1]
	})
	before = l.hosts[0].kernelCopies()
	watched(t, a, b, 100, 1, 0, monitors[1:4]...)
	if made := l.hosts[0].kernelCopies() - before; made < 300 {
		t.Errorf("flows sent %d copies of 100 packets, want 300 at least", made)
	}
	gone := monitors[0].count(datagramPort(u), 9)
	exchangeDatagrams(t, u, make([]byte, 10), 20)
	if got := monitors[0].count(datagramPort(u), 9); got != gone {
		t.Errorf("a monitor sees %d packets of a flow that is deleted", got-gone)
	}
}

// TestTapsOfDroppedPackets: IN copies what the group drops, also in the kernel, and OUT does not.
func TestTapsOfDroppedPackets(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "udp", 9))
	l.start()
	h := l.hosts[0]
	a, b := n.machine(h, g), n.machine(h, g)
	in, out := n.monitor(h), n.monitor(h)
	l.tap(in, b, neutron.TapIn)
	l.tap(out, b, neutron.TapOut)
	u := a.dialUDP(b.v4, 10)
	port := datagramPort(u)
	send := func() {
		if _, err := u.Write([]byte("dropped")); err != nil {
			t.Fatal(err)
		}
	}
	l.wait("a copy of a dropped packet", func() bool { send(); return in.count(port, 10) > 0 })
	drops, copies, seen := h.kernelDrops("the flow says so"), h.kernelCopies(), in.count(port, 10)
	for i := range 50 { // in a burst all might come before the first one's flow
		send()
		l.wait("a copy of each", func() bool { return in.count(port, 10) > seen+i })
	}
	if dropped, made := h.kernelDrops("the flow says so")-drops, h.kernelCopies()-copies; dropped < 40 || made < 40 {
		t.Errorf("flows dropped %d and copied %d of 50 packets", dropped, made)
	}
	if got := out.count(port, 10); got != 0 {
		t.Errorf("OUT has copied %d packets to the port", got)
	}
}

// TestTapsWithoutMonitor: what becomes of a monitor is nothing to the machines that it watches: its
// port down, its interface down or gone, nobody reading.
func TestTapsWithoutMonitor(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g)
	b.echoUDP(9)
	near, far := n.monitor(l.hosts[0]), n.monitor(l.hosts[1])
	l.tap(near, b, neutron.TapBoth)
	l.tap(far, b, neutron.TapBoth)
	watched(t, a, b, 20, 1, 1, near, far)
	u := a.dialUDP(b.v4, 9)
	exchange := func(what string) {
		t.Helper()
		t.Log(what)
		exchangeDatagrams(t, u, make([]byte, 300), 200)
	}
	near.MustIP(t, "link set eth0 down")
	exchange("the monitor's interface is down")
	watched(t, a, b, 20, 1, 1, far)
	near.MustIP(t, "link set eth0 up")
	watched(t, a, b, 20, 1, 1, near, far)
	l.hosts[0].ns.MustIP(t, "link del "+near.port.InterfaceName)
	exchange("the monitor is gone")
	watched(t, a, b, 20, 1, 1, far)
	far.port.AdminStateUp = false
	far.bind()
	exchange("the other's port is down")
	far.port.AdminStateUp = true
	far.bind()
	watched(t, a, b, 20, 1, 1, far)
}
