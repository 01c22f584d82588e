package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bell wakes one sleeper when one of some files has something to read, or when it is rung.
type bell struct {
	epoll, event int
}

func newBell(files ...int) (*bell, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	b := &bell{epoll: epoll, event: event}
	for _, fd := range append(files, event) {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			return nil, errors.Join(fmt.Errorf("epoll: %w", err), b.Close())
		}
	}
	return b, nil
}

// wait sleeps until there is something. A bell that was rung stays rung.
func (b *bell) wait() error {
	var events [4]unix.EpollEvent
	if _, err := unix.EpollWait(b.epoll, events[:], -1); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for upcalls: %w", err)
	}
	return nil
}

func (b *bell) ring() {
	_, _ = unix.Write(b.event, binary.NativeEndian.AppendUint64(nil, 1)) // full means that it is rung already
}

func (b *bell) Close() error { return errors.Join(unix.Close(b.epoll), unix.Close(b.event)) }
