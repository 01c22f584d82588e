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
)

// line is where requests queue up that are likely to touch the same blocks.
type line struct {
	host   string
	family family
}

// queue lets requests that wait while a transaction is on its way share the next one. Whoever comes first works for all;
// when his own request is done, the next in the line takes over.
type queue struct {
	mu      sync.Mutex
	working bool
	waiting []*request
	view    *view // as the last transaction saw it
}

// request adds what it wants to a transaction. That may run several times: only the outcome of the last run counts.
type request struct {
	run  func(ctx context.Context, t *tx) error
	turn chan struct{} // closed when the request is done, or its caller must work for all
	done bool
	err  error
}

func (i *IPAM) queue(l line) *queue {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lines[l] == nil {
		i.lines[l] = &queue{}
	}
	return i.lines[l]
}

// do commits what run adds to a transaction, maybe together with what others add. When ctx ends before the transaction
// begins, nothing is done. Once it is on its way its outcome is waited for, so that no address is assigned without its
// caller knowing.
func (i *IPAM) do(ctx context.Context, l line, run func(ctx context.Context, t *tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q := i.queue(l)
	r := &request{run: run, turn: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	if q.working {
		q.mu.Unlock()
		if !q.await(ctx, r) {
			return ctx.Err()
		}
		if r.done {
			return r.err
		}
		q.mu.Lock()
	}
	q.working = true
	for !r.done {
		// Those who have just been served come back at once: let them, or they wait for a transaction of one.
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		batch := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		rest := i.commit(ctx, l, q, batch)
		q.mu.Lock()
		q.waiting = append(rest, q.waiting...)
	}
	q.working = len(q.waiting) > 0
	if q.working {
		close(q.waiting[0].turn)
	}
	q.mu.Unlock()
	return r.err
}

// await waits until the request is done or its caller has to work. It is false when ctx ended before either, and the
// request has left the line.
func (q *queue) await(ctx context.Context, r *request) bool {
	select {
	case <-r.turn:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.waiting, r)
	leads := at == 0 && isClosed(r.turn)
	if at >= 0 && !leads {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	q.mu.Unlock()
	if at >= 0 && !leads {
		return false
	}
	<-r.turn // its transaction is on the way, or it has to work
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// commit works on a batch until those that fit into one transaction are done, and returns the rest.
func (i *IPAM) commit(ctx context.Context, l line, q *queue, batch []*request) (rest []*request) {
	// Not until the caller's context ends, for the work is that of others too; the client bounds each request.
	n, errs, err := i.attempts(context.WithoutCancel(ctx), l, q, batch)
	for j, r := range batch[:n] {
		r.done, r.err = true, cmp.Or(errs[j], err)
		if !isClosed(r.turn) {
			close(r.turn)
		}
	}
	return batch[n:]
}

// attempts tries until a commit finds everything as it was read. It returns how many requests took part, the error of
// each, and that of the transaction.
func (i *IPAM) attempts(ctx context.Context, l line, q *queue, batch []*request) (int, []error, error) {
	trust := guess
	for attempt := range maxAttempts {
		if attempt > 2 {
			if err := pause(ctx, attempt); err != nil {
				return len(batch), make([]error, len(batch)), err
			}
		}
		t := i.newTx(trust)
		if q.view != nil && trust != nothing {
			t.views[l] = q.view
		}
		n, errs := t.runAll(ctx, batch)
		if n > 0 && errors.Is(errs[n-1], errStale) {
			trust = nothing
			continue
		}
		err := t.commit(ctx)
		if isConflict(err) {
			// What has changed has been forgotten, and is read again; if that does not help, everything is.
			trust = max(trust-1, nothing)
			if attempt > 1 || t.rests(err) {
				trust = nothing
			}
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

// pause waits a random time, longer from attempt to attempt: at most a tenth of a second.
func pause(ctx context.Context, attempt int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(time.Duration(attempt) * time.Millisecond)):
		return nil
	}
}

// runAll runs requests one after another, each on what those before have written, until the transaction is full. One
// that fails leaves nothing behind.
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
