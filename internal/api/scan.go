package api

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// JSONLimits bounds the JSON of a request body. A limit of 0 is none.
type JSONLimits struct {
	Depth  int // brackets in each other
	Values int // texts, numbers, objects, lists and so on, together
	Item   int // bytes of one element of a list that is an attribute of the outermost object
	// Items is called as each element of such a list begins, n counting from 1. Its error ends the reading. May be nil.
	Items func(list string, n int) error
}

// JSONError reports a body that exceeds a limit or has a text that is not Unicode.
type JSONError struct {
	Status int      // 400 or 413
	Field  []string // names of the attributes that lead to the place, from the outermost object on
	Reason string   // such as "is longer than 100 bytes"
}

func (e *JSONError) Error() string {
	return fmt.Sprintf("Invalid input for field '%s': it %s.", strings.Join(e.Field, "."), e.Reason)
}

// jsonScan follows a JSON text as it arrives and checks its limits, so that a body is refused before it is held and
// decoded as a whole. It also checks what encoding/json replaces in silence: halves of surrogate pairs and bytes that
// are not UTF-8. It accepts some texts that are no JSON; the decoder refuses those.
type jsonScan struct {
	limits JSONLimits
	stack  []jsonLevel
	values int
	item   int // bytes of the element under way

	inString bool
	key      bool   // the string is the name of an attribute
	escape   bool   // after a backslash
	hex      int    // digits that a \u escape still lacks
	unit     rune   // what the escape has so far
	high     bool   // the text before is the first half of a surrogate pair
	partial  []byte // of a rune
}

// jsonLevel is an object or a list that is open.
type jsonLevel struct {
	list  bool
	name  []byte // of the attribute under way, of an object; at most maxFieldName bytes
	n     int    // elements begun, of a list
	begin bool   // a name, of an object, or an element, of a list, comes next
}

const maxFieldName = 64

// field names the place that the scan has reached.
func (s *jsonScan) field() []string {
	var names []string
	for i, l := range s.stack {
		// A name that is itself under way is not known yet.
		if !l.list && (!s.key || i < len(s.stack)-1) && len(l.name) > 0 {
			names = append(names, strings.ToValidUTF8(string(l.name), "\uFFFD"))
		}
	}
	return names
}

func (s *jsonScan) fail(status int, reason string, args ...any) error {
	return &JSONError{status, s.field(), fmt.Sprintf(reason, args...)}
}

// CheckJSON holds a whole text against limits.
func CheckJSON(text []byte, limits JSONLimits) error {
	return (&jsonScan{limits: limits}).write(text)
}

// write takes the next bytes of the text.
func (s *jsonScan) write(b []byte) error {
	for _, c := range b {
		var err error
		if s.inString {
			err = s.text(c)
		} else {
			err = s.structure(c)
		}
		if err != nil {
			return err
		}
		if len(s.stack) > 2 || len(s.stack) == 2 && s.stack[1].list {
			if s.item++; s.limits.Item > 0 && s.item > s.limits.Item {
				return s.fail(http.StatusRequestEntityTooLarge, "has an element of more than %d bytes", s.limits.Item)
			}
		}
	}
	return nil
}

// structure takes a byte outside of strings.
func (s *jsonScan) structure(c byte) error {
	switch c {
	case ' ', '\t', '\r', '\n':
		return nil
	case ']', '}':
		if len(s.stack) > 0 {
			s.stack = s.stack[:len(s.stack)-1]
		}
		return nil
	case ',':
		if top := s.top(); top != nil {
			top.begin = true
		}
		return s.value()
	case ':':
		return nil
	}
	if err := s.element(); err != nil {
		return err
	}
	switch c {
	case '[', '{':
		if s.stack = append(s.stack, jsonLevel{list: c == '[', begin: true}); s.limits.Depth > 0 && len(s.stack) > s.limits.Depth {
			return s.fail(http.StatusBadRequest, "has more than %d objects and lists in each other", s.limits.Depth)
		}
		return s.value()
	case '"':
		s.inString = true
		if top := s.top(); top != nil && !top.list && top.begin {
			s.key, top.begin, top.name = true, false, top.name[:0]
		}
	}
	return nil
}

func (s *jsonScan) top() *jsonLevel {
	if len(s.stack) == 0 {
		return nil
	}
	return &s.stack[len(s.stack)-1]
}

// value counts: each value comes after a comma or a bracket.
func (s *jsonScan) value() error {
	if s.values++; s.limits.Values > 0 && s.values > s.limits.Values {
		return s.fail(http.StatusRequestEntityTooLarge, "ends a request of more than %d values", s.limits.Values)
	}
	return nil
}

// element notes that an element begins, if the place is that of one.
func (s *jsonScan) element() error {
	top := s.top()
	if top == nil || !top.list || !top.begin {
		return nil
	}
	top.begin = false
	top.n++
	if len(s.stack) != 2 || s.stack[0].list {
		return nil
	}
	s.item = 0
	if s.limits.Items == nil {
		return nil
	}
	return s.limits.Items(string(s.stack[0].name), top.n)
}

// text takes a byte of a string.
func (s *jsonScan) text(c byte) error {
	if s.key {
		if top := s.top(); c != '"' && len(top.name) < maxFieldName {
			top.name = append(top.name, c)
		}
	}
	switch {
	case len(s.partial) > 0 || c >= utf8.RuneSelf:
		return s.rune(c)
	case s.hex > 0:
		return s.digit(c)
	case s.escape:
		s.escape = false
		if c == 'u' {
			s.hex, s.unit = 4, 0
			return nil
		}
		return s.whole()
	case c == '\\':
		s.escape = true
		return nil
	case c == '"':
		err := s.whole()
		s.inString, s.key = false, false
		return err
	}
	return s.whole()
}

// rune takes a byte of a character beyond ASCII.
func (s *jsonScan) rune(c byte) error {
	if err := s.whole(); err != nil {
		return err
	}
	if s.partial = append(s.partial, c); !utf8.FullRune(s.partial) {
		return nil
	}
	if r, size := utf8.DecodeRune(s.partial); r == utf8.RuneError && size == 1 {
		return s.fail(http.StatusBadRequest, "is not UTF-8")
	}
	s.partial = s.partial[:0]
	return nil
}

// digit takes a digit of a \u escape.
func (s *jsonScan) digit(c byte) error {
	d := strings.IndexByte("0123456789abcdef", c|0x20)
	if d < 0 {
		s.hex = 0 // the decoder says what is wrong
		return s.whole()
	}
	s.unit = s.unit<<4 | rune(d)
	if s.hex--; s.hex > 0 {
		return nil
	}
	first, second := s.unit >= 0xD800 && s.unit < 0xDC00, s.unit >= 0xDC00 && s.unit < 0xE000
	if s.high != second {
		return s.half()
	}
	s.high = first
	return nil
}

// whole refuses the first half of a surrogate pair where something other than the second half follows.
func (s *jsonScan) whole() error {
	if s.high {
		return s.half()
	}
	return nil
}

func (s *jsonScan) half() error {
	return s.fail(http.StatusBadRequest, `has one half of a surrogate pair (\ud800 to \udfff), which stands for no character`)
}
