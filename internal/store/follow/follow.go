// Package follow keeps a reader of the store current. A Follower lists the keys under some
// prefixes, then delivers each change. It recovers from lost connections, compacted revisions, and
// a store that was replaced or restored to an older state.
//
//	store ──list, then watch──▶ Follower ──Update──▶ the reader
//	                               │ ▲
//	                               ▼ │ at a start without the store
//	                            Journal (on disk)
package follow

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

// Source is the part of a store.Store that a Follower reads.
type Source interface {
	Identity(ctx context.Context) (store.Identity, error)
	GetAt(ctx context.Context, key string, rev int64) (store.KV, error)
	List(ctx context.Context, prefix string) ([]store.KV, int64, error)
	Watch(ctx context.Context, from int64, prefixes ...string) (changes <-chan store.Change, err func() error)
	Nudge(rev int64)
}

// Options configure a Follower. Store and Prefixes are required.
type Options struct {
	Store    Source
	Prefixes []string
	// After is the reader's position: changes since are delivered, or a full update if they are
	// unknown. nil: the first update is a full one.
	After *Position
	// Journal keeps what was delivered on disk, for a start without the store; nil: nothing is
	// kept.
	Journal *Journal
	// CheckEvery is the interval between checks of the store's identity. Default 10 s.
	CheckEvery time.Duration
	// IsFinal reports whether an error ends Run, which then returns it. nil: none does.
	IsFinal func(error) bool
	Log     *slog.Logger // nil: nothing is logged
}

// Position is a point in the history of a store.
type Position struct {
	store.Identity
	// Newest is the newest key under the prefixes, zero if there is none. It distinguishes
	// stores of the same identity.
	Newest store.KV
}

// Update is everything under the prefixes at one revision, or the changes since the last update. A
// change without events only reports progress.
type Update struct {
	Revision int64
	Full     bool
	All      []store.KV    // of a full update, by key
	Events   []store.Event // of a change, by revision and key
	// Diverged marks a full update that does not continue earlier ones: the store was replaced, or
	// restored to an older state. Its revisions do not compare with earlier ones.
	Diverged bool
	// Recalled is the time at which a full update from the journal was last current; zero for other
	// updates.
	Recalled time.Time
}

const (
	// leastPause and mostPause bound the pauses between attempts.
	leastPause, mostPause = 50 * time.Millisecond, 2 * time.Second
	// defaultCheckEvery is the interval between checks of the store's identity.
	defaultCheckEvery = 10 * time.Second
	// identifyTimeout bounds one check.
	identifyTimeout = 5 * time.Second
)

var (
	errDiverged = errors.New("the store was replaced or restored")
	errRelist   = errors.New("a full update was requested")
)

// Follower follows a store. Run does the work; the other methods may be called from any goroutine.
type Follower struct {
	opts      Options
	log       *slog.Logger
	following atomic.Bool
	delivered atomic.Int64         // the revision that the watch began after, or that was delivered last
	mark      atomic.Pointer[mark] // a put that was delivered, for checks
	relist    task.Notice          // holds a token while a full update is requested
	recheck   task.Notice          // holds a token while a check of the store's identity is requested

	// The rest belongs to Run.
	last     store.Identity // of what was delivered last; Revision 0: nothing yet
	full     bool           // the next update has to be a full one
	diverged bool           // and does not continue the one before
	away     bool           // the store was lost, and that was logged
	replaced bool           // the store that answers is not ours, and that was logged
}

// mark is a put in the history of the store that was followed. Identities alone do not distinguish
// two clusters of the same names once the other one is ahead.
type mark struct {
	key      string
	revision int64
	sum      uint32 // CRC-32C of the value
}

func markOf(kv store.KV) *mark {
	return &mark{kv.Key, kv.ModRevision, crc32.Checksum(kv.Value, castagnoli)}
}

// newest returns the mark of the key that was put last, or nil.
func newest(all []store.KV) *mark {
	if len(all) == 0 {
		return nil
	}
	return markOf(slices.MaxFunc(all, func(a, b store.KV) int { return cmp.Compare(a.ModRevision, b.ModRevision) }))
}

// remembers reports whether the store may have the mark in its history.
func (f *Follower) remembers(ctx context.Context, m *mark) (bool, error) {
	if m == nil {
		return true, nil
	}
	kv, err := f.opts.Store.GetAt(ctx, m.key, m.revision)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case errors.Is(err, store.ErrCompacted):
		return true, nil
	case err != nil:
		return false, err
	}
	return *markOf(kv) == *m, nil
}

// New returns a Follower. It does nothing until Run.
func New(o Options) *Follower {
	o.CheckEvery = cmp.Or(o.CheckEvery, defaultCheckEvery)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	f := &Follower{opts: o, log: o.Log, full: true, relist: task.NewNotice(), recheck: task.NewNotice()}
	if o.After != nil {
		f.last, f.full = o.After.Identity, false
		if o.After.Newest.Key != "" {
			f.mark.Store(markOf(o.After.Newest))
		}
	}
	return f
}

// Following reports whether the store is being watched. A watch with a broken connection counts
// until the store refuses to resume it.
func (f *Follower) Following() bool { return f.following.Load() }

// Relist requests a full update.
func (f *Follower) Relist() { f.relist.Give() }

// Recheck requests a check of the store's identity.
func (f *Follower) Recheck() { f.recheck.Give() }

// Run delivers one update after the other, until ctx ends or a final error. The first is a full
// one, unless Options.After is set. deliver may block until its context ends.
func (f *Follower) Run(ctx context.Context, deliver func(context.Context, Update)) error {
	if f.opts.Journal != nil {
		defer f.opts.Journal.close()
	}
	backoff := task.Backoff{Least: leastPause, Most: mostPause, Spread: true}
	for {
		began := time.Now()
		err := f.follow(ctx, deliver)
		f.following.Store(false)
		switch {
		case ctx.Err() != nil:
			return nil
		case f.opts.IsFinal != nil && f.opts.IsFinal(err):
			return err
		case errors.Is(err, errRelist):
			f.full = true
			continue
		case errors.Is(err, errDiverged):
			f.full, f.diverged = true, true
			continue
		case errors.Is(err, store.ErrCompacted):
			f.full = true
		}
		if replaced := errors.Is(err, store.ErrReplaced); !f.away || replaced && !f.replaced {
			f.away, f.replaced = true, replaced
			f.log.Warn("lost the store; keeping what is known", "err", err, "revision", f.last.Revision)
		}
		if time.Since(began) > mostPause {
			backoff.Reset()
		}
		backoff.Pause(ctx)
	}
}

// follow delivers a full update if one is needed, then changes until the watch ends.
func (f *Follower) follow(ctx context.Context, deliver func(context.Context, Update)) error {
	if err := f.check(ctx); err != nil {
		f.recall(ctx, err, deliver)
		return err
	}
	from := f.last.Revision
	var listed *listing
	if f.full {
		var err error
		if listed, err = f.list(ctx); err != nil {
			return err
		}
		if _, err := f.opts.Store.Identity(ctx); err != nil { // it may have been replaced since the check
			return err
		}
		from = listed.from
		if f.diverged {
			f.mark.Store(nil)
		}
	}
	watching, cancel := context.WithCancel(ctx)
	changes, failed := f.opts.Store.Watch(watching, from, f.opts.Prefixes...)
	defer func() {
		cancel()
		for range changes { // until the watch has ended
		}
	}()
	f.following.Store(true)
	f.delivered.Store(from)
	if f.away {
		f.away, f.replaced = false, false
		f.log.Info("following the store again", "revision", from)
	}
	if listed != nil && listed.from < listed.upTo {
		f.opts.Store.Nudge(listed.upTo)
	} else if listed != nil {
		f.deliverList(ctx, listed, deliver)
		listed = nil
	}
	checks := f.checks(watching)
	for {
		select {
		case err := <-checks:
			if errors.Is(err, errDiverged) || errors.Is(err, store.ErrReplaced) {
				return err
			}
			if f.opts.Journal != nil && err == nil && f.opts.Journal.confirm() {
				return errRelist // it has gaps, and can be written again
			}
		case <-f.relist:
			return errRelist
		case c, ok := <-changes:
			switch {
			case !ok:
				return failed()
			case c.Reconnected:
				// At once, since more changes may be another store's.
				if err := f.recheckNow(watching); err != nil {
					return err
				}
			case listed == nil:
				f.deliverChange(ctx, c, deliver)
			case listed.absorb(c):
				f.deliverList(ctx, listed, deliver)
				listed = nil
			}
		}
	}
}

// check compares the store with what was delivered; if it differs, the next update is a full one.
// An error means that the store did not answer.
func (f *Follower) check(ctx context.Context) error {
	now, same, err := f.identify(ctx, f.last)
	switch {
	case err != nil:
		return err
	case f.diverged: // already known
	case f.last.Revision != 0 && !same:
		f.logDiverged(f.last, now)
		f.diverged, f.full = true, true
	}
	f.last.Cluster, f.last.Term = now.Cluster, now.Term
	return nil
}

func (f *Follower) logDiverged(known, now store.Identity) {
	f.log.Warn("the store was replaced or restored to an older state; listing everything again",
		"cluster", now.Cluster, "revision", now.Revision, "known cluster", known.Cluster, "known revision", known.Revision)
}

// identify returns the store's identity, and whether it continues the known one.
func (f *Follower) identify(ctx context.Context, known store.Identity) (now store.Identity, same bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	m := f.mark.Load()
	if now, err = f.opts.Store.Identity(ctx); err != nil || !now.Continues(known) {
		return now, false, err
	}
	same, err = f.remembers(ctx, m)
	return now, same, err
}

// recheckNow returns an error if another store answers over the new connection: errDiverged or
// store.ErrReplaced. If none answers, checks will ask again.
func (f *Follower) recheckNow(ctx context.Context) error {
	now, same, err := f.identify(ctx, store.Identity{Cluster: f.last.Cluster, Term: f.last.Term, Revision: f.delivered.Load()})
	switch {
	case errors.Is(err, store.ErrReplaced):
		return err
	case err != nil:
		f.Recheck()
	case !same:
		f.logDiverged(f.last, now)
		return errDiverged
	}
	return nil
}

// checks compares the store's identity at intervals and on request, since a watch does not report
// that another cluster answers, or an older state. It sends the outcome of each check.
func (f *Follower) checks(ctx context.Context) <-chan error {
	out := make(chan error)
	known := f.last
	go func() {
		tick := time.NewTimer(f.nextCheck())
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-f.recheck:
			}
			known.Revision = f.delivered.Load()
			now, same, err := f.identify(ctx, known)
			if err == nil && !same {
				f.logDiverged(known, now)
				err = errDiverged
			} else if err == nil {
				known = now
			}
			select {
			case out <- err:
			case <-ctx.Done():
				return
			}
			next := f.nextCheck()
			if err != nil {
				next = min(next, mostPause) // the connection may be a new one, to another store
			}
			tick.Reset(next)
		}
	}()
	return out
}

// nextCheck spreads the checks of many hosts over time.
func (f *Follower) nextCheck() time.Duration {
	return f.opts.CheckEvery*3/4 + rand.N(f.opts.CheckEvery/2)
}

// recall delivers the journal, if nothing was delivered yet and the store is unavailable.
func (f *Follower) recall(ctx context.Context, cause error, deliver func(context.Context, Update)) {
	if f.opts.Journal == nil || f.last.Revision != 0 || !errors.Is(cause, store.ErrUnavailable) || ctx.Err() != nil {
		return
	}
	kept, err := f.opts.Journal.read()
	switch {
	case err != nil:
		f.log.Error("ignoring the journal of the last snapshot", "err", err)
		return
	case kept == nil:
		return
	}
	switch {
	case kept.damaged:
		f.log.Error("the journal of the last snapshot is damaged; leaving out all from there on", "file", f.opts.Journal.file,
			"lost bytes", kept.lost, "of", kept.whole+kept.lost, "after revision", kept.identity.Revision)
	case kept.lost > 0:
		f.log.Warn("the end of the journal of the last snapshot was not wholly written; leaving it out", "file", f.opts.Journal.file,
			"lost bytes", kept.lost, "after revision", kept.identity.Revision)
	}
	f.log.Warn("the store cannot be reached; starting from the last snapshot on disk", "revision", kept.identity.Revision,
		"age", time.Since(kept.confirmed).Round(time.Second), "err", cause)
	f.away = true
	f.last, f.full = kept.identity, false
	all := byKey(kept.keys)
	f.mark.Store(newest(all))
	deliver(ctx, Update{Revision: kept.identity.Revision, Full: true, All: all, Recalled: kept.confirmed})
}

// byKey returns the values in the order of their keys.
func byKey(keys map[string]store.KV) []store.KV {
	return slices.SortedFunc(maps.Values(keys), func(a, b store.KV) int { return cmp.Compare(a.Key, b.Key) })
}

func (f *Follower) deliverList(ctx context.Context, l *listing, deliver func(context.Context, Update)) {
	all := byKey(l.keys)
	u := Update{Revision: l.upTo, Full: true, All: all, Diverged: f.diverged}
	f.last.Revision, f.full, f.diverged = l.upTo, false, false
	f.delivered.Store(l.upTo)
	f.mark.Store(newest(all))
	if f.opts.Journal != nil {
		f.logUnwritten(f.opts.Journal.replace(f.last, all))
	}
	deliver(ctx, u)
}

func (f *Follower) deliverChange(ctx context.Context, c store.Change, deliver func(context.Context, Update)) {
	f.last.Revision = c.Revision
	f.delivered.Store(c.Revision)
	for _, e := range slices.Backward(c.Events) {
		if !e.Deleted {
			f.mark.Store(markOf(e.KV))
			break
		}
	}
	if f.opts.Journal != nil && len(c.Events) > 0 {
		f.logUnwritten(f.opts.Journal.append(c))
	}
	deliver(ctx, Update{Revision: c.Revision, Events: c.Events})
}

// logUnwritten logs that the journal could not be written: a later start without the store will
// lack it.
func (f *Follower) logUnwritten(err error) {
	if err != nil {
		f.log.Error("cannot keep the last snapshot on disk; trying again later", "err", err)
	}
}

// listing holds keys under the prefixes, each listed at its own revision between from and upTo.
type listing struct {
	from, upTo int64
	prefixes   []string
	at         []int64 // by prefix
	keys       map[string]store.KV
}

func (f *Follower) list(ctx context.Context) (*listing, error) {
	l := &listing{prefixes: f.opts.Prefixes, keys: map[string]store.KV{}}
	for i, p := range l.prefixes {
		kvs, rev, err := f.opts.Store.List(ctx, p)
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

// absorb updates the prefixes that were listed before upTo, and reports whether all are at one
// revision.
func (l *listing) absorb(c store.Change) bool {
	for _, e := range c.Events {
		i := slices.IndexFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(e.Key, p) })
		switch {
		case e.ModRevision <= l.at[i]: // the listing is newer
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
