// Package selector parses, prints and evaluates the label selectors of Calico's data model (seed
// 001, "Policy"; docs/policy.md completes the grammar):
//
//	role == "web" && has(tier) || !(zone in {"a", "b"})
//
// A selector has one canonical text, which identifies it: the String of two selectors is equal if
// they are the same expression.
package selector

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
)

// Labels are the input of a selector.
type Labels interface {
	// Get returns the value of a label, and whether it is present.
	Get(name string) (value string, present bool)
}

// Map is Labels in a map.
type Map map[string]string

// Get implements Labels.
func (m Map) Get(name string) (string, bool) {
	v, ok := m[name]
	return v, ok
}

// Selector is a parsed selector. It never changes, so any number of goroutines may use it.
type Selector struct {
	root node
	text string // canonical
}

// All returns the selector `all()`, as does the empty text.
func All() *Selector { return &Selector{root: node{op: opAll}, text: "all()"} }

// String returns the canonical text.
func (s *Selector) String() string { return s.text }

// UID returns the selector's identity: "s:" and the unpadded URL-safe base64 of SHA-224 over "s:"
// and the canonical text, as peers compute it.
func (s *Selector) UID() string {
	sum := sha256.Sum224([]byte("s:" + s.text))
	return "s:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Match reports whether the labels match the selector. It allocates nothing.
func (s *Selector) Match(labels Labels) bool { return s.root.match(labels) }

// op is the operation of a node.
type op uint8

const (
	opAll      op = iota
	opHas         // label is present
	opEqual       // label is present and equals value
	opNotEqual    // label is absent, or differs from value
	opIn          // label is present and one of set
	opNotIn       // label is absent, or none of set
	opContains    // extensions: label is present and contains, starts or ends with value
	opStarts
	opEnds
	opAnd // every kid holds
	opOr  // any kid holds
)

// node is an expression. There is no node for "!", of which only the parity counts.
type node struct {
	op     op
	global bool // of opAll: written as global(), an extension that is always true
	negate bool
	label  string
	value  string
	set    []string // sorted, without duplicates
	kids   []node   // two or more
}

func (n *node) match(l Labels) bool { return n.holds(l) != n.negate }

func (n *node) holds(l Labels) bool {
	switch n.op {
	case opAll:
		return true
	case opAnd:
		for i := range n.kids {
			if !n.kids[i].match(l) {
				return false
			}
		}
		return true
	case opOr:
		for i := range n.kids {
			if n.kids[i].match(l) {
				return true
			}
		}
		return false
	}
	v, present := l.Get(n.label)
	switch n.op {
	case opNotEqual:
		return !present || v != n.value
	case opNotIn:
		return !present || !n.contains(v)
	}
	return present && n.accepts(v)
}

// accepts evaluates the operations that want the label to be present on its value.
func (n *node) accepts(v string) bool {
	switch n.op {
	case opEqual:
		return v == n.value
	case opIn:
		return n.contains(v)
	case opContains:
		return strings.Contains(v, n.value)
	case opStarts:
		return strings.HasPrefix(v, n.value)
	case opEnds:
		return strings.HasSuffix(v, n.value)
	}
	return true // opHas
}

func (n *node) contains(v string) bool {
	_, found := slices.BinarySearch(n.set, v)
	return found
}

func (n *node) appendText(b []byte) []byte {
	if n.negate {
		b = append(b, '!')
	}
	switch n.op {
	case opAll:
		if n.global {
			return append(b, "global()"...)
		}
		return append(b, "all()"...)
	case opHas:
		b = append(b, "has("...)
		b = append(b, n.label...)
		return append(b, ')')
	case opIn, opNotIn:
		b = append(b, n.label...)
		b = append(b, operators[n.op]...)
		return appendSet(b, n.set)
	case opAnd, opOr:
		b = append(b, '(')
		for i := range n.kids {
			if i > 0 {
				b = append(b, operators[n.op]...)
			}
			b = n.kids[i].appendText(b)
		}
		return append(b, ')')
	}
	b = append(b, n.label...)
	b = append(b, operators[n.op]...)
	return appendString(b, n.value)
}

// operators are the operators with the space around them.
var operators = [...]string{opEqual: " == ", opNotEqual: " != ", opIn: " in ", opNotIn: " not in ", opContains: " contains ",
	opStarts: " starts with ", opEnds: " ends with ", opAnd: " && ", opOr: " || "}

func appendSet(b []byte, set []string) []byte {
	b = append(b, '{')
	for i, s := range set {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendString(b, s)
	}
	return append(b, '}')
}

// appendString quotes s. There are no escapes: a string holds one kind of quote at most.
func appendString(b []byte, s string) []byte {
	quote := byte('"')
	if strings.IndexByte(s, '"') >= 0 {
		quote = '\''
	}
	b = append(b, quote)
	b = append(b, s...)
	return append(b, quote)
}
