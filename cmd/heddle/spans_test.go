package main

import (
	"net"
	"net/http"
	"testing"

	"heddle/internal/spans/spanstest"
)

// TestSpans: a call that makes a port, its commit, and its application on the port's host are found
// by each other at a receiver of OpenTelemetry's spans. A receiver that is none is refused.
func TestSpans(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var r spanstest.Receiver
	var listener net.Listener
	if err := s.ctl.Do(func() (err error) { listener, err = net.Listen("tcp", "192.0.2.1:4318"); return err }); err != nil {
		t.Fatal(err)
	}
	receiver := &http.Server{Handler: &r}
	served := make(chan error, 1)
	go func() { served <- receiver.Serve(listener) }()
	t.Cleanup(func() { receiver.Close(); <-served })

	refuse(t, s.ctl, 2, `OTLP endpoint "192.0.2.1:4318": want the URL of a receiver`, "serve", "--data", t.TempDir(), "--otlp-endpoint", "192.0.2.1:4318")
	const endpoint = "http://192.0.2.1:4318"
	s.serve(t, "--otlp-endpoint", endpoint)
	h := s.addHost(t, "h1", "192.0.2.11")
	start(t, h.ns, h.agent("--join", s.token(t), "--otlp-endpoint", endpoint)...)
	s.makePort(t, h)

	find := func(what string, selected func(spanstest.Span) bool) spanstest.Span {
		t.Helper()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("spans: %+v", r.Spans(func(spanstest.Span) bool { return true }))
			}
		})
		var found []spanstest.Span
		within(t, "a span of "+what, func() bool {
			found = r.Spans(selected)
			return len(found) > 0
		})
		return found[0]
	}
	call := find("the call", func(s spanstest.Span) bool {
		return s.Name == "neutron" && s.Attributes["http.request.method"] == "POST" && s.Attributes["url.path"] == "/v2.0/ports"
	})
	if call.Service != "heddle-serve" || call.Attributes["http.response.status_code"] != int64(http.StatusCreated) || call.Attributes["heddle.request_id"] == "" {
		t.Errorf("the call is %+v", call)
	}
	commit := find("its commit", func(s spanstest.Span) bool { return s.Name == "commit" && s.Trace == call.Trace && s.Linked != "" })
	applied := find("its application", func(s spanstest.Span) bool { return s.Name == "apply" && s.Trace == commit.Linked })
	if applied.Service != "heddle-agent" || applied.Host != h.name || applied.Attributes["heddle.revision"] != commit.Attributes["heddle.revision"] {
		t.Errorf("the application is %+v, the commit %+v", applied, commit)
	}
}
