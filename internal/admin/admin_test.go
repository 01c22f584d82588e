package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/telemetry"
)

// serve runs a role's socket until the test ends, and returns what is logged.
func serve(t *testing.T, o Options) *strings.Builder {
	t.Helper()
	log := new(strings.Builder)
	o.Log, o.Version, o.Metrics = slog.New(slog.NewTextHandler(log, nil)), "v1", telemetry.NewMetrics("v1")
	if o.Levels == nil {
		o.Levels = telemetry.NewLevels(slog.LevelInfo)
	}
	s := NewServer(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(Path(o.Dir, o.Role)); o.Dir != "" && !strings.Contains(log.String(), "no socket") && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket of %s stays: %v", o.Role, err)
		}
	})
	<-s.Ready()
	return log
}

// TestSocket: administrators see a role's state, metrics and profiles, have it reload, and change
// its log's levels.
func TestSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	levels := telemetry.NewLevels(slog.LevelInfo)
	levels.Handler(slog.DiscardHandler).WithAttrs([]slog.Attr{slog.String("part", "overlay")})
	refuse := errors.New("heddle.yaml: agent.log-level: loud")
	reloads := []error{nil, refuse}
	log := serve(t, Options{Dir: dir, Role: "agent", Levels: levels, Waiting: func() []string { return []string{"store"} }, Reload: func() (Reloaded, error) {
		err := reloads[0]
		reloads = reloads[1:]
		return Reloaded{Applied: []string{"log-level"}, Restart: []string{"data"}}, err
	}})
	info, err := os.Stat(Path(dir, "agent"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v, %v", info, err)
	}
	if roles, err := Roles(dir); err != nil || strings.Join(roles, " ") != "agent" {
		t.Errorf("roles: %v, %v", roles, err)
	}
	c, ctx := Dial(dir, "agent"), t.Context()
	if s, err := c.Status(ctx); err != nil || s.PID != os.Getpid() || s.Role != "agent" || s.Version != "v1" || strings.Join(s.Waiting, " ") != "store" || s.Started.IsZero() {
		t.Errorf("status: %+v, %v", s, err)
	}
	if r, err := c.Reload(ctx); err != nil || r.Applied[0] != "log-level" || r.Restart[0] != "data" {
		t.Errorf("reload: %+v, %v", r, err)
	}
	if _, err := c.Reload(ctx); err == nil || err.Error() != "heddle agent: "+refuse.Error() || !strings.Contains(log.String(), "everything stays as it is") {
		t.Errorf("refused reload: %v\n%s", err, log)
	}
	l, err := c.SetLogLevel(ctx, LogLevelChange{Part: "overlay", Level: "debug", Seconds: 3600})
	if err != nil || l.Level != slog.LevelInfo || len(l.Overrides) != 1 || l.Overrides[0].Part != "overlay" || l.Overrides[0].Until.IsZero() {
		t.Errorf("log level: %+v, %v", l, err)
	}
	if l, err := c.SetLogLevel(ctx, LogLevelChange{}); err != nil || len(l.Overrides) != 0 {
		t.Errorf("log level put back: %+v, %v", l, err)
	}
	for _, bad := range []LogLevelChange{{Level: "loud"}, {Part: "none", Level: "info"}, {Level: "info", Seconds: -1}} {
		if _, err := c.SetLogLevel(ctx, bad); err == nil {
			t.Errorf("took %+v", bad)
		}
	}
	if l, err := c.LogLevels(ctx); err != nil || strings.Join(l.Parts, " ") != "overlay" {
		t.Errorf("log levels: %+v, %v", l, err)
	}
	for path, want := range map[string]string{"/metrics": "heddle_build_info", "/debug/pprof/goroutine?debug=1": "goroutine profile"} {
		if got, err := c.Get(ctx, path); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %v\n%.300s", path, err, got)
		}
	}
	if _, err := c.Get(ctx, "/nothing"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("nothing: %v", err)
	}
}

// TestSocketOfAnother: a role leaves the socket of a running process alone, takes that of a killed
// one, and goes on where it can have none.
func TestSocketOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	waiting := func() []string { return nil }
	left, err := net.Listen("unix", Path(dir, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as if killed
	left.Close()
	if _, err := Dial(dir, "serve").Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a killed process: %v", err)
	}
	serve(t, Options{Dir: dir, Role: "serve", Waiting: waiting})
	if _, err := Dial(dir, "serve").Status(t.Context()); err != nil {
		t.Errorf("after a killed process: %v", err)
	}
	if log := serve(t, Options{Dir: dir, Role: "serve", Waiting: waiting}); !strings.Contains(log.String(), ErrInUse.Error()) {
		t.Errorf("beside another process: %s", log)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if log := serve(t, Options{Dir: file, Role: "serve", Waiting: waiting}); !strings.Contains(log.String(), "no socket for administrators") {
		t.Errorf("without a directory: %s", log)
	}
	serve(t, Options{Role: "serve", Waiting: waiting})
	if _, err := Dial(dir, "agent").Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no process: %v", err)
	}
}
