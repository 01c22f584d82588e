package netlab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wire is a raw socket on an interface: it sends frames as they are and receives all that arrive,
// before the rest of the kernel does. It is for one goroutine.
type Wire struct {
	socket
	name string
	buf  []byte
}

// Wire opens a raw socket on an interface of the namespace that is up, and whose other end is.
func (n *Namespace) Wire(name string) (*Wire, error) {
	w := &Wire{name: n.Name + " " + name, buf: make([]byte, 1<<16)}
	err := n.Do(func() (err error) {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if err := activate(name); err != nil {
			return err
		}
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		// A late reader needs room: a frame takes twice its length, and more.
		if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20); err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network byte order
		err = errors.Join(w.timeout(ioTimeout), unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
		if err != nil {
			w.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("raw socket on %s: %w", w.name, err)
	}
	return w, nil
}

// activate has the kernel send frames on an interface at once. It would take up to a second after
// the other end of a pair came up, and lose earlier frames; a changed queue length makes it check
// again.
func activate(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetTxQLen(link, link.Attrs().TxQLen+1)
}

// Send sends a frame.
func (w *Wire) Send(frame []byte) error {
	if _, err := w.write(frame); err != nil {
		return fmt.Errorf("send on %s: %w", w.name, err)
	}
	return nil
}

// Until reads frames until one holds the mark, and reports whether one before it held wanted.
// Frames that one core has sent one after the other arrive in that order.
func (w *Wire) Until(mark, wanted []byte) (found bool, err error) {
	for {
		n, err := w.read(w.buf)
		if err != nil {
			return found, fmt.Errorf("wait for a frame on %s: %w", w.name, err)
		}
		if bytes.Contains(w.buf[:n], mark) {
			return found, nil
		}
		found = found || bytes.Contains(w.buf[:n], wanted)
	}
}

// Take returns a frame that has arrived, with its VLAN tag, and false if there is none. It is valid
// until the next call.
func (w *Wire) Take() (frame []byte, ok bool, err error) {
	var oob [128]byte
	var n, m int
	err = uninterrupted(func() error {
		n, m, _, _, err = unix.Recvmsg(w.fd, w.buf, oob[:], unix.MSG_DONTWAIT)
		return err
	})
	switch {
	case err == unix.EAGAIN:
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("receive on %s: %w", w.name, err)
	}
	tag, err := tagOf(oob[:m])
	return slices.Insert(w.buf[:n:n], min(n, 12), tag...), true, err
}

// tagOf returns the VLAN tag that the kernel has taken off a frame, as packet(7) says in the
// frame's tpacket_auxdata.
func tagOf(oob []byte) ([]byte, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message of a frame: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			return nil, nil
		}
		tag := binary.BigEndian.AppendUint16(nil, unix.ETH_P_8021Q)
		return binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:])), nil
	}
	return nil, nil
}

// Host is a raw socket of the namespace itself, for one IP protocol: it sends packets like a local
// program, and receives those that are delivered locally.
type Host struct {
	socket
	six bool
	buf []byte
}

// Host opens a raw socket for a protocol, of IPv6 if six is set.
func (n *Namespace) Host(protocol uint8, six bool) (*Host, error) {
	h := &Host{six: six, buf: make([]byte, 1<<16)}
	domain, level, header := unix.AF_INET, unix.IPPROTO_IP, unix.IP_HDRINCL
	if six {
		domain, level, header = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_HDRINCL
	}
	err := n.Do(func() (err error) {
		if h.fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
			return err
		}
		if err = errors.Join(h.timeout(ioTimeout), unix.SetsockoptInt(h.fd, level, header, 1)); err != nil {
			h.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("raw socket for protocol %d in %s: %w", protocol, n.Name, err)
	}
	return h, nil
}

// Send sends a packet, which begins with its IP header, along the routes of the namespace. A
// missing route or a rule that refuses it is no error: the packet does not arrive.
func (h *Host) Send(packet []byte, to netip.Addr) error {
	err := uninterrupted(func() error { return unix.Sendto(h.fd, packet, 0, sockaddr(netip.AddrPortFrom(to, 0))) })
	switch {
	case err == nil, errors.Is(err, unix.EPERM), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return nil
	}
	return fmt.Errorf("send to %s: %w", to, err)
}

// Has reads the packets delivered so far and reports whether one held wanted.
func (h *Host) Has(wanted []byte) (found bool, err error) {
	for {
		var n int
		err := uninterrupted(func() error { n, _, err = unix.Recvfrom(h.fd, h.buf, unix.MSG_DONTWAIT); return err })
		if err == unix.EAGAIN {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("look for a packet: %w", err)
		}
		found = found || bytes.Contains(h.buf[:n], wanted)
	}
}

// Join has an interface of the namespace receive packets to an IPv6 multicast group, until the
// socket is closed.
func (h *Host) Join(n *Namespace, name string, group netip.Addr) error {
	return n.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		err = unix.SetsockoptIPv6Mreq(h.fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(link.Index)})
		if err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("join %s on %s: %w", group, name, err)
		}
		return nil
	})
}

// OnOneCore runs f on a locked thread, inside the namespace and on one core, so that packets that f
// sends on several sockets are received in the same order.
func (n *Namespace) OnOneCore(f func() error) error { return n.pinned(coreA, f) }
