package records

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"heddle/internal/spans"
	"heddle/internal/store"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

// MaxOperations bounds a transaction's conditions and operations, which etcd applies in about 100
// ms.
const MaxOperations = store.LeastTxnOps

// mostAttempts bounds how often an Update runs its function.
const mostAttempts = 50

// Replica is a local copy of the store's tables, such as that of package replica.
type Replica interface {
	Snapshot() *snapshot.Snapshot
	At(ctx context.Context, rev int64) (*snapshot.Snapshot, error)
	Fresh(ctx context.Context) (*snapshot.Snapshot, error)
}

// DB reads records from a replica and writes them to the store. The replica must run, and hold
// every table that is used and those that refer to it.
type DB struct {
	store   store.Store
	replica Replica
	last    atomic.Uint64 // version of this DB's newest commit, see [snapshot.VersionAt]
	queues  queues
}

// NewDB returns a DB of what rep holds.
func NewDB(st store.Store, rep Replica) *DB {
	return &DB{store: st, replica: rep}
}

// Store returns the store that the DB writes to.
func (db *DB) Store() store.Store { return db.store }

// View returns a snapshot that has every change committed before the call.
func (db *DB) View(ctx context.Context) (*Snap, error) {
	s, err := db.replica.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	return &Snap{s}, nil
}

// Update runs f, commits its writes, all or nothing, and returns the revision of the commit. If
// something that f has read has changed, f runs again, so it must have no effects but through tx.
// An error of f is returned once it is known not to come from an old snapshot; nothing is written
// then.
//
// Errors of the store: after [store.ErrOutcomeUnknown] the commit may have happened, after any
// other it did not. [store.ErrConflict] means that other writers were faster at each attempt.
func (db *DB) Update(ctx context.Context, f func(tx *Tx) error) (revision int64, err error) {
	ctx, span := spans.Child(ctx, "update")
	defer func() { span.End(err) }()
	u := update{db: db, f: f}
	defer u.leave()
	snap, err := db.replica.At(ctx, db.replica.Snapshot().RevisionOf(db.last.Load()))
	if err != nil {
		return 0, err
	}
	for attempt := range mostAttempts {
		span.SetInt("heddle.attempts", int64(attempt)+1)
		rev, err := u.try(ctx, snap)
		var r *retry
		if !errors.As(err, &r) {
			return rev, err
		}
		if snap, err = db.next(ctx, snap, r); err != nil {
			return 0, err
		}
		if r.conflict {
			if err := pause(ctx, attempt); err != nil {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("gave up after %d attempts: %w", mostAttempts, store.ErrConflict)
}

// next returns the snapshot for another attempt. A store that compared conditions at an older
// revision than that of snap was replaced or restored, which Fresh reports.
func (db *DB) next(ctx context.Context, snap *snapshot.Snapshot, r *retry) (*snapshot.Snapshot, error) {
	if r.at < snap.Revision {
		return db.replica.Fresh(ctx)
	}
	return db.replica.At(ctx, r.at)
}

// retry requests another attempt on a snapshot of at least revision at.
type retry struct {
	at       int64
	conflict bool
}

func (r *retry) Error() string { return fmt.Sprintf("to be tried again at revision %d", r.at) }

// update is one call of Update.
type update struct {
	db    *DB
	f     func(*Tx) error
	fresh bool // the snapshot is newer than the beginning of the call
	queue []*queue
}

func (u *update) try(ctx context.Context, snap *snapshot.Snapshot) (int64, error) {
	tx := newTx(snap)
	if err := u.f(tx); err != nil {
		return 0, u.failed(ctx, snap, err)
	}
	conds, ops := tx.commit()
	if len(ops) == 0 {
		return snap.Revision, nil
	}
	ops, err := withNote(ctx, ops)
	if err != nil {
		return 0, err
	}
	if n := max(len(conds), len(ops)); n > MaxOperations {
		return 0, fmt.Errorf("%w: it takes %d operations, at most %d are done at once", store.ErrTooLarge, n, MaxOperations)
	}
	if err := u.enter(ctx, tx.touched, snap); err != nil {
		return 0, err
	}
	rev, err := u.write(ctx, conds, ops)
	switch {
	case errors.Is(err, store.ErrConflict):
		u.fresh = true
		return 0, &retry{at: rev, conflict: true}
	case err != nil:
		return 0, err
	}
	u.committed(rev, snap.History)
	return rev, nil
}

// withNote adds the note of ctx to a commit, unless all that it writes ends by itself, as requests
// to agents do.
func withNote(ctx context.Context, ops []store.Op) ([]store.Op, error) {
	note := store.Note(ctx)
	if note == nil || !slices.ContainsFunc(ops, func(o store.Op) bool { return o.Lease == 0 }) {
		return ops, nil
	}
	op, err := note()
	if err != nil {
		return nil, fmt.Errorf("note of the commit: %w", err)
	}
	return append(ops, op), nil
}

// write commits in a span of its own.
func (u *update) write(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	ctx, span := spans.Child(ctx, "commit")
	rev, err := u.db.store.Commit(ctx, conds, ops)
	if err == nil {
		span.Committed(rev)
	}
	span.End(err)
	return rev, err
}

// failed returns an error of f, or a retry if f may have failed for its old snapshot.
func (u *update) failed(ctx context.Context, snap *snapshot.Snapshot, cause error) error {
	if u.fresh {
		return cause
	}
	now, err := u.db.store.Revision(ctx)
	if err != nil || now <= snap.Revision {
		return cause
	}
	u.fresh = true
	return &retry{at: now}
}

func (u *update) committed(rev, history int64) {
	version := snapshot.VersionAt(history, rev)
	for {
		last := u.db.last.Load()
		if version <= last || u.db.last.CompareAndSwap(last, version) {
			break
		}
	}
	for _, q := range u.queue {
		q.last = version
	}
}

// pause waits a random time that grows with each attempt.
func pause(ctx context.Context, attempt int) error {
	if attempt == 0 {
		return nil
	}
	task.Pause(ctx, rand.N(time.Millisecond<<min(attempt, 6)))
	return ctx.Err()
}
