package api

import (
	"net/http"
	"reflect"
)

// Call is a call of an API whose body and answer are JSON: what routes it, and what describes it.
type Call struct {
	Pattern string // method and path, such as "GET /v1/ports/{id}"
	Summary string
	Query   []Parameter
	// Body is the type of the body; nil: there is none. Answer is that of the answer with status
	// 200; nil for streams.
	Body, Answer reflect.Type
	// Stream is the kind of an answer that goes on, such as text/event-stream; "" = JSON. Item is
	// the type of the JSON in each of its lines or events.
	Stream string
	Item   reflect.Type
	// Open: users without the role admin may make it, too.
	Open  bool
	serve func(w http.ResponseWriter, r *http.Request) error
}

// Parameter is a parameter of a call's query.
type Parameter struct {
	Name, Text string
	Many       bool // it may be given more than once
}

// NewCall returns a call without a body, which h answers.
func NewCall[A any](pattern, summary string, h func(r *http.Request) (A, error), query ...Parameter) Call {
	return Call{Pattern: pattern, Summary: summary, Query: query, Answer: reflect.TypeFor[A](), serve: func(w http.ResponseWriter, r *http.Request) error {
		return answer(w)(h(r))
	}}
}

// NewBodyCall returns a call with a body, which h answers. A body with members that Q has no field
// for is refused.
func NewBodyCall[Q, A any](pattern, summary string, h func(r *http.Request, body *Q) (A, error)) Call {
	return Call{Pattern: pattern, Summary: summary, Body: reflect.TypeFor[Q](), Answer: reflect.TypeFor[A](), serve: func(w http.ResponseWriter, r *http.Request) error {
		var body Q
		if err := ReadStrictJSON(r, &body); err != nil {
			return err
		}
		return answer(w)(h(r, &body))
	}}
}

// NewStream returns a call whose answer, of items of the type I, goes on until the client leaves or
// [Ending].
func NewStream[I any](pattern, summary, kind string, h func(w http.ResponseWriter, r *http.Request) error, query ...Parameter) Call {
	return Call{Pattern: pattern, Summary: summary, Query: query, Stream: kind, Item: reflect.TypeFor[I](), serve: h}
}

func answer(w http.ResponseWriter) func(v any, err error) error {
	return func(v any, err error) error {
		if err == nil {
			WriteJSON(w, http.StatusOK, v)
		}
		return err
	}
}

// ToAll returns the call for users without the role admin, too.
func (c Call) ToAll() Call {
	c.Open = true
	return c
}

// Register adds calls to mux, which must be behind RequireToken.
func Register(mux *http.ServeMux, calls []Call) {
	for _, c := range calls {
		if c.Open {
			mux.HandleFunc(c.Pattern, Answering(c.serve))
		} else {
			mux.HandleFunc(c.Pattern, Admin(c.serve))
		}
	}
}
