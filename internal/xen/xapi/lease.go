package xapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

const (
	leaseTTL = 10 * time.Second
	// leasePause is between attempts to get a lease while the store is away.
	leasePause = 200 * time.Millisecond
)

// lease is this server's: what is put under it goes when the server does. It is a task,
// ready when the first lease is there.
type lease struct {
	task.Part
	store store.Store
	log   *slog.Logger

	mu sync.Mutex
	id store.Lease
}

func newLease(st store.Store, log *slog.Logger) *lease {
	return &lease{Part: task.NewPart("lease"), store: st, log: log}
}

// current is the lease to put something under.
func (l *lease) current() store.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// Run holds a lease until ctx ends, and takes another when one is lost.
func (l *lease) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		id, err := l.store.Grant(ctx, leaseTTL)
		if err != nil {
			task.Pause(ctx, leasePause)
			continue
		}
		l.mu.Lock()
		first := l.id == 0
		l.id = id
		l.mu.Unlock()
		if first {
			l.BeReady()
		}
		if err := l.store.KeepAlive(ctx, id); errors.Is(err, store.ErrLeaseGone) {
			l.log.Warn("the server's lease has ended: what it had asked of hosts is gone")
		}
	}
	if id := l.current(); id != 0 {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := l.store.Revoke(over, id); err != nil && !errors.Is(err, store.ErrLeaseGone) {
			l.log.Debug("lease not revoked: it ends by itself", "err", err)
		}
	}
	return nil
}
