// Package presence keeps what a host reports of itself in the store: keys under a lease that the store drops when the host
// is not heard of any more. When the lease is lost, say after a long time without the store, another one is taken and
// everything reported again.
//
// Stopping an agent does not give the lease up: its keys stay for the rest of the lease, so that an agent that is only
// restarted is never missed.
package presence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/task"
)

// Options of a Presence. Store, Prefix and TTL are needed.
type Options struct {
	Store store.Store
	// Prefix is what all keys lie below; what a former agent of this host left there is swept.
	Prefix string
	// TTL is after how long without a word the host counts as gone.
	TTL time.Duration
	// Before, if set, is called before each lease is taken: the host may have counted as gone until now, and others may
	// have made up for it. While it fails nothing is reported.
	Before func(context.Context) error
	Log    *slog.Logger // default: none
}

// Presence is what one host reports. Its methods may be called from any goroutine.
type Presence struct {
	opts     Options
	log      *slog.Logger
	told     chan struct{}
	complete sync.Once // closes told
	// unreachable is closed by missed.
	unreachable chan struct{}
	missed      sync.Once
	kick        task.Notice

	mu      sync.Mutex
	keys    map[string][]byte
	lasting map[string]bool // keys that outlive the lease
	dirty   map[string]struct{}
	swept   bool // what an earlier agent left is gone
	full    bool // everything to report is known, so the rest may be swept
	lease   store.Lease
}

const (
	// batch bounds the keys written in one commit.
	batch = 512
	// timeout bounds one call of the store; it is tried again after retryAfter.
	timeout    = 5 * time.Second
	retryAfter = 500 * time.Millisecond
)

// New makes a Presence that reports nothing until Run.
func New(o Options) *Presence {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Presence{opts: o, log: o.Log, told: make(chan struct{}), unreachable: make(chan struct{}), kick: task.NewNotice(),
		keys: map[string][]byte{}, lasting: map[string]bool{}, dirty: map[string]struct{}{}}
}

// Told is closed once all that there is to report, see Complete, is in the store for the first time, and nothing else.
func (p *Presence) Told() <-chan struct{} { return p.told }

// Unreachable is closed once the store gave no lease for the first time: whoever waits for Told may have to wait until
// the store is back.
func (p *Presence) Unreachable() <-chan struct{} { return p.unreachable }

// Set reports value under key from now on.
func (p *Presence) Set(key string, value []byte) {
	p.mu.Lock()
	old, there := p.keys[key]
	if there && bytes.Equal(old, value) {
		p.mu.Unlock()
		return
	}
	p.keys[key] = value
	p.dirty[key] = struct{}{}
	p.mu.Unlock()
	p.wake()
}

// SetRecord reports a record as the store's tables spell it.
func (p *Presence) SetRecord(key string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("report %s: %w", key, err)
	}
	p.Set(key, value)
	return nil
}

// SetLasting is SetRecord for a key that stays in the store when the host is not heard of any more.
func (p *Presence) SetLasting(key string, record any) error {
	p.mu.Lock()
	p.lasting[key] = true
	p.mu.Unlock()
	return p.SetRecord(key, record)
}

// Again writes key once more, since the store does not have what was reported.
func (p *Presence) Again(key string) {
	p.mu.Lock()
	_, there := p.keys[key]
	if there {
		p.dirty[key] = struct{}{}
	}
	p.mu.Unlock()
	if there {
		p.wake()
	}
}

// Delete reports key no more.
func (p *Presence) Delete(key string) {
	p.mu.Lock()
	_, there := p.keys[key]
	if there {
		delete(p.keys, key)
		p.dirty[key] = struct{}{}
	}
	p.mu.Unlock()
	if there {
		p.wake()
	}
}

// Rewrite writes everything again, under the lease if that is still there: the store may have been restored to a state
// from before.
func (p *Presence) Rewrite() {
	p.mu.Lock()
	for k := range p.keys {
		p.dirty[k] = struct{}{}
	}
	p.swept = false
	p.mu.Unlock()
	p.wake()
}

// Complete says that all that there is to report has been set: keys of an earlier agent that are not among it go.
func (p *Presence) Complete() {
	p.mu.Lock()
	p.full = true
	p.mu.Unlock()
	p.wake()
}

func (p *Presence) wake() { p.kick.Give() }

// Lease is the lease held now, 0 without one. Keys put under it are not reported again when it is lost.
func (p *Presence) Lease() store.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease
}

// Run reports until ctx ends.
func (p *Presence) Run(ctx context.Context) error {
	without := false
	for ctx.Err() == nil {
		lease, err := p.begin(ctx)
		if err != nil {
			if ctx.Err() == nil && !without {
				without = true
				p.log.Warn("no lease: this host counts as gone until there is one", "err", err)
			}
			p.missed.Do(func() { close(p.unreachable) })
			task.Pause(ctx, retryAfter)
			continue
		}
		if without {
			without = false
			p.log.Info("took a lease; this host counts as alive again")
		}
		p.under(lease)
		if err := p.hold(ctx, lease); err != nil && ctx.Err() == nil {
			p.log.Warn("lost the lease of this host, taking another", "err", err)
		}
		p.under(0)
	}
	return nil
}

// begin takes a lease.
func (p *Presence) begin(ctx context.Context) (store.Lease, error) {
	if p.opts.Before != nil {
		if err := p.opts.Before(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.opts.Store.Grant(ctx, p.opts.TTL)
}

// under marks everything to be written under a new lease.
func (p *Presence) under(lease store.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease = lease
	for k := range p.keys {
		p.dirty[k] = struct{}{}
	}
}

// hold renews the lease and writes what changes, until the lease is lost.
func (p *Presence) hold(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	lost := make(chan error, 1)
	go func() { lost <- p.opts.Store.KeepAlive(ctx, lease) }()
	err := p.write(ctx, lease, lost)
	cancel()
	if err == nil {
		return <-lost
	}
	<-lost
	return err
}

// write returns nil when ctx ends.
func (p *Presence) write(ctx context.Context, lease store.Lease, lost chan error) error {
	var again <-chan time.Time
	failing := false
	for {
		err := p.flush(ctx, lease)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrLeaseGone):
			return err
		case err != nil:
			if !failing {
				p.log.Warn("cannot report to the store, will try again", "err", err)
			}
			failing, again = true, time.After(retryAfter)
		default:
			if failing {
				p.log.Info("reporting to the store again")
			}
			failing, again = false, nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			lost <- nil
			return err
		case <-p.kick:
		case <-again:
		}
	}
}

// flush writes all that is marked, and once sweeps what an earlier agent left.
func (p *Presence) flush(ctx context.Context, lease store.Lease) error {
	for {
		ops := p.take(lease)
		if len(ops) == 0 {
			break
		}
		if err := p.commit(ctx, ops); err != nil {
			p.giveBack(ops)
			return err
		}
	}
	p.mu.Lock()
	sweep := p.full && !p.swept
	p.mu.Unlock()
	if !sweep {
		return nil
	}
	if err := p.sweep(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.swept = true
	p.mu.Unlock()
	p.complete.Do(func() { close(p.told) })
	return nil
}

func (p *Presence) commit(ctx context.Context, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := p.opts.Store.Commit(ctx, nil, ops)
	return err
}

func (p *Presence) take(lease store.Lease) []store.Op {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ops []store.Op
	for k := range p.dirty {
		if len(ops) == batch {
			break
		}
		if value, wanted := p.keys[k]; wanted {
			op := store.Op{Key: k, Value: value, Lease: lease}
			if p.lasting[k] {
				op.Lease = 0
			}
			ops = append(ops, op)
		} else {
			ops = append(ops, store.Op{Key: k, Delete: true})
		}
		delete(p.dirty, k)
	}
	return ops
}

func (p *Presence) giveBack(ops []store.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		p.dirty[op.Key] = struct{}{}
	}
}

func (p *Presence) sweep(ctx context.Context) error {
	listCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, _, err := p.opts.Store.List(listCtx, p.opts.Prefix)
	if err != nil {
		return err
	}
	var ops []store.Op
	p.mu.Lock()
	for _, kv := range found {
		if _, wanted := p.keys[kv.Key]; !wanted {
			ops = append(ops, store.Op{Key: kv.Key, Delete: true})
		}
	}
	p.mu.Unlock()
	for len(ops) > 0 {
		n := min(len(ops), batch)
		if err := p.commit(ctx, ops[:n]); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}
