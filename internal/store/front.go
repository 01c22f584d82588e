package store

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
)

// mostConnections bounds those of clients; more are closed at once, and tried again by the clients.
const mostConnections = 8192

// front passes connections on to etcd's socket as they are, TLS or not, so that they can be cut: etcd asks who somebody
// is when a watch begins, and never again, and waits for watches when it is to stop. Those still allowed come back within
// moments and resume.
type front struct {
	listener net.Listener
	socket   string
	log      *slog.Logger
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // of clients
	ended bool
}

// newFront listens on address and serves what comes there from etcd's socket.
func newFront(address, socket string, log *slog.Logger) (*front, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, socket: socket, log: log, conns: map[net.Conn]bool{}}
	f.running.Go(f.accept)
	return f, nil
}

func (f *front) accept() {
	for {
		c, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.log.Warn("cannot take a connection to the store", "error", err)
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
	etcd, err := net.Dial("unix", f.socket)
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
	f.listener.Close()
	f.cut()
	f.running.Wait()
}
