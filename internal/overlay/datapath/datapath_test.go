package datapath

import (
	"crypto/rand"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"heddle/internal/hostnet"
	"heddle/internal/topology/packet"
)

// open opens a datapath of its own in a new network namespace and takes it away with the test.
func open(t testing.TB, change ...func(*Options)) *Datapath {
	t.Helper()
	opts := testOptions(t)
	for _, c := range change {
		c(&opts)
	}
	return openWith(t, opts)
}

func testOptions(t testing.TB) Options {
	t.Helper()
	needRoot(t)
	ns, err := hostnet.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return Options{Name: "test-" + rand.Text()[:10], Namespace: ns, MaxFlows: 4096}
}

func openWith(t testing.TB, opts Options) *Datapath {
	t.Helper()
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), Cleanup(opts)); err != nil {
			t.Errorf("take the datapath away: %v", err)
		}
	})
	return d
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
}

// Results of a program, as struct __sk_buff's users know them.
const (
	tcxNext     = -1
	tcxDrop     = 2
	tcxRedirect = 7
)

// lab is a datapath whose programs are run by hand: frames come in at the loopback interface, which
// is the port in.
type lab struct {
	*Datapath
	t       testing.TB
	in, out Port
	tunnel  Tunnel

	receiver *receiver
}

var (
	macA    = packet.MAC{2, 0, 0, 0, 0, 0xa}
	macB    = packet.MAC{2, 0, 0, 0, 0, 0xb}
	hostMAC = packet.MAC{2, 0, 0, 0, 1, 1}
	farMAC  = packet.MAC{2, 0, 0, 0, 1, 2}
	ipA     = netip.MustParseAddr("192.0.2.1")
	ipB     = netip.MustParseAddr("192.0.2.2")
	ip6A    = netip.MustParseAddr("2001:db8::1")
	ip6B    = netip.MustParseAddr("2001:db8::2")
	hostIP  = netip.MustParseAddr("198.51.100.1")
	farIP   = netip.MustParseAddr("198.51.100.2")
)

const testKey = 0x123456

// Secrets of the lab's host and the far one.
const (
	secretIn  = 0xdeadbe01
	secretOut = 0x0badcafe
)

// newLab attaches nothing: it writes the entries that attaching would.
func newLab(t testing.TB, opts PortOptions) *lab {
	t.Helper()
	return labOf(t, open(t), opts)
}

func labOf(t testing.TB, d *Datapath, opts PortOptions) *lab {
	t.Helper()
	l := &lab{Datapath: d, t: t, in: 0x10001, out: 0x10002}
	enter := func(name string, number Port, ifindex int, o PortOptions) {
		p := &portState{PortInfo: PortInfo{Name: name, Port: number, Index: ifindex, PortOptions: o}}
		if err := d.writePort(p, bpfPort{Number: uint32(number), Out: uint32(ifindex), Mtu: uint32(o.MTU)}); err != nil {
			t.Fatal(err)
		}
		d.ports[name], d.byNumber[number] = p, p
	}
	enter("in", l.in, 1, PortOptions{})
	opts.TunnelKey = testKey
	enter("out", l.out, 2, opts)
	var err error
	l.tunnel, err = d.SetTunnel(TunnelPath{Interface: 3, Local: hostIP, Remote: farIP, SrcMAC: hostMAC, DstMAC: farMAC, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.configure(func(c *bpfConfig) { c.Local[0] = word4(hostIP) }); err != nil {
		t.Fatal(err)
	}
	if err := d.SetPeer(farIP, Peer{Send: secretOut, Accept: []uint32{secretIn}, Ways: Plain}); err != nil {
		t.Fatal(err)
	}
	d.AllowSender(l.out, farIP, true)
	return l
}

// run gives a frame to a program and returns its verdict and the frame after.
func (l *lab) run(p *ebpf.Program, frame []byte) (verdict int, after []byte) {
	l.t.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	ret, err := p.Run(&opts)
	if err != nil {
		l.t.Fatalf("run %s: %v", p, err)
	}
	return int(int32(ret)), opts.DataOut
}

// workload runs a frame as if it came from the port in.
func (l *lab) workload(frame []byte) (int, []byte) {
	l.t.Helper()
	return l.run(l.programs.FromWorkload, frame)
}

func (l *lab) tunnelled(frame []byte) (int, []byte) {
	l.t.Helper()
	return l.run(l.programs.FromUnderlay, frame)
}

// upcall returns the next frame that went up by the ring, nil if none did.
func (l *lab) upcall() *Upcall {
	l.t.Helper()
	if l.receiver == nil {
		r, err := l.newReceiver(nil)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(r.Close)
		l.receiver = r
	}
	if err := l.receiver.intake(); err != nil {
		l.t.Fatal(err)
	}
	it := l.receiver.queue.pop()
	if it == nil {
		return nil
	}
	l.credits.giveBack(it.upcall.Port, it.cost)
	return &it.upcall
}

// counters reads the programs' counters.
func (l *lab) counters() Counters {
	l.t.Helper()
	c, err := l.Counters()
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) install(f Flow) {
	l.t.Helper()
	if err := l.Install([]Flow{f}); err != nil {
		l.t.Fatal(err)
	}
}

// keyOf is the frame's key at the port in.
func (l *lab) keyOf(frame []byte) Key {
	l.t.Helper()
	k, ok := KeyOf(l.in, frame)
	if !ok {
		l.t.Fatalf("frame %x has no key", frame)
	}
	return k
}

func udp4(payload []byte) []byte {
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{Src: ipA, Dst: ipB, Proto: protoUDP, TTL: 64}.Append(b, 8+len(payload))
	return packet.UDP{SrcPort: 1000, DstPort: 2000}.Append(b, ipA, ipB, payload)
}

func udp6(payload []byte) []byte {
	b := packet.Ethernet{Dst: macB, Src: macA, Type: packet.TypeIPv6}.Append(nil)
	b = packet.IPv6{Src: ip6A, Dst: ip6B, Next: protoUDP, HopLimit: 64}.Append(b, 8+len(payload))
	return packet.UDP{SrcPort: 1000, DstPort: 2000}.Append(b, ip6A, ip6B, payload)
}
