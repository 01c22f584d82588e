package neutronv2

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/strictjson"
)

// Limits of request bodies. A body with a list of objects may be as large as the server allows
// (MaxBody).
const (
	MaxBody   = 4 << 20   // bytes of any body; for the server
	maxObject = 256 << 10 // bytes of one object, and of a body that carries one
	maxItems  = 1000      // objects in a list
	maxDepth  = 64        // objects and lists in each other
	maxValues = 50_000    // texts, numbers, objects, lists and so on in a body
)

// document is a body whose attributes are not decoded yet.
type document map[string]json.RawMessage

// unreadable is the answer to a body that is not a JSON object.
func unreadable() *neutron.Error { return badRequest("Body contains invalid data") }

// readObject reads a body that carries one object or less, and lets decode take what it needs of
// it.
func readObject(r *http.Request, decode func(body document) error) error {
	api.LimitBody(r, maxObject)
	return readDocument(r, nil, decode)
}

// readDocument reads a body. It stops at the first element of a list that count refuses.
func readDocument(r *http.Request, count func(list string, n int) error, decode func(body document) error) error {
	err := api.DecodeBody(r, bodyLimits(count), func(raw []byte) error {
		body, err := decodeBody(raw)
		if err != nil {
			return err
		}
		return decode(body)
	})
	if wrong := (*strictjson.Error)(nil); errors.As(err, &wrong) && wrong.Fault == strictjson.Syntax {
		return unreadable()
	}
	return err
}

func bodyLimits(count func(list string, n int) error) strictjson.Limits {
	return strictjson.Limits{Depth: maxDepth, Values: maxValues, Item: maxObject, Items: count}
}

// decodeBody splits a body; an empty body is an empty object.
func decodeBody(raw []byte) (document, error) {
	body := document{}
	if len(raw) == 0 {
		return body, nil
	}
	if err := json.Unmarshal(raw, &body); err != nil || body == nil {
		return nil, unreadable()
	}
	return body, nil
}

// decodeValue decodes one attribute; an absent one is nil.
func decodeValue(raw json.RawMessage) (any, error) {
	if raw == nil {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, unreadable()
	}
	return v, nil
}

// items calls each with the objects that a create or update carries, one after the other, and says
// whether they came as a list (neutron-api §1).
func items(body document, res neutron.Resource, op neutron.Op, each func(o map[string]any) error) (bulk bool, err error) {
	list, bulk := body[res.Collection()]
	if !bulk {
		v, err := decodeValue(body[res.Name()])
		if err != nil {
			return false, err
		}
		o, err := object(v, res)
		if err != nil {
			return false, err
		}
		return false, each(o)
	}
	if op != neutron.Create {
		return true, badRequest("Bulk operation not supported")
	}
	var elements []json.RawMessage
	if string(list) == "{}" || string(list) == `""` { // no list, but as empty as one to the reference
		return true, badRequest("Resources required")
	}
	if json.Unmarshal(list, &elements) != nil {
		return true, unreadable()
	}
	if len(elements) == 0 {
		return true, badRequest("Resources required")
	}
	for i, raw := range elements {
		elements[i] = nil
		v, err := decodeValue(raw)
		if err != nil {
			return true, err
		}
		o, err := bulkItem(v, res)
		if err != nil {
			return true, err
		}
		if err := each(o); err != nil {
			return true, err
		}
	}
	return true, nil
}

// bulkItem is an object of a list, which may be wrapped once more.
func bulkItem(x any, res neutron.Resource) (map[string]any, error) {
	switch x := x.(type) {
	case map[string]any:
		if inner, wrapped := x[res.Name()]; wrapped {
			return object(inner, res)
		}
		return x, nil
	case string, []any:
		return object(x, res)
	}
	return nil, unreadable()
}

func object(x any, res neutron.Resource) (map[string]any, error) {
	if x == nil {
		return nil, badRequest("Unable to find '" + res.Name() + "' in request body")
	}
	o, ok := x.(map[string]any)
	if !ok {
		return nil, badRequest("Object '" + res.Name() + "' contains invalid data")
	}
	return o, nil
}

// countItems refuses a list of objects as soon as it is longer than a list may be, or than the
// caller's quota allows. The operation counts again, and exactly.
func (c *collection[T]) countItems(r *http.Request) func(list string, n int) error {
	room := -1
	return func(list string, n int) error {
		if list != c.table.Resource.Collection() {
			return nil
		}
		if n == 2 {
			var err error
			if room, err = c.handler.ops.Room(r.Context(), api.Caller(r.Context()), c.table.Resource); err != nil {
				return err
			}
		}
		switch {
		case n > maxItems:
			return &api.Error{Status: http.StatusRequestEntityTooLarge,
				Message: fmt.Sprintf("The request has more than %d %s: send them in several requests.", maxItems, list)}
		case n > 1 && room >= 0 && n > room:
			return neutron.Errorf(neutron.Conflict, "OverQuota", "Quota exceeded for resources: ['%s'].", c.table.Resource.Name())
		}
		return nil
	}
}
