package metadata

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"

	"heddle/internal/telemetry"
)

// Limits of the proxy. A workload's clients send small requests, a few at a time; a back end may
// take its time for an answer.
const (
	maxHeader = 4 << 10 // of a request, bytes
	maxBody   = 4 << 10

	maxConnections     = 4096 // open at once on a host
	maxPortConnections = 64   // of one port

	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 60 * time.Second
	idleTimeout    = 30 * time.Second
)

// headerSlop is by how much net/http lets a request's headers exceed its limit.
const headerSlop = 4096

// Proxy is the HTTP server of a host's metadata service. It establishes who asks, and has a Source
// answer.
type Proxy struct {
	// HopLimit is the TTL or hop limit of answers, for machines that must not pass them on; 0: the
	// kernel's default. Set it before Serve.
	HopLimit int

	source Source
	log    *slog.Logger

	mu    sync.Mutex
	open  int
	ports map[string]int // open connections by port

	requests, refused, strangers atomic.Uint64
}

// NewProxy makes a proxy of a source's answers.
func NewProxy(source Source, log *slog.Logger) *Proxy {
	return &Proxy{source: source, log: log, ports: map[string]int{}}
}

// Lookup returns the port of the workload behind the remote address of a connection, and the
// workload's own source address; not ok if there is none, or none any more.
type Lookup = func(remote netip.Addr) (port string, source netip.Addr, ok bool)

// Serve answers the connections that the listeners accept until ctx ends, and closes all then.
func (p *Proxy) Serve(ctx context.Context, listeners []net.Listener, find Lookup) error {
	server := &http.Server{
		Handler:           http.MaxBytesHandler(p.handler(find), maxBody),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: max(1, maxHeader-headerSlop),
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, c)
		},
	}
	g, failed := errgroup.WithContext(ctx)
	for _, l := range listeners {
		g.Go(func() error { return server.Serve(&listener{Listener: l, proxy: p, find: find}) })
	}
	stop := context.AfterFunc(failed, func() { _ = server.Close() })
	defer stop()
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// handler answers a request as of the client that its connection was accepted from. An address of
// the host's may stand for another client by now.
func (p *Proxy) handler(find Lookup) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connectionKey{}).(*connection)
		if c == nil || !c.isStill(find) {
			p.strangers.Add(1)
			w.Header().Set("Connection", "close")
			http.Error(w, "the port that this connection came from has left this host", http.StatusForbidden)
			return
		}
		p.requests.Add(1)
		p.source.ServeMetadata(w, r, c.client)
	}
}

// listener accepts the connections of clients, a bounded number of each port.
type listener struct {
	net.Listener
	proxy *Proxy
	find  Lookup
}

// Accept returns the next connection of a client that has not too many.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn := l.admit(c); conn != nil {
			return conn, nil
		}
		_ = c.Close() // it has got no answer
	}
}

// admit returns the connection with its client, or nil if it is to be closed.
func (l *listener) admit(c net.Conn) net.Conn {
	remote := remoteOf(c)
	port, source, ok := l.find(remote)
	if !ok {
		l.proxy.strangers.Add(1)
		return nil
	}
	if l.proxy.HopLimit > 0 {
		if err := setHopLimit(c, remote, l.proxy.HopLimit); err != nil {
			l.proxy.log.Error("cannot limit the hops of an answer: it is not given", "port", port, "err", err)
			return nil
		}
	}
	if !l.proxy.count(port) {
		return nil
	}
	return &connection{Conn: c, remote: remote, client: Client{Port: port, Addr: source}, closed: sync.OnceFunc(func() { l.proxy.discount(port) })}
}

// setHopLimit limits how many hops the packets of a connection make.
func setHopLimit(c net.Conn, remote netip.Addr, hops int) error {
	if remote.Is4() {
		return ipv4.NewConn(c).SetTTL(hops)
	}
	return ipv6.NewConn(c).SetHopLimit(hops)
}

// count counts a connection of a port, unless there are too many.
func (p *Proxy) count(port string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= maxConnections || p.ports[port] >= maxPortConnections {
		p.refused.Add(1)
		return false
	}
	p.open++
	p.ports[port]++
	return true
}

func (p *Proxy) discount(port string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if p.ports[port]--; p.ports[port] == 0 {
		delete(p.ports, port)
	}
}

// connection is one of a client.
type connection struct {
	net.Conn
	remote netip.Addr
	client Client
	closed func()
}

// Close closes the connection, which does not count any more.
func (c *connection) Close() error {
	c.closed()
	return c.Conn.Close()
}

// isStill reports whether the remote address still stands for the client.
func (c *connection) isStill(find Lookup) bool {
	port, source, ok := find(c.remote)
	return ok && c.client == Client{Port: port, Addr: source}
}

// remoteOf returns the address at the other end of a TCP connection.
func remoteOf(c net.Conn) netip.Addr {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}

// Metrics returns the proxy's figures.
func (p *Proxy) Metrics() []telemetry.Value {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	return []telemetry.Value{
		telemetry.Gauge.Of("heddle_metadata_connections", "Open connections of workloads to this host's metadata service.", open),
		telemetry.Counter.Of("heddle_metadata_requests_total", "Requests for metadata that this host has taken.", int(p.requests.Load())),
		telemetry.Counter.Of("heddle_metadata_connections_refused_total", "Connections to the metadata service closed because their port or the host had too many.", int(p.refused.Load())),
		telemetry.Counter.Of("heddle_metadata_strangers_total", "Connections and requests refused because no port of this host was behind their address.", int(p.strangers.Load())),
	}
}
