// Package telemetry makes a running Heddle observable: the log, the metrics, and the health,
// readiness and debug endpoints. Parts register their metrics and readiness with it.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger returns a logger to w as "text" or "json", at or above level ("debug", "info", "warn",
// "error"). Much of what is logged comes from other hosts and tenants, so long values are cut, and
// warnings that repeat are counted: see [LimitWarnings].
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: CutValue}
	switch format {
	case "text":
		return slog.New(LimitWarnings(slog.NewTextHandler(w, opts))), nil
	case "json":
		return slog.New(LimitWarnings(slog.NewJSONHandler(w, opts))), nil
	}
	return nil, fmt.Errorf("log format %q: want text or json", format)
}
