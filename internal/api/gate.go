package api

import (
	"context"
	"sync"
)

// gate bounds the bytes of request bodies that are read, decoded and worked on at once: in all, and per client, so that
// one client's bodies cannot keep out the others'.
type gate struct {
	total, share int64 // most bytes in all and of one client

	mu      sync.Mutex
	held    int64
	byKey   map[string]int64
	waiting []*waiter // in order of arrival
}

type waiter struct {
	key string
	n   int64
	in  chan struct{} // closed once admitted
}

func newGate(total, share int64) *gate {
	return &gate{total: total, share: share, byKey: map[string]int64{}}
}

// enter waits until n bytes more fit, and returns the function that gives them back. A request larger than a share
// counts as a share.
func (g *gate) enter(ctx context.Context, key string, n int64) (leave func(), err error) {
	w := &waiter{key, min(n, g.share), make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.admit()
	g.mu.Unlock()
	select {
	case <-w.in:
		return func() { g.leave(w) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.in: // admitted meanwhile
		g.release(w)
	default:
		for i := range g.waiting {
			if g.waiting[i] == w {
				g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
				break
			}
		}
	}
	g.admit()
	return nil, ctx.Err()
}

func (g *gate) leave(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(w)
	g.admit()
}

func (g *gate) release(w *waiter) {
	g.held -= w.n
	if g.byKey[w.key] -= w.n; g.byKey[w.key] == 0 {
		delete(g.byKey, w.key)
	}
}

// admit lets in who fits, in order. Whoever only waits for an own request holds nobody up; whoever waits for room in all
// does, or large requests would never come in. g.mu is held.
func (g *gate) admit() {
	kept := g.waiting[:0]
	full := false
	for _, w := range g.waiting {
		full = full || g.byKey[w.key]+w.n <= g.share && g.held+w.n > g.total
		if full || g.byKey[w.key]+w.n > g.share {
			kept = append(kept, w)
			continue
		}
		g.held += w.n
		g.byKey[w.key] += w.n
		close(w.in)
	}
	clear(g.waiting[len(kept):])
	g.waiting = kept
}
