package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"heddle/internal/store"
)

// guardLife is how long a guard key stays at least after its last change. A transaction that heeds it is long over then,
// and a missing key means the same as one that has not changed.
const guardLife = time.Hour

// sweptAtOnce is how many guard keys one commit removes.
const sweptAtOnce = 128

// GuardSweeper removes guard keys that have outlived what they guarded, such as the quotas of projects that are gone. It
// is a task; any number may run over one store.
type GuardSweeper struct {
	db    *DB
	log   *slog.Logger
	ready chan struct{}
}

// NewGuardSweeper returns the task.
func NewGuardSweeper(db *DB, log *slog.Logger) *GuardSweeper {
	return &GuardSweeper{db: db, log: log, ready: make(chan struct{})}
}

func (g *GuardSweeper) String() string { return "guard sweeper" }

// Ready is closed when the task runs.
func (g *GuardSweeper) Ready() <-chan struct{} { return g.ready }

// Run sweeps once per guardLife until ctx ends: each time the keys that have not changed since the time before.
func (g *GuardSweeper) Run(ctx context.Context) error {
	close(g.ready)
	ticks := time.NewTicker(guardLife)
	defer ticks.Stop()
	var before int64
	for {
		before = g.sweep(ctx, before)
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// sweep removes the keys that have not changed after revision before (0: none), and returns the revision now; where the
// store is away it is before once more.
func (g *GuardSweeper) sweep(ctx context.Context, before int64) int64 {
	now, err := g.db.store.Revision(ctx)
	if err == nil && before > 0 {
		var n int
		if n, err = g.db.sweepGuards(ctx, before); n > 0 {
			g.log.Info("removed unused guard keys", "keys", n)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			g.log.Warn("cannot remove unused guard keys; will try again", "err", err)
		}
		return before
	}
	return now
}

// sweepGuards removes the guard keys that have not changed after revision last, and returns how many.
func (db *DB) sweepGuards(ctx context.Context, last int64) (removed int, err error) {
	kvs, _, err := db.store.List(ctx, guardRoot)
	if err != nil {
		return 0, err
	}
	kvs = slices.DeleteFunc(kvs, func(kv store.KV) bool { return kv.ModRevision > last })
	for part := range slices.Chunk(kvs, sweptAtOnce) {
		var conds []store.Cond
		var ops []store.Op
		for _, kv := range part {
			conds = append(conds, store.Cond{Key: kv.Key, Mod: kv.ModRevision})
			ops = append(ops, store.Op{Key: kv.Key, Delete: true})
		}
		_, err := db.store.Commit(ctx, conds, ops)
		switch {
		case errors.Is(err, store.ErrConflict): // one is used again; the others have time
		case err != nil:
			return removed, fmt.Errorf("remove %d guard keys: %w", len(part), err)
		default:
			removed += len(part)
		}
	}
	return removed, nil
}
