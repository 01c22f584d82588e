package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/task"
)

// opener is a task that opens the store of agents, which start without waiting for it: from their
// journals. It is ready at once.
type opener struct {
	task.Task
	open  func(context.Context) (*backend.Etcd, error)
	then  func(context.Context, *backend.Etcd) error // before the agents get the store; nil: nothing
	store *store.Deferred
	log   *slog.Logger

	mu     sync.Mutex
	opened *backend.Etcd // nil: not yet
}

func newOpener(open func(context.Context) (*backend.Etcd, error), log *slog.Logger) *opener {
	o := &opener{open: open, store: store.NewDeferred(), log: log}
	o.Task = newLoop("store", o.run)
	return o
}

// startTimeout bounds the time that agents wait for the store before they start from their
// journals. Opening goes on, and they catch up when it succeeds.
const startTimeout = 300 * time.Millisecond

// run retries until the store is open, then waits for ctx to end.
func (o *opener) run(ctx context.Context) error {
	defer time.AfterFunc(startTimeout, o.store.Fail).Stop()
	st, err := openRetrying(ctx, o.log, func(ctx context.Context) (*backend.Etcd, error) {
		st, err := o.open(ctx)
		if err == nil && o.then != nil {
			if err = o.then(ctx, st); err != nil {
				err = errors.Join(err, st.Close())
			}
		}
		if errors.Is(err, store.ErrUnavailable) {
			o.store.Fail()
		}
		return st, err
	})
	if err != nil || st == nil {
		return err
	}
	o.mu.Lock()
	o.opened = st
	o.mu.Unlock()
	o.store.Open(st)
	<-ctx.Done()
	return nil
}

// setEndpoints changes the addresses of a store that is open. One that is not yet open is opened
// where it is then.
func (o *opener) setEndpoints(endpoints []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened != nil {
		o.opened.SetEndpoints(endpoints)
	}
}
