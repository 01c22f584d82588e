package wire

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"heddle/internal/xen/model"
)

// JSONCall is a call by JSON-RPC.
type JSONCall struct {
	Method   string
	Params   []any  // raw values
	Version2 bool   // by JSON-RPC 2.0; else 1.0
	ID       []byte // as the client wrote it, a number or a string: the reply echoes it
}

// DecodeJSONCall reads a call. One without an id, a notification, which nobody could be answered, is refused as a message
// that is no call. Any error is a [SyntaxError].
func DecodeJSONCall(body []byte) (*JSONCall, error) {
	if err := checkSize(body); err != nil {
		return nil, err
	}
	p := &jsonParser{b: body, values: budget{most: maxCallValues}}
	call := &JSONCall{}
	var method, version, id any
	var params any
	err := p.message(func(name string) (err error) {
		switch name {
		case "method":
			method, err = p.value()
		case "jsonrpc":
			version, err = p.value()
		case "params":
			params, err = p.value()
		case "id":
			start := p.skip()
			id, err = p.value()
			call.ID = p.b[start:p.pos]
		default:
			_, err = p.value()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var ok bool
	if call.Method, ok = method.(string); !ok {
		return nil, p.fail("the call has no method")
	}
	if call.Params, ok = params.([]any); !ok {
		return nil, p.fail("the call has no list of params")
	}
	switch id.(type) {
	case string, int64, float64:
	default:
		return nil, p.fail("the call has no id")
	}
	if call.Version2 = version == "2.0"; version != nil && version != "1.0" && !call.Version2 {
		return nil, p.fail("the version of JSON-RPC is not known")
	}
	return call, nil
}

// DecodeJSONReply reads what a server answered, by either version: the raw value, or the failure as a [model.Error]. Any
// other error is a [SyntaxError].
func DecodeJSONReply(body []byte) (any, error) {
	p := &jsonParser{b: body}
	var result, failure any
	found := false
	err := p.message(func(name string) (err error) {
		switch name {
		case "result":
			found = true
			result, err = p.value()
		case "error":
			failure, err = p.value()
		default:
			_, err = p.value()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var e *model.Error
	switch f := failure.(type) {
	case nil:
		if !found {
			return nil, p.fail("the reply has neither result nor error")
		}
		return result, nil
	case []any: // 1.0
		e = failureOf(f)
	case map[string]any: // 2.0
		data, _ := f["data"].([]any)
		e = failureOf(append([]any{f["message"]}, data...))
	}
	if e == nil {
		return nil, p.fail("the error has no code")
	}
	return nil, e
}

// jsonParser reads JSON. Bytes that are not UTF-8 stay as they are; [Coerce] refuses them, by the name of the parameter.
type jsonParser struct {
	b     []byte
	pos   int
	depth int

	values budget
}

func (p *jsonParser) fail(format string, args ...any) error {
	return &SyntaxError{p.pos, fmt.Sprintf(format, args...)}
}

// skip passes over space and says where what follows begins.
func (p *jsonParser) skip() int {
	for p.pos < len(p.b) {
		switch p.b[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return p.pos
		}
	}
	return p.pos
}

// next says whether c comes next, and passes over it if so.
func (p *jsonParser) next(c byte) bool {
	if p.skip(); p.pos < len(p.b) && p.b[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// message reads an object that is all of the text; member reads the value of each of its members.
func (p *jsonParser) message(member func(name string) error) error {
	if !p.next('{') {
		return p.fail("the message is no object")
	}
	if err := p.members(member); err != nil {
		return err
	}
	if p.skip(); p.pos < len(p.b) {
		return p.fail("there is more after the end")
	}
	return nil
}

// members reads those of an object whose { has been read.
func (p *jsonParser) members(member func(name string) error) error {
	if p.depth++; p.depth > maxDepth {
		return p.fail("values nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	if p.next('}') {
		return nil
	}
	for {
		if !p.next('"') {
			return p.fail("a member's name should come here")
		}
		name, err := p.text()
		if err != nil {
			return err
		}
		if !p.next(':') {
			return p.fail("a colon should follow the member's name")
		}
		if err := member(name); err != nil {
			return err
		}
		if p.next('}') {
			return nil
		}
		if !p.next(',') {
			return p.fail("the object does not end")
		}
	}
}

func (p *jsonParser) value() (any, error) {
	p.skip()
	if p.pos == len(p.b) {
		return nil, p.fail("a value is missing")
	}
	if !p.values.spend() {
		return nil, p.fail("the call has more than %d values", p.values.most)
	}
	switch c := p.b[p.pos]; {
	case c == '{':
		p.pos++
		object := map[string]any{}
		return object, p.members(func(name string) (err error) {
			object[name], err = p.value()
			return err
		})
	case c == '[':
		p.pos++
		return p.elements()
	case c == '"':
		p.pos++
		return p.text()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case p.word("true"):
		return true, nil
	case p.word("false"):
		return false, nil
	case p.word("null"):
		return nil, nil
	}
	return nil, p.fail("this is no value")
}

func (p *jsonParser) word(w string) bool {
	if !bytes.HasPrefix(p.b[p.pos:], []byte(w)) {
		return false
	}
	p.pos += len(w)
	return true
}

// elements reads those of an array whose [ has been read.
func (p *jsonParser) elements() (any, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail("values nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	elements := []any{}
	if p.next(']') {
		return elements, nil
	}
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
		if p.next(']') {
			return elements, nil
		}
		if !p.next(',') {
			return nil, p.fail("the array does not end")
		}
	}
}

// number reads one: an int64 where it is written as one and fits.
func (p *jsonParser) number() (any, error) {
	start := p.pos
	p.next('-')
	whole := p.digits()
	integer := true
	if p.pos < len(p.b) && p.b[p.pos] == '.' {
		p.pos++
		integer = false
		if p.digits() == 0 {
			return nil, p.fail("digits should follow the point")
		}
	}
	if p.pos < len(p.b) && (p.b[p.pos] == 'e' || p.b[p.pos] == 'E') {
		integer = false
		if p.pos++; p.pos < len(p.b) && (p.b[p.pos] == '+' || p.b[p.pos] == '-') {
			p.pos++
		}
		if p.digits() == 0 {
			return nil, p.fail("digits should follow the exponent")
		}
	}
	text := string(p.b[start:p.pos])
	first := bytes.TrimPrefix(p.b[start:p.pos], []byte("-"))
	if whole == 0 || whole > 1 && first[0] == '0' {
		return nil, p.fail("%q is no number", text)
	}
	if n, err := strconv.ParseInt(text, 10, 64); integer && err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, p.fail("%q is too large a number", text)
	}
	return f, nil
}

// digits passes over decimal digits and counts them.
func (p *jsonParser) digits() int {
	start := p.pos
	for p.pos < len(p.b) && p.b[p.pos] >= '0' && p.b[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

// text reads a string whose first quote has been read.
func (p *jsonParser) text() (string, error) {
	start := p.pos
	for p.pos < len(p.b) {
		switch c := p.b[p.pos]; {
		case c == '"':
			p.pos++
			return string(p.b[start : p.pos-1]), nil
		case c == '\\':
			return p.escaped(append([]byte(nil), p.b[start:p.pos]...))
		case c < 0x20:
			return "", p.fail("a control character in a string")
		default:
			p.pos++
		}
	}
	return "", p.fail("the string does not end")
}

// escaped reads the rest of a string from its first escape on.
func (p *jsonParser) escaped(out []byte) (string, error) {
	for p.pos < len(p.b) {
		c := p.b[p.pos]
		p.pos++
		switch {
		case c == '"':
			return string(out), nil
		case c < 0x20:
			return "", p.fail("a control character in a string")
		case c != '\\':
			out = append(out, c)
		default:
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		}
	}
	return "", p.fail("the string does not end")
}

// escape appends what follows a backslash stands for.
func (p *jsonParser) escape(out []byte) ([]byte, error) {
	if p.pos == len(p.b) {
		return nil, p.fail("the string does not end")
	}
	c := p.b[p.pos]
	p.pos++
	if i := bytes.IndexByte([]byte(`"\/bfnrt`), c); i >= 0 {
		return append(out, "\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return nil, p.fail("no string escape begins with %q", c)
	}
	r, err := p.hex()
	if err != nil {
		return nil, err
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), nil
	}
	if next := p.pos; bytes.HasPrefix(p.b[next:], []byte(`\u`)) {
		p.pos += 2
		low, err := p.hex()
		if err != nil {
			return nil, err
		}
		if whole := utf16.DecodeRune(r, low); whole != utf8.RuneError {
			return utf8.AppendRune(out, whole), nil
		}
		p.pos = next
	}
	// Half of a pair stands for no character. As bytes it is no UTF-8, so that it is refused where a value is taken, as other
	// bytes are that are not.
	return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf), nil
}

// hex reads four hexadecimal digits.
func (p *jsonParser) hex() (rune, error) {
	if len(p.b)-p.pos < 4 {
		return 0, p.fail("four hexadecimal digits should come here")
	}
	n, err := strconv.ParseUint(string(p.b[p.pos:p.pos+4]), 16, 16)
	if err != nil {
		return 0, p.fail("four hexadecimal digits should come here")
	}
	p.pos += 4
	return rune(n), nil
}
