// Package strictjson reads JSON that other programs and people write, and reports every mistake
// with its place. [Read] checks a text as it arrives; [Unmarshal] decodes a whole one.
//
// Both refuse text that is not Unicode (which encoding/json replaces without an error) and anything
// after the value.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Fault is a kind of mistake.
type Fault int

// The kinds of mistakes.
const (
	Syntax     Fault = iota // the text is not JSON
	NotUnicode              // a string is not UTF-8, or has half of a surrogate pair
	Duplicate               // an object has two members of one name
	Unknown                 // there is no such member
	BadValue                // a value does not fit its place
	TooDeep                 // Limits.Depth
	TooLarge                // Limits.Values or Limits.Item
)

// Error is a mistake in a text.
type Error struct {
	Fault  Fault
	Path   []string // names of members and indices of elements, from the outermost value on
	Reason string   // such as "is there twice"
}

func (e *Error) Error() string {
	if len(e.Path) == 0 {
		return e.Reason
	}
	return e.Place() + ": " + e.Reason
}

// Place returns the path as people write it, such as steps[2].name.
func (e *Error) Place() string {
	var b strings.Builder
	for _, p := range e.Path {
		switch {
		case isIndex(p):
			b.WriteString("[" + p + "]")
		case b.Len() > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

// Members returns the path without the indices of elements.
func (e *Error) Members() []string {
	return slices.DeleteFunc(slices.Clone(e.Path), isIndex)
}

func isIndex(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Unmarshal decodes the one value of text into v. It refuses members that are unknown or given
// twice. Numbers become [json.Number] where v leaves the type open.
func Unmarshal(text []byte, v any) error {
	err := jsonv2.Unmarshal(text, v, jsonv2.RejectUnknownMembers(true), jsonv2.WithUnmarshalers(exactNumbers))
	var wrong *jsonv2.SemanticError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return syntaxError(err, text)
	}
	e := &Error{Fault: BadValue, Path: path(wrong.JSONPointer)}
	switch {
	case errors.Is(err, jsonv2.ErrUnknownName):
		e.Fault, e.Reason = Unknown, "unknown field; want "+strings.Join(members(wrong.GoType), ", ")
	case wrong.Err != nil && !errors.Is(err, strconv.ErrSyntax) && !errors.Is(err, strconv.ErrRange):
		e.Reason = wrong.Err.Error()
	default:
		e.Reason = "want " + describe(wrong.GoType)
	}
	return e
}

var exactNumbers = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported // decoded as usual
	}
	number, err := d.ReadValue()
	*v = json.Number(number)
	return err
})

// members returns the names of a struct's members in order.
func members(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// describe returns the words for a value of the type.
func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return describe(t.Elem())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	}
	return "a " + t.Kind().String()
}

// syntaxError returns the Error for an error of jsontext; text has at least what was read so far.
func syntaxError(err error, text []byte) *Error {
	var wrong *jsontext.SyntacticError
	if !errors.As(err, &wrong) {
		return &Error{Reason: err.Error()} // such as a text without a value
	}
	e := &Error{Path: path(wrong.JSONPointer), Reason: wrong.Err.Error()}
	at := text[min(int(wrong.ByteOffset), len(text)):]
	r, size := utf8.DecodeRune(at)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Fault, e.Reason = Duplicate, "is there twice"
	case r == utf8.RuneError && size == 1:
		e.Fault, e.Reason = NotUnicode, "is not UTF-8"
	case bytes.HasPrefix(bytes.ToLower(at), []byte(`\ud`)):
		e.Fault, e.Reason = NotUnicode, `has one half of a surrogate pair (\ud800 to \udfff), which stands for no character`
	}
	return e
}

func path(p jsontext.Pointer) []string {
	return slices.Collect(p.Tokens())
}

// Limits bounds a text. A limit of 0 is none.
type Limits struct {
	Depth  int // objects and lists in each other
	Values int // texts, numbers, objects, lists and so on, together
	Item   int // bytes of one element of a list that is a member of the outermost object
	// Items is called for each element of such a list, n counting from 1. Its error ends the
	// reading. May be nil.
	Items func(list string, n int) error
}

// Read reads a text of about size bytes to its end and returns it. It checks the text as it
// arrives, so that one beyond the limits is refused before it is in memory as a whole; an empty
// text passes. Of members given twice the last counts, as for encoding/json. Errors are an [Error],
// or those of r and of limits.Items.
func Read(r io.Reader, size int64, limits Limits) ([]byte, error) {
	in := &input{r: r, text: make([]byte, 0, size+1), most: limits.Item}
	s := scan{Limits: limits, d: jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true)), in: in}
	for {
		token, err := s.d.ReadToken()
		switch {
		case err == io.EOF:
			return in.text, nil
		case err != nil && in.err == errItem:
			return nil, s.largeItem()
		case err != nil && in.err != nil && in.err != io.EOF:
			return nil, in.err
		case err != nil:
			return nil, syntaxError(err, in.text)
		}
		if err := s.token(token.Kind()); err != nil {
			return nil, err
		}
	}
}

// slack is the number of bytes read beyond the limit of an element.
const slack = 4 << 10

// input hands what it reads to the decoder and keeps it.
type input struct {
	r      io.Reader
	text   []byte // read so far
	served int    // bytes of text that the decoder has
	item   int    // where the element under way begins, or the one before ends; 0: none is under way
	most   int    // bytes of an element; 0: no limit
	err    error  // the end of r, io.EOF or another
}

var errItem = errors.New("the element is too large")

func (in *input) Read(p []byte) (int, error) {
	for in.served == len(in.text) {
		switch {
		case in.err != nil:
			return 0, in.err
		case in.most > 0 && in.item > 0 && len(in.text)-in.item > in.most+slack:
			in.err = errItem
			return 0, in.err
		case len(in.text) == cap(in.text):
			in.text = slices.Grow(in.text, slack)
		}
		var n int
		n, in.err = in.r.Read(in.text[len(in.text):cap(in.text)])
		in.text = in.text[:len(in.text)+n]
	}
	n := copy(p, in.text[in.served:])
	in.served += n
	return n, nil
}

// scan checks the tokens of a text.
type scan struct {
	Limits
	d      *jsontext.Decoder
	in     *input
	values int
}

func (s *scan) fail(f Fault, reason string, args ...any) error {
	return &Error{f, path(s.d.StackPointer()), fmt.Sprintf(reason, args...)}
}

func (s *scan) largeItem() error {
	return s.fail(TooLarge, "has an element of more than %d bytes", s.Item)
}

func (s *scan) token(kind jsontext.Kind) error {
	depth := s.d.StackDepth()
	parent := depth
	if kind == '{' || kind == '[' {
		parent--
	}
	container, n := s.d.StackIndex(parent)
	value := kind != '}' && kind != ']' && (container != '{' || n%2 == 0)
	if value {
		s.values++
	}
	switch {
	case s.Depth > 0 && depth > s.Depth:
		return s.fail(TooDeep, "has more than %d objects and lists in each other", s.Depth)
	case s.Values > 0 && s.values > s.Values:
		return s.fail(TooLarge, "ends a request of more than %d values", s.Values)
	case parent == 0 && n > 1:
		return s.fail(Syntax, "invalid character %q after top-level value", rune(kind))
	}
	return s.element(value && parent == 2 && container == '[', int(n))
}

// element checks the element under way of a list in the outermost object; begins: the token is its
// first.
func (s *scan) element(begins bool, n int) error {
	if !s.inList() {
		s.in.item = 0
		return nil
	}
	if begins && s.Items != nil {
		if err := s.Items(path(s.d.StackPointer())[0], n); err != nil {
			return err
		}
	}
	end := int(s.d.InputOffset())
	s.in.skipGap()
	if s.in.item > 0 && s.Item > 0 && end-s.in.item > s.Item {
		return s.largeItem()
	}
	if s.d.StackDepth() == 2 {
		s.in.item = end
	}
	return nil
}

// inList reports whether the place is in a list that is a member of the outermost object.
func (s *scan) inList() bool {
	if s.d.StackDepth() < 2 {
		return false
	}
	outer, _ := s.d.StackIndex(1)
	list, _ := s.d.StackIndex(2)
	return outer == '{' && list == '['
}

// skipGap moves item from the end of the element before to the begin of the one under way, behind
// comma and whitespace, once for each element: a gap can be as long as the text.
func (in *input) skipGap() {
	if in.item == 0 {
		return
	}
	rest := in.text[in.item:]
	in.item += len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
}
