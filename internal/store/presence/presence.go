// Package presence keeps what a host reports of itself in the store: keys under a lease, which the
// store drops when the host no longer renews it. After a lost lease a Presence takes another one
// and reports everything again.
//
// An agent that stops does not revoke its lease, so that a restart is not noticed. A server does.
package presence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

// Options of a Presence. Store, Prefix and TTL are required.
type Options struct {
	Store  store.Store
	Prefix string   // of all keys; other keys below it, of an earlier agent of this host, are deleted
	Except []string // begin keys below Prefix that are not the Presence's
	TTL    time.Duration
	// Prepare, if set, is called before each lease is taken: others may have reacted to the absence
	// of the host. While it fails nothing is reported.
	Prepare func(context.Context) error
	// Leave ends the lease when Run does: others should notice at once.
	Leave bool
	Log   *slog.Logger // default: none
}

// Presence is the report of one host. Its methods may be called from any goroutine.
type Presence struct {
	opts    Options
	log     *slog.Logger
	changed task.Notice
	keys    *Keys

	reported        chan struct{}
	reportedOnce    sync.Once
	unreachable     chan struct{}
	unreachableOnce sync.Once

	suspended atomic.Bool // nothing is written

	mu    sync.Mutex
	lease store.Lease
}

// retryAfter is the pause after a failed call of the store.
const retryAfter = 500 * time.Millisecond

// New returns a Presence that reports nothing until Run.
func New(o Options) *Presence {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	changed := task.NewNotice()
	keys := NewKeys(o.Store, changed, o.Prefix)
	keys.except = o.Except
	return &Presence{opts: o, log: o.Log, changed: changed, keys: keys,
		reported: make(chan struct{}), unreachable: make(chan struct{})}
}

// Reported is closed once the store holds everything to report, see Complete, and nothing else.
func (p *Presence) Reported() <-chan struct{} { return p.reported }

// Unreachable is closed once the store has failed to grant a lease: Reported may have to wait until
// the store is back.
func (p *Presence) Unreachable() <-chan struct{} { return p.unreachable }

// Set reports value under key from now on.
func (p *Presence) Set(key string, value []byte) { p.keys.Set(key, value, 0) }

// SetRecord reports a record as the store's tables encode it.
func (p *Presence) SetRecord(key string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("report %s: %w", key, err)
	}
	p.Set(key, value)
	return nil
}

// SetLasting is SetRecord for a key that outlives the lease.
func (p *Presence) SetLasting(key string, record any) error {
	p.keys.mu.Lock()
	p.keys.lasting[key] = true
	p.keys.mu.Unlock()
	return p.SetRecord(key, record)
}

// Rewrite writes key again, since the store does not hold what was reported.
func (p *Presence) Rewrite(key string) { p.keys.Rewrite(key) }

// RewriteAll writes everything again, under the same lease: the store may have been restored.
func (p *Presence) RewriteAll() {
	p.keys.RewriteAll()
	p.keys.Recheck()
}

// Suspend stops all writes until Resume: another agent reports as the same host. The lease is kept.
func (p *Presence) Suspend() { p.suspended.Store(true) }

// Suspended reports whether writes are stopped.
func (p *Presence) Suspended() bool { return p.suspended.Load() }

// Resume writes everything again, whether it was suspended or not.
func (p *Presence) Resume() {
	p.suspended.Store(false)
	p.RewriteAll()
}

// Delete no longer reports key.
func (p *Presence) Delete(key string) { p.keys.Delete(key, 0) }

// Complete marks that everything to report is set: an earlier agent's other keys are deleted.
func (p *Presence) Complete() { p.keys.Complete() }

// Lease returns the current lease, or 0. Keys that others put under it are not restored.
func (p *Presence) Lease() store.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease
}

func (p *Presence) setLease(lease store.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease = lease
}

// Run reports until ctx ends.
func (p *Presence) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		lease, err := p.grant(ctx)
		if err != nil {
			if ctx.Err() == nil && !failing {
				failing = true
				p.log.Warn("no lease: this host counts as gone until there is one", "err", err)
			}
			p.unreachableOnce.Do(func() { close(p.unreachable) })
			task.Pause(ctx, retryAfter)
			continue
		}
		if failing {
			failing = false
			p.log.Info("took a lease; this host counts as alive again")
		}
		p.setLease(lease)
		p.keys.RewriteAll()
		if err := p.reportUnder(ctx, lease); err != nil && ctx.Err() == nil {
			p.log.Warn("lost the lease of this host, taking another", "err", err)
		}
		p.setLease(0)
	}
	return nil
}

func (p *Presence) grant(ctx context.Context) (store.Lease, error) {
	if p.opts.Prepare != nil {
		if err := p.opts.Prepare(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.opts.Store.Grant(ctx, p.opts.TTL)
}

// reportUnder renews the lease and writes what changes, until the lease is lost or ctx ends.
func (p *Presence) reportUnder(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	lost := make(chan error, 1)
	go func() { lost <- p.opts.Store.KeepAlive(ctx, lease) }()
	err := p.write(ctx, lease, lost)
	cancel()
	<-lost
	if p.opts.Leave {
		p.leave(lease)
	}
	return err
}

// leave ends the lease. If it cannot, the lease ends by itself.
func (p *Presence) leave(lease store.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := p.opts.Store.Revoke(ctx, lease); err != nil && !errors.Is(err, store.ErrLeaseGone) {
		p.log.Warn("cannot end the lease; it ends by itself", "err", err)
	}
}

// write writes changes until ctx ends, which returns nil, or the lease is lost.
func (p *Presence) write(ctx context.Context, lease store.Lease, lost chan error) error {
	failing := false
	for {
		var retry <-chan time.Time
		var err error
		if !p.suspended.Load() {
			_, err = p.keys.Flush(ctx, lease)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrLeaseGone):
			return err
		case err != nil:
			if !failing {
				p.log.Warn("cannot report to the store, will try again", "err", err)
			}
			failing, retry = true, time.After(retryAfter)
		default:
			if failing {
				p.log.Info("reporting to the store again")
			}
			failing = false
			if !p.suspended.Load() && p.keys.isSwept() {
				p.reportedOnce.Do(func() { close(p.reported) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			lost <- nil // for reportUnder
			return err
		case <-p.changed:
		case <-retry:
		}
	}
}
