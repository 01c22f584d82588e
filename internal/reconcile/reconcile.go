// Package reconcile keeps the desired and the actual items of a target the same: it holds both side
// by side, acts on the difference, retries failures with growing pauses, and reads back the target.
//
// What holds:
//   - Want and Unwant only mark; a pass acts on everything that was marked by then.
//   - One item's failure does not stop the others.
//   - Nothing is deleted that this Reconciler did not set until the desired items are complete (see
//     Complete): an agent that has just started has not received them all.
//   - Items of a lower rank are set before those of a higher one, and deleted after them.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"heddle/internal/task"
)

// Target holds the items. Its methods are called from several goroutines at once when
// Options.Parallel says so, never twice at once for one key.
type Target[K comparable, V any] interface {
	// Found returns every item that this kind of reconciler may have set, in this process or
	// earlier.
	Found(ctx context.Context) (map[K]V, error)
	// Set adds the item or replaces it. ErrWait means that it cannot yet, and that Kick will
	// follow.
	Set(ctx context.Context, key K, value V) error
	// Delete removes the item. One that is gone already is success.
	Delete(ctx context.Context, key K) error
}

// ErrWait is returned by Set (wrapped) when the item needs something that is not there yet: no
// failure, and not worth a retry before Kick.
var ErrWait = errors.New("waiting")

// Options configure a Reconciler. Only Name and Target are needed.
type Options[K cmp.Ordered, V any] struct {
	Name   string // of the items in logs and errors, such as "attachments"
	Key    string // attribute of a log record with an item's key; default "item"
	Target Target[K, V]
	Equal  func(a, b V) bool // default: values are never equal, every sweep sets all
	// Rank orders items: lower ranks are set first and deleted last. Default: all alike.
	Rank func(key K) int
	// Parallel bounds the items that are worked on at once. Default 1.
	Parallel int
	// RetryMin and RetryMax bound the pauses between attempts at an item. Default 100 ms and 30 s.
	RetryMin, RetryMax time.Duration
	// SweepEvery is the interval of sweeps. Default a minute.
	SweepEvery time.Duration
	Log        *slog.Logger
	Now        func() time.Time // default time.Now
}

// Status is a summary of a Reconciler.
type Status struct {
	Wanted, InPlace, Waiting, Failing int // items
	Complete                          bool
	LastError                         error // of the item that failed last and still fails, or nil
}

// String returns "n in place, m failing, last error".
func (s Status) String() string {
	text := fmt.Sprintf("%d of %d in place", s.InPlace, s.Wanted)
	if s.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", s.Waiting)
	}
	if s.Failing > 0 {
		text += fmt.Sprintf(", %d failing: %v", s.Failing, s.LastError)
	}
	return text
}

// Reconciler keeps the items of one Target. Its methods may be called from any goroutine.
type Reconciler[K cmp.Ordered, V any] struct {
	opts    Options[K, V]
	kick    task.Notice
	settled chan struct{}
	first   sync.Once

	mu       sync.Mutex
	items    map[K]*item[V]
	complete bool
	sweepAt  time.Time
	failed   K // the key that failed last
}

type state uint8

const (
	dirty   state = iota // to be set, or deleted when not wanted
	working              // a pass is at it
	placed
	waiting
	failing
)

type item[V any] struct {
	value   V
	wanted  bool
	known   bool // it may be there: set by us, or found
	state   state
	marked  bool // while a pass was at it
	tries   int
	retryAt time.Time
	err     error
}

// New makes a Reconciler without desired items.
func New[K cmp.Ordered, V any](o Options[K, V]) *Reconciler[K, V] {
	if o.Equal == nil {
		o.Equal = func(V, V) bool { return false }
	}
	if o.Rank == nil {
		o.Rank = func(K) int { return 0 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Key = cmp.Or(o.Key, "item")
	o.Parallel, o.SweepEvery = cmp.Or(o.Parallel, 1), cmp.Or(o.SweepEvery, time.Minute)
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, 100*time.Millisecond), cmp.Or(o.RetryMax, 30*time.Second)
	return &Reconciler[K, V]{opts: o, items: map[K]*item[V]{}, kick: task.NewNotice(), settled: make(chan struct{})}
}

// Want marks that key should be there with value.
func (r *Reconciler[K, V]) Want(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[key]
	if it == nil {
		it = &item[V]{}
		r.items[key] = it
	}
	if it.wanted && (it.state == placed || it.state == dirty) && r.opts.Equal(it.value, value) {
		return
	}
	it.value, it.wanted = value, true
	it.mark()
	r.kick.Give()
}

// Unwant marks that key should not be there.
func (r *Reconciler[K, V]) Unwant(key K) {
	r.update(func() {
		if it := r.items[key]; it != nil && it.wanted {
			it.wanted = false
			it.mark()
		}
	})
}

// update changes the state, and has Run make a pass.
func (r *Reconciler[K, V]) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.kick.Give()
}

// mark makes the next pass act on the item at once.
func (it *item[V]) mark() {
	if it.state == working {
		it.marked = true
		return
	}
	it.state, it.tries, it.retryAt = dirty, 0, time.Time{}
}

// Complete notes that every desired item has been named by Want: from now on found items that are
// not desired are deleted.
func (r *Reconciler[K, V]) Complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.complete {
		r.complete, r.sweepAt = true, time.Time{}
		r.kick.Give()
	}
}

// Kick retries an item that waits or fails, or that was deleted by another program.
func (r *Reconciler[K, V]) Kick(key K) {
	r.update(func() {
		if it := r.items[key]; it != nil {
			it.mark()
		}
	})
}

// KickAll is Kick for all items.
func (r *Reconciler[K, V]) KickAll() {
	r.update(func() {
		for _, it := range r.items {
			it.mark()
		}
	})
}

// Settled is closed after the first pass over complete items: all that could be set is.
func (r *Reconciler[K, V]) Settled() <-chan struct{} { return r.settled }

// Sweep has the next pass read back the target.
func (r *Reconciler[K, V]) Sweep() { r.update(func() { r.sweepAt = time.Time{} }) }

// InPlace reports whether key is desired and there as desired, as far as is known.
func (r *Reconciler[K, V]) InPlace(key K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[key]
	return it != nil && it.wanted && it.state == placed
}

// Status returns a summary.
func (r *Reconciler[K, V]) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Complete: r.complete}
	for k, it := range r.items {
		if it.wanted {
			s.Wanted++
		}
		switch it.state {
		case placed:
			if it.wanted {
				s.InPlace++
			}
		case waiting:
			s.Waiting++
		case failing:
			s.Failing++
			if s.LastError == nil || k == r.failed {
				s.LastError = fmt.Errorf("%s %v: %w", r.opts.Name, k, it.err)
			}
		}
	}
	return s
}

// Failing returns the errors of the items that fail.
func (r *Reconciler[K, V]) Failing() map[K]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[K]error{}
	for k, it := range r.items {
		if it.state == failing {
			all[k] = it.err
		}
	}
	return all
}

// Settled reports whether nothing is left to do: all items are in place or wait.
func (s Status) Settled() bool {
	return s.Complete && s.InPlace+s.Waiting == s.Wanted && s.Failing == 0
}

// Run makes passes until ctx ends.
func (r *Reconciler[K, V]) Run(ctx context.Context) error {
	for {
		next := r.Pass(ctx)
		timer := time.NewTimer(max(0, next.Sub(r.opts.Now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Pass acts once on all items that are marked or due, and returns when the next pass is due. It
// must not run twice at once.
func (r *Reconciler[K, V]) Pass(ctx context.Context) time.Time {
	r.mu.Lock()
	complete := r.complete
	r.mu.Unlock()
	r.sweep(ctx)
	var deletes, sets []job[K, V]
	for _, j := range r.take() {
		if j.remove {
			deletes = append(deletes, j)
		} else {
			sets = append(sets, j)
		}
	}
	// Ranks ascend for sets and descend for deletes, which come first to make room.
	slices.SortFunc(deletes, func(a, b job[K, V]) int {
		return cmp.Or(cmp.Compare(r.opts.Rank(b.key), r.opts.Rank(a.key)), cmp.Compare(a.key, b.key))
	})
	slices.SortFunc(sets, func(a, b job[K, V]) int {
		return cmp.Or(cmp.Compare(r.opts.Rank(a.key), r.opts.Rank(b.key)), cmp.Compare(a.key, b.key))
	})
	r.work(ctx, deletes)
	r.work(ctx, sets)
	if complete && ctx.Err() == nil {
		r.first.Do(func() { close(r.settled) })
	}
	return r.due()
}

type job[K comparable, V any] struct {
	key    K
	value  V
	remove bool
}

// take returns the jobs for now, and marks their items as being worked on.
func (r *Reconciler[K, V]) take() []job[K, V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var todo []job[K, V]
	now := r.opts.Now()
	for k, it := range r.items {
		switch it.state {
		case dirty:
		case failing:
			if now.Before(it.retryAt) {
				continue
			}
		default:
			continue
		}
		if !it.wanted && !it.known {
			delete(r.items, k)
			continue
		}
		it.state = working
		todo = append(todo, job[K, V]{key: k, value: it.value, remove: !it.wanted})
	}
	return todo
}

// work does jobs in order, those of one rank several at a time.
func (r *Reconciler[K, V]) work(ctx context.Context, jobs []job[K, V]) {
	for len(jobs) > 0 {
		var wg sync.WaitGroup
		slots := make(chan struct{}, r.opts.Parallel)
		n := 0
		for ; n < len(jobs) && r.opts.Rank(jobs[n].key) == r.opts.Rank(jobs[0].key); n++ {
			j := jobs[n]
			slots <- struct{}{}
			wg.Go(func() {
				err := ctx.Err()
				switch {
				case err != nil:
				case j.remove:
					err = r.opts.Target.Delete(ctx, j.key)
				default:
					err = r.opts.Target.Set(ctx, j.key, j.value)
				}
				r.finish(j, err)
				<-slots
			})
		}
		wg.Wait()
		jobs = jobs[n:]
	}
}

// finish records how a job ended. Changes of state are logged, repeated failures are not.
func (r *Reconciler[K, V]) finish(j job[K, V], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[j.key]
	if !j.remove {
		it.known = true // even a failed Set may have left something
	}
	marked := it.marked
	it.marked = false
	switch {
	case err == nil && j.remove && !it.wanted:
		delete(r.items, j.key)
		return
	case err == nil:
		if it.tries > 0 {
			r.opts.Log.Info("recovered", "what", r.opts.Name, r.opts.Key, fmt.Sprint(j.key), "failures", it.tries)
		}
		it.known = !j.remove
		it.state, it.tries, it.err = placed, 0, nil
	case errors.Is(err, context.Canceled):
		it.state = dirty // stopped, not failed
	case errors.Is(err, ErrWait):
		it.state, it.tries, it.err = waiting, 0, err
	default:
		it.tries++
		if it.tries == 1 {
			r.opts.Log.Warn("failed, will try again", "what", r.opts.Name, r.opts.Key, fmt.Sprint(j.key), "err", err)
		}
		it.state, it.err, r.failed = failing, err, j.key
		it.retryAt = r.opts.Now().Add(r.pause(it.tries))
	}
	if marked {
		it.mark()
	}
}

func (r *Reconciler[K, V]) pause(tries int) time.Duration {
	p := r.opts.RetryMin
	for range tries - 1 {
		if p *= 2; p >= r.opts.RetryMax {
			return r.opts.RetryMax
		}
	}
	return p
}

// due returns when the next pass is due.
func (r *Reconciler[K, V]) due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.sweepAt
	if !r.complete {
		next = r.opts.Now().Add(r.opts.SweepEvery)
	}
	for _, it := range r.items {
		switch {
		case it.state == dirty:
			return r.opts.Now()
		case it.state == failing && it.retryAt.Before(next):
			next = it.retryAt
		}
	}
	return next
}
