package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A scan goes through these ports, again from another socket when it is through.
const firstScanned, lastScanned = 1024, 65535

// Scan sends UDP datagrams to one port of the server after the other, as fast as one core can,
// until ctx is done or so many are sent (0 = no limit): each begins a flow. It returns how many it
// sent; none is answered.
func (p Path) Scan(ctx context.Context, limit int) (sent int, err error) {
	err = p.Client.pinned(coreB, func() error {
		for ctx.Err() == nil && (limit == 0 || sent < limit) {
			n, err := p.scanOnce(ctx, limit-sent)
			sent += n
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return sent, fmt.Errorf("%s: scan: %w", p.Name, err)
	}
	return sent, nil
}

// scanOnce sends to all ports from one socket, or to limit of them where that is above 0.
func (p Path) scanOnce(ctx context.Context, limit int) (sent int, err error) {
	s, err := newSocket(unix.SOCK_DGRAM, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		return 0, err
	}
	defer s.Close()
	out := newDatagrams(18)
	var names [batch]unix.RawSockaddrInet4
	for i := range names {
		names[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: p.Address.As4()}
		out.messages[i].header.Name, out.messages[i].header.Namelen = (*byte)(unsafe.Pointer(&names[i])), unix.SizeofSockaddrInet4
	}
	for port := firstScanned; port+batch <= lastScanned+1 && ctx.Err() == nil && (limit <= 0 || sent < limit); {
		for i := range names {
			*(*[2]byte)(unsafe.Pointer(&names[i].Port)) = [2]byte{byte((port + i) >> 8), byte(port + i)}
		}
		n, err := out.send(s)
		if err != nil {
			return sent, err
		}
		port += n
		sent += n
	}
	return sent, nil
}
