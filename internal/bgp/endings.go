package bgp

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// closeWait bounds the wait for gobgp to close a connection, and for the neighbour to do so.
	closeWait = time.Second
	closeTick = 10 * time.Millisecond
)

// connection is a descriptor of this process for a connection that gobgp has.
type connection struct {
	fd   int
	node uint64 // the socket's inode
}

// holdConnections holds the connections with neighbours open when gobgp closes them, until the
// function that it returns has ended them. gobgp closes a connection at once after its
// notification. If it has not read all by then, the kernel resets the connection, and the neighbour
// may see that before the notification: it then keeps what it has learned, as from a router that
// restarts (RFC 4724 §4.2).
func holdConnections(port uint16, neighbours ...netip.Addr) (end func()) {
	var held []connection
	for _, c := range connections(port, neighbours) {
		if fd, err := unix.FcntlInt(uintptr(c.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			held = append(held, connection{fd, c.node})
		}
	}
	return func() { endConnections(held) }
}

// endSessions calls f, which has gobgp end the sessions with neighbours, and has them see gobgp's
// notification. It does not wait for that.
func endSessions(port uint16, f func() error, neighbours ...netip.Addr) error {
	end := holdConnections(port, neighbours...)
	defer func() { go end() }()
	return f()
}

// endConnections sends the end of each connection once gobgp has closed it, and discards what still
// comes until the neighbour ends it, too.
func endConnections(held []connection) {
	tick, over := time.NewTicker(closeTick), time.After(closeWait)
	defer tick.Stop()
	defer func() {
		for _, c := range held {
			unix.Close(c.fd)
		}
	}()
	for waiting := held; len(waiting) > 0; {
		waiting = slices.DeleteFunc(slices.Clone(waiting), endsNow)
		select {
		case <-tick.C: // the kernel tells of no descriptor that is closed
		case <-over:
			return
		}
	}
	until := time.Now().Add(closeWait)
	for _, c := range held {
		discard(c.fd, until)
	}
}

// endsNow ends a connection if gobgp has closed it.
func endsNow(c connection) bool {
	if !onlyHeld(c) {
		return false
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_WR) // the neighbour may have ended it
	return true
}

// discard reads from a connection until its end.
func discard(fd int, until time.Time) {
	discarded := make([]byte, 1<<12)
	for left := time.Until(until); left > 0; left = time.Until(until) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(left.Milliseconds())+1); err != nil || n == 0 {
			continue
		}
		if n, err := unix.Read(fd, discarded); n <= 0 || err != nil {
			return
		}
	}
}

// connections returns this process's connections with neighbours from or to the port of its own
// speaker, or the standard one.
func connections(port uint16, neighbours []netip.Addr) (list []connection) {
	isBGP := func(p uint16) bool { return p == port || p == standardPort }
	fds, _ := descriptors() // without them the connections end as gobgp ends them
	for _, fd := range fds {
		peer, err := unix.Getpeername(fd)
		to := address(peer)
		if err != nil || !slices.Contains(neighbours, to.Addr()) {
			continue
		}
		local, err := unix.Getsockname(fd)
		if err != nil || !isBGP(address(local).Port()) && !isBGP(to.Port()) {
			continue
		}
		if node, ok := inode(fd); ok {
			list = append(list, connection{fd, node})
		}
	}
	return list
}

// address returns a socket's address, the zero AddrPort for one that is not of IP.
func address(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// onlyHeld reports whether a connection has no other descriptor in this process.
func onlyHeld(c connection) bool {
	fds, _ := descriptors()
	for _, fd := range fds {
		if node, ok := inode(fd); ok && node == c.node && fd != c.fd {
			return false
		}
	}
	return true
}

func inode(fd int) (node uint64, ok bool) {
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0, false
	}
	return s.Ino, true
}

// descriptors lists this process's file descriptors.
func descriptors() (all []int, err error) {
	open, err := os.ReadDir("/proc/self/fd")
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil {
			all = append(all, fd)
		}
	}
	return all, err
}
