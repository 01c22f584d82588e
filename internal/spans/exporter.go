package spans

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans, counts them, and logs when that begins to fail and when it works again.
type exporter struct {
	*otlptrace.Exporter
	log          *slog.Logger
	sent, failed atomic.Uint64
	failing      atomic.Bool
}

// ExportSpans never fails towards the SDK, whose handler of errors is one for the whole process.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.Exporter.ExportSpans(ctx, spans)
	if err != nil {
		e.failed.Add(uint64(len(spans)))
		if !e.failing.Swap(true) {
			e.log.Warn("cannot send spans; dropping them", "err", err)
		}
		return nil
	}
	e.sent.Add(uint64(len(spans)))
	if e.failing.Swap(false) {
		e.log.Info("sent spans again")
	}
	return nil
}

// Counts returns how many spans were sent, and how many the receiver did not take. Those that did
// not fit the queue are in neither.
func (t *Tracer) Counts() (sent, failed uint64) {
	return t.exporter.sent.Load(), t.exporter.failed.Load()
}
