package overlay

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// vm is a program that opens a tap as a virtual machine monitor does and speaks raw frames.
type vm struct {
	t    *testing.T
	tap  *os.File
	mac  packet.MAC
	ip   netip.Addr
	head int // bytes in front of each frame: the virtio header, if the monitor asked for it
	// replies are the frames for the machine that it does not answer itself.
	replies chan []byte
	done    chan struct{} // closed once it has ended
}

// openVM opens the tap of a port and answers pings.
func openVM(t *testing.T, m *machine, header bool) *vm {
	t.Helper()
	v := &vm{t: t, mac: m.port.MACAddress, ip: m.v4, replies: make(chan []byte, 64)}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if header {
		flags |= unix.IFF_VNET_HDR
		v.head = 10
	}
	err := m.host.ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(m.port.InterfaceName)
		if err != nil {
			return err
		}
		request.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			unix.Close(fd)
			return err
		}
		v.tap = os.NewFile(uintptr(fd), m.port.InterfaceName)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	v.done = make(chan struct{})
	go func() { defer close(v.done); v.run() }()
	t.Cleanup(v.close)
	return v
}

// close closes the tap, unless it is closed.
func (v *vm) close() {
	v.tap.Close()
	<-v.done
}

func (v *vm) run() {
	b := make([]byte, 1<<16)
	for {
		n, err := v.tap.Read(b)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				v.t.Errorf("read tap: %v", err)
			}
			return
		}
		frame := append([]byte(nil), b[v.head:n]...)
		var f packet.Frame
		if packet.Decode(frame, &f) != nil || f.Dst != v.mac {
			continue
		}
		if f.Echo && f.TpSrc == 8 && f.DstIP == v.ip {
			v.send(echo(v.mac, f.Src, v.ip, f.SrcIP, packet.ICMP{Type: 0, Rest: packet.EchoRest(f.EchoID, 1)}, frame[f.L4+8:f.End]))
			continue
		}
		select {
		case v.replies <- frame:
		default:
		}
	}
}

func echo(srcMAC, dstMAC packet.MAC, src, dst netip.Addr, m packet.ICMP, payload []byte) []byte {
	b := packet.Ethernet{Dst: dstMAC, Src: srcMAC, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoICMP, Src: src, Dst: dst}.Append(b, 8+len(payload))
	return m.Append(b, payload)
}

func (v *vm) send(frame []byte) {
	if _, err := v.tap.Write(append(make([]byte, v.head), frame...)); err != nil && !errors.Is(err, os.ErrClosed) {
		v.t.Errorf("write tap: %v", err)
	}
}

// ask sends a frame, again and again as machines do, until a frame comes that matches: a tap that
// was just opened loses what comes before the kernel has noticed.
func (v *vm) ask(what string, frame []byte, match func(*packet.Frame) bool) {
	v.t.Helper()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(5 * time.Second)
	v.send(frame)
	for {
		select {
		case frame := <-v.replies:
			var f packet.Frame
			if packet.Decode(frame, &f) == nil && match(&f) {
				return
			}
		case <-again.C:
			v.send(frame)
		case <-deadline:
			v.t.Fatalf("the machine got no %s", what)
		}
	}
}

// TestTapOfAVirtualMachine: a tap is served like a veth, whoever opens it and however, as long as
// it is open, and has the MTU of its network.
func TestTapOfAVirtualMachine(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]bool{"plain": false, "virtio header": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			n := l.network("blue")
			g := l.group(everything()...)
			l.start()
			near, far := n.machine(l.hosts[0], g), n.machine(l.hosts[1], g)
			m := n.port(l.hosts[0], g)
			l.hosts[0].ns.MustIP(t, "tuntap add dev "+m.port.InterfaceName+" mode tap"+map[bool]string{true: " vnet_hdr"}[header])
			m.bind()
			v := openVM(t, m, header)
			m.served()
			l.wait("the tap to have its network's MTU", func() bool {
				link, err := m.host.ns.Output(t.Context(), "ip", "-o", "link", "show", m.port.InterfaceName)
				return err == nil && strings.Contains(link, " mtu 1450 ")
			})
			for _, other := range []*machine{near, far} {
				request := packet.Ethernet{Dst: packet.Broadcast, Src: v.mac, Type: packet.TypeARP}.Append(nil)
				request = packet.ARP{Op: packet.ARPRequest, SHA: v.mac, SPA: v.ip, TPA: other.v4}.Append(request)
				v.ask("ARP answer", request, func(f *packet.Frame) bool {
					return f.ARPOp == packet.ARPReply && f.SHA == other.port.MACAddress && f.SrcIP == other.v4
				})
				for id := range uint16(2) { // the second finds the flow of the first
					v.ask("echo reply", echo(v.mac, other.port.MACAddress, v.ip, other.v4, packet.ICMP{Type: 8, Rest: packet.EchoRest(7, id)}, []byte("heddle")),
						func(f *packet.Frame) bool { return f.Echo && f.EchoID == 7 && f.SrcIP == other.v4 })
				}
				if err := other.ping(v.ip, 3); err != nil {
					t.Error(err)
				}
			}
			key := schema.PortStates.Key(m.host.id + "/" + m.port.ID)
			isDown := func() bool { _, err := l.st.Get(t.Context(), key); return errors.Is(err, store.ErrNotFound) }
			v.close()
			l.wait("the port of a closed tap to be down", isDown)
			openVM(t, m, header)
			m.served()
			if err := near.ping(v.ip, 1); err != nil {
				t.Error(err)
			}
		})
	}
}
