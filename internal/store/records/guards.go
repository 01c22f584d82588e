package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

// guardLife is the least time that a guard key stays after its last change, longer than any
// transaction. A missing key means the same as an unchanged one.
const guardLife = time.Hour

// sweptAtOnce is the number of guard keys that one commit removes.
const sweptAtOnce = 128

// GuardSweeper removes stale guard keys, such as those of deleted projects' quotas. It is a task;
// several may run over one store.
type GuardSweeper struct {
	task.Part
	db  *DB
	log *slog.Logger
}

// NewGuardSweeper returns the task.
func NewGuardSweeper(db *DB, log *slog.Logger) *GuardSweeper {
	return &GuardSweeper{task.NewPart("guard sweeper"), db, log}
}

// Run removes once per guardLife the keys that have not changed since the last time.
func (g *GuardSweeper) Run(ctx context.Context) error {
	g.BeReady()
	before := g.sweep(ctx, 0)
	for task.Pause(ctx, guardLife) {
		before = g.sweep(ctx, before)
	}
	return nil
}

// sweep removes the keys unchanged after revision before (0: none), and returns the current
// revision, or before if the store is unavailable.
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

// sweepGuards removes the guard keys unchanged after revision last, and returns how many.
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
