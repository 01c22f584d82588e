package main

import (
	"context"
	"sync/atomic"
	"time"

	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// replicaAge measures how old what a process has read from the store may be: the time since it was
// last known to have everything that had been committed.
type replicaAge struct {
	fresh   func(context.Context) (*snapshot.Snapshot, error)
	current atomic.Int64 // nanoseconds since 1970 when it was current; 0: never
}

// newReplicaAge returns the measurement, and the task that makes it.
func newReplicaAge(fresh func(context.Context) (*snapshot.Snapshot, error)) (*replicaAge, task.Task) {
	a := &replicaAge{fresh: fresh}
	return a, newLoop("age of the replica", a.run)
}

func (a *replicaAge) run(ctx context.Context) error {
	for task.Pause(ctx, probeInterval) {
		a.probe(ctx)
	}
	return nil
}

// probe waits until the replica has all that the store has now.
func (a *replicaAge) probe(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := a.fresh(ctx); err == nil {
		a.current.Store(began.UnixNano())
	}
}

// metrics returns the age at now; none before the replica was current for the first time.
func (a *replicaAge) metrics(now time.Time) []telemetry.Value {
	at := a.current.Load()
	if at == 0 {
		return nil
	}
	v := telemetry.Gauge.Of("heddle_replica_age_seconds", "Time since this server was last known to have read everything from the store.", 0)
	v.Value = now.Sub(time.Unix(0, at)).Seconds()
	return []telemetry.Value{v}
}
