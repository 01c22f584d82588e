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
	return func() {
		until := time.Now().Add(closeWait)
		for _, c := range held {
			for !onlyHeld(c) && time.Now().Before(until) {
				time.Sleep(closeTick)
			}
			endConnection(c.fd, until)
		}
	}
}

// endConnection sends the end of a connection after all that was written, and discards what still
// comes until the neighbour ends it, too.
func endConnection(fd int, until time.Time) {
	defer unix.Close(fd)
	if unix.Shutdown(fd, unix.SHUT_WR) != nil {
		return
	}
	discarded := make([]byte, 1<<12)
	for time.Now().Before(until) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(time.Until(until).Milliseconds())+1); err != nil || n == 0 {
			continue
		}
		if n, err := unix.Read(fd, discarded); n <= 0 || err != nil {
			return
		}
	}
}

// connections returns this process's connections with neighbours from or to a port.
func connections(port uint16, neighbours []netip.Addr) (list []connection) {
	for _, fd := range descriptors() {
		peer, err := unix.Getpeername(fd)
		to, isIP := peer.(*unix.SockaddrInet4)
		if err != nil || !isIP || !slices.Contains(neighbours, netip.AddrFrom4(to.Addr)) {
			continue
		}
		local, err := unix.Getsockname(fd)
		from, isIP := local.(*unix.SockaddrInet4)
		if err != nil || !isIP || from.Port != int(port) && to.Port != int(port) {
			continue
		}
		if node, ok := inode(fd); ok {
			list = append(list, connection{fd, node})
		}
	}
	return list
}

// onlyHeld reports whether a connection has no other descriptor in this process.
func onlyHeld(c connection) bool {
	for _, fd := range descriptors() {
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
func descriptors() (all []int) {
	open, _ := os.ReadDir("/proc/self/fd")
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil {
			all = append(all, fd)
		}
	}
	return all
}
