package api

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestGate: one client's requests wait for each other beyond the share, others pass them, and whoever gives up makes room.
func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate(20, 10)
	enter := func(key string, n int64) func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leave, err := g.enter(ctx, key, n)
		if err != nil {
			t.Fatalf("%s %d: %v", key, n, err)
		}
		return leave
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(key string, n int64) {
		t.Helper()
		if _, err := g.enter(gone, key, n); !errors.Is(err, context.Canceled) {
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
	go func() { _, err := g.enter(waits, "d", 10); left <- err }()
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
		leave, err := g.enter(t.Context(), "a", 3)
		if err != nil {
			t.Error(err)
		}
		admitted <- leave
	}()
	a()
	(<-admitted)()
	b()
	e()
	if g.held != 0 || len(g.byKey) != 0 || len(g.waiting) != 0 {
		t.Errorf("left: %d held, %v, %d waiting", g.held, g.byKey, len(g.waiting))
	}
}
