package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"heddle/internal/store"
)

// opener opens the store of agents that start without waiting for it: they begin with what they kept on disk. It is a
// task, ready at once.
type opener struct {
	open  func(context.Context) (*store.Etcd, error)
	then  func(context.Context, *store.Etcd) error // before the agents get the store; nil: nothing
	store *store.Deferred
	log   *slog.Logger
	ready chan struct{}
}

func newOpener(open func(context.Context) (*store.Etcd, error), log *slog.Logger) *opener {
	return &opener{open: open, store: store.NewDeferred(), log: log, ready: make(chan struct{})}
}

func (o *opener) String() string         { return "store" }
func (o *opener) Ready() <-chan struct{} { return o.ready }

// startTimeout bounds the time that agents wait for the store before they begin with what they kept on disk. The attempt to open it
// goes on meanwhile, and they catch up when it succeeds.
const startTimeout = 300 * time.Millisecond

// Run tries until the store is open, then waits for ctx to end and closes it.
func (o *opener) Run(ctx context.Context) error {
	close(o.ready)
	defer time.AfterFunc(startTimeout, o.store.Fail).Stop()
	st, err := openRetrying(ctx, o.log, func(ctx context.Context) (*store.Etcd, error) {
		st, err := o.attempt(ctx)
		if errors.Is(err, store.ErrUnavailable) {
			o.store.Fail()
		}
		return st, err
	})
	if err != nil || st == nil {
		return err
	}
	o.store.Open(st)
	<-ctx.Done()
	return nil
}

func (o *opener) attempt(ctx context.Context) (*store.Etcd, error) {
	st, err := o.open(ctx)
	if err != nil || o.then == nil {
		return st, err
	}
	if err := o.then(ctx, st); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}
