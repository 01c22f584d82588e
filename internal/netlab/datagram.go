package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch is the number of datagrams in one system call.
const batch = 64

// mmsghdr is struct mmsghdr: a message and how many bytes of it went.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// datagrams are the buffers of one batch.
type datagrams struct {
	messages [batch]mmsghdr
	vectors  [batch]unix.Iovec
	bytes    []byte
}

func newDatagrams(size int) *datagrams {
	d := &datagrams{bytes: make([]byte, batch*size)}
	for i := range d.messages {
		d.vectors[i] = unix.Iovec{Base: &d.bytes[i*size], Len: uint64(size)}
		d.messages[i].header.Iov, d.messages[i].header.Iovlen = &d.vectors[i], 1
	}
	return d
}

// call sends or receives the batch by sendmmsg or recvmmsg, and returns the number of datagrams.
func (d *datagrams) call(trap uintptr, s socket, flags uintptr) (int, error) {
	n, _, errno := unix.Syscall6(trap, uintptr(s.fd), uintptr(unsafe.Pointer(&d.messages[0])), batch, flags, 0, 0)
	runtime.KeepAlive(d)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// send sends the batch. What the kernel has no room for counts as not sent.
func (d *datagrams) send(s socket) (int, error) {
	n, err := d.call(unix.SYS_SENDMMSG, s, 0)
	if err != nil && err != unix.EINTR && err != unix.ENOBUFS && err != unix.EAGAIN {
		return n, fmt.Errorf("send: %w", err)
	}
	return n, nil
}

// Rate is the result of a blast of datagrams. The sender's core does all forwarding, up to the
// receiver's socket; datagrams that found it full were forwarded too.
type Rate struct {
	Sent, Arrived, Received int
	PerSecond               float64 // that arrived
}

// Blast sends UDP datagrams of so many bytes as fast as one core can, while another core receives.
func (p Path) Blast(size int, d time.Duration) (rate Rate, err error) {
	var done atomic.Bool
	var took time.Duration
	receive := func(l socket) error {
		if err := l.timeout(50 * time.Millisecond); err != nil {
			return err
		}
		in := newDatagrams(size)
		for {
			n, err := in.call(unix.SYS_RECVMMSG, l, unix.MSG_WAITFORONE)
			switch {
			case err == nil:
				rate.Received += n
			case err == unix.EAGAIN && done.Load():
				return nil
			case err != unix.EAGAIN && err != unix.EINTR:
				return fmt.Errorf("receive: %w", err)
			}
		}
	}
	send := func(at netip.AddrPort) error {
		defer done.Store(true)
		c, err := newSocket(unix.SOCK_DGRAM, netip.AddrPortFrom(unspecified(p.Address), 0))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := unix.Connect(c.fd, sockaddr(at)); err != nil {
			return fmt.Errorf("connect to %s: %w", at, err)
		}
		out := newDatagrams(size)
		begin := time.Now()
		for time.Since(begin) < d {
			n, err := out.send(c)
			if err != nil {
				return err
			}
			rate.Sent += n
		}
		took = time.Since(begin)
		return nil
	}
	err = p.measure("blast", unix.SOCK_DGRAM, func(l socket, at netip.AddrPort) error {
		before, err := p.datagramsArrived()
		if err != nil {
			return err
		}
		if err := p.both(coreB, func() error { return receive(l) }, coreA, func() error { return send(at) }); err != nil {
			return err
		}
		after, err := p.datagramsArrived()
		rate.Arrived = after - before
		return err
	})
	rate.PerSecond = float64(rate.Arrived) / took.Seconds()
	return rate, err
}

// datagramsArrived counts those that have reached sockets of the server, full or not.
func (p Path) datagramsArrived() (int, error) {
	counters, err := p.Server.Counters(context.Background())
	if err != nil {
		return 0, err
	}
	if p.Address.Is4() {
		return counters["UdpInDatagrams"] + counters["UdpRcvbufErrors"], nil
	}
	return counters["Udp6InDatagrams"] + counters["Udp6RcvbufErrors"], nil
}
