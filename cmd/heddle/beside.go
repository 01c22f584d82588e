package main

import (
	"context"
	"errors"
	"log/slog"

	"heddle/internal/store"
)

// openBeside opens the store, or where another server has it open in dataDir, connects to that; own says that it is this
// process that has it. The store is nil when ctx ended before.
func openBeside(ctx context.Context, dataDir string, log *slog.Logger, open func() (*store.Etcd, error)) (st *store.Etcd, own bool, err error) {
	if st, err = open(); !errors.Is(err, store.ErrInUse) {
		return st, true, err
	}
	st, err = store.OpenRunning(ctx, dataDir, log.With("part", "store"))
	return st, false, storeError(err)
}
