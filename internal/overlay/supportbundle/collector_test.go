package supportbundle

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/sealing"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// host is a Collector that runs, with a command that copies a file.
type host struct {
	*Collector
	t    *testing.T
	from string // what the command copies
	key  *sealing.HostKey
}

func newHost(t *testing.T, content []byte) *host {
	t.Helper()
	key, err := sealing.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, from: filepath.Join(t.TempDir(), "from"), key: key}
	if err := os.WriteFile(h.from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Collector = New(filepath.Join(t.TempDir(), "support"), func(ctx context.Context, file string, _ int, _ bool) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, "sh", "-c", `cat "$0" >"$1"`, h.from, file), nil
	}, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) request(bundle string, offset int64) *topology.SupportRequest {
	return &topology.SupportRequest{Bundle: bundle, Hours: 1, Offset: offset, Key: h.key.Public()}
}

// collected asks for the first part of a bundle until it is there or cannot be.
func (h *host) collected(bundle string) *flow.SupportAnswer {
	h.t.Helper()
	var a *flow.SupportAnswer
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "the bundle", func() (bool, error) {
		a = h.Part(h.request(bundle, 0))
		return a.Size > 0 || a.Error != "", nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return a
}

// refused checks that a request is refused with a text.
func (h *host) refused(r *topology.SupportRequest, want string) {
	h.t.Helper()
	if a := h.Part(r); !strings.Contains(a.Error, want) {
		h.t.Errorf("got %+v, want the error %q", a, want)
	}
}

// TestParts: a bundle comes in parts that the asker alone can read, with nothing of it in a
// directory.
func TestParts(t *testing.T) {
	t.Parallel()
	content := make([]byte, 2*partBytes+1)
	rand.Read(content)
	h := newHost(t, content)
	a := h.collected("one")
	var got []byte
	for a.Error == "" && len(a.Part) > 0 {
		part, err := h.key.Open("one", a.Part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part...)
		if a.Size != int64(len(content)) || len(part) == 0 {
			break
		}
		a = h.Part(h.request("one", int64(len(got))))
	}
	if a.Error != "" || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes of %d (%q), want %d: equal %v", len(got), a.Size, a.Error, len(content), bytes.Equal(got, content))
	}
	if _, err := os.Stat(h.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
	if _, err := h.key.Open("two", a.Part); err == nil {
		t.Error("a part of one bundle passes for one of another")
	}
}

// TestOneBundle: a host has the bundle that was asked for last, and says so of others.
func TestOneBundle(t *testing.T) {
	t.Parallel()
	h := newHost(t, []byte("bundle"))
	h.collected("one")
	h.collected("two")
	h.refused(h.request("one", 3), "the bundle is gone")
	h.collected("one") // anew
	h.mu.Lock()
	h.last.done = false
	h.mu.Unlock()
	h.refused(h.request("two", 0), "another support bundle is being collected")
}

// TestRefused: what cannot be is refused in words.
func TestRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	if err := os.Truncate(h.from, mostBytes+1<<20); err != nil {
		t.Fatal(err)
	}
	if a := h.collected("large"); !strings.Contains(a.Error, fmt.Sprintf("has %d MiB, and at most %d pass", mostBytes>>20+1, mostBytes>>20)) {
		t.Errorf("too large: got %+v", a)
	}
	if err := os.Remove(h.from); err != nil {
		t.Fatal(err)
	}
	if a := h.collected("none"); !strings.Contains(a.Error, "exit status ") {
		t.Errorf("a command that fails: got %+v", a)
	}
	h.refused(&topology.SupportRequest{Hours: 1}, "want an id")
	h.refused(&topology.SupportRequest{Bundle: "b", Hours: 1, Offset: -1}, "want an id, and 0 or more")
	h.refused(&topology.SupportRequest{Bundle: "b"}, "0 hours of logs: want 1 to")
	h.refused(&topology.SupportRequest{Bundle: "b", Hours: mostHours + 1}, "hours of logs")
	h.Collector.command = nil
	h.refused(h.request("one", 0), "collects no support bundles")
}

// TestBadKey: a key that is none is refused once the bundle is there.
func TestBadKey(t *testing.T) {
	t.Parallel()
	h := newHost(t, []byte("bundle"))
	h.collected("one")
	r := h.request("one", 0)
	r.Key = []byte("short")
	h.refused(r, "public key")
}

// TestForgotten: a bundle that is not asked for any more is removed, and one that is being
// collected is not.
func TestForgotten(t *testing.T) {
	t.Parallel()
	c := New("", nil, slog.New(slog.DiscardHandler))
	b := &bundle{used: time.Now().Add(-2 * keepTime)}
	c.last = b
	c.forget(keepTime)
	if c.last != b {
		t.Error("a bundle that is being collected is gone")
	}
	b.done = true
	c.forget(keepTime)
	if c.last != nil {
		t.Error("a bundle that was not asked for any more stays")
	}
}

// TestUnfinished: what a killed agent has left is removed.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "support")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c := New(dir, func(context.Context, string, int, bool) (*exec.Cmd, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}
