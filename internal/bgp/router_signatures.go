package bgp

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// clearSignature removes the MD5 key of a neighbour from this process's listening sockets of a
// port: gobgp leaves it there when it deletes the neighbour, and a later one without a password
// could not connect. It gives no access to its sockets.
func clearSignature(port uint16, neighbour netip.Addr) error {
	fds, err := descriptors()
	if err != nil {
		return err
	}
	key := unix.TCPMD5Sig{}
	key.Addr.Family = unix.AF_INET
	address := neighbour.As4()
	copy(key.Addr.Data[2:], address[:])
	var errs []error
	for _, fd := range fds {
		if !listens(fd, port) {
			continue
		}
		if err := unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the MD5 key of %s: %w", neighbour, err))
		}
	}
	return errors.Join(errs...)
}

// listens reports whether a file descriptor is a socket that listens on an IPv4 port.
func listens(fd int, port uint16) bool {
	accepts, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || accepts == 0 {
		return false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	at, ok := name.(*unix.SockaddrInet4)
	return ok && at.Port == int(port)
}
