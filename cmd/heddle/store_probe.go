package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// The interval between probes of the store, and the timeout of one.
const (
	probeInterval = 5 * time.Second
	probeTimeout  = 3 * time.Second
)

// storeProbe is a task that probes the store. It logs each change of the outcome and exports it as
// a metric, since all else goes on with what was read last. It ends this process if the store has
// come to a format that it does not know.
type storeProbe struct {
	task.Task
	store store.Store
	log   *slog.Logger
	// explain adds to an error what to do; nil: nothing.
	explain func(error) error
	// denied is called when the store begins to refuse this process, and when it answers again.
	// nil: nothing is.
	denied func(bool)

	mu     sync.Mutex
	failed error // of the last probe
}

func newStoreProbe(st store.Store, log *slog.Logger, metrics *telemetry.Metrics) *storeProbe {
	p := &storeProbe{store: st, log: log}
	p.Task = newLoop("store probe", p.run)
	metrics.Register(func() []telemetry.Value {
		return []telemetry.Value{telemetry.Flag("heddle_store_answers", "1 while the store answers.", p.lastError() == nil)}
	})
	return p
}

func (p *storeProbe) lastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Denied returns why the store refuses this process, or "".
func (p *storeProbe) Denied() string {
	if err := p.lastError(); errors.Is(err, store.ErrDenied) {
		return err.Error()
	}
	return ""
}

func (p *storeProbe) run(ctx context.Context) error {
	for task.Pause(ctx, probeInterval) {
		err := p.probe(ctx)
		if errors.As(err, new(*schema.FormatError)) {
			return err // the store was raised to a format that this program does not know
		}
		if ctx.Err() == nil {
			p.note(err)
		}
	}
	return nil
}

// probe reads the store's format. A store of another system has none.
func (p *storeProbe) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	found, _, err := schema.ReadFormat(ctx, p.store)
	switch {
	case err == nil:
		return schema.KnownFormats().Accept(found)
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrDenied):
		_, err = p.store.Revision(ctx)
	}
	return err
}

// note logs the result of a probe if it is other than before.
func (p *storeProbe) note(err error) {
	before := p.lastError()
	changed := (before == nil) != (err == nil) || errors.Is(before, store.ErrDenied) != errors.Is(err, store.ErrDenied)
	if err != nil && !changed {
		return
	}
	if d, ok := p.store.(interface{ Diagnose() error }); ok && errors.Is(err, store.ErrUnavailable) {
		if why := d.Diagnose(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	if p.explain != nil {
		err = p.explain(err)
	}
	p.mu.Lock()
	p.failed = err
	p.mu.Unlock()
	if changed && p.denied != nil && (err == nil || errors.Is(err, store.ErrDenied)) {
		p.denied(err != nil)
	}
	switch {
	case !changed:
	case errors.Is(err, store.ErrDenied):
		p.log.Error("the store refuses this process; going on with what was known last", "err", err)
	case err != nil:
		p.log.Warn("the store does not answer; going on with what was known last", "err", err)
	default:
		p.log.Info("the store answers again")
	}
}
