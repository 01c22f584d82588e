package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"heddle/internal/store"
	"heddle/internal/telemetry"
)

// lookout asks the store now and then whether it answers, and says in the log and as a metric when that changes. While
// the store is away all goes on with what was known last, which nobody would notice otherwise. It is a task.
type lookout struct {
	store store.Store
	log   *slog.Logger
	ready chan struct{}
	away  atomic.Bool
}

// How often the store is asked, and how long it may take to answer.
const (
	lookEvery   = 5 * time.Second
	lookTimeout = 3 * time.Second
)

func newLookout(st store.Store, log *slog.Logger, metrics *telemetry.Metrics) *lookout {
	l := &lookout{store: st, log: log, ready: make(chan struct{})}
	metrics.Register(l.figures)
	return l
}

func (l *lookout) String() string         { return "lookout for the store" }
func (l *lookout) Ready() <-chan struct{} { return l.ready }

func (l *lookout) Run(ctx context.Context) error {
	close(l.ready)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.look(ctx)
		}
	}
}

func (l *lookout) look(ctx context.Context) {
	attempt, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, err := l.store.Revision(attempt)
	if ctx.Err() != nil {
		return
	}
	switch away := err != nil; {
	case away == l.away.Swap(away):
	case away:
		l.log.Warn("the store does not answer; going on with what was known last", "err", err)
	default:
		l.log.Info("the store answers again")
	}
}

func (l *lookout) figures() []telemetry.Value {
	answers := 1.0
	if l.away.Load() {
		answers = 0
	}
	return []telemetry.Value{{Name: "heddle_store_answers", Help: "1 while the store answers.", Kind: telemetry.Gauge, Value: answers}}
}
