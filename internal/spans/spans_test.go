package spans

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"heddle/internal/spans/spanstest"
)

// run runs a tracer; stop ends it, which sends what waits.
func run(t *testing.T, o Options) (tracer *Tracer, stop func()) {
	t.Helper()
	o.Service, o.Log = "test", slog.New(slog.DiscardHandler)
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tracer.Run(ctx) }()
	<-tracer.Ready()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return tracer, stop
}

// named returns a filter of spans.
func named(name string) func(spanstest.Span) bool {
	return func(s spanstest.Span) bool { return s.Name == name }
}

// TestOnePicture: the spans of a call are in the trace of its client; the commit is linked with the
// trace that the applications of its revision on all hosts are in.
func TestOnePicture(t *testing.T) {
	t.Parallel()
	var r spanstest.Receiver
	at := httptest.NewServer(&r)
	defer at.Close()
	server, stopServer := run(t, Options{Endpoint: at.URL, Ratio: 0, Host: "server"}) // the client decides
	headers := http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	ctx, call := server.Request(t.Context(), "neutron", headers)
	call.Set("heddle.request_id", "req-1")
	update, span := Child(ctx, "update")
	_, commit := Child(update, "commit")
	commit.Committed(42)
	commit.End(nil)
	span.End(errors.New("refused"))
	call.End(nil)
	stopServer()
	for _, host := range []string{"h1", "h2"} {
		agent, stop := run(t, Options{Endpoint: at.URL, Ratio: 1, Host: host})
		_, apply := agent.Apply(t.Context(), "apply", 42)
		apply.End(nil)
		_, other := agent.Apply(t.Context(), "other revision", 43)
		other.End(nil)
		stop()
	}

	one := func(name string) spanstest.Span {
		t.Helper()
		s := r.Spans(named(name))
		if len(s) != 1 || s[0].Trace != "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c" {
			t.Fatalf("%s: got %+v, want one span in the client's trace", name, s)
		}
		return s[0]
	}
	if s := one("neutron"); s.Attributes["heddle.request_id"] != "req-1" || s.Parent != "\xb7\xad\x6b\x71\x69\x20\x33\x31" || s.Failure != "" {
		t.Errorf("the call is %+v", s)
	}
	if s := one("update"); s.Failure != "refused" {
		t.Errorf("the update is %+v", s)
	}
	c := one("commit")
	if c.Attributes["heddle.revision"] != int64(42) || c.Linked == "" {
		t.Errorf("the commit is %+v", c)
	}
	hosts := map[string]bool{}
	for _, s := range r.Spans(named("apply")) {
		if hosts[s.Host] = true; s.Trace != c.Linked || s.Attributes["heddle.revision"] != int64(42) {
			t.Errorf("the application %+v is not in the trace that the commit is linked with", s)
		}
	}
	if !hosts["h1"] || !hosts["h2"] || len(hosts) != 2 {
		t.Errorf("there are applications by %v", hosts)
	}
	for _, s := range r.Spans(named("other revision")) {
		if s.Trace == c.Linked {
			t.Errorf("another revision is in the same trace: %+v", s)
		}
	}
}

// TestRatio: of many calls and revisions the share is recorded, and all hosts choose the same
// revisions.
func TestRatio(t *testing.T) {
	t.Parallel()
	const n = 4000
	tracers := make([]*Tracer, 2)
	for i := range tracers {
		var err error
		if tracers[i], err = New(Options{Endpoint: "http://127.0.0.1:1", Ratio: 0.25, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
	calls, applied := 0, 0
	for revision := range int64(n) {
		_, call := tracers[0].Request(t.Context(), "call", nil)
		_, first := tracers[0].Apply(t.Context(), "apply", revision)
		_, second := tracers[1].Apply(t.Context(), "apply", revision)
		if first.Recorded() != second.Recorded() {
			t.Fatalf("revision %d is recorded by one host of two", revision)
		}
		if call.Recorded() {
			calls++
		}
		if first.Recorded() {
			applied++
		}
	}
	const deviation = 6 * 27 // six times the standard deviation of n draws at a quarter
	if math.Abs(float64(calls)-n/4) > deviation || math.Abs(float64(applied)-n/4) > deviation {
		t.Errorf("of %d, %d calls and %d revisions are recorded", n, calls, applied)
	}
}

// TestReceiverAway: a receiver that does not answer, or fails, delays nobody: spans are dropped,
// and those that were refused are counted.
func TestReceiverAway(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-held
		http.Error(w, "down", http.StatusBadGateway)
	}))
	defer at.Close()
	tracer, stop := run(t, Options{Endpoint: at.URL, Ratio: 1})
	for range 10 * queueSize { // would hang if any waited for the receiver
		_, call := tracer.Request(t.Context(), "call", nil)
		call.End(nil)
	}
	close(held)
	stop()
	if sent, failed := tracer.Counts(); sent != 0 || failed == 0 || failed >= 10*queueSize {
		t.Errorf("%d spans were sent, %d failed, of %d", sent, failed, 10*queueSize)
	}
}

// TestBadOptions: an endpoint or ratio that cannot be meant is refused by name.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Endpoint: "127.0.0.1:4318"}, {Endpoint: "grpc://127.0.0.1:4317"}, {Endpoint: "http://"}, {Endpoint: "http://h?x"},
		{Endpoint: "http://h", Ratio: -1}, {Endpoint: "http://h", Ratio: 1.1}, {Endpoint: "http://h", Ratio: math.NaN()}} {
		if tracer, err := New(o); err == nil {
			t.Errorf("%+v was accepted: %v", o, tracer)
		}
	}
}

// off calls all that servers and agents call for each request and snapshot, without a tracer.
func off(ctx context.Context, headers http.Header) {
	var t *Tracer
	ctx, call := t.Request(ctx, "neutron", headers)
	update, span := Child(ctx, "update")
	span.SetInt("heddle.attempts", 1)
	_, commit := Child(update, "commit")
	commit.Committed(42)
	commit.End(nil)
	span.End(nil)
	call.Set("url.path", "/")
	call.End(nil)
	_, apply := t.Apply(ctx, "apply", 42)
	apply.SetInt("heddle.bundles", 1)
	apply.End(nil)
}

// TestOffAllocatesNothing: without a tracer nothing is allocated.
func TestOffAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), revisionKey{}, "x"), time.Hour)
	defer cancel()
	headers := http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	if n := testing.AllocsPerRun(1000, func() { off(ctx, headers) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		off(ctx, nil)
	}
}
