package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pingTries = 3
	pingWait  = time.Second
	ipHeader  = 20
	echoHead  = 8 // bytes of an ICMP echo's header

	echoRequest, echoReply = 8, 0
)

// pingWhole pings an address with packets of a size, in bytes with the IP header, that must not be
// fragmented.
func pingWhole(ctx context.Context, to netip.Addr, size int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(pingWait.Nanoseconds())
	if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	id := uint16(os.Getpid())
	for try := range uint16(pingTries) {
		err := unix.Sendto(fd, echo(id, try, size-ipHeader), 0, &unix.SockaddrInet4{Addr: to.As4()})
		if errors.Is(err, unix.EMSGSIZE) {
			return fmt.Errorf("larger than the MTU of this host's interface")
		} else if err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		if answered(fd, to, id) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("none of %d was answered: lost, too large for the way, or ICMP is blocked", pingTries)
}

// echo returns an ICMP echo request of a size.
func echo(id, sequence uint16, size int) []byte {
	b := make([]byte, size)
	b[0] = echoRequest
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], sequence)
	var sum uint32
	for i := 0; i+1 < echoHead; i += 2 { // the rest is zero
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

// answered reports whether a reply to an echo comes in time.
func answered(fd int, from netip.Addr, id uint16) bool {
	b := make([]byte, 1<<16)
	for end := time.Now().Add(pingWait); time.Now().Before(end); {
		n, sender, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return false
		}
		at, ok := sender.(*unix.SockaddrInet4)
		head := int(b[0]&0xf) * 4
		if ok && netip.AddrFrom4(at.Addr) == from && n >= head+echoHead && b[head] == echoReply && binary.BigEndian.Uint16(b[head+4:]) == id {
			return true
		}
	}
	return false
}
