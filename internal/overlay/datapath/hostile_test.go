package datapath_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

// raw is a packet socket on one interface.
type raw struct{ fd int }

func openRaw(t *testing.T, ns *netlab.Namespace, ifname string) *raw {
	t.Helper()
	r := &raw{}
	err := ns.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(10 * time.Second))
		return errors.Join(unix.Bind(r.fd, &unix.SockaddrLinklayer{Ifindex: i.Index, Protocol: uint16(all)}),
			unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(r.fd) })
	return r
}

func (r *raw) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := unix.Write(r.fd, frame); err != nil {
		t.Fatalf("send %d bytes: %v", len(frame), err)
	}
}

// next reads frames, tags put back in place, until one satisfies want.
func (r *raw) next(t *testing.T, want func([]byte) bool) []byte {
	t.Helper()
	b, oob := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, oobn, _, _, err := unix.Recvmsg(r.fd, b, oob, 0)
		if err != nil {
			t.Fatalf("no such frame came: %v", err)
		}
		frame := bytes.Clone(b[:n])
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			// struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid.
			if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA &&
				binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
				tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
				tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
				frame = append(append(bytes.Clone(frame[:12]), tag...), frame[12:]...)
			}
		}
		if want(frame) {
			return frame
		}
	}
}

// TestTags carries tagged frames, the first up through the agent and the next through the cache.
func TestTags(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, near, far := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	from := openRaw(t, a.Namespace, "eth0")
	for _, to := range []*workload{near, far} {
		in := openRaw(t, to.Namespace, "eth0")
		for i := range 3 {
			b := packet.Ethernet{Dst: to.mac, Src: a.mac, Tagged: true, VLAN: 42, Type: packet.TypeIPv4}.Append(nil)
			b[14] |= 5 << 5 // priority
			b = packet.IPv4{Src: a.v4, Dst: to.v4, Proto: packet.ProtoUDP, TTL: 9}.Append(b, 8+20)
			b = packet.UDP{SrcPort: 9, DstPort: 10}.Append(b, a.v4, to.v4, bytes.Repeat([]byte{byte(i)}, 20))
			from.send(t, b)
			in.next(t, func(got []byte) bool { return bytes.Equal(got, b) })
		}
	}
	if got := n.hosts[0].upcalls(datapath.Miss); got < 2 {
		t.Errorf("%d misses, want one for each way", got)
	}
	var tagged int
	err := n.hosts[0].Dump(func(f datapath.FlowState) bool {
		if f.VLAN == 0x1000|42 && f.Packets == 2 {
			tagged++
		}
		return true
	})
	if err != nil || tagged != 2 {
		t.Errorf("%d flows of VLAN 42 with two packets, %v; want 2", tagged, err)
	}
}

// TestHostileFrames sends what no stack sends; the datapath and what it serves go on.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b, c := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	n.hosts[0].mu.Lock()
	n.hosts[0].answers["malformed"] = func(*datapath.Upcall) {}
	n.hosts[0].mu.Unlock()
	out := openRaw(t, a.Namespace, "eth0")
	random := rand.New(rand.NewPCG(1, 2))
	good := packet.Ethernet{Dst: b.mac, Src: a.mac, Type: packet.TypeIPv4}.Append(nil)
	good = packet.IPv4{Src: a.v4, Dst: b.v4, Proto: packet.ProtoUDP, TTL: 9}.Append(good, 8+100)
	good = packet.UDP{SrcPort: 9, DstPort: 10}.Append(good, a.v4, b.v4, make([]byte, 100))
	for cut := 14; cut < len(good); cut++ {
		out.send(t, good[:cut])
	}
	for range 2000 {
		bad := bytes.Clone(good[:14+random.IntN(len(good)-14)])
		copy(bad[:6], c.mac[:])
		bad[12], bad[13] = [][2]byte{{8, 0}, {0x86, 0xdd}, {8, 6}, {0x81, 0}, {0x88, 0xa8}}[random.IntN(5)][0], byte(random.Uint32())
		for i := 14; i < len(bad); i++ {
			if random.IntN(3) == 0 {
				bad[i] = byte(random.Uint32())
			}
		}
		out.send(t, bad)
	}
	sendVNET(t, a.Namespace, good, random)
	for _, to := range []*workload{b, c} {
		if _, err := path(a, to, to.v4).RoundTrips(50); err != nil {
			t.Errorf("after hostile frames: %v", err)
		}
	}
	if n.hosts[0].upcalls(datapath.Malformed) < 50 {
		t.Errorf("%d malformed frames went up", n.hosts[0].upcalls(datapath.Malformed))
	}
}

// sendVNET sends frames with offload headers that lie, as a virtual machine could.
func sendVNET(t *testing.T, ns *netlab.Namespace, good []byte, random *rand.Rand) {
	t.Helper()
	r := openRaw(t, ns, "eth0")
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for range 2000 {
		b := make([]byte, 10, 10+len(good))
		for i := range b {
			b[i] = byte(random.Uint32() & random.Uint32()) // few bits, so that some are believable
		}
		b = append(b, good...)
		if _, err := unix.Write(r.fd, b); err == nil { // the kernel refuses the worst
			sent++
		}
	}
	if sent == 0 {
		t.Error("the kernel refused every frame with an offload header")
	}
}

// TestScanDoesNotStarve has one workload send to a new port with every datagram while another makes
// connections.
func TestScanDoesNotStarve(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	h := n.hosts[0]
	// Who is scanned refuses each datagram and so has its own port full: neither end of the
	// connections is that one.
	a, b, c, d := n.workload(h, 1), n.workload(h, 2), n.workload(h, 3), n.workload(h, 4)
	p := path(b, c, c.v4)
	if _, err := p.RoundTrips(10); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- scan(t, a, d, stop) }()
	latency, rate, err := p.Connects(300)
	close(stop)
	scanned := <-done
	if err != nil || latency.P99 > 900*time.Millisecond {
		t.Errorf("connects beside a scan: %+v, %.0f/s, %v", latency, rate, err)
	}
	t.Logf("%d datagrams scanned; connects beside it: %+v; %+v", scanned, latency, counters(t, h))
}

// scan sends datagrams, each to another port, until stop is closed.
func scan(t *testing.T, from, to *workload, stop <-chan struct{}) (sent int) {
	r := openRaw(t, from.Namespace, "eth0")
	b := packet.Ethernet{Dst: to.mac, Src: from.mac, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{Src: from.v4, Dst: to.v4, Proto: packet.ProtoTCP, TTL: 9}.Append(b, 20)
	for {
		select {
		case <-stop:
			return sent
		default:
		}
		frame := packet.TCP{SrcPort: uint16(sent >> 16), DstPort: uint16(sent), Flags: packet.TCPSyn}.Append(bytes.Clone(b), from.v4, to.v4, nil)
		if _, err := unix.Write(r.fd, frame); err == nil {
			sent++
		}
	}
}

// TestTooBigIsAnswered sends a datagram that fits the workload's link and not the tunnel: the agent
// answers, and the sender's kernel learns.
func TestTooBigIsAnswered(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, b := n.workload(n.hosts[0], 1), n.workload(n.hosts[1], 2)
	a.MustIP(t, "link set eth0 mtu 1500")
	h := n.hosts[0]
	answered := make(chan error, 16)
	h.mu.Lock()
	h.answers[datapath.TooBigTunnel.String()] = func(u *datapath.Upcall) {
		reply, err := packet.TooBig(u.Frame, 1450, b.v4, b.mac)
		if err == nil {
			err = h.Send(datapath.Output{Port: u.Port}, reply, datapath.Offload{})
		}
		answered <- err
	}
	h.mu.Unlock()
	err := a.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO),
			unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: b.v4.As4()})); err != nil {
			return err
		}
		if _, err := unix.Write(fd, []byte("small, to have a flow")); err != nil {
			return err
		}
		waitForFlow(t, h, 0)
		for range 20 {
			_, err := unix.Write(fd, make([]byte, 1472))
			if err == unix.EMSGSIZE {
				mtu, err := unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU)
				if err != nil || mtu != 1450 {
					return fmt.Errorf("the kernel learned an MTU of %d, %v; want 1450", mtu, err)
				}
				return nil
			}
			if err != nil && err != unix.ECONNREFUSED {
				return err
			}
			if err == nil {
				select {
				case err := <-answered:
					if err != nil {
						return err
					}
				case <-time.After(5 * time.Second):
					return errors.New("the agent was not asked")
				}
			}
		}
		return errors.New("the kernel goes on sending packets that are too big")
	})
	if err != nil {
		t.Error(err)
	}
}
