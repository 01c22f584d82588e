package calico

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"heddle/calico/selector"
)

// maxDepth bounds the nesting of a value. Objects of the model need four levels.
const maxDepth = 64

// reader reads one JSON text (RFC 8259) in a single pass. It is stricter than encoding/json: no
// duplicate members, no invalid UTF-8, names in exact case. It keeps the first failure; after that
// further reads do nothing.
type reader struct {
	data    string
	pos     int
	place   []step          // of the value being read
	names   []string        // of the members read so far of all open objects
	profile json.RawMessage // profile_id of the endpoint being read
	options []selector.Option
	failed  *Error

	fewPlaces [6]step // room for most
	fewNames  [24]string
}

// step is one part of a place: a member's name, or a position in a list.
type step struct {
	name  string
	index int // or aMember, or beforeMembers
}

const (
	aMember       = -1
	beforeMembers = -2
)

// readAll reads a whole text with f.
func readAll(data []byte, options []selector.Option, f func(r *reader)) *Error {
	r := &reader{data: string(data), options: options}
	r.place, r.names = r.fewPlaces[:0], r.fewNames[:0]
	if !utf8.ValidString(r.data) {
		return &Error{Reason: "is not UTF-8 text"}
	}
	f(r)
	if r.space(); r.failed == nil && r.pos < len(r.data) {
		r.syntax("want the end after the value")
	}
	return r.failed
}

// fail keeps the first failure: a value that began at start is not what is wanted.
func (r *reader) fail(start int, reason string) {
	if r.failed != nil {
		return
	}
	r.failed = &Error{Field: r.field(), Value: shorten(strings.TrimSpace(r.data[start:r.pos])), Reason: reason}
	r.pos = len(r.data)
}

func (r *reader) syntax(reason string) {
	if r.failed != nil {
		return
	}
	r.failed = &Error{Field: r.field(), Reason: "not JSON at byte " + strconv.Itoa(r.pos+1) + ": " + reason}
	r.pos = len(r.data)
}

// field spells the place as people do.
func (r *reader) field() string {
	var b strings.Builder
	for _, s := range r.place {
		switch {
		case s.index == beforeMembers:
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case !plainName(s.name):
			b.WriteString("[" + strconv.Quote(shorten(s.name)) + "]")
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

func plainName(name string) bool {
	for _, c := range []byte(name) {
		if !isLetter(c) && !isDigit(c) && c != '_' && c != '!' {
			return false
		}
	}
	return name != ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

func (r *reader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next token, 0 at the end.
func (r *reader) peek() byte {
	r.space()
	if r.pos == len(r.data) {
		return 0
	}
	return r.data[r.pos]
}

// take takes one punctuation mark if it is next.
func (r *reader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.pos++
	return true
}

func (r *reader) word(text string) bool {
	r.space()
	if !strings.HasPrefix(r.data[r.pos:], text) {
		return false
	}
	r.pos += len(text)
	return true
}

// null takes a null if it is next.
func (r *reader) null() bool { return r.peek() == 'n' && r.word("null") }

// wrong refuses the next value for its type. What is no value at all is an error of syntax.
func (r *reader) wrong(reason string) {
	start := r.pos
	if r.skip(); r.failed == nil {
		r.fail(start, reason)
	}
}

// object reads an object's members with f, which takes the value of each.
func (r *reader) object(f func(name string)) {
	if r.peek() != '{' {
		r.wrong("want an object")
		return
	}
	r.pos++
	if len(r.place) >= maxDepth {
		r.syntax("nested too deep")
		return
	}
	base := len(r.names)
	r.place = append(r.place, step{index: beforeMembers})
	var many map[string]bool
	for first := true; r.failed == nil; first = false {
		if first && r.take('}') {
			break
		}
		name, ok := r.name(first)
		if !ok {
			return
		}
		r.place[len(r.place)-1] = step{name, aMember}
		if r.twice(name, base, &many) {
			r.fail(r.pos, "is there twice")
			return
		}
		f(name)
		if r.take('}') {
			break
		}
	}
	if r.failed == nil {
		r.names, r.place = r.names[:base], r.place[:len(r.place)-1]
	}
}

// name takes a member's name, with the comma before and the colon after it.
func (r *reader) name(first bool) (string, bool) {
	if !first && !r.take(',') {
		r.syntax("want , or }")
		return "", false
	}
	if r.peek() != '"' {
		r.syntax("want the name of a member, in quotes")
		return "", false
	}
	name := r.quoted()
	if r.failed == nil && !r.take(':') {
		r.syntax("want :")
	}
	return name, r.failed == nil
}

// twice reports whether an object, whose names begin at base, has had a name, and remembers it.
// Looking at each is quick while they are few; many fills when they are not.
func (r *reader) twice(name string, base int, many *map[string]bool) bool {
	const few = 24
	r.names = append(r.names, name)
	names := r.names[base : len(r.names)-1]
	if len(names) < few {
		for _, n := range names {
			if n == name {
				return true
			}
		}
		return false
	}
	if *many == nil {
		*many = make(map[string]bool, 2*few)
		for _, n := range names {
			(*many)[n] = true
		}
	}
	had := (*many)[name]
	(*many)[name] = true
	return had
}

// list reads a list's entries with f.
func (r *reader) list(f func(i int)) {
	if r.peek() != '[' {
		r.wrong("want a list")
		return
	}
	r.pos++
	if len(r.place) >= maxDepth {
		r.syntax("nested too deep")
		return
	}
	if r.take(']') {
		return
	}
	r.place = append(r.place, step{})
	for i := 0; r.failed == nil; i++ {
		r.place[len(r.place)-1].index = i
		f(i)
		if r.take(']') {
			break
		}
		if !r.take(',') {
			r.syntax("want , or ]")
		}
	}
	if r.failed == nil {
		r.place = r.place[:len(r.place)-1]
	}
}

// raw takes the next value whole, without space between its tokens.
func (r *reader) raw() json.RawMessage {
	r.space()
	start := r.pos
	if r.skip(); r.failed != nil {
		return nil
	}
	return compact(r.data[start:r.pos])
}

// compact drops the space outside strings.
func compact(text string) []byte {
	out := make([]byte, 0, len(text))
	for i, quoted := 0, false; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted && c == '\\':
			out = append(out, c)
			i++
			c = text[i]
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		out = append(out, c)
	}
	return out
}

// skip takes the next value, of any type.
func (r *reader) skip() {
	switch c := r.peek(); {
	case c == '{':
		r.object(func(string) { r.skip() })
	case c == '[':
		r.list(func(int) { r.skip() })
	case c == '"':
		r.quoted()
	case c == '-' || isDigit(c):
		r.digits()
	case r.word("null") || r.word("true") || r.word("false"):
	default:
		r.syntax("want a value")
	}
}

// text takes a string. It may share the memory of the whole value.
func (r *reader) text() string {
	if r.peek() != '"' {
		r.wrong("want a string")
		return ""
	}
	return r.quoted()
}

// kept takes a string, in memory of its own.
func (r *reader) kept() string { return strings.Clone(r.text()) }

// quoted takes a string whose quote is next.
func (r *reader) quoted() string {
	start := r.pos + 1
	for i := start; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.pos = i + 1
			return r.data[start:i]
		case c == '\\':
			return r.escaped(start, i)
		case c < ' ':
			return r.noString(i, "a control character in a string must be escaped")
		}
	}
	return r.noString(len(r.data), "a string does not end")
}

// escaped takes a string from start whose first escape is at i.
func (r *reader) escaped(start, i int) string {
	text := []byte(r.data[start:i])
	for i < len(r.data) {
		switch c := r.data[i]; {
		case c == '"':
			r.pos = i + 1
			return string(text)
		case c == '\\':
			char, n := unquote(r.data[i:])
			if n == 0 {
				return r.noString(i, "bad escape in a string")
			}
			text, i = utf8.AppendRune(text, char), i+n
		case c < ' ':
			return r.noString(i, "a control character in a string must be escaped")
		default:
			text, i = append(text, c), i+1
		}
	}
	return r.noString(len(r.data), "a string does not end")
}

func (r *reader) noString(at int, reason string) string {
	r.pos = at
	r.syntax(reason)
	return ""
}

// unquote reads the escape at the start of a text, n bytes long; 0 for no valid escape.
func unquote(text string) (char rune, n int) {
	if len(text) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, text[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	char, ok := hex4(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(char) {
		return char, 6
	}
	low, ok := hex4(text[6:])
	if char = utf16.DecodeRune(char, low); !ok || char == utf8.RuneError {
		return 0, 0
	}
	return char, 12
}

// hex4 reads \uXXXX.
func hex4(text string) (rune, bool) {
	if len(text) < 6 || text[:2] != `\u` || text[2] == '+' || text[2] == '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(n), err == nil
}

// digits takes a number, as it is written.
func (r *reader) digits() string {
	start := r.pos
	some := func() bool {
		from := r.pos
		for r.pos < len(r.data) && isDigit(r.data[r.pos]) {
			r.pos++
		}
		return r.pos > from
	}
	next := func(set string) bool {
		ok := r.pos < len(r.data) && strings.IndexByte(set, r.data[r.pos]) >= 0
		if ok {
			r.pos++
		}
		return ok
	}
	next("-")
	ok := next("0") || some()
	if ok && next(".") {
		ok = some()
	}
	if ok && next("eE") {
		next("+-")
		ok = some()
	}
	if !ok {
		r.syntax("bad number")
		return ""
	}
	return r.data[start:r.pos]
}

// integer takes a number from low to high without fraction or exponent.
func (r *reader) integer(low, high int, reason string) int {
	c, start := r.peek(), r.pos
	if c != '-' && !isDigit(c) {
		r.wrong(reason)
		return 0
	}
	n, err := strconv.Atoi(r.digits())
	if err != nil || n < low || n > high {
		r.fail(start, reason)
	}
	return n
}

// number takes any number.
func (r *reader) number() float64 {
	c, start := r.peek(), r.pos
	if c != '-' && !isDigit(c) {
		r.wrong("want a number")
		return 0
	}
	f, err := strconv.ParseFloat(r.digits(), 64)
	if errors.Is(err, strconv.ErrRange) && math.IsInf(f, 0) {
		r.fail(start, "is too large")
	}
	if f == 0 {
		return 0 // never -0
	}
	return f
}

// boolean is true or false.
func (r *reader) boolean() bool {
	switch c := r.peek(); {
	case c == 't' && r.word("true"):
		return true
	case c == 'f' && r.word("false"):
		return false
	}
	r.wrong("want true or false")
	return false
}
