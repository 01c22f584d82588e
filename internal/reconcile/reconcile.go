// Package reconcile keeps what is wanted and what is there the same: the difference between the two follows from
// holding them side by side, failures are tried again with growing pauses, and a sweep reads back what is there.
//
// What holds:
//   - Want and Unwant only mark; a pass acts on everything that was marked by then.
//   - One item's failure does not stop the others.
//   - Nothing is taken away that this Reconciler did not put there until the wants are complete (Complete): an agent that
//     has just started does not yet know what it wants.
//   - Items of a lower rank are in place before those of a higher one are put, and go after them.
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

// Target is where items are put. Its methods are called from several goroutines at once when Options.Parallel says so,
// never twice at once for one key.
type Target[K comparable, V any] interface {
	// Found returns what is there that is ours: every item this kind of reconciler may have put, in this life or before.
	Found(ctx context.Context) (map[K]V, error)
	// Set makes the item so, whatever it was. ErrWait says that it cannot be yet and that a later Kick will tell.
	Set(ctx context.Context, key K, value V) error
	// Delete takes the item away; what is gone already is success.
	Delete(ctx context.Context, key K) error
}

// ErrWait is what Set returns (wrapped) when something it needs is not there yet: no failure, and not worth trying again
// before Kick.
var ErrWait = errors.New("waiting")

// Options configure a Reconciler. Only Name and Target are needed.
type Options[K cmp.Ordered, V any] struct {
	Name   string // in logs and errors: what is reconciled, such as "attachments"
	Target Target[K, V]
	Equal  func(a, b V) bool // default: values are never equal, every sweep sets all
	// Rank orders items: lower ranks are put first and taken away last. Default: all alike.
	Rank func(key K) int
	// Parallel is how many items are worked on at once. Default 1.
	Parallel int
	// RetryMin and RetryMax bound the pauses between attempts at a failing item. Default 100 ms and 30 s.
	RetryMin, RetryMax time.Duration
	// SweepEvery is how often what is there is read back. Default a minute.
	SweepEvery time.Duration
	Log        *slog.Logger
	Now        func() time.Time // default time.Now
}

// Status sums up a Reconciler.
type Status struct {
	Wanted   int
	InPlace  int
	Waiting  int
	Failing  int
	Complete bool
	// LastError is that of the item that failed last and still fails; nil when none does.
	LastError error
}

// String is "n in place, m failing, last error".
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
	again   bool // marked while a pass was at it
	tries   int
	retryAt time.Time
	err     error
}

// New makes a Reconciler that wants nothing yet.
func New[K cmp.Ordered, V any](o Options[K, V]) *Reconciler[K, V] {
	if o.Equal == nil {
		o.Equal = func(V, V) bool { return false }
	}
	if o.Rank == nil {
		o.Rank = func(K) int { return 0 }
	}
	if o.Parallel == 0 {
		o.Parallel = 1
	}
	if o.RetryMin == 0 {
		o.RetryMin = 100 * time.Millisecond
	}
	if o.RetryMax == 0 {
		o.RetryMax = 30 * time.Second
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reconciler[K, V]{opts: o, items: map[K]*item[V]{}, kick: task.NewNotice(), settled: make(chan struct{})}
}

// Want marks that key shall be there with value.
func (r *Reconciler[K, V]) Want(key K, value V) {
	r.mu.Lock()
	it := r.items[key]
	if it == nil {
		it = &item[V]{}
		r.items[key] = it
	}
	if it.wanted && (it.state == placed || it.state == dirty) && r.opts.Equal(it.value, value) {
		r.mu.Unlock()
		return
	}
	it.value, it.wanted = value, true
	it.mark()
	r.mu.Unlock()
	r.wake()
}

// Unwant marks that key shall not be there.
func (r *Reconciler[K, V]) Unwant(key K) {
	r.mu.Lock()
	if it := r.items[key]; it != nil && it.wanted {
		it.wanted = false
		it.mark()
	}
	r.mu.Unlock()
	r.wake()
}

// mark makes the next pass act on the item at once.
func (it *item[V]) mark() {
	if it.state == working {
		it.again = true
		return
	}
	it.state, it.tries, it.retryAt = dirty, 0, time.Time{}
}

// Complete says that everything wanted has been told: from now on what is found and not wanted is taken away.
func (r *Reconciler[K, V]) Complete() {
	r.mu.Lock()
	if !r.complete {
		r.complete, r.sweepAt = true, time.Time{}
	}
	r.mu.Unlock()
	r.wake()
}

// Kick tries an item again that waits or fails, or that is there no more although it was put: the world has changed.
func (r *Reconciler[K, V]) Kick(key K) {
	r.mu.Lock()
	if it := r.items[key]; it != nil {
		it.mark()
	}
	r.mu.Unlock()
	r.wake()
}

// KickAll is Kick for all items.
func (r *Reconciler[K, V]) KickAll() {
	r.mu.Lock()
	for _, it := range r.items {
		it.mark()
	}
	r.mu.Unlock()
	r.wake()
}

// Settled is closed after the first pass over complete wants: whatever could be put in place is.
func (r *Reconciler[K, V]) Settled() <-chan struct{} { return r.settled }

// Sweep reads back what is there at the next pass.
func (r *Reconciler[K, V]) Sweep() {
	r.mu.Lock()
	r.sweepAt = time.Time{}
	r.mu.Unlock()
	r.wake()
}

func (r *Reconciler[K, V]) wake() { r.kick.Give() }

// InPlace says whether key is wanted and there as wanted, as far as is known.
func (r *Reconciler[K, V]) InPlace(key K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[key]
	return it != nil && it.wanted && it.state == placed
}

// Status sums up where things stand.
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

// Settled says whether nothing is left to do: all in place or waiting for something that is not there.
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

// Pass acts once on all that is marked or due and returns when the next pass is due. It must not run twice at once.
func (r *Reconciler[K, V]) Pass(ctx context.Context) time.Time {
	r.mu.Lock()
	complete := r.complete
	r.mu.Unlock()
	r.sweep(ctx)
	todo := r.take()
	deletes, sets := split(todo)
	// Ranks ascend for what is put and descend for what goes; what goes makes room first.
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

func split[K comparable, V any](all []job[K, V]) (deletes, sets []job[K, V]) {
	for _, j := range all {
		if j.remove {
			deletes = append(deletes, j)
		} else {
			sets = append(sets, j)
		}
	}
	return deletes, sets
}

// take collects what is to be done now and marks it as being worked on.
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
		n := 1
		for n < len(jobs) && r.opts.Rank(jobs[n].key) == r.opts.Rank(jobs[0].key) {
			n++
		}
		r.workRank(ctx, jobs[:n])
		jobs = jobs[n:]
	}
}

func (r *Reconciler[K, V]) workRank(ctx context.Context, jobs []job[K, V]) {
	queue := make(chan job[K, V], len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var wg sync.WaitGroup
	for range min(r.opts.Parallel, len(jobs)) {
		wg.Go(func() {
			for j := range queue {
				r.finish(j, r.do(ctx, j))
			}
		})
	}
	wg.Wait()
}

func (r *Reconciler[K, V]) do(ctx context.Context, j job[K, V]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if j.remove {
		return r.opts.Target.Delete(ctx, j.key)
	}
	return r.opts.Target.Set(ctx, j.key, j.value)
}

// finish records how a job ended. Changes of state are logged, repeated failures are not.
func (r *Reconciler[K, V]) finish(j job[K, V], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[j.key]
	if !j.remove {
		it.known = true // even a failed Set may have left something
	}
	again := it.again
	it.again = false
	switch {
	case err == nil && j.remove && !it.wanted:
		delete(r.items, j.key)
		return
	case err == nil:
		if it.tries > 0 {
			r.opts.Log.Info("recovered", "what", r.opts.Name, "item", fmt.Sprint(j.key), "failures", it.tries)
		}
		it.known = !j.remove
		it.state, it.tries, it.err = placed, 0, nil
	case errors.Is(err, context.Canceled):
		it.state = dirty // told to stop, not failed
	case errors.Is(err, ErrWait):
		it.state, it.tries, it.err = waiting, 0, err
	default:
		it.tries++
		if it.tries == 1 {
			r.opts.Log.Warn("failed, will try again", "what", r.opts.Name, "item", fmt.Sprint(j.key), "err", err)
		}
		it.state, it.err, r.failed = failing, err, j.key
		it.retryAt = r.opts.Now().Add(r.pause(it.tries))
	}
	if again {
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

// due is when something has to be done next without being woken.
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
