// Package replica keeps a local, current, read-only copy of some of the store's tables. Readers get
// an immutable snapshot of one revision and never lock or wait for the store; while the store is
// away the last snapshot stays.
//
//	store ──list, then watch──▶ Run ──publish──▶ Snapshot ◀── At, Fresh, Snapshot: readers
//	                             └──────────────▶ OnChange: what differs from the snapshot before
package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/terminal"
)

// Options configure a Replica.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// Watch is a prefix of all tables, watched as one. Without it each table's prefix is watched
	// alone: that needs fewer rights, but each change costs one more round trip for etcd's
	// progress.
	Watch string
	// Journal keeps the tables on disk, for a start without the store; nil: they are not kept.
	Journal *follow.Journal
	// CheckEvery is the interval between checks of the store's identity; default: follow's.
	CheckEvery time.Duration
	// Watchdog watches that changes are applied; nil: nothing does.
	Watchdog *task.Watchdog
}

// Replica is a task that keeps the copy, ready when the first snapshot is there.
type Replica struct {
	task.Part
	store     store.Store
	log       *slog.Logger
	tableLogs map[string]*slog.Logger // by table, so that limits on what is logged are each table's own
	tables    snapshot.Tables
	follower  *follow.Follower
	applying  *task.Loop
	callbacks []func(snapshot.Update)
	current   atomic.Pointer[snapshot.Snapshot]
	recalled  atomic.Pointer[time.Time] // while the snapshot is from disk: when it was last current

	mu      sync.Mutex
	waiters []*waiter
}

// waiter waits for a revision. err is written before done is closed.
type waiter struct {
	rev  int64
	done chan struct{}
	err  error
}

// nudgeAfter is the time for which a reader waits for a revision before it asks the watch for
// progress: a change of another table never arrives by itself.
const nudgeAfter = time.Millisecond

// New returns a replica of the tables. It is empty until Run.
func New(st store.Store, o Options, tables ...snapshot.Table) *Replica {
	r := &Replica{Part: task.NewPart("replica"), store: st, log: o.Log, tables: snapshot.Of(tables...), applying: o.Watchdog.Loop("replica")}
	r.log = cmp.Or(r.log, slog.New(slog.DiscardHandler))
	r.tableLogs = map[string]*slog.Logger{}
	for _, t := range r.tables {
		r.tableLogs[t.Name] = r.log.With("table", t.Name)
	}
	watched := []string{o.Watch}
	if o.Watch == "" {
		watched = r.tables.Prefixes()
	}
	r.follower = follow.New(follow.Options{Store: st, Prefixes: watched, Journal: o.Journal, CheckEvery: o.CheckEvery, Log: r.log})
	r.current.Store(r.tables.Empty())
	return r
}

// OnChange registers f for each change, in order, from one goroutine. The first call has
// everything. Register before Run; f must not block, since the next snapshot waits for it.
func (r *Replica) OnChange(f func(snapshot.Update)) { r.callbacks = append(r.callbacks, f) }

// Snapshot returns the newest snapshot; before Ready an empty one of revision 0.
func (r *Replica) Snapshot() *snapshot.Snapshot { return r.current.Load() }

// At waits for a snapshot of at least revision rev. If ctx ends first, the error is
// store.ErrUnavailable.
func (r *Replica) At(ctx context.Context, rev int64) (*snapshot.Snapshot, error) {
	if s := r.current.Load(); s.Revision >= rev {
		return s, nil
	}
	w := &waiter{rev: rev, done: make(chan struct{})}
	r.mu.Lock()
	r.waiters = append(r.waiters, w)
	r.mu.Unlock()
	r.wake() // in case the revision came in between
	late := time.NewTimer(nudgeAfter)
	defer late.Stop()
	for {
		select {
		case <-w.done:
			if w.err != nil {
				return nil, w.err
			}
			return r.current.Load(), nil
		case <-late.C:
			r.store.Nudge(rev)
		case <-ctx.Done():
			r.forget(w)
			return nil, fmt.Errorf("replica at revision %d, not yet at %d: %w: %w", r.current.Load().Revision, rev, store.ErrUnavailable, ctx.Err())
		}
	}
}

// Fresh returns a snapshot that has every change committed before the call.
func (r *Replica) Fresh(ctx context.Context) (*snapshot.Snapshot, error) {
	rev, err := r.revision(ctx)
	if err != nil {
		return nil, err
	}
	return r.At(ctx, rev)
}

// revision returns the store's revision, or an error if it is older than the known one, since the
// store was replaced or restored and will be listed again.
func (r *Replica) revision(ctx context.Context) (int64, error) {
	known := r.current.Load().Revision // before: others go on writing meanwhile
	rev, err := r.store.Revision(ctx)
	if err != nil || rev >= known {
		return rev, err
	}
	r.follower.Recheck()
	return 0, fmt.Errorf("%w: it is at revision %d, but revision %d is known: it was replaced or restored, and is being listed again",
		store.ErrUnavailable, rev, known)
}

// Lag returns how many revisions the snapshot is behind the store, or an error if the store does
// not answer.
func (r *Replica) Lag(ctx context.Context) (revisions int64, err error) {
	rev, err := r.revision(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, rev-r.current.Load().Revision), nil
}

// Following reports whether the store is being watched. A watch with a broken connection counts
// until the store refuses to resume it: [Replica.Lag] is more accurate.
func (r *Replica) Following() bool { return r.follower.Following() }

// Recalled reports whether the snapshot is from disk, since the store was not reached yet, and when
// it was last current.
func (r *Replica) Recalled() (at time.Time, ok bool) {
	if t := r.recalled.Load(); t != nil {
		return *t, true
	}
	return time.Time{}, false
}

// wake releases the waiters whose revision is there.
func (r *Replica) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	rev := r.current.Load().Revision
	r.waiters = slices.DeleteFunc(r.waiters, func(w *waiter) bool {
		if w.rev > rev {
			return false
		}
		close(w.done)
		return true
	})
}

func (r *Replica) forget(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters = slices.DeleteFunc(r.waiters, func(o *waiter) bool { return o == w })
}

// failWaiters fails the waiters for revisions of a former history.
func (r *Replica) failWaiters() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiters {
		w.err = fmt.Errorf("%w: it was replaced or restored during the call, and revision %d is gone", store.ErrUnavailable, w.rev)
		close(w.done)
	}
	r.waiters = nil
}

// Run keeps the replica current until ctx ends.
func (r *Replica) Run(ctx context.Context) error {
	return r.follower.Run(ctx, func(_ context.Context, u follow.Update) {
		r.applying.Begin()
		defer r.applying.End()
		r.recalled.Store(nil)
		switch {
		case !u.Full:
			r.apply(u)
			return
		case !u.Recalled.IsZero():
			r.recalled.Store(&u.Recalled)
		}
		r.replace(u)
	})
}

// replace publishes a full update. Unchanged records are shared with the last snapshot.
func (r *Replica) replace(u follow.Update) {
	update, invalid := r.tables.Replace(r.current.Load(), u.All, u.Revision, u.Diverged)
	if u.Diverged {
		r.failWaiters()
	}
	r.publish(update, invalid)
}

func (r *Replica) apply(u follow.Update) {
	r.publish(r.tables.Apply(r.current.Load(), u.Events, u.Revision))
}

// mostLogged bounds what is logged of a key and of an error, in bytes: hosts choose the keys and
// values of their reports.
const mostLogged = 200

func (r *Replica) publish(update snapshot.Update, invalid []snapshot.Invalid) {
	for _, i := range invalid {
		r.tableLogs[i.Source].Error("ignoring invalid object", "key", terminal.Excerpt(i.Key, mostLogged), "revision", i.Revision,
			"err", terminal.Excerpt(i.Err.Error(), mostLogged))
	}
	first := update.Prev.Revision == 0
	r.current.Store(update.Next)
	r.wake()
	if first {
		r.BeReady()
	}
	if len(update.Changed) == 0 && !first {
		return
	}
	for _, f := range r.callbacks {
		f(update)
	}
}
