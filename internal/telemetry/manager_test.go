package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// manager is a service manager that listens for what a process tells it.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// listenAsManager has the test's process told to notify a manager.
func listenAsManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, conn}
}

// hear returns the next message.
func (m *manager) hear() string {
	m.t.Helper()
	b := make([]byte, 4096)
	n, err := m.read(b, time.Minute)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(b[:n]))
}

// forget takes the messages that have come, and counts them.
func (m *manager) forget() (n int) {
	b := make([]byte, 4096)
	for {
		if _, err := m.read(b, time.Millisecond); err != nil {
			return n
		}
		n++
	}
}

func (m *manager) read(b []byte, within time.Duration) (int, error) {
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, err
	}
	return m.conn.Read(b)
}

// TestTellManager: a service manager hears what is waited for and is asked for patience, is told
// once that all is ready, hears what is waited for later, and that the process ends.
func TestTellManager(t *testing.T) {
	manager := listenAsManager(t)
	want := func(what, want string) {
		t.Helper()
		for {
			got := manager.hear()
			if got == want {
				return
			}
			if !strings.HasPrefix(got, "STATUS=waiting for the store: connection refused READY=1\nEXTEND") {
				t.Fatalf("%s: told %q, want %q", what, got, want)
			}
		}
	}

	var waiting atomic.Pointer[[]string]
	waiting.Store(&[]string{"the store: connection\nrefused\nREADY=1"})
	ctx, cancel := context.WithCancel(t.Context())
	TellWaiting("a server\nREADY=1")
	want("before it serves", "STATUS=waiting for a server READY=1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tellManager(ctx, func() []string { return *waiting.Load() })
	}()
	want("at the start", "STATUS=starting")
	want("waiting", "STATUS=waiting for the store: connection refused READY=1\nEXTEND_TIMEOUT_USEC=30000000")
	waiting.Store(&[]string{})
	want("ready", "STATUS=ready\nREADY=1")
	waiting.Store(&[]string{"the store", "replica"})
	want("waiting again", "STATUS=waiting for the store, replica")
	waiting.Store(&[]string{})
	want("well again", "STATUS=ready")
	cancel()
	want("at the end", "STOPPING=1\nSTATUS=stopping")
	<-ended
}

// TestNoManager: without a service manager nothing is looked at.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	tellManager(t.Context(), func() []string { t.Error("asked"); return nil })
}

// TestFeedWatchdog: the service manager hears that the process is alive, not while a loop hangs,
// and again once that goes on.
func TestFeedWatchdog(t *testing.T) {
	manager := listenAsManager(t)
	t.Setenv("WATCHDOG_USEC", "300000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	looked := make(chan struct{}, 1)
	look := func() {
		select {
		case looked <- struct{}{}:
		default: // the test has yet to take the one before
		}
	}
	looks := func() { // some that began after the call
		for range 4 {
			<-looked
		}
	}
	var hung atomic.Pointer[[]string]
	hung.Store(&[]string{})
	ctx, cancel := context.WithCancel(t.Context())
	var feeding sync.WaitGroup
	var log bytes.Buffer
	s := NewServer(Options{Metrics: NewMetrics("v0"), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Hung: func() []string { look(); return *hung.Load() }})
	feeding.Go(func() { s.feedWatchdog(ctx) })
	end := func() { cancel(); feeding.Wait() }
	defer end()
	for range 2 {
		if got := manager.hear(); got != "WATCHDOG=1" {
			t.Fatalf("told %q", got)
		}
	}
	hung.Store(&[]string{"decisions"})
	looks()
	manager.forget()
	looks()
	if got := manager.forget(); got != 0 {
		t.Errorf("told %d times that the process is alive while a loop hung", got)
	}
	if got := scrape(t, s.opts.Metrics); !strings.Contains(got, "\nheddle_hung_parts 1\n") {
		t.Errorf("the metrics do not count the loop: %s", got)
	}
	hung.Store(&[]string{})
	if got := manager.hear(); got != "WATCHDOG=1" {
		t.Fatalf("told %q once the loop went on", got)
	}
	end()
	if !strings.Contains(log.String(), "decisions") {
		t.Errorf("the log does not name the loop: %s", &log)
	}
}

// TestNoWatchdog: a manager without a watchdog, and one whose watchdog is another process's, hears
// nothing.
func TestNoWatchdog(t *testing.T) {
	manager := listenAsManager(t)
	for _, env := range [][2]string{{"", ""}, {"0", ""}, {"300000", "1"}, {"soon", ""}} {
		t.Setenv("WATCHDOG_USEC", env[0])
		t.Setenv("WATCHDOG_PID", env[1])
		ctx, end := context.WithCancel(t.Context())
		end()
		NewServer(Options{Metrics: NewMetrics("v0")}).feedWatchdog(ctx)
	}
	if got := manager.forget(); got != 0 {
		t.Errorf("told %d words", got)
	}
}

// TestReloading: the manager hears when a reload began and ended.
func TestReloading(t *testing.T) {
	manager := listenAsManager(t)
	done := Reloading()
	first := manager.hear()
	at, found := strings.CutPrefix(strings.ReplaceAll(first, "\nSTATUS=reloading", ""), "RELOADING=1\nMONOTONIC_USEC=")
	if _, err := strconv.ParseUint(at, 10, 64); !found || err != nil {
		t.Errorf("told %q: %v", first, err)
	}
	done()
	if got := manager.hear(); got != "READY=1\nSTATUS=ready" {
		t.Errorf("told %q at the end", got)
	}
}
