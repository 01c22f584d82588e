package datapath_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

const lanKey = 900 // tunnel key of the localnet port

// lan is a LAN: a bridge, machines on it, and a host with the localnet port of one VLAN.
type lan struct {
	*network
	wire      *netlab.Namespace // the bridge br0
	outside   *workload         // a machine in that VLAN
	neighbour *netlab.Namespace // a machine without a tag, for the host itself
	vlan      uint16
	host      *host
	port      datapath.Port
}

// lan joins a host to a LAN by eth1 and tells every host that the outside machine is behind it.
func (n *network) lan(h *host, vlan uint16) *lan {
	t := n.t
	t.Helper()
	l := &lan{network: n, host: h, vlan: vlan, wire: n.lab.MustNamespace(t, "lan"), outside: &workload{
		Namespace: n.lab.MustNamespace(t, "outside"), mac: packet.MAC{2, 0, 0, 0, 1, 1},
		v4: netip.MustParseAddr("192.0.2.200"), v6: netip.MustParseAddr("2001:db8::200")}}
	l.neighbour = n.lab.MustNamespace(t, "neighbour")
	l.wire.MustIP(t, "link add br0 type bridge", "link set br0 up")
	n.lab.MustVeth(t, l.outside.Namespace, "eth0", l.wire, "outside")
	n.lab.MustVeth(t, l.neighbour, "eth0", l.wire, "neighbour")
	n.lab.MustVeth(t, h.ns, "eth1", l.wire, "h1")
	l.wire.MustIP(t, "link set outside master br0", "link set neighbour master br0", "link set h1 master br0")
	h.ns.MustIP(t, "addr add 203.0.113.1/24 dev eth1")
	l.neighbour.MustIP(t, "addr add 203.0.113.200/24 dev eth0")
	l.outside.MustIP(t, fmt.Sprintf("link set eth0 address %s mtu 1450", l.outside.mac),
		fmt.Sprintf("addr add %s/24 dev eth0", l.outside.v4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", l.outside.v6))
	if vlan != 0 {
		tagFrames(t, l.outside.Namespace, "eth0", vlan)
	}
	l.attach()
	for _, other := range n.hosts {
		other.mu.Lock()
		other.where[l.outside.mac] = datapath.Output{Tunnel: other.tunnel(), TunnelKey: lanKey}
		if other == h {
			other.where[l.outside.mac] = datapath.Output{Port: l.port}
		}
		other.mu.Unlock()
	}
	return l
}

// tagFrames has an interface of a namespace send and take in the frames of a VLAN alone, as a vlan
// device does where the kernel has one.
func tagFrames(t testing.TB, ns *netlab.Namespace, name string, vlan uint16) {
	t.Helper()
	const present, tci, proto = 20, 24, 28 // in struct __sk_buff
	for direction, code := range map[ebpf.AttachType]asm.Instructions{
		ebpf.AttachTCXEgress: {
			asm.Mov.Imm(asm.R2, int32(swap16(0x8100))),
			asm.Mov.Imm(asm.R3, int32(vlan)),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
		},
		ebpf.AttachTCXIngress: {
			asm.LoadMem(asm.R2, asm.R1, present, asm.Word),
			asm.JEq.Imm(asm.R2, 0, "drop"),
			asm.LoadMem(asm.R2, asm.R1, tci, asm.Word),
			asm.JNE.Imm(asm.R2, int32(vlan), "drop"),
			asm.LoadMem(asm.R2, asm.R1, proto, asm.Word),
			asm.JNE.Imm(asm.R2, int32(swap16(0x8100)), "drop"),
			asm.FnSkbVlanPop.Call(),
			asm.Mov.Imm(asm.R0, -1),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"),
			asm.Return(),
		},
	} {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		if err := ns.Do(func() error {
			device, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			l, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: program, Attach: direction})
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 }

func (l *lan) attach() {
	l.t.Helper()
	p, err := l.host.AttachPort("lan", "eth1", datapath.PortOptions{TunnelKey: lanKey, MTU: 1500, Localnet: true, VLAN: l.vlan})
	if err != nil {
		l.t.Fatal(err)
	}
	l.port = p
	senders := map[netip.Addr]bool{}
	for _, other := range l.host.others {
		senders[other.ip] = true
	}
	l.host.SetSenders(p, senders)
}

// detach takes the port away, and the way to the outside machine before.
func (l *lan) detach() {
	l.t.Helper()
	l.host.mu.Lock()
	delete(l.host.where, l.outside.mac)
	l.host.mu.Unlock()
	if err := l.host.DetachPort("lan"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lan) homes(all ...*workload) {
	l.t.Helper()
	for _, w := range all {
		if err := l.host.SetHomes(l.port, w.mac); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestPhysicalNetwork sends all kinds of traffic between a LAN and workloads on its host and on
// another one, without and with a tag, while the host uses the interface for itself.
func TestPhysicalNetwork(t *testing.T) {
	t.Parallel()
	for _, vlan := range []uint16{0, 100} {
		t.Run(fmt.Sprint("vlan ", vlan), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			n.underlay()
			l := n.lan(n.hosts[0], vlan)
			here, there := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2)
			l.homes(here, there)
			for _, w := range []*workload{here, there} {
				checkTraffic(t, w, l.outside)
				checkTraffic(t, l.outside, w)
			}
			l.checkHostReached()
			drops := counters(t, l.host).Drops
			for _, reason := range []string{"refused by the kernel", "bad instruction", "no such port", "no such tunnel", "ring full"} {
				if drops[reason] > 0 {
					t.Errorf("%d frames were dropped: %s", drops[reason], reason)
				}
			}
		})
	}
}

// checkHostReached checks that the host's own address on the LAN works both ways.
func (l *lan) checkHostReached() {
	l.t.Helper()
	for from, to := range map[*netlab.Namespace]string{l.host.ns: "203.0.113.200", l.neighbour: "203.0.113.1"} {
		if _, err := from.Output(l.t.Context(), "ping", "-c", "3", "-i", "0.01", "-W", "2", to); err != nil {
			l.t.Error(err)
		}
	}
}

// TestPhysicalNetworkRestart restarts the agent while a packet is always under way, and then takes
// the port away: the interface is as it was.
func TestPhysicalNetworkRestart(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	l := n.lan(n.hosts[0], 100)
	w := n.workload(n.hosts[0], 1)
	l.homes(w)
	p := path(w, l.outside, l.outside.v4)
	done := make(chan error, 1)
	go func() {
		_, err := p.RoundTrips(20000)
		done <- err
	}()
	h := n.hosts[0]
	waitForFlow(t, h, 10000)
	ports, number := h.Ports(), l.port
	for running := true; running; {
		h.stop()
		h.open()
		if got := h.Ports(); !slices.Equal(got, ports) {
			t.Errorf("ports after a restart: %v, before: %v", got, ports)
		}
		if l.attach(); l.port != number {
			t.Errorf("port number after a restart: %#x, before: %#x", l.port, number)
		}
		if homes, err := h.Homes(l.port); err != nil || !slices.Equal(homes, []packet.MAC{w.mac}) {
			t.Errorf("homes after a restart: %v, %v", homes, err)
		}
		w.attach("tap1")
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running = false
		default:
		}
	}
	l.checkPromiscuous(true)
	l.detach()
	l.checkPromiscuous(false)
	if homes, err := h.Homes(number); err != nil || len(homes) > 0 {
		t.Errorf("homes of a port that has gone: %v, %v", homes, err)
	}
	l.checkHostReached()
}

func (l *lan) checkPromiscuous(want bool) {
	l.t.Helper()
	out, err := l.host.ns.Output(l.t.Context(), "ip", "link", "show", "eth1")
	if err != nil {
		l.t.Fatal(err)
	}
	if got := strings.Contains(out, "PROMISC"); got != want {
		l.t.Errorf("interface is promiscuous: %t, want %t: %s", got, want, out)
	}
}

// TestPhysicalCleanup checks that a cleanup restores an interface, and that one which was
// promiscuous before stays so.
func TestPhysicalCleanup(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"off", "on"} {
		n := newNetwork(t, 1)
		l := n.lan(n.hosts[0], 0)
		h := n.hosts[0]
		l.detach()
		h.ns.MustIP(t, "link set eth1 promisc "+before)
		l.attach()
		l.checkPromiscuous(true)
		h.stop()
		if err := datapath.Cleanup(h.opts); err != nil {
			t.Fatal(err)
		}
		l.checkPromiscuous(before == "on")
		l.checkHostReached()
	}
}

// wireOf opens a raw socket on the neighbour's interface, which tags nothing.
func (l *lan) wireOf() *netlab.Wire {
	l.t.Helper()
	w, err := l.neighbour.Wire("eth0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { w.Close() })
	return w
}

func send(t *testing.T, w *netlab.Wire, frame []byte) {
	t.Helper()
	if err := w.Send(frame); err != nil {
		t.Fatal(err)
	}
}

// datagram is a frame of a UDP datagram of size bytes, all of them mark, with tags in front.
func datagram(dst, src packet.MAC, mark byte, size int, tags ...uint16) []byte {
	b := append(append([]byte(nil), dst[:]...), src[:]...)
	for _, id := range tags {
		b = append(b, 0x81, 0, byte(id>>8), byte(id))
	}
	b = append(b, 8, 0)
	b = packet.IPv4{Src: netip.MustParseAddr("192.0.2.200"), Dst: netip.MustParseAddr("192.0.2.1"), TTL: 64, Proto: packet.ProtoUDP}.Append(b, 8+size)
	b = append(b, 0x30, 0x39, 0xd4, 0x31, byte((8+size)>>8), byte(8+size), 0, 0)
	return append(b, bytes.Repeat([]byte{mark}, size)...)
}

// TestPhysicalFrames checks what becomes of each kind of frame on the wire: which port the agent
// sees it come in by, with which tag, and what is the host's alone.
func TestPhysicalFrames(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	l := n.lan(n.hosts[0], 100)
	w := n.workload(n.hosts[0], 1)
	l.homes(w)
	h, wire := n.hosts[0], l.wireOf()
	type seen struct {
		port   datapath.Port
		reason string
		vlan   uint16
	}
	stranger := packet.MAC{2, 0, 0, 0, 9, 9}
	cases := []struct {
		what string
		dst  packet.MAC
		size int
		tags []uint16
		want seen // the zero one: nothing
	}{
		{"to a home", w.mac, 10, []uint16{100}, seen{l.port, "miss", 0}},
		{"to a home, large", w.mac, 1400, []uint16{100}, seen{l.port, "miss", 0}},
		{"to a home, with a tag of its own", w.mac, 10, []uint16{100, 7}, seen{l.port, "miss", 7}},
		{"to many", packet.Broadcast, 10, []uint16{100}, seen{l.port, "no key", 0}},
		{"to many, with a tag of its own", packet.Broadcast, 10, []uint16{100, 7}, seen{l.port, "no key", 7}},
		{"to a stranger", stranger, 10, []uint16{100}, seen{}},
		{"to a home, untagged", w.mac, 10, nil, seen{}},
		{"to a home, of another VLAN", w.mac, 10, []uint16{101}, seen{}},
		{"to many, of another VLAN", packet.Broadcast, 10, []uint16{101}, seen{}},
		{"the last", w.mac, 10, []uint16{100}, seen{l.port, "miss", 0}},
	}
	got, done := make([]seen, len(cases)), make(chan struct{})
	h.mu.Lock()
	for _, reason := range []datapath.Reason{datapath.Miss, datapath.NoKey} {
		h.answers[reason.String()] = func(u *datapath.Upcall) {
			mark := int(u.Frame[len(u.Frame)-1]) - 0xa0
			if mark < 0 || mark >= len(cases) || u.Frame[len(u.Frame)-2] != byte(mark+0xa0) {
				return // the kernel's own
			}
			got[mark] = seen{u.Port, u.Reason.String(), 0}
			if binary.BigEndian.Uint16(u.Frame[12:]) == 0x8100 {
				got[mark].vlan = binary.BigEndian.Uint16(u.Frame[14:]) & 0xfff
			}
			if mark == len(cases)-1 { // frames that one core has sent arrive in that order
				close(done)
			}
		}
	}
	h.mu.Unlock()
	for i, c := range cases {
		send(t, wire, datagram(c.dst, l.outside.mac, byte(0xa0+i), c.size, c.tags...))
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the last frame has not arrived")
	}
	for i, c := range cases {
		if got[i] != c.want {
			t.Errorf("frame %s came as %+v, want %+v", c.what, got[i], c.want)
		}
	}
}

// TestBroadcastStorm floods a LAN with frames to many: the agent gets a bounded number of them, and
// neighbours are still found.
func TestBroadcastStorm(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	l := n.lan(n.hosts[0], 0)
	w := n.workload(n.hosts[0], 1)
	l.homes(w)
	h, wire := n.hosts[0], l.wireOf()
	const frames = 20000
	storm := datagram(packet.Broadcast, packet.MAC{2, 0, 0, 0, 8, 8}, 1, 100)
	start := time.Now()
	for range frames {
		send(t, wire, storm)
	}
	took := time.Since(start)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, "the storm to have arrived", func() (bool, error) { return counters(t, h).PhysicalIn >= frames, nil }); err != nil {
		t.Fatal(err)
	}
	dropped := counters(t, h).Drops["copy of a frame to many: too many from a physical network"]
	if most := uint64(1000*(time.Since(start).Seconds()+0.25)) + 10; frames-dropped > most {
		t.Errorf("%d frames of the storm were let in in %s, want at most %d", frames-dropped, took, most)
	}
	for range 200 {
		send(t, wire, storm)
	}
	if _, err := w.Output(t.Context(), "ping", "-c", "1", "-W", "5", l.outside.v4.String()); err != nil {
		t.Errorf("during a storm: %v", err)
	}
}

// TestPhysicalConflicts refuses what cannot be.
func TestPhysicalConflicts(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	l := n.lan(n.hosts[0], 100)
	for name, opts := range map[string]datapath.PortOptions{
		"the same VLAN":          {Localnet: true, VLAN: 100},
		"a workload's port":      {},
		"no VLAN id":             {Localnet: true, VLAN: 4095},
		"a tag of no localnet":   {VLAN: 5},
		"another port's key":     {Localnet: true, TunnelKey: lanKey},
		"a key that is reserved": {Localnet: true, TunnelKey: datapath.StateKey},
	} {
		if _, err := l.host.AttachPort("other", "eth1", opts); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := l.host.AttachPort("other", "eth1", datapath.PortOptions{Localnet: true}); err != nil {
		t.Errorf("frames without a tag beside a VLAN: %v", err)
	}
}
