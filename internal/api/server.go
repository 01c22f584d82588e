package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"heddle/internal/spans"
	"heddle/internal/task"
)

// Limits of every API server.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute // headers and body of one request
	writeTimeout      = 5 * time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	defaultMaxBody    = 256 << 10
	defaultGrace      = 10 * time.Second
)

// Options of a Server.
type Options struct {
	Name   string // of the API in logs and metrics, such as "identity"
	Listen string // host:port; port 0 takes any free one
	// Inherited holds the socket to accept connections from, if it has one of this address.
	Inherited *Inherited
	Handler   http.Handler
	Log       *slog.Logger

	// CertFile and KeyFile are PEM files; the first certificate is the server's, the others lead to
	// its authority. They are read again when they change. Without them the server speaks plain
	// HTTP, which it refuses on other than loopback addresses unless AllowPlain is set.
	CertFile, KeyFile string
	AllowPlain        bool

	Proxy bool // believe X-Forwarded-Proto, -Host, -Prefix and -For: only behind a proxy that sets them
	// MaxBody is the most bytes of a request body; 0 = 256 KiB. As many may belong to one client's
	// requests at a time, and twice as many to all; small bodies do not count.
	MaxBody int64
	// LongCalls is for APIs whose handlers wait for long after they have read a body: bodies take
	// room only while they are read.
	LongCalls bool

	// Audited is set for APIs whose changes are recorded with the request that made them.
	Audited bool

	// Refuse answers a request that the server turns away before the handler sees it, in the form
	// of the API's errors; nil = Keystone's form.
	Refuse func(w http.ResponseWriter, r *http.Request, e *Error)

	// Observe is called for every answered request: the API's name, method, status code and time
	// taken. May be nil.
	Observe func(api, method, code string, took time.Duration)

	Spans *spans.Tracer // records the calls; nil: they are not recorded

	Grace time.Duration // how long requests may take to finish after Run's context ended; 0 = 10 s
}

// Server serves one API. It is a task, ready once it listens.
type Server struct {
	task.Part
	opts Options
	keys *keyPair // nil = plain HTTP
	addr net.Addr

	inherited net.Listener // nil: Run opens one
	leaving   atomic.Bool  // clients are asked to come back by other connections

	gate     *gate         // of request bodies
	decoding chan struct{} // one item for each body that is being decoded
	ending   chan struct{} // closed when Run is about to end
	conns    *connections
}

// NewServer checks the options; the server listens in Run.
func NewServer(o Options) (*Server, error) {
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.Grace = cmp.Or(o.Grace, defaultGrace)
	if o.Observe == nil {
		o.Observe = func(string, string, string, time.Duration) {}
	}
	if o.Refuse == nil {
		o.Refuse = func(w http.ResponseWriter, r *http.Request, e *Error) { WriteError(w, r, e) }
	}
	s := &Server{Part: task.NewPart(o.Name + " API"), opts: o, gate: newGate(2*o.MaxBody, o.MaxBody),
		decoding: make(chan struct{}, runtime.GOMAXPROCS(0)), ending: make(chan struct{}), conns: newConnections()}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, fmt.Errorf("%s API: a TLS certificate and its key are given together; one is missing", o.Name)
	}
	if o.CertFile != "" {
		keys, err := loadKeyPair(o.CertFile, o.KeyFile, o.Log)
		if err != nil {
			return nil, fmt.Errorf("%s API: %w", o.Name, err)
		}
		s.keys = keys
	} else if !o.AllowPlain && !loopback(o.Listen) {
		return nil, fmt.Errorf("%s API: %s is not a loopback address and there is no TLS certificate: give --tls-cert and "+
			"--tls-key, listen on 127.0.0.1, or allow plain HTTP explicitly", o.Name, o.Listen)
	}
	s.inherited = o.Inherited.take(o.Listen)
	return s, nil
}

func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && Loopback(host)
}

// Loopback reports whether host, a name or an address, is certainly this machine. A name other than
// localhost may resolve to anything.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Addr is the address listened on; valid once Ready.
func (s *Server) Addr() net.Addr { return s.addr }

// Fingerprint is that of the last certificate the server presents (its authority, where the file
// holds it), as a client may pin it; "" without TLS.
func (s *Server) Fingerprint() string {
	if s.keys == nil {
		return ""
	}
	return s.keys.fingerprint()
}

// ReadCertificate reads the server's certificate and key again. It returns the certificate's file,
// "" without TLS, and a function that puts them in force, nil if they have not changed.
func (s *Server) ReadCertificate() (file string, apply func(), err error) {
	if s.keys == nil {
		return "", nil, nil
	}
	apply, err = s.keys.changed()
	return s.keys.certFile, apply, err
}

// Run serves until ctx ends, then lets requests finish within the grace time.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.addr = l.Addr()
	srv := &http.Server{
		Handler:           s.sendAway(s.Handler()),
		ConnState:         s.conns.changed,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug), // what strangers do to the port
	}
	serve := srv.Serve
	if s.keys != nil {
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.keys.get}
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	stopped := make(chan error, 1)
	go func() { stopped <- serve(l) }()
	s.BeReady()
	s.opts.Log.Info("serving", "api", s.opts.Name, "address", s.addr.String(), "tls", s.keys != nil)

	select {
	case err := <-stopped:
		return fmt.Errorf("%s API: %w", s.opts.Name, err)
	case <-ctx.Done():
	}
	close(s.ending)
	if s.inherited != nil {
		s.leave(l)
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Grace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		s.opts.Log.Warn("requests cut off at the end", "api", s.opts.Name, "grace", s.opts.Grace)
		_ = srv.Close() // what is left has had its time; its error says only that
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%s API: %w", s.opts.Name, err)
	}
	return nil
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.inherited != nil {
		return s.inherited, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the %s API on %s: %w", s.opts.Name, s.opts.Listen, err)
	}
	return l, nil
}

// leaveFor is the time for clients that keep their connections to hear that these end.
const leaveFor = 500 * time.Millisecond

// leave has clients connect anew, which the next process accepts: a connection that is closed while
// a request is on its way would fail that one.
func (s *Server) leave(l net.Listener) {
	s.leaving.Store(true)
	_ = l.Close() // the service manager's socket stays
	<-time.After(leaveFor)
}

// sendAway answers, while the server leaves, that the connection ends.
func (s *Server) sendAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
