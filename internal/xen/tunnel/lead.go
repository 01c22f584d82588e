package tunnel

import (
	"context"
	"errors"
	"time"

	"heddle/internal/store"
)

// leadership is a leader's right to decide: while its key is there, all its writes to the store succeed, and none after.
type leadership struct {
	store store.Store
	term  int64 // greater than those of leaders before it: the revision of its key
}

// campaign waits until nobody leads, leads, and returns when that is over. led says that it came to that.
func (c *Controller) campaign(ctx context.Context) (led bool, err error) {
	st := c.opts.Store
	lease, err := st.Grant(ctx, c.opts.TTL)
	if err != nil {
		return false, err
	}
	defer func() { // the next leader need not wait
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = st.Revoke(ctx, lease)
	}()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := st.KeepAlive(ctx, lease); err != nil {
			lost(err)
		}
	}()
	defer func() { lost(nil); <-kept }()
	term, err := c.take(ctx, lease)
	if err != nil {
		return false, cause(ctx, err)
	}
	c.log.Info("leader", "term", term)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if err := awaitEnd(ctx, st, term); err == nil {
			lost(errDeposed)
		} else if ctx.Err() == nil {
			lost(err)
		}
	}()
	defer func() { lost(nil); <-watched }()
	return true, cause(ctx, c.lead(ctx, leadership{st, term}))
}

// cause prefers why ctx ended to what came of it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// take puts the leader's key as soon as there is none, and returns its revision.
func (c *Controller) take(ctx context.Context, lease store.Lease) (term int64, err error) {
	st := c.opts.Store
	for {
		rev, err := st.Commit(ctx, []store.Cond{{Key: leaderKey}}, []store.Op{{Key: leaderKey, Value: []byte(c.opts.Name), Lease: lease}})
		if !errors.Is(err, store.ErrConflict) {
			return rev, err
		}
		c.beReady()
		if err := awaitEnd(ctx, st, rev); err != nil {
			return 0, err
		}
	}
}

// awaitEnd waits until the leader's key is deleted after a revision, or may have been.
func awaitEnd(ctx context.Context, st store.Store, rev int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, failed := st.Watch(ctx, rev, leaderKey)
	for change := range changes {
		for _, e := range change.Events {
			if e.Deleted {
				return nil
			}
		}
	}
	if err := failed(); err != nil && !errors.Is(err, store.ErrCompacted) {
		return err
	}
	return ctx.Err()
}

// commit writes, if this is still the leader.
func (l leadership) commit(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, commitPatience)
	defer cancel()
	_, err := l.store.Commit(ctx, []store.Cond{{Key: leaderKey, Create: l.term}}, ops)
	if errors.Is(err, store.ErrConflict) {
		return errDeposed
	}
	return err
}

// commitPatience bounds one write to the store.
const commitPatience = 2 * time.Second

// errDeposed says that another controller leads, or may.
var errDeposed = errors.New("another controller leads")
