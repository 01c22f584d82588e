package hostnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// namePrefix begins the abstract names of sockets that [Alone] listens on.
const namePrefix = "@heddle-"

// Alone holds a name in this process's network namespace until it is closed or the process ends: of
// most agents a host can have but one. It fails while another process holds the name.
func Alone(name string) (io.Closer, error) {
	l, err := net.Listen("unix", namePrefix+name) // abstract names belong to a network namespace
	if err != nil {
		return nil, fmt.Errorf("%s runs here already: %w", name, err)
	}
	go answer(l)
	return l, nil
}

// answer takes the connections of those who ask whether the name is held.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file is free
			<-time.After(100 * time.Millisecond)
			continue
		}
		_ = c.Close() // that it was there is the answer
	}
}

// Held reports whether a process holds a name in this process's network namespace.
func Held(name string) (bool, error) {
	c, err := net.Dial("unix", namePrefix+name)
	switch {
	case err == nil:
		_ = c.Close() // that it was there is the answer
		return true, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return false, nil
	case errors.Is(err, syscall.EAGAIN): // others are waiting for their answer
		return true, nil
	}
	return false, fmt.Errorf("ask for %s on this host: %w", name, err)
}
