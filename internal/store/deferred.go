package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Deferred is a Store that is opened later, so that its users can start without it. Calls wait
// until it is open or Fail was called, and then return [ErrUnavailable] until it is open.
type Deferred struct {
	tried, opened chan struct{}
	once, failed  sync.Once
	store         Store // written before opened is closed
}

// NewDeferred returns a Deferred that is not open.
func NewDeferred() *Deferred {
	return &Deferred{tried: make(chan struct{}), opened: make(chan struct{})}
}

// Open makes st the store of all calls from now on. Later calls of Open change nothing.
func (d *Deferred) Open(st Store) {
	d.once.Do(func() {
		d.store = st
		close(d.opened)
	})
}

// Fail ends the wait, since an attempt to open the store failed or takes too long.
func (d *Deferred) Fail() { d.failed.Do(func() { close(d.tried) }) }

// Opened is closed once the store is open.
func (d *Deferred) Opened() <-chan struct{} { return d.opened }

// Diagnose returns why the store cannot be reached, if it is open and can tell.
func (d *Deferred) Diagnose() error {
	select {
	case <-d.opened:
		if st, ok := d.store.(interface{ Diagnose() error }); ok {
			return st.Diagnose()
		}
	default:
	}
	return nil
}

// get returns the store, if it is open.
func (d *Deferred) get(ctx context.Context) (Store, error) {
	select {
	case <-d.opened:
		return d.store, nil
	default:
	}
	select {
	case <-d.opened:
		return d.store, nil
	case <-d.tried:
		return nil, fmt.Errorf("%w: it could not be reached since the start", ErrUnavailable)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// through calls f with the store, if it is open.
func through[T any](ctx context.Context, d *Deferred, f func(Store) (T, error)) (result T, err error) {
	st, err := d.get(ctx)
	if err != nil {
		return result, err
	}
	return f(st)
}

// Get implements [Store].
func (d *Deferred) Get(ctx context.Context, key string) (KV, error) {
	return through(ctx, d, func(st Store) (KV, error) { return st.Get(ctx, key) })
}

// List implements [Store].
func (d *Deferred) List(ctx context.Context, prefix string) ([]KV, int64, error) {
	st, err := d.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	return st.List(ctx, prefix)
}

// Revision implements [Store].
func (d *Deferred) Revision(ctx context.Context) (int64, error) {
	return through(ctx, d, func(st Store) (int64, error) { return st.Revision(ctx) })
}

// Identity implements [Store].
func (d *Deferred) Identity(ctx context.Context) (Identity, error) {
	return through(ctx, d, func(st Store) (Identity, error) { return st.Identity(ctx) })
}

// GetAt implements [Store].
func (d *Deferred) GetAt(ctx context.Context, key string, rev int64) (KV, error) {
	return through(ctx, d, func(st Store) (KV, error) { return st.GetAt(ctx, key, rev) })
}

// Commit implements [Store].
func (d *Deferred) Commit(ctx context.Context, conds []Cond, ops []Op) (int64, error) {
	return through(ctx, d, func(st Store) (int64, error) { return st.Commit(ctx, conds, ops) })
}

// Watch implements [Store].
func (d *Deferred) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan Change, func() error) {
	st, err := d.get(ctx)
	if err != nil {
		none := make(chan Change)
		close(none)
		return none, func() error { return err }
	}
	return st.Watch(ctx, from, prefixes...)
}

// Nudge implements [Store].
func (d *Deferred) Nudge(rev int64) {
	select {
	case <-d.opened:
		d.store.Nudge(rev)
	default:
	}
}

// Grant implements [Store].
func (d *Deferred) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	return through(ctx, d, func(st Store) (Lease, error) { return st.Grant(ctx, ttl) })
}

// KeepAlive implements [Store].
func (d *Deferred) KeepAlive(ctx context.Context, l Lease) error {
	select {
	case <-d.opened:
		return d.store.KeepAlive(ctx, l)
	case <-ctx.Done():
		return nil
	}
}

// Revoke implements [Store].
func (d *Deferred) Revoke(ctx context.Context, l Lease) error {
	st, err := d.get(ctx)
	if err != nil {
		return err
	}
	return st.Revoke(ctx, l)
}

// Close closes the store, if it is open.
func (d *Deferred) Close() error {
	select {
	case <-d.opened:
		return d.store.Close()
	default:
		return nil
	}
}
