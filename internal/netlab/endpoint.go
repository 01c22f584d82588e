package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The measuring tools use blocking sockets on threads of their own, each pinned to a core, to
// compare paths and not schedulers. Round trips have both ends on one core, so that no core has to
// wake up; streams have one core each (dataplane-goals §5).
const (
	coreA = 0
	coreB = 1
)

// ioTimeout bounds one read or write, so that a path without connectivity fails instead of hanging.
const ioTimeout = 5 * time.Second

// pinned runs f on a thread of its own, inside the namespace and on one core, or on any where there
// is only one.
func (n *Namespace) pinned(core int, f func() error) error {
	return n.Do(func() error {
		if core >= runtime.NumCPU() {
			return f()
		}
		var all, one unix.CPUSet
		one.Set(core)
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedSetaffinity(0, &one)); err != nil {
			return fmt.Errorf("stay on core %d: %w", core, err)
		}
		return errors.Join(f(), unix.SchedSetaffinity(0, &all))
	})
}

// socket is a blocking socket. It is made on a thread in the namespace where it is to be.
type socket struct{ fd int }

func (s socket) Close() { unix.Close(s.fd) }

// timeout bounds how long a read waits; it then fails with unix.EAGAIN.
func (s socket) timeout(d time.Duration) error {
	t := unix.NsecToTimeval(int64(d))
	return unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
}

// newSocket makes a socket in the thread's namespace. kind is SOCK_STREAM or SOCK_DGRAM.
func newSocket(kind int, local netip.AddrPort) (s socket, err error) {
	if s.fd, err = unix.Socket(family(local.Addr()), kind|unix.SOCK_CLOEXEC, 0); err != nil {
		return s, fmt.Errorf("make socket: %w", err)
	}
	timeout := unix.NsecToTimeval(int64(ioTimeout))
	for _, set := range []func() error{
		func() error { return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error { return s.timeout(ioTimeout) },
		func() error { return unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout) },
		func() error { return unix.Bind(s.fd, sockaddr(local)) },
	} {
		if err := set(); err != nil {
			s.Close()
			return s, fmt.Errorf("socket at %s: %w", local, err)
		}
	}
	return s, nil
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// listen makes a socket at an address of the namespace; a TCP socket listens.
func (n *Namespace) listen(kind int, addr netip.AddrPort) (s socket, at netip.AddrPort, err error) {
	err = n.Do(func() error {
		if s, err = newSocket(kind, addr); err != nil {
			return err
		}
		if kind == unix.SOCK_STREAM {
			if err := unix.Listen(s.fd, 1024); err != nil {
				s.Close()
				return fmt.Errorf("listen at %s: %w", addr, err)
			}
		}
		at, err = s.local()
		return err
	})
	if err != nil {
		return s, at, fmt.Errorf("in %s: %w", n.Name, err)
	}
	return s, at, nil
}

// local returns the address that the socket is bound to.
func (s socket) local() (netip.AddrPort, error) {
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("name of socket: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("name of socket: %T", sa)
}

// dial connects to a TCP server from the thread's namespace.
func dial(to netip.AddrPort) (socket, error) {
	s, err := newSocket(unix.SOCK_STREAM, netip.AddrPortFrom(unspecified(to.Addr()), 0))
	if err != nil {
		return s, err
	}
	if err := s.connect(to); err != nil {
		s.Close()
		return s, err
	}
	return s, nil
}

func (s socket) connect(to netip.AddrPort) error {
	if err := uninterrupted(func() error { return unix.Connect(s.fd, sockaddr(to)) }); err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	return unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func (s socket) accept() (c socket, err error) {
	err = uninterrupted(func() error {
		c.fd, _, err = unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("accept: %w", err)
	}
	return c, unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

func (s socket) read(b []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Read(s.fd, b); return err })
	return n, err
}

func (s socket) write(b []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Write(s.fd, b); return err })
	return n, err
}

// uninterrupted repeats a system call that a signal of the Go runtime has interrupted.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
