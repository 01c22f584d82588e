// Package spans records what becomes of an API call as OpenTelemetry's spans: the call, the
// attempts to commit it, and its application on each host. They are sent by OTLP over HTTP. Nothing
// waits for that: what cannot be sent is dropped. Without an endpoint nothing is recorded, at no
// cost.
//
//	API call ─┬─ update ─┬─ commit ─ link ─▶ revision's trace: apply on h1
//	          │          └─ commit …                           apply on h2 …
//
// Agents know nothing of calls, but which revision of the store they apply. So the applications of
// one revision are one trace, whose id follows from the revision, and the commit has a link to it
// (decision 0052).
package spans

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"heddle/internal/task"
)

// Options of a Tracer.
type Options struct {
	// Endpoint is the base URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318.
	Endpoint string
	// Ratio is the share of calls, and of revisions applied, that are recorded: 0 to 1. A call
	// whose client says in its traceparent header that it is recorded, or not, follows it.
	Ratio   float64
	Service string // such as heddle-serve
	Host    string // name of this host or server
	Version string
	Log     *slog.Logger
}

// Check returns what is wrong with the endpoint or the ratio.
func (o Options) Check() error {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return fmt.Errorf("OTLP endpoint %q: want the URL of a receiver, such as http://127.0.0.1:4318", o.Endpoint)
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		return fmt.Errorf("ratio %v of calls to record: want 0 to 1", o.Ratio)
	}
	return nil
}

// Limits of what waits to be sent.
const (
	queueSize     = 2048 // spans; more are dropped
	exportEvery   = time.Second
	exportTimeout = 5 * time.Second
)

// Tracer starts spans. A nil Tracer starts none. It is a task, which sends them.
type Tracer struct {
	task.Part
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// New returns a tracer that sends to the endpoint. Headers, certificates and the like are taken
// from OpenTelemetry's own variables of the environment, such as OTEL_EXPORTER_OTLP_HEADERS.
func New(o Options) (*Tracer, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, err
	}
	client := otlptracehttp.NewUnstarted(otlptracehttp.WithEndpointURL(u.JoinPath("v1/traces").String()),
		otlptracehttp.WithTimeout(exportTimeout), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	t := &Tracer{Part: task.NewPart("spans"), exporter: &exporter{Exporter: client, log: o.Log}}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(t.exporter, sdk.WithMaxQueueSize(queueSize), sdk.WithBatchTimeout(exportEvery), sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Ratio))),
		sdk.WithIDGenerator(generator{}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
			attribute.String("host.name", o.Host))))
	t.tracer = t.provider.Tracer("heddle")
	return t, nil
}

// Run sends spans until ctx ends, and then those that wait.
func (t *Tracer) Run(ctx context.Context) error {
	if err := t.exporter.Start(ctx); err != nil {
		return err
	}
	t.BeReady()
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	if err := t.provider.Shutdown(last); err != nil {
		t.exporter.log.Warn("spans were not sent", "err", err)
	}
	return nil
}

// Span is a piece of work. The zero Span is not recorded.
type Span struct{ span trace.Span }

// Recorded reports whether the span is recorded: what is costly to find out need not be set
// otherwise.
func (s Span) Recorded() bool { return s.span != nil }

// Set adds an attribute.
func (s Span) Set(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt adds an attribute.
func (s Span) SetInt(key string, value int64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// Committed notes the revision of a commit, and links the span with the trace of its application.
func (s Span) Committed(revision int64) {
	if s.span != nil {
		s.SetInt("heddle.revision", revision)
		s.span.AddLink(trace.Link{SpanContext: ofRevision(revision)})
	}
}

// End ends the span. With an error it has failed.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Request starts the span of an API request, within that of the client if its headers name one (W3C
// Trace Context).
func (t *Tracer) Request(ctx context.Context, name string, headers http.Header) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(headers))
	return recorded(t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer)))
}

// Child starts a span within that of ctx, if it has one that is recorded.
func Child(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	return recorded(parent.TracerProvider().Tracer("heddle").Start(ctx, name))
}

// Apply starts the span of the application of a revision, in the trace of that revision.
func (t *Tracer) Apply(ctx context.Context, name string, revision int64) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := recorded(t.tracer.Start(context.WithValue(ctx, revisionKey{}, revision), name, trace.WithNewRoot()))
	s.SetInt("heddle.revision", revision)
	return ctx, s
}

func recorded(ctx context.Context, s trace.Span) (context.Context, Span) {
	if !s.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{s}
}

// revisionKey is the key of the revision whose trace a root span begins or joins.
type revisionKey struct{}

// ofRevision returns the place in the trace of a revision that commits are linked with.
func ofRevision(revision int64) trace.SpanContext {
	id := traceOfRevision(revision)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID(id[8:]), TraceFlags: trace.FlagsSampled, Remote: true})
}

// traceOfRevision returns the trace id of a revision. Its last eight bytes, by which ratios choose,
// are spread evenly.
func traceOfRevision(revision int64) (id trace.TraceID) {
	copy(id[:], "heddle")
	binary.BigEndian.PutUint64(id[8:], mix(uint64(revision)))
	return id
}

// mix spreads numbers evenly, each to another one (the finalizer of SplitMix64).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// generator gives random ids, and to the roots of applications that of the revision's trace.
type generator struct{}

func (generator) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if revision, ok := ctx.Value(revisionKey{}).(int64); ok {
		id = traceOfRevision(revision)
	} else {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], 1+rand.Uint64N(1<<63)) // no id is 0
	}
	return id, generator{}.NewSpanID(ctx, id)
}

func (generator) NewSpanID(context.Context, trace.TraceID) (span trace.SpanID) {
	binary.NativeEndian.PutUint64(span[:], 1+rand.Uint64N(1<<63))
	return span
}
