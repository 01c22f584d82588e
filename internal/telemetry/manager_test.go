package telemetry

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestTellManager: a service manager hears what is waited for and is asked for patience, is told
// once that all is ready, hears what is waited for later, and that the process ends.
func TestTellManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	hear := func() string {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b[:n]))
	}
	want := func(what, want string) {
		t.Helper()
		for {
			got := hear()
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
