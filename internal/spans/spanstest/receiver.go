// Package spanstest has a receiver of OpenTelemetry's spans, for tests.
package spanstest

import (
	"io"
	"net/http"
	"slices"
	"sync"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received.
type Span struct {
	Name, Service, Host   string
	Trace, Parent, Linked string         // ids, as raw bytes; Linked is the trace of the first link
	Attributes            map[string]any // texts, and whole numbers as int64
	Failure               string         // its error; "" = none
}

// Receiver is an HTTP handler that keeps the spans sent to it by OTLP. The zero Receiver is ready.
type Receiver struct {
	mu    sync.Mutex
	spans []Span
}

// ServeHTTP takes spans in.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var m coltrace.ExportTraceServiceRequest
	if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range m.ResourceSpans {
		of := attributes(resource.Resource.Attributes)
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, received(s, of))
			}
		}
	}
}

// Spans returns the spans received so far that selected accepts.
func (r *Receiver) Spans(selected func(Span) bool) []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s Span) bool { return !selected(s) })
}

func received(s *otlp.Span, of map[string]any) Span {
	one := Span{Name: s.Name, Trace: string(s.TraceId), Parent: string(s.ParentSpanId), Attributes: attributes(s.Attributes)}
	one.Service, _ = of["service.name"].(string)
	one.Host, _ = of["host.name"].(string)
	if len(s.Links) > 0 {
		one.Linked = string(s.Links[0].TraceId)
	}
	if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		one.Failure = s.Status.Message
	}
	return one
}

func attributes(list []*common.KeyValue) map[string]any {
	all := map[string]any{}
	for _, a := range list {
		if n, ok := a.Value.Value.(*common.AnyValue_IntValue); ok {
			all[a.Key] = n.IntValue
		} else {
			all[a.Key] = a.Value.GetStringValue()
		}
	}
	return all
}
