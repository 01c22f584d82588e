package overlay

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// echoUDP serves a UDP port of the machine's: what comes goes back.
func (m *machine) echoUDP(port int) {
	t := m.lab.t
	t.Helper()
	var c net.PacketConn
	err := m.Do(func() (err error) { c, err = net.ListenPacket("udp", fmt.Sprint(":", port)); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if _, err := c.WriteTo(b[:n], from); err != nil {
				return
			}
		}
	}()
}

// dialUDP is a connected UDP socket of the machine's.
func (m *machine) dialUDP(to netip.Addr, port int) net.Conn {
	t := m.lab.t
	t.Helper()
	var c net.Conn
	err := m.Do(func() (err error) {
		c, err = net.Dial("udp", netip.AddrPortFrom(to, uint16(port)).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// forgetNeighbours empties the machine's neighbour table: the next packet asks.
func (m *machine) forgetNeighbours() { m.MustIP(m.lab.t, "neigh flush dev eth0") }

// TestUDPWithoutAgents: while no agent runs, established UDP goes on when the machines' neighbour
// tables are empty, and when they check what is in them.
func TestUDPWithoutAgents(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, near, far := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[1], g)
	machines := []*machine{a, near, far}
	var flows []net.Conn
	var peers []netip.Addr
	for _, m := range machines[1:] {
		m.echoUDP(9)
		for _, to := range []netip.Addr{m.v4, m.v6} {
			flows, peers = append(flows, a.dialUDP(to, 9)), append(peers, to)
		}
	}
	exchanged := func(when string) {
		t.Helper()
		for i, c := range flows {
			if err := exchange(c, 100, 5*time.Second); err != nil {
				t.Errorf("%s: UDP with %s: %v", when, peers[i], err)
			}
		}
	}
	for _, c := range flows { // the first datagram may be lost to a queue of unanswered questions
		l.wait("UDP to begin", func() bool { return exchange(c, 100, short) == nil })
	}
	exchanged("with agents")
	answered := func(h *testHost) uint64 {
		c, err := h.agent.dp.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return c.Answered
	}
	l.wait("the kernel to answer for both hosts", func() bool {
		for _, m := range machines {
			m.forgetNeighbours()
		}
		exchanged("after forgetting")
		return answered(l.hosts[0]) > 0 && answered(l.hosts[1]) > 0
	})
	for _, h := range l.hosts {
		h.stop()
	}
	for _, m := range machines {
		m.forgetNeighbours()
	}
	exchanged("without agents")
	for i, to := range peers {
		mac := machines[1+i/2].port.MACAddress
		a.MustIP(t, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud probe", to, mac))
		l.wait("a probe of "+to.String(), func() bool {
			out, err := a.Output(t.Context(), "ip", "neigh", "show", to.String())
			if err != nil || strings.Contains(out, "FAILED") {
				t.Fatalf("neighbour %s: %v\n%s", to, err, out)
			}
			return strings.Contains(out, "REACHABLE")
		})
	}
	exchanged("without agents, after probes")

	// The next agents adopt all this, and remove what has changed meanwhile.
	l.put(near.owner(), nil)
	l.start()
	for _, x := range []*machine{a, far} {
		x.forgetNeighbours()
	}
	if err := exchange(flows[2], 100, 5*time.Second); err != nil {
		t.Errorf("with agents again: %v", err)
	}
	if err := l.hosts[0].agent.dp.EachNeighbours(func(_ []datapath.Network, ns []datapath.Neighbour) {
		for _, x := range ns {
			if x.IP == near.v4 || x.IP == near.v6 {
				t.Errorf("%s is still answered for", x.IP)
			}
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestKernelAnswersAsTheSimulator sends any questions from a machine on a host whose agent is gone:
// whatever the kernel answers the simulator would have answered so, byte for byte, and a machine's
// questions from its own addresses about known ones are all answered.
func TestKernelAnswersAsTheSimulator(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	secured, open, sentinel := n.machine(h, g), n.machine(h), n.machine(h, g)
	paired := n.port(h, g)
	paired.port.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: "192.0.2.0/24"}, {IPAddress: "10.0.0.99", MACAddress: packet.MAC{2, 0, 0, 0, 0, 9}}}
	paired.plug()
	paired.bind()
	paired.served()
	askers := []*machine{secured, open, paired}
	wires := map[*machine]*netlab.Wire{}
	for _, m := range askers {
		m.MustIP(t, "addr flush dev eth0", "link set eth0 arp off")
		m.MustIP(t, "link set eth0 promisc on")
		w, err := m.Wire("eth0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		wires[m] = w
	}
	if err := h.agent.engine.answers.idle(t); err != nil {
		t.Fatal(err)
	}
	h.stop()
	sim := simulate.NewSimulator(h.agent.engine.net.world)

	macs := []packet.MAC{packet.Broadcast, {0x33, 0x33, 0, 0, 0, 1}, {1, 0, 0x5e, 0, 0, 1}, {2, 0, 0, 0, 0, 9}, {}}
	ips := []netip.Addr{netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("192.0.2.7"), netip.IPv4Unspecified()}
	ips6 := []netip.Addr{netip.MustParseAddr("2001:db8::99"), netip.IPv6Unspecified(), netip.MustParseAddr("ff02::1")}
	for _, m := range askers {
		macs, ips = append(macs, m.port.MACAddress), append(ips, m.v4)
		ips6 = append(ips6, m.v6, packet.LinkLocal(m.port.MACAddress))
	}
	arp := func(dst, src, sha packet.MAC, spa, tpa netip.Addr) []byte {
		return packet.ARP{Op: packet.ARPRequest, SHA: sha, SPA: spa, TPA: tpa}.Append(packet.Ethernet{Dst: dst, Src: src, Type: packet.TypeARP}.Append(nil))
	}
	// ask sends frames from a machine, then a question that is answered, and reports whether wanted
	// came back before that answer; nil: whether anything did.
	ask := func(m *machine, wanted []byte, frames ...[]byte) (found bool, err error) {
		own := m.port.MACAddress
		for _, frame := range append(frames, arp(packet.Broadcast, own, own, m.v4, sentinel.v4)) {
			if err := wires[m].Send(frame); err != nil {
				return false, err
			}
		}
		last := packet.ARP{Op: packet.ARPReply, SHA: sentinel.port.MACAddress, SPA: sentinel.v4, THA: own, TPA: m.v4}
		return wires[m].Until(last.Append(nil), wanted)
	}
	for _, m := range askers { // what came before the agent stopped
		if _, err := ask(m, nil); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom(askers).Draw(t, "port")
		own := m.port.MACAddress
		mac := func(name string, likely packet.MAC) packet.MAC {
			if rapid.IntRange(0, 2).Draw(t, name+"?") > 0 {
				return likely
			}
			return rapid.SampledFrom(macs).Draw(t, name)
		}
		src := mac("source", own)
		var frame []byte
		if rapid.Bool().Draw(t, "v6") {
			target := rapid.SampledFrom(ips6).Draw(t, "target")
			group := packet.SolicitedNode(target)
			frame = packet.NeighborSolicit(mac("to", packet.MulticastMAC(group)), src, rapid.SampledFrom(ips6).Draw(t, "from"), group, target)
		} else {
			frame = arp(mac("to", packet.Broadcast), src, mac("sha", src), rapid.SampledFrom(ips).Draw(t, "from"), rapid.SampledFrom(ips).Draw(t, "target"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			frame[rapid.IntRange(12, len(frame)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		frame = append(frame, make([]byte, rapid.SampledFrom([]int{0, 0, 4, 18}).Draw(t, "padding"))...)
		if rapid.IntRange(0, 7).Draw(t, "cut") == 0 {
			frame = frame[:rapid.IntRange(14, len(frame)).Draw(t, "length")]
		}

		d := sim.Run(simulate.Input{PortID: m.port.ID, Frame: frame})
		var want []byte
		if len(d.Emit) == 1 {
			want = d.Emit[0].Frame
		}
		some, err := ask(m, nil, frame)
		if err != nil {
			t.Fatal(err)
		}
		right := false
		if want != nil {
			if right, err = ask(m, want, frame); err != nil {
				t.Fatal(err)
			}
		}
		if some && !right {
			t.Fatalf("port of %s: the kernel answered %x, the simulator %x", m.v4, frame, want)
		}
		isOwn := d.Asker != nil && d.Asker.MAC == own && (d.Asker.IP == m.v4 || d.Asker.IP == m.v6 || d.Asker.IP == packet.LinkLocal(own))
		if isOwn && !some && (frame[12] == 0x08 || wellFormed(frame)) {
			t.Fatalf("port of %s: the kernel left %x unanswered, the simulator answers %x", m.v4, frame, want)
		}
	})
}

// TestAskersAreBounded: a machine that may send from any address takes no more room in the kernel
// than its share, and is answered from all of them; one of an allowed address pair is in the kernel
// once it has asked.
func TestAskersAreBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	l.start()
	h := l.hosts[0]
	open, other := n.machine(h), n.machine(h)
	open.MustIP(t, "addr flush dev eth0")
	w, err := open.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := h.agent.engine.answers.idle(t); err != nil {
		t.Fatal(err)
	}
	own, peer := open.port.MACAddress, other.port.MACAddress
	for i := range 2 * extraAskers {
		from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		question := packet.ARP{Op: packet.ARPRequest, SHA: own, SPA: from, TPA: other.v4}
		answer := packet.ARP{Op: packet.ARPReply, SHA: peer, SPA: other.v4, THA: own, TPA: from}
		if err := w.Send(question.Append(packet.Ethernet{Dst: packet.Broadcast, Src: own, Type: packet.TypeARP}.Append(nil))); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Until(answer.Append(nil), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.agent.engine.answers.idle(t); err != nil {
		t.Fatal(err)
	}
	count := 0
	l.wait("the askers of one port", func() bool {
		askers, err := h.agent.dp.Askers()
		if err != nil {
			t.Fatal(err)
		}
		count = 0
		for _, x := range askers {
			if x.MAC == own {
				count++
			}
		}
		return count == extraAskers+3 // its two addresses, and the link-local one
	})
}

// TestAnswersSurviveSharedSlots: a change of a port whose id shares a slot of epochs with another's
// takes no answers from that one.
func TestAnswersSurviveSharedSlots(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n, other := l.network("blue"), l.network("red")
	g := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	a, b := n.machine(h, g), n.machine(h, g)
	if err := a.ping(b.v4, 2); err != nil {
		t.Fatal(err)
	}
	answered := func() uint64 {
		c, err := h.agent.dp.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return c.Answered
	}
	elsewhere := other.port(l.hosts[1], g)
	for datapath.SlotOf(elsewhere.port.ID) != datapath.SlotOf(a.port.ID) {
		elsewhere.port.ID = uuid.NewString()
	}
	epoch := func() datapath.Tag { return h.agent.dp.Tags(datapath.SlotOf(a.port.ID))[0] }
	was := epoch()
	elsewhere.bind()
	l.wait("the change of the other port", func() bool { return epoch() != was })
	l.wait("the kernel to answer its machine again", func() bool {
		before := answered()
		a.forgetNeighbours()
		return a.ping(b.v4, 1) == nil && answered() > before
	})
}

// wellFormed reports whether a solicitation has one option, its sender's address, as hosts send it.
func wellFormed(frame []byte) bool {
	return len(frame) >= 86 && frame[19] == 32 && frame[20] == packet.ProtoICMPv6 && frame[78] == 1 && bytes.Equal(frame[80:86], frame[6:12])
}

// idle waits until the kernel answers for all that is known.
func (a *answers) idle(t *testing.T) error {
	return netlab.Until(t.Context(), "the kernel's answers", func() (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.networks)+len(a.ports)+len(a.missing)+len(a.work) == 0, nil
	})
}

// TestAnswersFollow: what the kernel answers from follows the topology: an address that moves, a
// port that goes, the last port of a network on the host; and only networks with ports here take
// room.
func TestAnswersFollow(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	blue, red := l.network("blue"), l.network("red")
	g := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	held := func() map[string]packet.MAC {
		all := map[string]packet.MAC{}
		names := map[datapath.Network]string{datapath.NetworkOf(blue.net.ID): "blue ", datapath.NetworkOf(red.net.ID): "red "}
		if err := h.agent.dp.EachNeighbours(func(networks []datapath.Network, ns []datapath.Neighbour) {
			for i := range ns {
				all[names[networks[i]]+ns[i].IP.String()] = ns[i].MAC
			}
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	far := red.machine(l.hosts[1], g)
	a, b := blue.machine(h, g), blue.machine(l.hosts[1], g)
	l.wait("the addresses of a network with a port here", func() bool { return len(held()) == 4 })
	if _, ok := held()["red "+far.v4.String()]; ok {
		t.Error("a network without ports here takes room")
	}
	near := red.machine(h, g)
	l.wait("the second network", func() bool { return held()["red "+far.v4.String()] == far.port.MACAddress })
	b.port.MACAddress[5] ^= 0x80
	b.bind()
	l.wait("the new MAC address", func() bool { return held()["blue "+b.v4.String()] == b.port.MACAddress })
	l.put(b.owner(), nil)
	l.wait("the port to go", func() bool { return len(held()) == 6 })
	l.put(near.owner(), nil)
	l.wait("the second network to go", func() bool { return len(held()) == 2 })
	askers, err := h.agent.dp.Askers()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range askers {
		if x.MAC != a.port.MACAddress {
			t.Errorf("asker %+v is left over", x)
		}
	}
}
