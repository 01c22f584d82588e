package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/store"
	"heddle/internal/strictjson"
)

// unexpected replaces an error that is not the client's; the log has it, with the request's id.
const unexpected = "An unexpected error prevented the server from fulfilling your request."

// outcomeUnknown has a status on which clients do not retry, as they do on 503.
const outcomeUnknown = "The store did not answer in time: whether the change was made is unknown. Look before you try again."

// unavailable is the answer while the store or Keystone does not answer.
const unavailable = "The server cannot do this at present: its store, or Keystone, does not answer in time. Nothing is wrong with the request; try again."

// storeUnavailable is the answer when it is known to be the store.
const storeUnavailable = "The server cannot do this at present: it does not reach its store (etcd). Nothing is wrong with the request; try again."

// Error is an answer other than success, in Keystone's form: {"error":{"code","title","message"}}.
type Error struct {
	Status     int
	Message    string
	RetryAfter time.Duration // when positive, sent as Retry-After in whole seconds
}

func (e *Error) Error() string { return e.Message }

// SetHeader sets the header fields that belong to the answer.
func (e *Error) SetHeader(h http.Header) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
}

// Errorf makes an Error with a formatted message.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("answer cannot be written as JSON: %w", err)) // our own type: a mistake of ours
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is not our error
}

// WriteError answers with err: an *Error as it is, errors of the store by their kind, and any other
// as 500 with its detail only in the log.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	var e *Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, ErrUnauthorized):
		e = Errorf(http.StatusUnauthorized, unauthorized)
	case errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrOutcomeUnknown):
		e = Errorf(http.StatusServiceUnavailable, "Nothing was changed: %v.", err)
	case errors.Is(r.Context().Err(), context.Canceled): // the client has gone
		e = Errorf(http.StatusServiceUnavailable, "The request was given up before it was answered.")
	default:
		q := of(r.Context())
		q.log.Error("request failed", "request", q.id, "method", r.Method, "path", r.URL.Path, "err", err)
		status, message := http.StatusInternalServerError, unexpected
		switch {
		case errors.Is(err, store.ErrOutcomeUnknown):
			status, message = http.StatusGatewayTimeout, outcomeUnknown
		case errors.Is(err, store.ErrUnavailable):
			status, message = http.StatusServiceUnavailable, storeUnavailable
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) || r.Context().Err() != nil:
			status, message = http.StatusServiceUnavailable, unavailable
		}
		e = Errorf(status, "%s", message)
	}
	e.SetHeader(w.Header())
	writeError(w, e.Status, e.Message)
}

func writeError(w http.ResponseWriter, status int, message string) {
	type body struct {
		Code    int    `json:"code"`
		Title   string `json:"title"`
		Message string `json:"message"`
	}
	WriteJSON(w, status, map[string]body{"error": {status, http.StatusText(status), message}})
}

// ReadJSON reads the request's body as one JSON value into v. Its errors are *Error: 400 for what
// is not such a value, 413 for a body over the server's limit.
func ReadJSON(r *http.Request, v any) error { return readJSON(r, v, unmarshal) }

// ReadStrictJSON is ReadJSON that refuses members for which v has no field.
func ReadStrictJSON(r *http.Request, v any) error { return readJSON(r, v, strictjson.Unmarshal) }

func readJSON(r *http.Request, v any, decode func([]byte, any) error) error {
	err := DecodeBody(r, strictjson.Limits{Depth: 64, Values: 4096}, func(raw []byte) error { return decode(raw, v) })
	var (
		tooLarge *http.MaxBytesError
		wrong    *strictjson.Error
	)
	switch {
	case errors.As(err, &tooLarge):
		return Errorf(http.StatusRequestEntityTooLarge, "Request is too large: the body may have %d bytes.", tooLarge.Limit)
	case !errors.As(err, &wrong):
		return err
	case wrong.Fault == strictjson.Syntax || len(wrong.Path) == 0:
		return Errorf(FaultStatus(wrong), "The request body is not the JSON this call takes: %v", wrong)
	case wrong.Fault == strictjson.Unknown || wrong.Fault == strictjson.BadValue:
		return Errorf(http.StatusBadRequest, "Invalid input for field '%s': %s.", strings.Join(wrong.Members(), "."), wrong.Reason)
	}
	return Errorf(FaultStatus(wrong), "Invalid input for field '%s': it %s.", strings.Join(wrong.Members(), "."), wrong.Reason)
}

// FaultStatus returns the status that answers a mistake in a body.
func FaultStatus(e *strictjson.Error) int {
	if e.Fault == strictjson.TooLarge {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

func unmarshal(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		var (
			own  *Error // of a type that reads itself
			kind *json.UnmarshalTypeError
		)
		switch {
		case errors.As(err, &own):
			return own
		case errors.As(err, &kind) && kind.Field != "":
			return Errorf(http.StatusBadRequest, "Invalid input for field '%s': a JSON %s is not what belongs there.", kind.Field, kind.Value)
		case kind != nil:
			return Errorf(http.StatusBadRequest, "The request body is not the JSON this call takes: it is a JSON %s.", kind.Value)
		}
		return Errorf(http.StatusBadRequest, "The request body is not the JSON this call takes: %v", err)
	}
	return nil
}

// Routes serves mux, but has answer write the status (404 or 405) of requests that no route takes,
// which mux itself would answer in plain text, or with a redirect if the path is not clean. The
// Allow header is already set.
func Routes(mux *http.ServeMux, answer func(w http.ResponseWriter, r *http.Request, status int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !cleanPath(r.URL.EscapedPath()) {
			answer(w, r, http.StatusNotFound)
			return
		}
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		miss := missed{header: http.Header{}, status: http.StatusNotFound}
		h.ServeHTTP(&miss, r)
		if allow := miss.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		answer(w, r, miss.status)
	})
}

// cleanPath reports whether a path is absolute and has no empty segment, "." or "..". The last
// segment may be empty.
func cleanPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") &&
		!slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// NoRoute answers 404 and 405 in Keystone's form; for Routes.
func NoRoute(w http.ResponseWriter, r *http.Request, status int) {
	message := "The resource could not be found."
	if status == http.StatusMethodNotAllowed {
		message = "The method is not allowed for the requested URL."
	}
	WriteError(w, r, Errorf(status, "%s", message))
}

// missed takes what mux would have answered, for its status.
type missed struct {
	header http.Header
	status int
}

func (m *missed) Header() http.Header         { return m.header }
func (m *missed) Write(b []byte) (int, error) { return len(b), nil }
func (m *missed) WriteHeader(status int)      { m.status = status }
