// Package replica keeps a local, current, read-only copy of some of the store's tables. Readers take an immutable
// snapshot of one revision and never lock or wait for the store; while the store is away the last snapshot stays.
//
//	store ──list, then watch──▶ Run ──publish──▶ Snapshot ◀── At, Fresh, Snapshot: readers
//	                             └──────────────▶ OnChange: what differs from the snapshot before
package replica

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// Source says which keys make a table, and how to read them.
type Source struct {
	Name   string
	Prefix string // every key of the table begins with it
	// ID returns the record's id by its key; false: the key belongs to another table under the same prefix. nil: the id
	// is what follows Prefix.
	ID      func(key string) (string, bool)
	Decode  func(id string, value []byte) (any, error)
	Indexes []Index
}

// Index finds records by some value of theirs. Values must depend on the record alone.
type Index struct {
	Name   string
	Values func(record any) []string
}

// Table is anything that can say what its Source is, such as a records.Table.
type Table interface{ Source() Source }

// Source makes a Source a Table.
func (s Source) Source() Source { return s }

// RecordID returns the id of the record with this key; false: the key is not the table's.
func (s *Source) RecordID(key string) (string, bool) {
	if !strings.HasPrefix(key, s.Prefix) {
		return "", false
	}
	if s.ID == nil {
		return key[len(s.Prefix):], true
	}
	return s.ID(key)
}

// Options of a Replica.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// Watch is a prefix that covers all tables, watched as one. Without it each table's prefix is watched on its own:
	// that needs fewer rights, but each change costs one more round trip, in which etcd confirms that it is whole.
	Watch string
	// Journal keeps the tables on disk, for a start while the store cannot be reached; nil: they are not kept.
	Journal *follow.Journal
	// CheckEvery is the interval between checks that the store is still the same one; default: follow's.
	CheckEvery time.Duration
}

// Replica is the copy. It is a task: Run keeps it current.
type Replica struct {
	store     store.Store
	log       *slog.Logger
	sources   []Source
	follower  *follow.Follower
	callbacks []func(Update)
	ready     chan struct{}
	current   atomic.Pointer[Snapshot]
	recalled  atomic.Pointer[time.Time] // while the snapshot is from disk: when it was last known to be current

	mu      sync.Mutex
	waiters []*waiter
}

// waiter waits for a revision. err is written before done is closed.
type waiter struct {
	rev  int64
	done chan struct{}
	err  error
}

// Update is the difference between two snapshots that follow each other. When their History differs, the store was
// replaced or restored: revisions of the two do not compare.
type Update struct {
	Prev, Next *Snapshot
	Changed    []Changed
}

// Diverged reports whether the store was replaced or restored between the two snapshots.
func (u *Update) Diverged() bool { return u.Prev.History != u.Next.History }

// Changed is one record that differs. Old is nil when it is new, New when it is gone.
type Changed struct {
	Source, ID string
	Old, New   any
}

// nudgeAfter is how long a reader waits for a revision before it asks the watch to tell its progress. A change of a
// watched table comes sooner; one of another table never comes by itself.
const nudgeAfter = time.Millisecond

// New returns a replica of the tables. It is empty until Run.
func New(st store.Store, o Options, tables ...Table) *Replica {
	r := &Replica{store: st, log: o.Log, ready: make(chan struct{})}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for _, t := range tables {
		r.sources = append(r.sources, t.Source())
	}
	watched := []string{o.Watch}
	if o.Watch == "" {
		watched = prefixes(r.sources)
	}
	r.follower = follow.New(follow.Options{Store: st, Prefixes: watched, Journal: o.Journal, CheckEvery: o.CheckEvery, Log: r.log})
	r.current.Store(emptySnapshot(r.sources))
	return r
}

// prefixes are those of the sources, each once, without those inside another.
func prefixes(sources []Source) []string {
	var all, out []string
	for _, s := range sources {
		all = append(all, s.Prefix)
	}
	slices.Sort(all)
	for _, p := range all {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// OnChange has f called after each change with what differs, in order, from one goroutine. The first call brings
// everything. Register before Run; f must not block, since the next snapshot waits for it.
func (r *Replica) OnChange(f func(Update)) { r.callbacks = append(r.callbacks, f) }

// Ready is closed when the first snapshot is there.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

func (r *Replica) String() string { return "replica" }

// Snapshot returns the newest snapshot; before Ready an empty one of revision 0.
func (r *Replica) Snapshot() *Snapshot { return r.current.Load() }

// At waits until the snapshot is at least of revision rev; when ctx ends before, the error is store.ErrUnavailable.
func (r *Replica) At(ctx context.Context, rev int64) (*Snapshot, error) {
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

// Fresh returns a snapshot that has every change committed before the call, by whoever.
func (r *Replica) Fresh(ctx context.Context) (*Snapshot, error) {
	rev, err := r.revision(ctx)
	if err != nil {
		return nil, err
	}
	return r.At(ctx, rev)
}

// revision returns the store's revision, or an error if that is before the one that was known when it was asked: it was
// replaced or restored, and the replica is about to find out.
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

// Lag asks the store how many revisions the snapshot is behind it. An error says that the store cannot be reached.
func (r *Replica) Lag(ctx context.Context) (revisions int64, err error) {
	rev, err := r.revision(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, rev-r.current.Load().Revision), nil
}

// Following reports whether the store is being watched; while it is not, the snapshot grows old. A watch whose connection
// broke counts until the store refuses to resume it: [Replica.Lag] is more accurate.
func (r *Replica) Following() bool { return r.follower.Following() }

// Recalled reports whether the snapshot is one from disk because the store could not be reached since the start, and when
// that was last known to be current.
func (r *Replica) Recalled() (at time.Time, ok bool) {
	if t := r.recalled.Load(); t != nil {
		return *t, true
	}
	return time.Time{}, false
}

// wake lets those go on whose revision is there.
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

// disappoint ends the waits for revisions of a history that is over.
func (r *Replica) disappoint() {
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

// replace publishes a full update; what it shares with the snapshot before is kept.
func (r *Replica) replace(u follow.Update) {
	e := newEdit(r.current.Load())
	if u.Diverged {
		e.next.History++
	}
	for i := range r.sources {
		s := &r.sources[i]
		for entry := range e.prev.All(s.Name) {
			e.stale(s, entry.ID)
		}
	}
	for _, kv := range u.All {
		r.put(e, kv)
	}
	e.removeStale()
	if u.Diverged {
		r.disappoint()
	}
	r.publish(e, u.Revision)
}

func (r *Replica) apply(u follow.Update) {
	e := newEdit(r.current.Load())
	for _, event := range u.Events {
		if !event.Deleted {
			r.put(e, event.KV)
		} else if s, id := r.source(event.Key); s != nil {
			e.remove(s, id)
		}
	}
	r.publish(e, u.Revision)
}

// put decodes a record into its table. One that cannot be decoded is kept out, so that it harms nobody else.
func (r *Replica) put(e *edit, kv store.KV) {
	s, id := r.source(kv.Key)
	if s == nil {
		return
	}
	if same := e.keeps(s, id, kv.ModRevision); same && e.prev.History == e.next.History {
		return
	}
	record, err := s.Decode(id, kv.Value)
	if err != nil {
		r.log.Error("ignoring invalid object", "key", kv.Key, "revision", kv.ModRevision, "err", err)
		e.remove(s, id)
		return
	}
	e.set(s, &Entry{ID: id, Record: record, Create: kv.CreateRevision, Mod: kv.ModRevision})
}

func (r *Replica) source(key string) (*Source, string) {
	for i := range r.sources {
		if id, ok := r.sources[i].RecordID(key); ok {
			return &r.sources[i], id
		}
	}
	return nil, ""
}

func (r *Replica) publish(e *edit, rev int64) {
	first := e.prev.Revision == 0
	update := e.finish(rev)
	r.current.Store(update.Next)
	r.wake()
	if first {
		close(r.ready)
	}
	if len(update.Changed) == 0 && !first {
		return
	}
	for _, f := range r.callbacks {
		f(update)
	}
}
