package credentials

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
)

// turns lets a few requests at a time do costly work. Clients whose requests wait take turns, one
// request each: another client's many requests delay a single one by one of them.
type turns struct {
	mu      sync.Mutex
	free    int
	queued  int                         // requests that wait, of all clients
	waiting map[netip.Prefix][]*waiting // in order of arrival
	order   []netip.Prefix              // clients whose requests wait; the first has the next turn
}

// waiting is a request that waits. It gets nil for its turn, or ErrBusy if it has to give way.
type waiting struct{ end chan error }

// maxWaiting bounds the requests that wait: more would only wait longer than a client does.
const maxWaiting = 128

func newTurns(atOnce int) *turns {
	return &turns{free: atOnce, waiting: map[netip.Prefix][]*waiting{}}
}

// enter waits for the client's turn; the caller must leave. It returns ErrBusy if too many wait and
// no other client has more of them, or if the turn does not come before the deadline of ctx.
func (t *turns) enter(ctx context.Context, client netip.Prefix) error {
	w, err := t.join(client)
	if w == nil {
		return err
	}
	select {
	case err := <-w.end:
		return err
	case <-ctx.Done():
	}
	if !t.withdraw(client, w) && <-w.end == nil { // its turn came meanwhile
		t.leave()
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrBusy
	}
	return ctx.Err()
}

// join admits a request, or queues it and returns it.
func (t *turns) join(client netip.Prefix) (*waiting, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil, nil
	}
	if t.queued >= maxWaiting && !t.makeRoom(client) {
		return nil, ErrBusy
	}
	if len(t.waiting[client]) == 0 {
		t.order = append(t.order, client)
	}
	w := &waiting{make(chan error, 1)}
	t.waiting[client] = append(t.waiting[client], w)
	t.queued++
	return w, nil
}

// makeRoom refuses the last request of the client with the most, if it keeps no fewer than this
// one then has.
func (t *turns) makeRoom(client netip.Prefix) bool {
	most := slices.MaxFunc(t.order, func(a, b netip.Prefix) int { return cmp.Compare(len(t.waiting[a]), len(t.waiting[b])) })
	all := t.waiting[most]
	if len(all) <= len(t.waiting[client])+1 {
		return false
	}
	last := all[len(all)-1]
	t.remove(most, len(all)-1)
	last.end <- ErrBusy
	return true
}

// withdraw removes a request, if it still waits.
func (t *turns) withdraw(client netip.Prefix, w *waiting) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[client], w)
	if i >= 0 {
		t.remove(client, i)
	}
	return i >= 0
}

// remove takes a request out of its client's queue.
func (t *turns) remove(client netip.Prefix, i int) {
	t.queued--
	t.waiting[client] = slices.Delete(t.waiting[client], i, i+1)
	if len(t.waiting[client]) == 0 {
		delete(t.waiting, client)
		t.order = slices.DeleteFunc(t.order, func(c netip.Prefix) bool { return c == client })
	}
}

// leave ends a request's work and admits the next client's first request.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	client := t.order[0]
	t.order = append(t.order[1:], client)
	w := t.waiting[client][0]
	t.remove(client, 0)
	w.end <- nil
}
