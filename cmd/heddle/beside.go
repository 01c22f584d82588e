package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

const (
	// startingUp bounds the wait for another server that holds the store's lock but is not listening, as while it starts or
	// stops.
	startingUp = 30 * time.Second
	// besideRetry is the pause between attempts meanwhile.
	besideRetry = 200 * time.Millisecond
)

// openBeside opens the store, or where another server has it open in dataDir, connects to that; own says that it is this
// process that has it. The store is nil when ctx ended before.
func openBeside(ctx context.Context, dataDir string, log *slog.Logger, open func() (*store.Etcd, error)) (st *store.Etcd, own bool, err error) {
	for began := time.Now(); ; {
		if st, err = open(); !errors.Is(err, store.ErrInUse) {
			return st, true, err
		}
		st, err = store.OpenRunning(ctx, dataDir, log.With("part", "store"))
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > startingUp {
			return st, false, storeError(err)
		}
		if !task.Pause(ctx, besideRetry) {
			return nil, false, nil
		}
	}
}
