package calico

import (
	"fmt"
	"strconv"
	"strings"
)

// Error says why an object is refused.
type Error struct {
	Object string // what it is to be: a kind, BGPPeer or NodeMesh
	Field  string // where, like inbound_rules[2].src_ports[0]; empty: the value as a whole
	Value  string // what is there, as JSON, cut when long; empty: nothing
	Reason string // what is allowed, or what is wrong
}

func (e *Error) Error() string {
	text := e.Object
	if e.Field != "" {
		text += ": " + e.Field
	}
	if e.Value != "" {
		text += ": " + e.Value
	}
	return text + ": " + e.Reason
}

// refuse returns an error about a value of a Go object.
func refuse(field string, value any, reason string, args ...any) *Error {
	shown := ""
	switch v := value.(type) {
	case nil:
	case string:
		shown = string(appendText(nil, v))
	case fmt.Stringer:
		shown = string(appendText(nil, v.String()))
	default:
		shown = fmt.Sprint(v)
	}
	return &Error{Field: field, Value: shorten(shown), Reason: fmt.Sprintf(reason, args...)}
}

// maxShown bounds the bytes of a value in an error.
const maxShown = 80

func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// in puts the error's field below another one.
func (e *Error) in(parent string) *Error {
	switch {
	case e == nil:
		return nil
	case e.Field == "":
		e.Field = parent
	case e.Field[0] == '[':
		e.Field = parent + e.Field
	default:
		e.Field = parent + "." + e.Field
	}
	return e
}

// of names the object and makes nil a nil error.
func (e *Error) of(object string) error {
	if e == nil {
		return nil
	}
	e.Object = object
	return e
}

// index returns the place of an entry of a list.
func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// entry returns the place of a member with a name of the user's.
func entry(object, name string) string { return object + "[" + strconv.Quote(shorten(name)) + "]" }
