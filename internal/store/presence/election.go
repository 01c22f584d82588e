package presence

import (
	"context"
	"errors"
	"time"

	"heddle/internal/store"
)

// revokeTimeout bounds the end of a lease that is no longer needed.
const revokeTimeout = 5 * time.Second

// Campaign waits until no other process holds the key, takes it under a lease of its own, and runs
// lead with the key's revision: while the key has it, no other process leads. ctx of lead ends with
// the lease.
func Campaign(ctx context.Context, st store.Store, key string, ttl time.Duration, lead func(ctx context.Context, term int64) error) error {
	lease, err := st.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	defer func() { // the next leader need not wait
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
		defer cancel()
		_ = st.Revoke(ctx, lease)
	}()
	ctx, lost := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := st.KeepAlive(ctx, lease); err != nil {
			lost(err)
		}
	}()
	defer func() { lost(nil); <-kept }()
	term, err := take(ctx, st, key, lease)
	if err == nil {
		err = lead(ctx, term)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// take puts the key as soon as there is none, and returns its revision.
func take(ctx context.Context, st store.Store, key string, lease store.Lease) (term int64, err error) {
	for {
		at, err := st.Commit(ctx, []store.Cond{{Key: key}}, []store.Op{{Key: key, Value: []byte("{}"), Lease: lease}})
		if !errors.Is(err, store.ErrConflict) {
			return at, err
		}
		if err := awaitDeletion(ctx, st, key, at); err != nil {
			return 0, err
		}
	}
}

// awaitDeletion waits until the key is deleted after a revision at which it was there.
func awaitDeletion(ctx context.Context, st store.Store, key string, at int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes, failure := st.Watch(ctx, at, key)
	for c := range changes {
		for _, e := range c.Events {
			if e.Key == key && e.Deleted {
				return nil
			}
		}
	}
	if err := failure(); err != nil {
		return err
	}
	return ctx.Err()
}
