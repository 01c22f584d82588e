package datapath_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

// TestVirtualMachine exchanges all kinds of traffic with a guest behind a tap.
func TestVirtualMachine(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	near, far := n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	guest := n.guest()
	checkTraffic(t, guest, near)
	checkTraffic(t, guest, far)
	for _, w := range []*workload{near, far} {
		packets, size := received(t, guest)
		if _, err := path(w, guest, guest.v4).Stream(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		morePackets, moreBytes := received(t, guest)
		if mean := (moreBytes - size) / (morePackets - packets); mean < 3000 {
			t.Errorf("a stream from %s comes in frames of %d bytes: they were cut on the way", w.Name, mean)
		}
	}
}

// received reads how many frames and bytes have come in at a workload.
func received(t *testing.T, w *workload) (packets, size int) {
	t.Helper()
	out, err := w.Output(t.Context(), "ip", "-j", "-s", "link", "show", "dev", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Stats struct {
			RX struct{ Packets, Bytes int }
		} `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("ip printed %s: %v", out, err)
	}
	return links[0].Stats.RX.Packets, links[0].Stats.RX.Bytes
}

// guest makes a virtual machine on the first host: a program hands frames with their offload
// headers between the tap of its port and the guest's own, as a machine monitor does.
func (n *network) guest() *workload {
	t := n.t
	t.Helper()
	guest := &workload{host: n.hosts[0], name: "vm", key: 77, mac: packet.MAC{2, 0, 0, 0, 0, 9},
		v4: netip.MustParseAddr("192.0.2.9"), v6: netip.MustParseAddr("2001:db8::9"), Namespace: n.lab.MustNamespace(t, "guest")}
	outside, inside := openTap(t, n.hosts[0].ns, "tapvm"), openTap(t, guest.Namespace, "eth0")
	go relay(outside, inside)
	go relay(inside, outside)
	n.hosts[0].ns.MustIP(t, "link set tapvm up")
	guest.MustIP(t, fmt.Sprintf("link set eth0 address %s mtu 1450 up", guest.mac),
		fmt.Sprintf("addr add %s/24 dev eth0", guest.v4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", guest.v6))
	guest.attach("tapvm")
	for i, h := range n.hosts {
		h.mu.Lock()
		h.where[guest.mac] = datapath.Output{Port: guest.port}
		if i == 1 {
			h.where[guest.mac] = datapath.Output{Tunnel: h.tunnel(), TunnelKey: guest.key}
		}
		h.mu.Unlock()
	}
	return guest
}

// TestDatagramSegments sends UDP in offload frames, the first up through the agent and the next
// through the cache.
func TestDatagramSegments(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	a, near, far, guest := n.workload(n.hosts[1], 1), n.workload(n.hosts[1], 2), n.workload(n.hosts[0], 3), n.guest()
	for what, to := range map[string]*workload{"one host": near, "two hosts": far, "virtual machine": guest} {
		for _, addresses := range [][2]netip.Addr{{a.v4, to.v4}, {a.v6, to.v6}} {
			const size, segment = 20000, 1000
			in := listenUDP(t, to.Namespace, addresses[1])
			out := listenUDP(t, a.Namespace, addresses[0])
			raw, err := out.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment) }); err != nil {
				t.Fatal(err)
			}
			for round := range 3 {
				sent := bytes.Repeat([]byte{byte('a' + round)}, size)
				if _, err := out.WriteToUDPAddrPort(sent, in.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
					t.Fatal(err)
				}
				var got []byte
				for b := make([]byte, size); len(got) < size; {
					k, err := in.Read(b)
					if err != nil {
						t.Errorf("%s to %s, round %d: %d bytes of %d came: %v; %v", what, addresses[1], round, len(got), size, err, counters(t, n.hosts[1]).Drops)
						break
					}
					got = append(got, b[:k]...)
				}
				if len(got) == size && !bytes.Equal(got, sent) {
					t.Errorf("%s to %s, round %d: other bytes came", what, addresses[1], round)
				}
			}
		}
	}
}

// listenUDP opens a socket that reads for a few seconds at most.
func listenUDP(t *testing.T, ns *netlab.Namespace, at netip.Addr) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// openTap makes a tap with offload headers in the namespace.
func openTap(t testing.TB, ns *netlab.Namespace, name string) *os.File {
	t.Helper()
	var f *os.File
	err := ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_USO4|unix.TUN_F_USO6)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// relay hands frames on until one of the taps is closed.
func relay(from, to *os.File) {
	b := make([]byte, 1<<17)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		_, err = to.Write(b[:n])
		if errors.Is(err, os.ErrClosed) {
			return
		}
	}
}
