package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"heddle/internal/terminal"
)

const (
	// mostValueBytes bounds a logged value, before characters are escaped. Errors of Heddle are
	// shorter.
	mostValueBytes = 1000
	// stackKey is the attribute of a stack trace, which is never cut: it has nothing of others.
	stackKey = "stack"
	// A logger writes this many warnings and errors of one message within each limitWindow.
	mostWarnings = 30
	limitWindow  = time.Minute
)

// CutValue shortens a long value of a log record. It is a ReplaceAttr of [slog.HandlerOptions].
func CutValue(_ []string, a slog.Attr) slog.Attr {
	if a.Key == stackKey {
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString, slog.KindAny:
		if text := a.Value.String(); len(text) > mostValueBytes {
			a.Value = slog.StringValue(terminal.Excerpt(text, mostValueBytes))
		}
	}
	return a
}

// LimitWarnings returns a handler that passes a limited number of warnings and errors of each
// message to h, and later a record with the number of those that it left out. Each handler derived
// by attributes counts for itself.
func LimitWarnings(h slog.Handler) slog.Handler {
	return &warningLimit{next: h, now: time.Now, counts: map[string]int{}}
}

// warningLimit counts warnings by message within a window of time.
type warningLimit struct {
	next slog.Handler
	now  func() time.Time

	mu     sync.Mutex
	since  time.Time // when the window began
	counts map[string]int
}

// Enabled implements [slog.Handler].
func (w *warningLimit) Enabled(ctx context.Context, level slog.Level) bool {
	return w.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (w *warningLimit) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return w.next.Handle(ctx, r)
	}
	count, before := w.count(r.Message)
	for _, message := range slices.Sorted(maps.Keys(before)) {
		if left := before[message] - mostWarnings; left > 0 {
			if err := w.report(ctx, leftOutMessage, "message", message, "records", left); err != nil {
				return err
			}
		}
	}
	if count > mostWarnings {
		return nil
	}
	if err := w.next.Handle(ctx, r); err != nil || count < mostWarnings {
		return err
	}
	return w.report(ctx, "leaving out further log records of a message", "message", r.Message, "window", limitWindow)
}

// count counts a record in the current window. It returns the message's count, and the counts of
// the window before, if that has just ended.
func (w *warningLimit) count(message string) (count int, before map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.now(); now.Sub(w.since) >= limitWindow {
		before = w.counts
		w.since, w.counts = now, map[string]int{}
	}
	w.counts[message]++
	return w.counts[message], before
}

// report writes a record of the limit's own.
func (w *warningLimit) report(ctx context.Context, message string, args ...any) error {
	r := slog.NewRecord(w.now(), slog.LevelWarn, message, 0)
	r.Add(args...)
	return w.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (w *warningLimit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &warningLimit{next: w.next.WithAttrs(attrs), now: w.now, counts: map[string]int{}}
}

// WithGroup implements [slog.Handler].
func (w *warningLimit) WithGroup(name string) slog.Handler {
	return &warningLimit{next: w.next.WithGroup(name), now: w.now, counts: map[string]int{}}
}
