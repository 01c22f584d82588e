package datapath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/task"
)

// tap is the device by which long frames go up and all frames go down: unlike the ring buffer it
// keeps the offloads of their sender. It goes when the process does.
type tap struct {
	ifindex int

	mu sync.RWMutex // held while fd is in use, and to close it
	fd int
}

// read takes the next frame; unix.EAGAIN when there is none.
func (t *tap) read(b []byte) (int, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return unix.Read(t.fd, b)
}

func (t *tap) write(b []byte) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, err := unix.Write(t.fd, b)
	return err
}

// Close removes the tap. What is read or written after is an error.
func (t *tap) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fd := t.fd
	t.fd = -1
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

// openTap makes the tap, down, in the calling thread's namespace, with room for queue frames.
func openTap(name string, queue int) (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w (is the tun module there?)", err)
	}
	if err := untilFree(func() error { return setUpTap(fd, name, queue) }); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("device %s is in use: another agent runs in this network namespace", name)
		}
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return &tap{fd: fd, ifindex: i.Index}, nil
}

// busyTimeout bounds the wait for an ending agent, or for its child that still has its files.
const busyTimeout = time.Second

func untilFree(take func() error) error {
	for end := time.Now().Add(busyTimeout); ; task.Pause(context.Background(), 10*time.Millisecond) {
		if err := take(); !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

func setUpTap(fd int, name string, queue int) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return err
	}
	const uso = unix.TUN_F_USO4 | unix.TUN_F_USO6
	const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads|uso) != nil { // before Linux 6.2
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
			return fmt.Errorf("offloads: %w", err)
		}
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	ifr.SetUint32(uint32(queue))
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFTXQLEN, ifr); err != nil {
		return fmt.Errorf("queue length: %w", err)
	}
	return nil
}
