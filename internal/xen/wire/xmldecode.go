package wire

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"

	"heddle/internal/xen/model"
)

// DecodeXMLCall reads a call's method, and its parameters as raw values, or a [SyntaxError].
func DecodeXMLCall(body []byte) (method string, params []any, err error) {
	if err := checkSize(body); err != nil {
		return "", nil, err
	}
	s := &scanner{b: body, values: budget{most: maxCallValues}}
	if err := s.begin(); err != nil {
		return "", nil, err
	}
	if empty, err := s.open("methodCall"); err != nil || empty {
		return "", nil, s.or(err, "the call is empty")
	}
	if empty, err := s.open("methodName"); err != nil || empty {
		return "", nil, s.or(err, "the call has no method")
	}
	if method, err = s.text(); err != nil {
		return "", nil, err
	}
	if err := s.closeHere("methodName"); err != nil {
		return "", nil, err
	}
	if params, err = s.params(); err != nil {
		return "", nil, err
	}
	if err := s.close("methodCall"); err != nil {
		return "", nil, err
	}
	return strings.TrimSpace(method), params, s.end()
}

// DecodeXMLReply reads what a server answered: the raw value, or the failure as a [model.Error].
// Any other error is a [SyntaxError]. A value without a status, as that of system.listMethods, is
// given as it is.
func DecodeXMLReply(body []byte) (any, error) {
	s := &scanner{b: body}
	if err := s.begin(); err != nil {
		return nil, err
	}
	if empty, err := s.open("methodResponse"); err != nil || empty {
		return nil, s.or(err, "the reply is empty")
	}
	if err := s.skip(); err != nil {
		return nil, err
	}
	if s.at("<fault") {
		return nil, s.fault()
	}
	params, err := s.params()
	if err != nil {
		return nil, err
	}
	if err := s.close("methodResponse"); err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if len(params) != 1 {
		return nil, s.fail("a reply holds one value, not %d", len(params))
	}
	return s.outcome(params[0])
}

// or is err, or if there is none one that says so.
func (s *scanner) or(err error, text string) error {
	if err != nil {
		return err
	}
	return s.fail("%s", text)
}

// outcome returns the value or failure of a reply, by its status.
func (s *scanner) outcome(reply any) (any, error) {
	members, _ := reply.(map[string]any)
	switch members["Status"] {
	case "Success":
		value, ok := members["Value"]
		if !ok {
			return nil, s.fail("a success without a value")
		}
		return value, nil
	case "Failure":
		description, _ := members["ErrorDescription"].([]any)
		failure := failureOf(description)
		if failure == nil {
			return nil, s.fail("a failure without a description")
		}
		return nil, failure
	}
	return reply, nil
}

// failureOf is the error whose code and parameters these are; nil when they are not.
func failureOf(description []any) *model.Error {
	texts := make([]string, len(description))
	for i, d := range description {
		text, ok := d.(string)
		if !ok {
			return nil
		}
		texts[i] = text
	}
	if len(texts) == 0 {
		return nil
	}
	return &model.Error{Code: texts[0], Params: texts[1:]}
}

// fault is XML-RPC's own kind of failure, which a server that is no XenAPI may answer.
func (s *scanner) fault() error {
	if _, err := s.open("fault"); err != nil {
		return err
	}
	v, err := s.value()
	if err != nil {
		return err
	}
	members, _ := v.(map[string]any)
	return model.InternalError(fmt.Sprint(members["faultString"]))
}

// params are the values of a call or a reply; it need not have any.
func (s *scanner) params() ([]any, error) {
	params := []any{}
	if err := s.skip(); err != nil || !s.at("<params") {
		return params, err
	}
	empty, err := s.open("params")
	if err != nil || empty {
		return params, err
	}
	for {
		if err := s.skip(); err != nil {
			return nil, err
		}
		if s.at("</") {
			return params, s.closeHere("params")
		}
		if empty, err := s.open("param"); err != nil || empty {
			return nil, s.or(err, "an empty param")
		}
		v, err := s.value()
		if err != nil {
			return nil, err
		}
		params = append(params, v)
		if err := s.close("param"); err != nil {
			return nil, err
		}
	}
}

// value reads a <value>.
func (s *scanner) value() (any, error) {
	if s.depth++; s.depth > maxDepth {
		return nil, s.fail("values nest deeper than %d", maxDepth)
	}
	defer func() { s.depth-- }()
	if !s.values.spend() {
		return nil, s.fail("the call has more than %d values", s.values.most)
	}
	if empty, err := s.open("value"); err != nil || empty {
		return "", err
	}
	text, err := s.text()
	if err != nil {
		return nil, err
	}
	if s.at("</") { // no type element: a string
		return text, s.closeHere("value")
	}
	if strings.TrimSpace(text) != "" {
		return nil, s.fail("text before a type element")
	}
	v, err := s.typed()
	if err != nil {
		return nil, err
	}
	return v, s.close("value")
}

// typed reads the element within a <value>.
func (s *scanner) typed() (any, error) {
	name, empty, err := s.tag()
	if err != nil {
		return nil, err
	}
	switch name {
	case "struct":
		return s.members(empty)
	case "array":
		return s.elements(empty)
	}
	text := ""
	if !empty {
		if text, err = s.text(); err != nil {
			return nil, err
		}
		if err := s.closeHere(name); err != nil {
			return nil, err
		}
	}
	v, ok := scalar(name, text)
	if !ok {
		return nil, s.fail("%q is no %s", text, name)
	}
	return v, nil
}

// scalar is the value of a type element that holds text.
func scalar(name, text string) (any, bool) {
	if name == "string" {
		return text, true
	}
	text = strings.TrimSpace(text)
	switch name {
	case "int", "i4", "i8":
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	case "boolean":
		return text == "1", text == "0" || text == "1"
	case "double":
		f, err := strconv.ParseFloat(text, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	case "dateTime.iso8601":
		return text, true
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(text)
		return string(raw), err == nil
	case "nil":
		return nil, text == ""
	}
	return nil, false
}

// members reads what a <struct> holds. Of members with the same name the last is taken.
func (s *scanner) members(empty bool) (map[string]any, error) {
	members := map[string]any{}
	if empty {
		return members, nil
	}
	for {
		if err := s.skip(); err != nil {
			return nil, err
		}
		if s.at("</") {
			return members, s.closeHere("struct")
		}
		if empty, err := s.open("member"); err != nil || empty {
			return nil, s.or(err, "an empty member")
		}
		name, err := s.memberName()
		if err != nil {
			return nil, err
		}
		if members[name], err = s.value(); err != nil {
			return nil, err
		}
		if err := s.close("member"); err != nil {
			return nil, err
		}
	}
}

func (s *scanner) memberName() (string, error) {
	if empty, err := s.open("name"); err != nil || empty {
		return "", err
	}
	name, err := s.text()
	if err != nil {
		return "", err
	}
	return name, s.closeHere("name")
}

// elements reads what an <array> holds.
func (s *scanner) elements(empty bool) ([]any, error) {
	elements := []any{}
	if empty {
		return elements, nil
	}
	if empty, err := s.open("data"); err != nil || empty {
		return elements, s.orClose(err, "array")
	}
	for {
		if err := s.skip(); err != nil {
			return nil, err
		}
		if s.at("</") {
			return elements, s.orClose(s.closeHere("data"), "array")
		}
		v, err := s.value()
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
}

// orClose is err, or what comes of closing an element.
func (s *scanner) orClose(err error, name string) error {
	if err != nil {
		return err
	}
	return s.close(name)
}
