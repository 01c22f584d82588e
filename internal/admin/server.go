// Package admin is the socket by which this machine's administrators look at a running role of
// Heddle and change it: HTTP over a Unix socket that only root and the role's user can open.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// DefaultDir is the directory of the sockets of this machine's roles.
const DefaultDir = "/run/heddle"

// suffix is the end of a socket's name, after the role.
const suffix = ".sock"

// maxBody bounds the body of a request, bytes.
const maxBody = 64 << 10

// Options of a role's socket.
type Options struct {
	Dir     string // of the socket; "" = no socket
	Role    string // such as "agent"
	Version string
	Levels  *telemetry.Levels
	Metrics *telemetry.Metrics
	// Waiting returns the parts that are not ready, each with the reason if it has one.
	Waiting func() []string
	// Reload reads settings and certificates again, and puts all changes in force or none.
	Reload func() (Reloaded, error)
	Log    *slog.Logger
}

// Status is the state of a running role.
type Status struct {
	Role    string    `json:"role"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Waiting []string  `json:"waiting"` // parts that are not ready; none: the role is
}

// Reloaded lists what a role has read again.
type Reloaded struct {
	Applied []string `json:"applied"` // settings and certificates that were put in force
	Restart []string `json:"restart"` // settings that changed, and take a restart
}

// LogLevels lists the levels of a role's log.
type LogLevels struct {
	Level     slog.Level           `json:"level"` // as configured
	Overrides []telemetry.Override `json:"overrides"`
	Parts     []string             `json:"parts"` // that log
}

// LogLevelChange overrides the level of a part, or of all for "".
type LogLevelChange struct {
	Part    string `json:"part"`
	Level   string `json:"level"`   // "" ends the override
	Seconds int    `json:"seconds"` // 0: until the process ends
}

// Server serves the socket. It is a task, ready from the start: a role works without a socket.
type Server struct {
	task.Part
	opts    Options
	started time.Time
}

// NewServer returns a server of a role's socket.
func NewServer(o Options) *Server {
	return &Server{Part: task.NewPart("admin socket"), opts: o, started: time.Now().UTC().Truncate(time.Second)}
}

// Run serves until ctx ends. On SIGUSR1 it writes all goroutines to standard error.
func (s *Server) Run(ctx context.Context) error {
	dumps := make(chan os.Signal, 1)
	signal.Notify(dumps, syscall.SIGUSR1)
	defer signal.Stop(dumps)
	if stop := s.serve(); stop != nil {
		defer stop()
	}
	s.BeReady()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-dumps:
			s.opts.Log.Info("writing goroutines", "signal", syscall.SIGUSR1.String())
			fmt.Fprintf(os.Stderr, "%s\n", stacks())
		}
	}
}

// serve serves the socket, if the role can have one, until the function returned is called.
func (s *Server) serve() (stop func()) {
	if s.opts.Dir == "" {
		return nil
	}
	path := Path(s.opts.Dir, s.opts.Role)
	l, err := listen(path)
	if err != nil {
		s.opts.Log.Warn("no socket for administrators: heddle status, reload, log-level and support do not reach this role", "socket", path, "err", err)
		return nil
	}
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log.Error("socket for administrators failed", "socket", path, "err", err)
		}
	}()
	return func() {
		_ = srv.Close() // removes the socket; who asks now asks a process that ends
		<-stopped
	}
}

// Path returns the path of a role's socket.
func Path(dir, role string) string { return filepath.Join(dir, role+suffix) }

// ErrInUse: another process serves the socket.
var ErrInUse = errors.New("another process serves it")

// listen listens at a socket that only its owner can open. It replaces one that a process left when
// it was killed.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	// The mode of a socket's file is that of the socket, when it is bound.
	closed := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	l, err := closed.Listen(context.Background(), "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, ErrInUse
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return closed.Listen(context.Background(), "unix", path)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("POST /v1/reload", s.reload)
	mux.HandleFunc("GET /v1/log-level", s.logLevels)
	mux.HandleFunc("PUT /v1/log-level", s.setLogLevel)
	mux.Handle("GET /metrics", s.opts.Metrics.Handler())
	telemetry.HandleProfiles(mux)
	return mux
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	write(w, Status{Role: s.opts.Role, Version: s.opts.Version, PID: os.Getpid(), Started: s.started, Waiting: s.opts.Waiting()})
}

func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	done, err := s.opts.Reload()
	if err != nil {
		s.opts.Log.Error("reload refused; everything stays as it is", "err", err)
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	s.opts.Log.Info("reloaded", "applied", done.Applied, "need_restart", done.Restart)
	write(w, done)
}

func (s *Server) logLevels(w http.ResponseWriter, _ *http.Request) {
	l := s.opts.Levels
	write(w, LogLevels{Level: l.Configured(), Overrides: l.Overrides(), Parts: l.Parts()})
}

func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	var c LogLevelChange
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("body: %w", err))
		return
	}
	if err := s.apply(c); err != nil {
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	s.opts.Log.Info("log level changed", "of", c.Part, "level", c.Level, "seconds", c.Seconds)
	s.logLevels(w, r)
}

func (s *Server) apply(c LogLevelChange) error {
	if c.Level == "" {
		s.opts.Levels.Reset(c.Part)
		return nil
	}
	level, err := telemetry.ParseLevel(c.Level)
	if err != nil {
		return err
	}
	if c.Seconds < 0 {
		return fmt.Errorf("%d seconds: want 1 or more, or 0 for as long as the process runs", c.Seconds)
	}
	return s.opts.Levels.Override(c.Part, level, time.Duration(c.Seconds)*time.Second)
}

// answerError is the body of an answer that is no success.
type answerError struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answerError{err.Error()}) // a client that has gone needs no answer
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone needs no answer
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return b[:n]
		}
	}
}
