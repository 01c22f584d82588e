package store

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// mostConnections bounds those of clients; more are closed at once, and tried again by the clients.
const mostConnections = 8192

// front passes connections on to etcd's socket as they are, TLS or not, so that they can be cut: etcd asks who somebody
// is when a watch begins, and never again, and waits for watches when it is to stop. Those still allowed come back within
// moments and resume.
type front struct {
	listeners []net.Listener
	etcd      string // etcd's socket
	log       *slog.Logger
	running   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // of clients
	ended bool
}

func newFront(etcd string, log *slog.Logger) *front {
	return &front{etcd: etcd, log: log, conns: map[net.Conn]bool{}}
}

// listen takes connections from now on.
func (f *front) listen(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	f.listeners = append(f.listeners, l)
	f.running.Go(func() { f.accept(l) })
	return nil
}

// endpoint is where TCP connections are taken, "" if they are not.
func (f *front) endpoint() string {
	for _, l := range f.listeners {
		if a := l.Addr(); a.Network() == "tcp" {
			return a.String()
		}
	}
	return ""
}

// acceptPause is how long to wait when no connection can be taken, for lack of file descriptors say.
const acceptPause = 100 * time.Millisecond

func (f *front) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.log.Warn("cannot take a connection to the store", "error", err)
			<-time.After(acceptPause)
			continue
		}
		if f.add(c) {
			f.running.Go(func() { f.pass(c) })
		}
	}
}

func (f *front) add(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || len(f.conns) >= mostConnections {
		c.Close()
		return false
	}
	f.conns[c] = true
	return true
}

// pass copies both ways until either side ends.
func (f *front) pass(client net.Conn) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, client)
		client.Close()
	}()
	etcd, err := net.Dial("unix", f.etcd)
	if err != nil {
		f.log.Warn("cannot pass a connection on to etcd", "error", err)
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client, etcd)
		client.Close()
	})
	io.Copy(etcd, client)
	etcd.Close()
	back.Wait()
}

// cut closes all connections. Clients open new ones.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

func (f *front) close() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	for _, l := range f.listeners {
		l.Close()
	}
	f.cut()
	f.running.Wait()
}
