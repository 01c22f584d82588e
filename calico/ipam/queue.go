package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"heddle/calico/client"
	"heddle/internal/task"
)

// line names the queue of requests that are likely to touch the same blocks.
type line struct {
	host   string
	family family
}

// queue lets requests that wait while a transaction is in flight share the next one. The caller
// that leads works for all until its own request is done; then another one leads.
type queue struct {
	lead chan struct{} // of capacity 1: the leader's token lies in it
	view *view         // as the last transaction saw it; the leader's

	mu      sync.Mutex
	waiting []*request
}

// request adds operations to a transaction. It may run several times; the last run counts.
type request struct {
	run  func(ctx context.Context, t *tx) error
	done chan struct{} // closed once err is set
	err  error
}

func (r *request) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (i *IPAM) queue(l line) *queue {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lines[l] == nil {
		i.lines[l] = &queue{lead: make(chan struct{}, 1)}
	}
	return i.lines[l]
}

// do commits what run adds to a transaction, maybe together with what others add. When ctx ends
// before the transaction begins, nothing is done. Once it is in flight do waits for its outcome, so
// that no address is assigned without its caller getting it.
func (i *IPAM) do(ctx context.Context, l line, run func(ctx context.Context, t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q := i.queue(l)
	r := &request{run: run, done: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	select {
	case q.lead <- struct{}{}:
		defer func() { <-q.lead }()
	case <-r.done:
	case <-ctx.Done():
		if q.leave(r) {
			return ctx.Err()
		}
		<-r.done
	}
	for !r.isDone() {
		// Callers just served come back at once: without them, the next transaction has one
		// request.
		runtime.Gosched()
		i.commit(ctx, l, q)
	}
	return r.err
}

// leave takes a request out of the queue. It returns false if a transaction has begun with it.
func (q *queue) leave(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, r)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return at >= 0
}

// commit makes a transaction of the requests that wait, as many as fit. The rest goes on waiting.
func (i *IPAM) commit(ctx context.Context, l line, q *queue) {
	q.mu.Lock()
	batch := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	// Not bounded by the caller's context, for others wait too; the client bounds each request.
	n, errs, err := i.attempts(context.WithoutCancel(ctx), l, q, batch)
	for j, r := range batch[:n] {
		r.err = cmp.Or(errs[j], err)
		close(r.done)
	}
	q.mu.Lock()
	q.waiting = append(batch[n:], q.waiting...)
	q.mu.Unlock()
}

// attempts tries until a commit finds everything as it was read. It returns how many requests took
// part, the error of each, and that of the transaction.
func (i *IPAM) attempts(ctx context.Context, l line, q *queue, batch []*request) (int, []error, error) {
	fresh := false
	for attempt := range maxAttempts {
		if attempt > 2 {
			task.Pause(ctx, rand.N(time.Duration(attempt)*time.Millisecond))
		}
		t := i.newTx(fresh)
		if q.view != nil && !fresh {
			t.views[l] = q.view
		}
		n, errs := t.runAll(ctx, batch)
		if n > 0 && errors.Is(errs[n-1], errStale) {
			fresh = true
			continue
		}
		err := t.commit(ctx)
		if isConflict(err) {
			fresh = true
			continue
		}
		if n > 1 && (errors.Is(err, client.ErrInvalid) || errors.Is(err, client.ErrTooLarge)) {
			batch = batch[:1] // one of them is at fault: the others must not suffer
			continue
		}
		if v := t.views[l]; err == nil && v != nil {
			q.view = v.with(t.claimed, t.exhausted)
		}
		return n, errs, err
	}
	return len(batch), make([]error, len(batch)), fmt.Errorf("after %d attempts: %w", maxAttempts, ErrBusy)
}

// runAll runs requests one after another, each on what those before have written, until the
// transaction is full. One that fails leaves nothing behind.
func (t *tx) runAll(ctx context.Context, batch []*request) (int, []error) {
	errs := make([]error, 0, len(batch))
	for n, r := range batch {
		before := t.writes.clone()
		err := r.run(ctx, t)
		if errors.Is(err, errFull) && n > 0 {
			t.writes = before
			return n, errs
		}
		if err != nil {
			t.writes = before
		}
		errs = append(errs, err)
		if errors.Is(err, errStale) {
			return n + 1, errs
		}
	}
	return len(batch), errs
}
