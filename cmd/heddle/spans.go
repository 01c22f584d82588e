package main

import (
	"log/slog"

	"github.com/spf13/pflag"

	"heddle/internal/spans"
	"heddle/internal/telemetry"
)

// spansConfig holds the settings of OpenTelemetry.
type spansConfig struct {
	endpoint string
	ratio    float64
}

func (c *spansConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.endpoint, "otlp-endpoint", "", "`URL` of a receiver of OpenTelemetry's spans by OTLP/HTTP, such as http://127.0.0.1:4318; none: nothing is recorded")
	f.Float64Var(&c.ratio, "otlp-ratio", 1, "share of API calls, and of revisions applied, that are recorded, from 0 to 1")
}

// options returns those of a tracer, without its names and log.
func (c *spansConfig) options() spans.Options {
	return spans.Options{Endpoint: c.endpoint, Ratio: c.ratio, Version: version}
}

// check rejects what no spans could be sent by.
func (c *spansConfig) check() error {
	if c.endpoint == "" {
		return nil
	}
	if err := c.options().Check(); err != nil {
		return usagef("--otlp-endpoint, --otlp-ratio: %w", err)
	}
	return nil
}

// open returns the tracer of a role, with its metrics registered; nil if there is no endpoint.
func (c *spansConfig) open(role, host string, metrics *telemetry.Metrics, log *slog.Logger) (*spans.Tracer, error) {
	if c.endpoint == "" {
		return nil, nil
	}
	o := c.options()
	o.Service, o.Host, o.Log = "heddle-"+role, host, log.With("part", "spans")
	t, err := spans.New(o)
	if err != nil {
		return nil, err
	}
	metrics.Register(func() []telemetry.Value {
		sent, failed := t.Counts()
		return []telemetry.Value{
			telemetry.Counter.Of("heddle_spans_sent_total", "OpenTelemetry spans sent.", int(sent)),
			telemetry.Counter.Of("heddle_spans_failed_total", "OpenTelemetry spans that the receiver did not take; those that did not fit the queue are not counted.", int(failed)),
		}
	})
	return t, nil
}
