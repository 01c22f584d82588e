package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// The interval between probes of the store, and the timeout of one.
const (
	probeInterval = 5 * time.Second
	probeTimeout  = 3 * time.Second
)

// newStoreProbe returns a task that probes the store. It logs each change of the outcome and
// exports it as a metric, since all else goes on with what was read last.
func newStoreProbe(st store.Store, log *slog.Logger, metrics *telemetry.Metrics) task.Task {
	var failing atomic.Bool
	metrics.Register(func() []telemetry.Value {
		return []telemetry.Value{telemetry.Flag("heddle_store_answers", "1 while the store answers.", !failing.Load())}
	})
	return newLoop("store probe", func(ctx context.Context) error {
		for task.Pause(ctx, probeInterval) {
			attempt, cancel := context.WithTimeout(ctx, probeTimeout)
			_, err := st.Revision(attempt)
			cancel()
			switch {
			case ctx.Err() != nil || failing.Swap(err != nil) == (err != nil):
			case err != nil:
				log.Warn("the store does not answer; going on with what was known last", "err", err)
			default:
				log.Info("the store answers again")
			}
		}
		return nil
	})
}
