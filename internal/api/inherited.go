package api

import (
	"fmt"
	"net"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Inherited holds the sockets that a service manager has opened for this process
// (sd_listen_fds(3)). They stay open while the process starts again: clients' connections wait, and
// none is refused. A nil Inherited holds none.
type Inherited struct{ left []net.Listener }

// Inherit takes the sockets over, once for a process.
func Inherit() (*Inherited, error) {
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take over the service manager's sockets: %w", err)
	}
	if i := slices.Index(listeners, nil); i >= 0 {
		return nil, fmt.Errorf("take over the service manager's sockets: number %d takes no connections: give ListenStream= alone", i+1)
	}
	return &Inherited{listeners}, nil
}

// Left returns the addresses of the sockets that no server has taken.
func (i *Inherited) Left() (addresses []string) {
	if i == nil {
		return nil
	}
	for _, l := range i.left {
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// take returns the socket of an address, host:port, or nil.
func (i *Inherited) take(listen string) net.Listener {
	if i == nil || len(i.left) == 0 {
		return nil
	}
	want, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return nil // the server says so when it listens there
	}
	at := slices.IndexFunc(i.left, func(l net.Listener) bool {
		got, ok := l.Addr().(*net.TCPAddr)
		return ok && got.Port == want.Port && (got.IP.Equal(want.IP) || isAll(got.IP) && isAll(want.IP))
	})
	if at < 0 {
		return nil
	}
	l := i.left[at]
	i.left = slices.Delete(i.left, at, at+1)
	return l
}

// isAll reports whether an IP address to listen on stands for all addresses of the machine.
func isAll(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
