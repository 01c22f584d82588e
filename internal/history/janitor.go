package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"heddle/internal/audit"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

const (
	// sweepEvery is the interval between looks at the records.
	sweepEvery = 20 * time.Second
	// mostWait bounds how long a record stays for a server that has not journalled it. The store's
	// own history, which a server would have to read it from, is not kept for longer.
	mostWait = 10 * time.Minute
	// sweptAtOnce is the number of records that one commit removes.
	sweptAtOnce = 500
)

// Janitor removes the records of requests that every live server has journalled. It is a task;
// several may run over one store.
type Janitor struct {
	task.Part
	store store.Store
	log   *slog.Logger
	marks []mark // the revisions of former looks, oldest first
}

// mark is the revision of the store at a time.
type mark struct {
	at       time.Time
	revision int64
}

// NewJanitor returns the task.
func NewJanitor(st store.Store, log *slog.Logger) *Janitor {
	return &Janitor{Part: task.NewPart("audit janitor"), store: st, log: log}
}

// Run removes records until ctx ends.
func (j *Janitor) Run(ctx context.Context) error {
	j.BeReady()
	failing := false
	for task.Pause(ctx, sweepEvery) {
		err := j.sweep(ctx, time.Now())
		if err != nil && ctx.Err() == nil && !failing {
			j.log.Warn("cannot remove records of requests; will try again", "err", err)
		}
		failing = err != nil
	}
	return nil
}

// sweep removes the records that every server has journalled by now, and those that have waited for
// too long.
func (j *Janitor) sweep(ctx context.Context, now time.Time) error {
	journalled, err := j.journalled(ctx)
	if err != nil {
		return err
	}
	kept, revision, err := j.store.List(ctx, audit.Prefix)
	if err != nil {
		return err
	}
	j.marks = append(j.marks, mark{now, revision})
	upTo := max(journalled, j.expired(now))
	kept = slices.DeleteFunc(kept, func(kv store.KV) bool { return kv.ModRevision > upTo })
	for part := range slices.Chunk(kept, sweptAtOnce) {
		if err := j.remove(store.WithReserve(ctx), part); err != nil {
			return err
		}
	}
	return nil
}

// journalled returns the revision up to which every live server has journalled the records.
func (j *Janitor) journalled(ctx context.Context) (int64, error) {
	kvs, _, err := j.store.List(ctx, schema.ServersPrefix)
	if err != nil {
		return 0, err
	}
	least := int64(math.MaxInt64)
	for _, kv := range kvs {
		var server schema.Server
		if err := json.Unmarshal(kv.Value, &server); err != nil {
			return 0, fmt.Errorf("%s: %w", kv.Key, err)
		}
		if server.Role == "serve" || server.Journalled > 0 { // other programs have no journal
			least = min(least, server.Journalled)
		}
	}
	if least == math.MaxInt64 {
		return 0, nil // a server that is about to report might have a journal
	}
	return least, nil
}

// expired returns the revision that the store had mostWait ago, or 0, and forgets older marks.
func (j *Janitor) expired(now time.Time) (revision int64) {
	for len(j.marks) > 0 && now.Sub(j.marks[0].at) >= mostWait {
		revision = j.marks[0].revision
		j.marks = j.marks[1:]
	}
	return revision
}

// remove deletes records. Of those that their request has written again meanwhile the next look
// decides.
func (j *Janitor) remove(ctx context.Context, kvs []store.KV) error {
	var conds []store.Cond
	var ops []store.Op
	for _, kv := range kvs {
		conds = append(conds, store.Cond{Key: kv.Key, Mod: kv.ModRevision})
		ops = append(ops, store.Op{Key: kv.Key, Delete: true})
	}
	if _, err := j.store.Commit(ctx, conds, ops); err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("remove %d records of requests: %w", len(kvs), err)
	}
	return nil
}
