package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"heddle/internal/spans"
)

// RequestIDHeader carries the id of a request in every answer; clients log it (neutron-api §1).
const RequestIDHeader = "X-Openstack-Request-Id"

// request holds what the server adds to an HTTP request.
type request struct {
	id     string
	base   string // scheme://host[/prefix] as the client sees it
	client netip.Addr
	log    *slog.Logger
	who    *Identity       // set by RequireToken
	body   *requestBody    // nil = none
	ending <-chan struct{} // closed when the server is about to end
	// decoding holds an item for each body that is being decoded; nil = not bounded.
	decoding chan struct{}
}

type requestKey struct{}

// of returns what the server added to the request; never nil, so that handlers also run without a
// Server around them.
func of(ctx context.Context) *request {
	if q, ok := ctx.Value(requestKey{}).(*request); ok {
		return q
	}
	return &request{log: slog.New(slog.DiscardHandler)}
}

// RequestID returns the id of the request that ctx belongs to, such as req-6bfc…; "" outside a
// request.
func RequestID(ctx context.Context) string { return of(ctx).id }

// Ending returns what is closed when the server is about to end, which waits for answers but not
// for those that go on; nil outside a request.
func Ending(ctx context.Context) <-chan struct{} { return of(ctx).ending }

// ClientAddr returns the address of the client; the zero Addr outside a request.
func ClientAddr(ctx context.Context) netip.Addr { return of(ctx).client }

// BaseURL returns the URL by which the client reached this API, scheme://host[/prefix] without a
// slash at the end, for links (neutron-api §1).
func BaseURL(r *http.Request) string {
	if q, ok := r.Context().Value(requestKey{}).(*request); ok {
		return q.base
	}
	return baseURL(r, false)
}

func baseURL(r *http.Request, proxy bool) string {
	scheme, host, prefix := "http", r.Host, ""
	if r.TLS != nil {
		scheme = "https"
	}
	if proxy {
		if p := strings.ToLower(lastField(r.Header, "X-Forwarded-Proto")); p == "http" || p == "https" {
			scheme = p
		}
		if h := lastField(r.Header, "X-Forwarded-Host"); h != "" {
			host = h
		}
		prefix = strings.TrimRight(lastField(r.Header, "X-Forwarded-Prefix"), "/")
	}
	return scheme + "://" + host + prefix
}

func clientAddr(r *http.Request, proxy bool) netip.Addr {
	if proxy {
		if a, err := netip.ParseAddr(lastField(r.Header, "X-Forwarded-For")); err == nil {
			return a.Unmap()
		}
	}
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// lastField is the last of a header's comma-separated values: the one our own proxy added, whatever
// the client sent.
func lastField(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 0 {
		return ""
	}
	last := values[len(values)-1]
	return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
}

// Handler is the server's handler with all that surrounds it, as Run serves it.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		q := &request{
			id:     "req-" + uuid.NewString(),
			base:   baseURL(r, s.opts.Proxy),
			client: clientAddr(r, s.opts.Proxy),
			log:    s.opts.Log,

			ending:   s.ending,
			decoding: s.decoding,
		}
		ctx, span := s.opts.Spans.Request(context.WithValue(r.Context(), requestKey{}, q), s.opts.Name, r.Header)
		if s.opts.Audited {
			ctx = s.audited(ctx, q, r)
		}
		r = r.WithContext(ctx)
		out := &response{ResponseWriter: w}
		out.Header().Set(RequestIDHeader, q.id)
		body := s.limitBody(out, r)
		q.body = body
		defer func() {
			if p := recover(); p != nil {
				s.recovered(out, q, p)
			}
			if body != nil {
				body.finish()
			}
			took := time.Since(start)
			endSpan(span, r, q, out.code())
			s.opts.Observe(s.opts.Name, knownMethod(r.Method), strconv.Itoa(out.code()), took)
			s.opts.Log.Debug("request", "api", s.opts.Name, "request", q.id, "method", r.Method, "path", r.URL.Path,
				"code", out.code(), "took", took, "client", q.client)
		}()
		if e := checkQuery(r.URL.RawQuery); e != nil {
			s.opts.Refuse(out, r, e)
			return
		}
		s.opts.Handler.ServeHTTP(out, r)
	})
}

// endSpan ends the span of a request. It has neither the query nor the body, which may hold
// secrets.
func endSpan(span spans.Span, r *http.Request, q *request, code int) {
	if !span.Recorded() {
		return
	}
	span.Set("http.request.method", knownMethod(r.Method))
	span.Set("url.path", r.URL.Path)
	span.Set("heddle.request_id", q.id)
	span.SetInt("http.response.status_code", int64(code))
	var err error
	if code >= http.StatusInternalServerError {
		err = errors.New(http.StatusText(code))
	}
	span.End(err)
}

// limitBody puts the server's limits around the body of r; nil when it has none.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) *requestBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	b := &requestBody{ReadCloser: r.Body, request: r, answer: w, gate: s.gate, limit: s.opts.MaxBody, left: s.opts.MaxBody, brief: s.opts.LongCalls}
	if s.opts.Audited {
		b.keep = mostAudited
	}
	r.Body = b
	// The server would otherwise read on for a while before an early answer goes out, then cut the
	// connection.
	_ = http.NewResponseController(w).EnableFullDuplex() // tests' writers cannot
	return b
}

// checkQuery refuses a query string of which net/url would drop a part in silence: a filter that is
// dropped lists everything.
func checkQuery(raw string) *Error {
	_, err := url.ParseQuery(raw)
	if err == nil {
		return nil
	}
	for part := range strings.SplitSeq(raw, "&") {
		if _, err := url.ParseQuery(part); err != nil {
			const most = 200 // bytes of what the client sent that are repeated
			if len(part) > most {
				part = strings.ToValidUTF8(part[:most], "") + "…"
			}
			return Errorf(http.StatusBadRequest, "Invalid query string: %q is not of the form name=value. Write ';' as %%3B, '%%' as %%25 and '&' as %%26.", part)
		}
	}
	return Errorf(http.StatusBadRequest, "Invalid query string: %v.", err) // such as too many parameters
}

// recovered answers for a handler that panicked: a mistake of ours that must not end the process.
func (s *Server) recovered(out *response, q *request, p any) {
	if p == http.ErrAbortHandler {
		panic(p) // the handler asks for the connection to be cut, which net/http does quietly
	}
	s.opts.Log.Error("request failed: a mistake in Heddle", "api", s.opts.Name, "request", q.id, "panic", p,
		"stack", string(debug.Stack()))
	if out.status == 0 {
		writeError(out, http.StatusInternalServerError, unexpected)
	}
}

// knownMethod keeps methods that strangers invent out of the metrics' labels.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

// response remembers the status code that was written.
type response struct {
	http.ResponseWriter
	status int
}

func (w *response) WriteHeader(code int) {
	if w.status == 0 && code >= 200 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}
