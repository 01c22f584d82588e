package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// waiter waits until one of some files has something to read, or until wake: a task.Notice cannot
// wait for files.
type waiter struct {
	epoll, event int
}

func newWaiter(files ...int) (*waiter, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &waiter{epoll: epoll, event: event}
	for _, fd := range append(files, event) {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			return nil, errors.Join(fmt.Errorf("epoll: %w", err), w.Close())
		}
	}
	return w, nil
}

// wait returns at once after a wake.
func (w *waiter) wait() error {
	var events [4]unix.EpollEvent
	if _, err := unix.EpollWait(w.epoll, events[:], -1); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for upcalls: %w", err)
	}
	return nil
}

func (w *waiter) wake() {
	_, _ = unix.Write(w.event, binary.NativeEndian.AppendUint64(nil, 1)) // EAGAIN: woken already
}

func (w *waiter) Close() error { return errors.Join(unix.Close(w.epoll), unix.Close(w.event)) }
