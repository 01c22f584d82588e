package xapi

import (
	"context"
	"errors"
	"html"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"heddle/internal/xen/wire"
)

const (
	// bodyTimeout bounds the time in which a client sends a call.
	bodyTimeout = time.Minute
	// listMethods is the one call that XML-RPC answers without a status (spec 1).
	listMethods = "system.listMethods"
)

// Handler serves XML-RPC at /, /RPC2 and /xmlrpc and JSON-RPC at /jsonrpc.
func (s *Server) Handler() http.Handler {
	routes := http.NewServeMux()
	for _, path := range []string{"/{$}", "/RPC2", "/xmlrpc"} {
		routes.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { serve(w, r, "text/xml", s.answerXML) })
	}
	routes.HandleFunc("POST /jsonrpc", func(w http.ResponseWriter, r *http.Request) { serve(w, r, "application/json", s.answerJSON) })
	routes.HandleFunc("OPTIONS /jsonrpc", func(w http.ResponseWriter, _ *http.Request) {
		allowAnyone(w.Header())
		w.Header().Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	})
	return routes
}

// allowAnyone lets pages of any origin ask: a client is known by its session.
func allowAnyone(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "X-Requested-With, Content-Type")
}

// serve answers one call. Clients compare the content type to the letter (spec 1): no charset.
func serve(w http.ResponseWriter, r *http.Request, contentType string, answer func(context.Context, netip.Addr, []byte) ([]byte, error)) {
	control := http.NewResponseController(w)
	if r.ContentLength > wire.MaxCall {
		tooLong(w, r)
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a server without deadlines has none to move
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxCall+1))
	if tooLarge := (*http.MaxBytesError)(nil); len(body) > wire.MaxCall || errors.As(err, &tooLarge) {
		tooLong(w, r)
		return
	} else if err != nil {
		http.Error(w, "the call did not arrive as a whole", http.StatusBadRequest)
		return
	}
	// A call that waits for events may exceed the server's limits for reading and writing.
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	client, _ := netip.ParseAddrPort(r.RemoteAddr) // none where a test calls the handler itself
	reply, err := answer(r.Context(), client.Addr(), body)
	if err != nil {
		malformed(w, err)
		return
	}
	_ = control.SetWriteDeadline(time.Now().Add(bodyTimeout))
	allowAnyone(w.Header())
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(reply)))
	_, _ = w.Write(reply) // a client that has gone misses it
}

// Bounds of how much of a call that is too long is read and thrown away after the answer: a client
// that sends first and reads then would see a reset connection instead.
const (
	drainBytes = 64 << 20
	drainTime  = 5 * time.Second
)

// tooLong answers 413 and ends the connection once the client may have read it.
func tooLong(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // else the server reads a part of the body before it answers
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	http.Error(w, "the call is longer than "+strconv.Itoa(wire.MaxCall)+" bytes", http.StatusRequestEntityTooLarge)
	if r.Header.Get("Expect") != "" || control.Flush() != nil || control.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return // a client that waits for leave to send has not begun
	}
	_, _ = io.CopyN(io.Discard, r.Body, drainBytes) // one that stops has its answer
}

// malformed answers what is no call at all, as the reference does: HTTP 500 and a page.
func malformed(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<html><body><h1>HTTP 500 internal server error</h1>"+html.EscapeString(err.Error())+"</body></html>\n")
}

func (s *Server) answerXML(ctx context.Context, from netip.Addr, body []byte) ([]byte, error) {
	name, params, err := wire.DecodeXMLCall(body)
	if err != nil {
		return nil, err
	}
	a := s.dispatch(ctx, from, name, params)
	if name == listMethods && a.failure == nil {
		return wire.XMLBareReply(a.result, a.value), nil
	}
	return wire.XMLReply(a.result, a.value, a.failure), nil
}

func (s *Server) answerJSON(ctx context.Context, from netip.Addr, body []byte) ([]byte, error) {
	c, err := wire.DecodeJSONCall(body)
	if err != nil {
		return nil, err
	}
	a := s.dispatch(ctx, from, c.Method, c.Params)
	return wire.JSONReply(c, a.result, a.value, a.failure), nil
}
