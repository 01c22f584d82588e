// Package replica keeps a local, current, read-only copy of some of the store's tables. Readers take an immutable
// snapshot of one revision and never lock or wait for the store; while the store is away the last snapshot stays.
//
//	store ──list, then watch──▶ Run ──publish──▶ Snapshot ◀── At, Fresh, Snapshot: readers
//	                             └──────────────▶ OnChange: what differs from the snapshot before
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/store"
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
}

// Replica is the copy. It is a task: Run keeps it current.
type Replica struct {
	store     store.Store
	log       *slog.Logger
	sources   []Source
	watched   []string // prefixes
	callbacks []func(Update)
	ready     chan struct{}
	current   atomic.Pointer[Snapshot]
	following atomic.Bool

	mu      sync.Mutex
	waiters []waiter
}

type waiter struct {
	rev  int64
	done chan struct{}
}

// Update is the difference between two snapshots that follow each other.
type Update struct {
	Prev, Next *Snapshot
	Changed    []Changed
}

// Changed is one record that differs. Old is nil when it is new, New when it is gone.
type Changed struct {
	Source, ID string
	Old, New   any
}

const (
	// nudgeAfter is how long a reader waits for a revision before it asks the watch to tell its progress. A change of a
	// watched table comes sooner; one of another table never comes by itself.
	nudgeAfter = time.Millisecond
	// Pauses between attempts to list or watch, in which a store that came back is not hit by all hosts at once.
	leastPause, mostPause = 50 * time.Millisecond, 2 * time.Second
)

// New returns a replica of the tables. It is empty until Run.
func New(st store.Store, o Options, tables ...Table) *Replica {
	r := &Replica{store: st, log: o.Log, ready: make(chan struct{})}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for _, t := range tables {
		r.sources = append(r.sources, t.Source())
	}
	r.watched = []string{o.Watch}
	if o.Watch == "" {
		r.watched = prefixes(r.sources)
	}
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
	w := waiter{rev, make(chan struct{})}
	r.mu.Lock()
	r.waiters = append(r.waiters, w)
	r.mu.Unlock()
	r.wake() // in case the revision came in between
	late := time.NewTimer(nudgeAfter)
	defer late.Stop()
	for {
		select {
		case <-w.done:
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
	rev, err := r.store.Revision(ctx)
	if err != nil {
		return nil, err
	}
	return r.At(ctx, rev)
}

// Lag asks the store how many revisions the snapshot is behind it. An error says that the store cannot be reached.
func (r *Replica) Lag(ctx context.Context) (revisions int64, err error) {
	rev, err := r.store.Revision(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, rev-r.current.Load().Revision), nil
}

// Following says whether the store is being watched; while it is not, the snapshot grows old. A watch whose connection
// is broken still counts until the store refuses to resume it: [Replica.Lag] tells more.
func (r *Replica) Following() bool { return r.following.Load() }

// wake lets those go on whose revision is there.
func (r *Replica) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	rev := r.current.Load().Revision
	r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool {
		if w.rev > rev {
			return false
		}
		close(w.done)
		return true
	})
}

func (r *Replica) forget(w waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters = slices.DeleteFunc(r.waiters, func(o waiter) bool { return o.done == w.done })
}

// Run keeps the replica current until ctx ends.
func (r *Replica) Run(ctx context.Context) error {
	pause := leastPause
	list := true
	for {
		began := time.Now()
		err := r.follow(ctx, list)
		r.following.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		// Listing anew is only needed when the watch cannot be resumed from the snapshot.
		list = r.current.Load().Revision == 0 || errors.Is(err, store.ErrCompacted)
		r.log.Warn("replica lost the store", "error", err, "revision", r.current.Load().Revision)
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, mostPause)
	}
}

// follow lists if told to, then applies what the watch brings until it ends.
func (r *Replica) follow(ctx context.Context, list bool) error {
	from := r.current.Load().Revision
	var listed *listing
	if list {
		var err error
		if listed, err = r.list(ctx); err != nil {
			return err
		}
		from = listed.from
	}
	ctx, cancel := context.WithCancel(ctx)
	changes, failed := r.store.Watch(ctx, from, r.watched...)
	defer func() {
		cancel()
		for range changes { // until the watch has let go
		}
	}()
	r.following.Store(true)
	if listed != nil && listed.from == listed.upTo {
		r.replace(listed)
		listed = nil
	}
	if listed != nil {
		r.store.Nudge(listed.upTo)
	}
	for c := range changes {
		if listed == nil {
			r.apply(c)
		} else if listed.absorb(c) {
			r.replace(listed)
			listed = nil
		}
	}
	return failed()
}

// listing is what was found under the watched prefixes, each listed at a revision of its own between from and upTo.
type listing struct {
	from, upTo int64
	prefixes   []string
	at         []int64 // by prefix
	keys       map[string]store.KV
}

func (r *Replica) list(ctx context.Context) (*listing, error) {
	l := &listing{prefixes: r.watched, keys: map[string]store.KV{}}
	for i, p := range r.watched {
		kvs, rev, err := r.store.List(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, kv := range kvs {
			l.keys[kv.Key] = kv
		}
		l.at = append(l.at, rev)
		if i == 0 {
			l.from = rev
		}
		l.upTo = rev
	}
	return l, nil
}

// absorb brings those prefixes forward that were listed before upTo; true once all are at one revision.
func (l *listing) absorb(c store.Change) bool {
	for _, e := range c.Events {
		i := slices.IndexFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(e.Key, p) })
		switch {
		case e.ModRevision <= l.at[i]: // the listing knows better
		case e.Deleted:
			delete(l.keys, e.Key)
		default:
			l.keys[e.Key] = e.KV
		}
	}
	if c.Revision < l.upTo {
		return false
	}
	l.upTo = c.Revision
	return true
}

// replace publishes the listing; what it shares with the snapshot before is kept.
func (r *Replica) replace(l *listing) {
	e := newEdit(r.current.Load())
	for i := range r.sources {
		s := &r.sources[i]
		for entry := range e.prev.All(s.Name) {
			e.stale(s, entry.ID)
		}
	}
	for _, kv := range l.keys {
		r.put(e, kv)
	}
	e.removeStale()
	r.publish(e, l.upTo)
}

func (r *Replica) apply(c store.Change) {
	e := newEdit(r.current.Load())
	for _, event := range c.Events {
		if !event.Deleted {
			r.put(e, event.KV)
		} else if s, id := r.source(event.Key); s != nil {
			e.remove(s, id)
		}
	}
	r.publish(e, c.Revision)
}

// put decodes a record into its table. One that cannot be decoded is kept out, so that it harms nobody else.
func (r *Replica) put(e *edit, kv store.KV) {
	s, id := r.source(kv.Key)
	if s == nil {
		return
	}
	if e.keeps(s, id, kv.ModRevision) {
		return
	}
	record, err := s.Decode(id, kv.Value)
	if err != nil {
		r.log.Error("record left out: it cannot be read", "key", kv.Key, "revision", kv.ModRevision, "error", err)
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
