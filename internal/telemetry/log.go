// Package telemetry makes a running Heddle observable: the log, the metrics, and the health,
// readiness and debug endpoints. Parts register their metrics and readiness with it.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger returns a logger to w as "text" or "json", at or above the levels. Much of what is
// logged comes from other hosts and tenants, so long values are cut, and warnings that repeat are
// counted: see [LimitWarnings].
func NewLogger(w io.Writer, format string, levels *Levels) (*slog.Logger, error) {
	h, err := newFormat(w, format, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: CutValue})
	if err != nil {
		return nil, err
	}
	return slog.New(levels.Handler(LimitWarnings(h))), nil
}

// newFormat returns a handler that writes to w as "text" or "json".
func newFormat(w io.Writer, format string, opts *slog.HandlerOptions) (slog.Handler, error) {
	switch format {
	case "text":
		return slog.NewTextHandler(w, opts), nil
	case "json":
		return slog.NewJSONHandler(w, opts), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
