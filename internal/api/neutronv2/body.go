package neutronv2

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"heddle/internal/neutron"
)

// maxDepth bounds how deep objects and lists may lie in each other in a body.
const maxDepth = 64

// unreadable is the answer to a body that is not a JSON object.
func unreadable() *neutron.Error { return badRequest("Body contains invalid data") }

// readBody reads the body as a JSON object; an empty body is an empty object.
func readBody(r *http.Request) (map[string]any, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return decodeBody(raw)
}

func decodeBody(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	if tooDeep(raw) {
		return nil, unreadable()
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var body map[string]any
	if err := d.Decode(&body); err != nil || body == nil {
		return nil, unreadable()
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, unreadable()
	}
	return body, nil
}

// tooDeep says whether brackets outside of strings lie deeper than maxDepth.
func tooDeep(raw []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// items are the objects that a create or update carries, and whether it came as a list (neutron-api §1).
func items(body map[string]any, res neutron.Resource, op neutron.Op) (objects []map[string]any, bulk bool, err error) {
	list, bulk := body[res.Collection()]
	if !bulk {
		o, err := object(body[res.Name()], res)
		return []map[string]any{o}, false, err
	}
	if op != neutron.Create {
		return nil, true, badRequest("Bulk operation not supported")
	}
	switch list := list.(type) {
	case []any:
		if len(list) == 0 {
			return nil, true, badRequest("Resources required")
		}
		for _, x := range list {
			o, err := bulkItem(x, res)
			if err != nil {
				return nil, true, err
			}
			objects = append(objects, o)
		}
		return objects, true, nil
	case nil:
		return nil, true, badRequest("Resources required")
	}
	return nil, true, unreadable()
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
