package backend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/peer"
)

// front proxies connections to etcd's socket, so that they can be cut: etcd authenticates a watch
// only when it begins, and waits for watches when it stops. Clients that are still allowed
// reconnect.
//
// It also bounds connections, since etcd exits when it runs out of file descriptors. A connection
// from another host is a stranger until etcd receives a call on it, whose certificate etcd has
// verified:
//
//	accept ── stranger ── first call ── host
//	            │ deadline               │ most per host: its oldest connection is closed
//	            │ most per source, most of all: the oldest of the busiest source is closed
type front struct {
	listeners []net.Listener
	etcd      string // etcd's socket
	log       *slog.Logger
	limits    connectionLimits
	running   sync.WaitGroup

	mu       sync.Mutex
	conns    map[*frontConn]bool // of clients
	byBack   map[string]*frontConn
	sources  map[netip.Prefix][]*frontConn // strangers, oldest first
	hosts    map[string][]*frontConn       // by host id, oldest first
	stranger int                           // how many strangers there are
	warned   time.Time
	ended    bool
}

// frontConn is a connection of a client.
type frontConn struct {
	net.Conn
	back   string       // its address towards etcd, which identifies calls on it
	source netip.Prefix // of a stranger; invalid for everybody else
	host   string       // id by the certificate
	expiry *time.Timer
}

// connectionLimits bounds the connections of clients.
type connectionLimits struct {
	all, strangers, perSource, perHost int
	deadline                           time.Duration // for a stranger's first call
}

const (
	// mostConnections bounds clients' connections if the limit on files allows as many.
	mostConnections = 8192
	// filesPerConnection counts the client's, the one to etcd, and etcd's end of that.
	filesPerConnection = 3
	// strangerDeadline is long enough for a TLS handshake and a call on a busy server.
	strangerDeadline = 30 * time.Second
	// hostConnections bounds those of one host, whose agents have a few each.
	hostConnections = 64
	// warnEvery bounds how often the log reports closed connections.
	warnEvery = time.Minute
)

// limitConnections derives limits from the limit on open files, half of which is for the APIs and
// etcd's own files.
func limitConnections(files uint64) connectionLimits {
	all := int(min(mostConnections, files/2/filesPerConnection))
	strangers := max(all/4, 1)
	return connectionLimits{all: all, strangers: strangers, perSource: max(strangers/8, min(strangers, 8)), perHost: hostConnections, deadline: strangerDeadline}
}

// openFiles returns the limit on open files, which Go has raised to the hard limit.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the least that systems come with
	}
	return limit.Cur
}

func newFront(etcd string, limits connectionLimits, log *slog.Logger) *front {
	return &front{etcd: etcd, limits: limits, log: log, conns: map[*frontConn]bool{}, byBack: map[string]*frontConn{},
		sources: map[netip.Prefix][]*frontConn{}, hosts: map[string][]*frontConn{}}
}

// listen starts to accept connections. strangers: clients are strangers until their first call.
func (f *front) listen(network, address string, strangers bool) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	f.listeners = append(f.listeners, l)
	f.running.Go(func() { f.accept(l, strangers) })
	return nil
}

// endpoint returns the address of TCP connections, or "".
func (f *front) endpoint() string {
	for _, l := range f.listeners {
		if a := l.Addr(); a.Network() == "tcp" {
			return a.String()
		}
	}
	return ""
}

// acceptPause is the pause after a connection that could not be accepted.
const acceptPause = 100 * time.Millisecond

func (f *front) accept(l net.Listener, strangers bool) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.log.Warn("cannot accept a connection to the store", "err", err)
			<-time.After(acceptPause)
			continue
		}
		c := &frontConn{Conn: client}
		if strangers {
			c.source = sourceOf(client.RemoteAddr())
		}
		if f.add(c) {
			f.running.Go(func() { f.pass(c) })
		}
	}
}

// sourceOf returns what counts as one stranger: an IPv4 address or an IPv6 /64.
func sourceOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 32)
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// add registers a connection, and makes room for it among the strangers.
func (f *front) add(c *frontConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || len(f.conns) >= f.limits.all {
		if !f.ended {
			f.warn("refused a connection to the store: there are too many", "most", f.limits.all)
		}
		c.Close()
		return false
	}
	f.conns[c] = true
	if !c.source.IsValid() {
		return true
	}
	switch same := f.sources[c.source]; {
	case len(same) >= f.limits.perSource:
		f.evict(same[0])
	case f.stranger >= f.limits.strangers:
		f.evict(f.busiest()[0])
	}
	f.sources[c.source] = append(f.sources[c.source], c)
	f.stranger++
	c.expiry = time.AfterFunc(f.limits.deadline, func() { f.expire(c) })
	return true
}

// busiest returns the strangers of the source that has most; f.mu is held.
func (f *front) busiest() (most []*frontConn) {
	for _, same := range f.sources {
		if len(same) > len(most) {
			most = same
		}
	}
	return most
}

// evict closes a stranger's connection to make room for another. Hosts stop being strangers within
// moments, so the oldest stranger is the least likely to be one. f.mu is held.
func (f *front) evict(c *frontConn) {
	f.warn("closed a connection to the store that had made no call, to make room", "source", c.RemoteAddr())
	f.settle(c)
	c.Close()
}

// expire closes a connection that has made no call in time.
func (f *front) expire(c *frontConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.source.IsValid() {
		c.Close()
	}
}

// settle removes a connection from the strangers; f.mu is held.
func (f *front) settle(c *frontConn) {
	if !c.source.IsValid() {
		return
	}
	c.expiry.Stop()
	f.stranger--
	drop(f.sources, c.source, c)
	c.source = netip.Prefix{}
}

func drop[K comparable](all map[K][]*frontConn, key K, c *frontConn) {
	if i := slices.Index(all[key], c); i >= 0 {
		all[key] = slices.Delete(all[key], i, i+1)
	}
	if len(all[key]) == 0 {
		delete(all, key)
	}
}

// recognize records which host's connection a call came by: etcd has verified its certificate.
func (f *front) recognize(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.byBack[p.Addr.String()]
	if c == nil || !c.source.IsValid() {
		return
	}
	f.settle(c)
	if c.host = hostOf(ctx); c.host == "" {
		return // root
	}
	if same := f.hosts[c.host]; len(same) >= f.limits.perHost {
		f.warn("closed the oldest connection of a host to the store: it has too many", "host", c.host, "most", f.limits.perHost)
		same[0].Close()
		drop(f.hosts, c.host, same[0])
	}
	f.hosts[c.host] = append(f.hosts[c.host], c)
}

// warn logs what strangers can cause, at intervals; f.mu is held.
func (f *front) warn(message string, args ...any) {
	if now := time.Now(); now.Sub(f.warned) > warnEvery {
		f.warned = now
		f.log.Warn(message, args...)
	}
}

// toEtcd dials from an address of its own, by which etcd can distinguish connections.
var toEtcd = net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = syscall.Bind(int(fd), &syscall.SockaddrUnix{}) }); e != nil {
		return e
	}
	return err
}}

// etcdCloses bounds the time that etcd takes to close its end of a connection.
const etcdCloses = 10 * time.Second

// pass copies both ways until either side ends. It connects to etcd once the client has sent
// something, since a silent client should take a single file.
func (f *front) pass(client *frontConn) {
	defer f.remove(client)
	var first [512]byte
	n, err := client.Read(first[:])
	if err != nil {
		return
	}
	c, err := toEtcd.Dial("unix", f.etcd)
	if err != nil {
		f.log.Warn("cannot forward a connection to etcd", "err", err)
		return
	}
	etcd := c.(*net.UnixConn)
	defer etcd.Close()
	f.mu.Lock()
	client.back = etcd.LocalAddr().String()
	f.byBack[client.back] = client
	f.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client.Conn, etcd)
		client.Close()
	})
	if _, err := etcd.Write(first[:n]); err == nil {
		io.Copy(etcd, client.Conn)
	}
	etcd.CloseWrite()
	etcd.SetReadDeadline(time.Now().Add(etcdCloses))
	back.Wait()
	io.Copy(io.Discard, etcd)
}

// remove unregisters a connection that has ended.
func (f *front) remove(c *frontConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(c)
	delete(f.conns, c)
	if f.byBack[c.back] == c {
		delete(f.byBack, c.back)
	}
	if c.host != "" {
		drop(f.hosts, c.host, c)
	}
	c.Close()
}

// cut closes all connections. Clients reconnect.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

// cutHost closes the connections of a host. Its agents reconnect.
func (f *front) cutHost(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.hosts[host] {
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
