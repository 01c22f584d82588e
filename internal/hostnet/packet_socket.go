package hostnet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PacketSocket returns a socket that receives the frames that come in by a link, and sends frames
// by it. It takes CAP_NET_RAW.
func (l *Linux) PacketSocket(link Link) (socket *os.File, err error) {
	err = l.namespace.Do(func() (err error) {
		socket, err = packetSocket(link)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket on interface %s: %w", link.Name, err)
	}
	return socket, nil
}

func packetSocket(link Link) (*os.File, error) {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), link.Name), nil
}
