package octaviav2

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/strictjson"
)

// fault is an error body of Octavia.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

func badRequest(text string) error { return &fault{http.StatusBadRequest, text} }

// pageFault is an error body of the framework that Octavia is built on, which few errors have.
type pageFault struct {
	status             int
	title, description string
}

func (f *pageFault) Error() string { return f.description }

// status returns the code of a kind of error.
func status(k neutron.Kind) int {
	switch k {
	case neutron.Invalid:
		return http.StatusBadRequest
	case neutron.Forbidden:
		return http.StatusForbidden
	case neutron.NotFound:
		return http.StatusNotFound
	case neutron.Conflict, neutron.Precondition:
		return http.StatusConflict
	case neutron.Unsupported:
		return http.StatusNotImplemented
	case neutron.Unavailable:
		return http.StatusServiceUnavailable
	case neutron.Unknown:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// answer runs an endpoint, for no longer than the timeout, and turns its error into an error body.
// What is not the client's fault is logged and hidden.
func (h *handler) answer(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
		defer cancel()
		err := e(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		var (
			refusal  *neutron.LBRefusal
			known    *neutron.Error
			own      *fault
			page     *pageFault
			tooLarge *http.MaxBytesError
			wrong    *strictjson.Error
			refused  *api.Error
		)
		switch {
		case errors.As(err, &page):
			api.WriteJSON(w, page.status, map[string]any{"code": page.status, "title": page.title, "description": page.description})
		case errors.As(err, &own):
			writeFault(w, own.status, own.text)
		case errors.As(err, &refusal):
			writeFault(w, status(refusal.Octavia.Kind), refusal.Octavia.Message)
		case errors.As(err, &known):
			if status(known.Kind) >= http.StatusInternalServerError {
				h.log.Warn("request not served", "request", api.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
			}
			writeFault(w, status(known.Kind), known.Message)
		case errors.As(err, &tooLarge):
			writeFault(w, http.StatusRequestEntityTooLarge, "Request is too large.")
		case errors.As(err, &wrong):
			writeFault(w, api.FaultStatus(wrong), "Request is not in valid JSON format: "+wrong.Error())
		case errors.As(err, &refused):
			Refuse(w, r, refused)
		default:
			h.fail(w, r, ctx.Err() != nil, err)
		}
	})
}

// fail answers an error of ours; late reports that time ran out, as it does while the store is
// away.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, late bool, err error) {
	if r.Context().Err() == nil { // else the client has gone, and that is why it failed
		h.log.Error("request failed", "request", api.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if late || errors.Is(err, context.DeadlineExceeded) {
		writeFault(w, http.StatusServiceUnavailable, "The service is unavailable: its store (etcd) did not answer in time. Try again.")
		return
	}
	writeFault(w, http.StatusInternalServerError, "An unknown exception occurred.")
}

// Refuse answers a request that the server turns away before it comes to the API; for
// [api.Options].
func Refuse(w http.ResponseWriter, _ *http.Request, e *api.Error) {
	e.SetHeader(w.Header())
	writeFault(w, e.Status, e.Message)
}

// maxText bounds an error's text, bytes: it may repeat what the client sent.
const maxText = 16 << 10

func writeFault(w http.ResponseWriter, status int, text string) {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	code := "Client"
	if status >= http.StatusInternalServerError {
		code = "Server"
	}
	api.WriteJSON(w, status, map[string]any{"faultcode": code, "faultstring": text, "debuginfo": nil})
}

// noRoute answers what no route takes.
func noRoute(w http.ResponseWriter, r *http.Request, status int) {
	title := "Not Found"
	if status == http.StatusMethodNotAllowed {
		title = "Method Not Allowed"
	}
	var description any = ""
	if !strings.HasPrefix(r.URL.Path, "/v2/") {
		description = nil
	}
	api.WriteJSON(w, status, map[string]any{"code": status, "title": title, "description": description})
}
