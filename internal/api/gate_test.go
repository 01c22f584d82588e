package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestGate: one client's requests wait for each other beyond the share, others pass them, and
// a request that gives up makes room.
func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate(20, 10)
	enter := func(key string, n int64) func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		v, err := g.enter(ctx, key, n, nil)
		if err != nil {
			t.Fatalf("%s %d: %v", key, n, err)
		}
		return func() { g.leave(v) }
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(key string, n int64) {
		t.Helper()
		if _, err := g.enter(gone, key, n, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s %d was admitted", key, n)
		}
	}
	a := enter("a", 100) // counts as 10
	refused("a", 1)
	b := enter("b", 5)
	refused("c", 6)
	c := enter("c", 5)
	refused("b", 1)

	// Who waits in vain for room in all holds up later ones; once gone, no longer.
	waits, stop := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := g.enter(waits, "d", 10, nil); left <- err }()
	for queued := false; !queued; {
		g.mu.Lock()
		queued = len(g.waiting) == 1
		g.mu.Unlock()
	}
	c()
	refused("e", 5)
	stop()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
	e := enter("e", 5)

	// Those who wait come in when others leave.
	admitted := make(chan func(), 1)
	go func() {
		v, err := g.enter(t.Context(), "a", 3, nil)
		if err != nil {
			t.Error(err)
		}
		admitted <- func() { g.leave(v) }
	}()
	a()
	(<-admitted)()
	b()
	e()
	if g.used != 0 || len(g.byKey)+len(g.turn)+len(g.inside) != 0 || len(g.waiting) != 0 {
		t.Errorf("left: %d used, %v, %v, %d waiting", g.used, g.byKey, g.turn, len(g.waiting))
	}
}

// TestSlowBodies: clients that fill the gate with bodies that do not go on, and have more in the
// queue, do not keep others out; nor are bodies cut off without a request that waits, or that have
// arrived.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	read := make(chan struct{}, 100) // an item for each large body that has begun to arrive
	s, err := NewServer(Options{Name: "test", Listen: "127.0.0.1:0", MaxBody: size, Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := r.Body.Read(make([]byte, 1)); err == nil {
				read <- struct{}{}
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				WriteError(w, r, err)
			}
		})})
	if err != nil {
		t.Fatal(err)
	}
	// The two bodies are an hour late once they are inside, and no other is on any machine.
	var late atomic.Bool
	s.gate.grace, s.gate.now = time.Minute, func() time.Time {
		if late.Load() {
			return time.Now().Add(time.Hour)
		}
		return time.Now()
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	slow := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size/2)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var all []net.Conn
	for i := range 2 {
		all = append(all, slow(fmt.Sprint("127.0.0.", 2+i)))
		<-read
	}
	late.Store(true)
	for i := range 20 {
		slow(fmt.Sprint("127.0.0.", 2+i%2))
	}
	res, err := http.Post("http://"+s.Addr().String(), "text/plain", bytes.NewReader(make([]byte, 64<<10)))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("another client's body is answered %s", res.Status)
	}
	for _, c := range all {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("a slow body is answered %v, %v", res, err)
		}
	}

	// What has arrived is worked on, and what is quick enough goes on, however many wait.
	g := newGate(20, 10)
	clock := time.Now()
	g.now = func() time.Time { return clock }
	cuts := ""
	enter := func(key string) *visit {
		t.Helper()
		v, err := g.enter(t.Context(), key, 10, func() { cuts += key })
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	g.arrived(enter("a"))
	clock = clock.Add(bodyGrace + time.Second)
	enter("b")
	clock = clock.Add(bodyGrace)
	waits := &visit{key: "c", n: 10}
	if g.cutSlow(waits); cuts != "" {
		t.Errorf("%s was cut off", cuts)
	}
	clock = clock.Add(time.Second)
	if g.cutSlow(&visit{key: "b", n: 10}); cuts != "" {
		t.Errorf("%s was cut off for a request of its own client", cuts)
	}
	if g.cutSlow(waits); cuts != "b" {
		t.Errorf("%q was cut off, want b", cuts)
	}
}
