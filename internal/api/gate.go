package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// gate bounds the bytes of request bodies that are read, decoded and worked on at once: in all, and
// per client, so that one client's bodies cannot keep out the others'. A body that arrives too
// slowly is cut off when others wait for its room, and clients take turns.
type gate struct {
	total, share int64         // most bytes in all and of one client
	grace        time.Duration // for a body to arrive, whatever its size
	rate         int64         // bytes per second at which it should arrive beyond that
	now          func() time.Time

	mu      sync.Mutex
	used    int64
	byKey   map[string]int64
	inside  map[*visit]bool
	waiting []*visit          // in order of arrival
	turn    map[string]uint64 // when a client that waits last came in
	turns   uint64
}

// visit is a request that waits at the gate or is inside.
type visit struct {
	key   string
	n     int64
	in    chan struct{} // closed once admitted
	since time.Time     // when it was
	cut   func()        // ends a body that is arriving; nil once it has, or was cut
}

const (
	bodyGrace = 2 * time.Second
	bodyRate  = 1 << 20
	// lookForSlow is the interval at which a waiting request looks for bodies that arrive slowly.
	lookForSlow = 250 * time.Millisecond
)

func newGate(total, share int64) *gate {
	return &gate{total: total, share: share, grace: bodyGrace, rate: bodyRate, now: time.Now,
		byKey: map[string]int64{}, inside: map[*visit]bool{}, turn: map[string]uint64{}}
}

// enter waits until n bytes more fit; the caller must leave. A request larger than a share counts
// as a share. cut is called from another goroutine if the body arrives slowly while others wait,
// until arrived is called.
func (g *gate) enter(ctx context.Context, key string, n int64, cut func()) (*visit, error) {
	v := &visit{key: key, n: min(n, g.share), in: make(chan struct{}), cut: cut}
	g.mu.Lock()
	g.waiting = append(g.waiting, v)
	g.admit()
	g.mu.Unlock()
	look := time.NewTicker(lookForSlow)
	defer look.Stop()
	for {
		select {
		case <-v.in:
			return v, nil
		case <-look.C:
			g.cutSlow(v)
			continue
		case <-ctx.Done():
		}
		break
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[v] { // admitted meanwhile
		g.release(v)
	} else {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *visit) bool { return w == v })
	}
	g.admit()
	return nil, ctx.Err()
}

// arrived marks a visit's body as read.
func (g *gate) arrived(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v.cut = nil
}

func (g *gate) leave(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(v)
	g.admit()
}

func (g *gate) release(v *visit) {
	delete(g.inside, v)
	g.used -= v.n
	if g.byKey[v.key] -= v.n; g.byKey[v.key] == 0 {
		delete(g.byKey, v.key)
	}
}

// cutSlow cuts off the bodies that should have arrived, for a request that waits for room in all.
func (g *gate) cutSlow(waits *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[waits] || g.byKey[waits.key]+waits.n > g.share {
		return
	}
	for v := range g.inside {
		should := g.grace + time.Duration(float64(v.n)/float64(g.rate)*float64(time.Second))
		if v.cut != nil && v.key != waits.key && g.now().Sub(v.since) > should {
			v.cut()
			v.cut = nil
		}
	}
}

// admit lets in the requests that fit: first those of the client that came in longest ago, in order
// of arrival. A request that waits for others of its client delays no other client; one that waits
// for the total does, or large requests would never come in. g.mu is held.
func (g *gate) admit() {
	slices.SortStableFunc(g.waiting, func(a, b *visit) int { return cmp.Compare(g.turn[a.key], g.turn[b.key]) })
	kept := g.waiting[:0]
	full := false
	for _, v := range g.waiting {
		full = full || g.byKey[v.key]+v.n <= g.share && g.used+v.n > g.total
		if full || g.byKey[v.key]+v.n > g.share {
			kept = append(kept, v)
			continue
		}
		g.used += v.n
		g.byKey[v.key] += v.n
		g.inside[v] = true
		v.since = g.now()
		g.turns++
		g.turn[v.key] = g.turns
		close(v.in)
	}
	clear(g.waiting[len(kept):])
	g.waiting = kept
	for key := range g.turn {
		if g.byKey[key] == 0 && !slices.ContainsFunc(g.waiting, func(v *visit) bool { return v.key == key }) {
			delete(g.turn, key)
		}
	}
}
