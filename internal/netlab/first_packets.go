package netlab

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FirstPackets are the latencies of new flows: of a datagram there and back from a new socket, and
// of another.
type FirstPackets struct {
	First, Second Latency
	Added         Latency // first less second, of each socket
	Lost          int     // sockets whose first datagram did not come back within echoTimeout
}

// echoTimeout bounds the time there and back, after which a datagram counts as lost.
const echoTimeout = time.Second

// FirstPackets sends two datagrams, one after the other has come back, from each of n new sockets,
// both ends on one core.
func (p Path) FirstPackets(n int) (result FirstPackets, err error) {
	var first, second, added []time.Duration
	var done atomic.Bool
	err = p.measure("first packets", unix.SOCK_DGRAM, func(l socket, at netip.AddrPort) error {
		err := p.both(coreA, func() error { return echoDatagrams(l, &done) }, coreA, func() error {
			defer done.Store(true)
			for range n {
				a, b, err := twoEchoes(at)
				if err == unix.EAGAIN {
					result.Lost++
					continue
				}
				if err != nil {
					return err
				}
				first, second, added = append(first, a), append(second, b), append(added, a-b)
			}
			return nil
		})
		if err == nil && len(first) == 0 {
			err = fmt.Errorf("none of %d datagrams came back", n)
		}
		return err
	})
	result.First, result.Second, result.Added = latencyOf(first), latencyOf(second), latencyOf(added)
	return result, err
}

// echoDatagrams sends datagrams back to where they came from until done.
func echoDatagrams(l socket, done *atomic.Bool) error {
	if err := l.timeout(50 * time.Millisecond); err != nil {
		return err
	}
	var b [64]byte
	for !done.Load() {
		n, from, err := unix.Recvfrom(l.fd, b[:], 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := unix.Sendto(l.fd, b[:n], 0, from); err != nil && err != unix.ENOBUFS {
			return fmt.Errorf("send back: %w", err)
		}
	}
	return nil
}

// twoEchoes returns the time of each; unix.EAGAIN when one did not come back.
func twoEchoes(at netip.AddrPort) (first, second time.Duration, err error) {
	s, err := newSocket(unix.SOCK_DGRAM, netip.AddrPortFrom(unspecified(at.Addr()), 0))
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	if err := s.timeout(echoTimeout); err != nil {
		return 0, 0, err
	}
	if err := unix.Connect(s.fd, sockaddr(at)); err != nil {
		return 0, 0, fmt.Errorf("connect to %s: %w", at, err)
	}
	if first, err = s.echo(); err != nil {
		return 0, 0, err
	}
	second, err = s.echo()
	return first, second, err
}

// echo sends a few bytes and waits until as many came back.
func (s socket) echo() (time.Duration, error) {
	var b [8]byte
	start := time.Now()
	if _, err := s.write(b[:]); err != nil {
		return 0, err
	}
	if _, err := s.read(b[:]); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
