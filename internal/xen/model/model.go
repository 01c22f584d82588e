// Package model is the XenAPI as Heddle speaks it, as one declarative table: classes, fields,
// messages, errors and roles (docs/xenapi.md). What is served, coded on the wire, offered by xe and
// documented is derived from it. It does no I/O.
//
// Values are of these Go types, by [Type]:
//
//	String, Enum, Ref   string ([NullRef] for a reference to nothing)
//	Int                 int64
//	Float               float64
//	Bool                bool
//	Time                time.Time, UTC, whole seconds
//	Set                 []string, of Int []int64, of RecordOf []Record
//	Map                 map[string]string; to RecordOf map[string]Record; to Int map[string]int64
//	RecordOf            Record
//	Void                nil
package model

import "strings"

// NullRef is the reference to nothing.
const NullRef = "OpaqueRef:NULL"

// Kind tells types apart.
type Kind uint8

// Kinds of types.
const (
	Void Kind = iota
	String
	Int
	Float
	Bool
	Time
	Enum
	Ref
	Set
	Map
	RecordOf
)

// Type is the type of a field, a parameter or a result.
type Type struct {
	Kind   Kind
	Class  string   // of Ref and RecordOf; "" of RecordOf: of no class, such as a constructor's argument or an event
	Values []string // of Enum, in order
	Elem   *Type    // of Set and Map
}

// Access is the way in which a field gets its value.
type Access uint8

// Kinds of access.
const (
	Constructed Access = iota // given at creation, then read-only
	Dynamic                   // kept by the system, read-only
	Writable                  // by clients, with set_, and add_to_/remove_from_ or add_/remove_ for maps and sets
)

// Field is one of a class. A field with Far is the far side of that field of the objects of that
// class: it is never stored, but is the set, or the one (for a Ref), of those that refer here.
type Field struct {
	Name    string
	Type    Type
	Access  Access
	Default any // of the Go type for Type; nil: its zero value, NullRef for Ref
	Far     *Far
	SetRole Role // least role that may write it; "" is the class's
	Doc     string
}

// Far names a field of another class.
type Far struct{ Class, Field string }

// Param is a parameter of a message, the session not counted. Those that are Optional may be left
// out at the end, for [Param.Initial].
type Param struct {
	Name     string
	Type     Type
	Optional bool
	Default  any
}

// Message is a call that is not implied by the fields.
type Message struct {
	Name    string
	Params  []Param
	Result  Type
	Role    Role     // least role that may call it
	Async   bool     // offered as Async.C.m too
	Errors  []string // codes that it may answer beside those of every call
	NoLogin bool     // needs no session
	Doc     string
}

// Class is a kind of object.
type Class struct {
	Name     string // as in calls
	Doc      string
	Fields   []Field
	Messages []Message
	// NoList: there is no get_all and what goes with it (session, event).
	NoList bool
	// Value: it has values, not objects (event, event_batch), and no calls that fields imply.
	Value bool
	Role  Role // least role that may change its objects; reading needs ReadOnly
}

// Role is a set of permissions; each includes those after it in [Roles].
type Role string

// Roles, the mightiest first. TunnelController reads, and writes the status of tunnels.
const (
	PoolAdmin        Role = "pool-admin"
	PoolOperator     Role = "pool-operator"
	VMPowerAdmin     Role = "vm-power-admin"
	VMAdmin          Role = "vm-admin"
	VMOperator       Role = "vm-operator"
	ReadOnly         Role = "read-only"
	TunnelController Role = "tunnel-controller"
)

// ErrorCode is an error known to the model: its code, the names of its parameters in order with the
// class of those that are references ("" for text), and what it means.
type ErrorCode struct {
	Code   string
	Params []ErrorParam
	Many   bool   // the last parameter may come more than once, or not at all
	Text   string // a sentence for people
}

// ErrorParam is a parameter of an error.
type ErrorParam struct{ Name, Class string }

// Error is an error as clients see it: a code and its parameters.
type Error struct {
	Code   string
	Params []string
}

// Error is the code and the parameters, as a log has them.
func (e *Error) Error() string {
	if len(e.Params) == 0 {
		return e.Code
	}
	return e.Code + ": " + strings.Join(e.Params, ", ")
}

// Record is an object's fields by name.
type Record map[string]any
