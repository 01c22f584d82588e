package tunnel

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// leadership is a leader's right to decide: while its key is there, all its writes to the store
// succeed, and none after.
type leadership struct {
	store store.Store
	term  int64 // greater than those of leaders before it: the revision of its key
}

// campaign waits until no other leads, and leads. It reports whether it has led.
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
		lost(c.awaitEnd(ctx, func(kv store.KV) bool { return kv.CreateRevision == term }))
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
		term, err := st.Commit(ctx, []store.Cond{{Key: leaderKey}}, []store.Op{{Key: leaderKey, Value: []byte(c.opts.Name), Lease: lease}})
		if !errors.Is(err, store.ErrConflict) {
			return term, err
		}
		c.BeReady()
		if err := c.awaitEnd(ctx, func(store.KV) bool { return true }); ctx.Err() != nil {
			return 0, err
		}
	}
}

// awaitEnd waits until the leader's key is not there any more as it should be, or the store has
// another history, and says which: errDeposed or errSetBack; or why ctx ended.
func (c *Controller) awaitEnd(ctx context.Context, intact func(store.KV) bool) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := follow.New(follow.Options{Store: c.opts.Store, Prefixes: []string{leaderKey}, Log: c.log})
	_ = f.Run(ctx, func(_ context.Context, u follow.Update) { // it ends with ctx alone
		switch {
		case u.Diverged:
			stop(errSetBack)
		case u.Full && !slices.ContainsFunc(u.All, intact):
			stop(errDeposed)
		case slices.ContainsFunc(u.Events, func(e store.Event) bool { return e.Deleted || !intact(e.KV) }):
			stop(errDeposed)
		}
	})
	return context.Cause(ctx)
}

// renew gives the store another identity, after a switch was found that obeys a leader with a later
// term. While this one leads, none can have led later: that leader was of a history that the store
// has lost, and a term says nothing there.
func (l leadership) renew(ctx context.Context) error {
	return l.commit(ctx, []store.Op{{Key: identityKey, Value: []byte(rand.Text())}})
}

// commit writes, if this is still the leader.
func (l leadership) commit(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, err := l.store.Commit(ctx, []store.Cond{{Key: leaderKey, Create: l.term}}, ops)
	if errors.Is(err, store.ErrConflict) {
		return errDeposed
	}
	return err
}

// commitTimeout bounds one write to the store.
const commitTimeout = 2 * time.Second

var (
	// errDeposed: another controller leads, or may.
	errDeposed = errors.New("another controller leads")
	// errSetBack: the store was replaced or restored to an older state; what was read is void.
	errSetBack = errors.New("the store was replaced or restored to an older state")
	// errLater: a switch obeys a leader with a later term over the same store.
	errLater = errors.New("a switch obeys a later leader")
)
