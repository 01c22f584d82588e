package neutronv2

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/strictjson"
)

// status is the code of a kind of error (neutron-api §1); 0 for none of them.
func status(k neutron.Kind) int {
	return map[neutron.Kind]int{
		neutron.Invalid: http.StatusBadRequest, neutron.Forbidden: http.StatusForbidden, neutron.NotFound: http.StatusNotFound,
		neutron.Conflict: http.StatusConflict, neutron.Precondition: http.StatusPreconditionFailed,
		neutron.Unsupported: http.StatusNotImplemented, neutron.Unavailable: http.StatusServiceUnavailable,
		neutron.Unknown: http.StatusGatewayTimeout, neutron.Failed: http.StatusInternalServerError,
	}[k]
}

// malformed is the reference's text for what it cannot read or does not do.
const malformed = "The server could not comply with the request since it is either malformed or otherwise incorrect."

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
		var known *neutron.Error
		var (
			tooLarge *http.MaxBytesError
			wrong    *strictjson.Error
			refused  *api.Error
		)
		switch {
		case errors.As(err, &known) && status(known.Kind) != 0:
			if known.Kind == neutron.Unavailable || known.Kind == neutron.Unknown {
				level := slog.LevelWarn
				if control.StoreIsFull(err) {
					level = slog.LevelDebug // the store has said so, once
				}
				h.log.Log(r.Context(), level, "request not served", "request", api.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
			}
			writeError(w, status(known.Kind), known.Type, known.Message)
		case errors.As(err, &tooLarge):
			Refuse(w, r, api.Errorf(http.StatusRequestEntityTooLarge, "The body of your request was too large for this server: "+
				"at most %d bytes are accepted here.", tooLarge.Limit))
		case errors.As(err, &wrong):
			Refuse(w, r, api.Errorf(api.FaultStatus(wrong), "Invalid input for %s. Reason: it %s.", attributeOf(wrong), wrong.Reason))
		case errors.As(err, &refused):
			Refuse(w, r, refused)
		default:
			h.fail(w, r, ctx.Err() != nil, err)
		}
	})
}

// attributeOf is the attribute of the object that e is about, or what there is of a name.
func attributeOf(e *strictjson.Error) string {
	switch names := e.Members(); len(names) {
	case 0:
		return "the request body"
	case 1:
		return names[0]
	default:
		return names[1]
	}
}

// Refuse answers a request that the server turns away before it comes to the API; for
// [api.Options].
func Refuse(w http.ResponseWriter, _ *http.Request, e *api.Error) {
	typ := "HTTPBadRequest"
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		typ = "HTTPRequestEntityTooLarge"
	case http.StatusServiceUnavailable:
		typ = "ServiceUnavailable"
	}
	e.SetHeader(w.Header())
	writeError(w, e.Status, typ, e.Message)
}

// fail answers an error of ours; late says that time ran out, as it does while the store is away.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, late bool, err error) {
	if r.Context().Err() == nil { // else the client has gone, and that is why it failed
		h.log.Error("request failed", "request", api.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if late || errors.Is(err, context.DeadlineExceeded) {
		writeError(w, http.StatusServiceUnavailable, "ServiceUnavailable", "The service is unavailable: its store (etcd) did not answer in time. Try again.")
		return
	}
	writeError(w, http.StatusInternalServerError, "HTTPInternalServerError",
		"Request Failed: internal server error while processing your request.")
}

// noRoute answers what no route takes.
func (h *handler) noRoute(w http.ResponseWriter, _ *http.Request, status int) {
	if status == http.StatusMethodNotAllowed {
		writeError(w, status, "HTTPMethodNotAllowed", malformed)
		return
	}
	writeError(w, http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
}

// maxMessage bounds an error's text, bytes: it may repeat what the client sent.
const maxMessage = 16 << 10

func writeError(w http.ResponseWriter, status int, typ, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	type body struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Detail  string `json:"detail"`
	}
	api.WriteJSON(w, status, map[string]body{"NeutronError": {Type: typ, Message: message}})
}

func badRequest(message string) *neutron.Error {
	return neutron.Errorf(neutron.Invalid, "HTTPBadRequest", "%s", message)
}

func invalidInput(message string) *neutron.Error {
	return neutron.Errorf(neutron.Invalid, "InvalidInput", "Invalid input for operation: %s.", message)
}
