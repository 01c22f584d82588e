package wire

import (
	"bytes"
	"encoding/json"
	"errors"
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

// DecodeJSONCall reads a call. One without an id, a notification, which nobody could be answered,
// is refused as a message that is no call. Any error is a [SyntaxError].
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

// DecodeJSONReply reads what a server answered, by either version: the raw value, or the failure as
// a [model.Error]. Any other error is a [SyntaxError].
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

// jsonParser reads JSON that message has found valid. Bytes that are not UTF-8 stay as they are;
// [Coerce] refuses them, by the name of the parameter.
type jsonParser struct {
	b      []byte
	pos    int
	depth  int
	values budget
}

func (p *jsonParser) fail(format string, args ...any) error {
	return &SyntaxError{p.pos, fmt.Sprintf(format, args...)}
}

// skip passes over space and returns where the text after it begins.
func (p *jsonParser) skip() int {
	for bytes.IndexByte([]byte(" \t\r\n"), p.b[p.pos]) >= 0 {
		p.pos++
	}
	return p.pos
}

// message reads an object that is all of the text; member reads the value of each of its members.
func (p *jsonParser) message(member func(name string) error) error {
	if syntax := (*json.SyntaxError)(nil); !json.Valid(p.b) {
		err := json.Unmarshal(p.b, new(json.RawMessage))
		if errors.As(err, &syntax) {
			p.pos = int(syntax.Offset)
		}
		return p.fail("%v", err)
	}
	if p.b[p.skip()] != '{' {
		return p.fail("the message is no object")
	}
	return p.members(member)
}

// nest reads what is between brackets; one reads a member or element.
func (p *jsonParser) nest(one func() error) error {
	if p.depth++; p.depth > maxDepth {
		return p.fail("values nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	for p.pos++; ; {
		switch p.b[p.skip()] {
		case '}', ']':
			p.pos++
			return nil
		case ',':
			p.pos++
		default:
			if err := one(); err != nil {
				return err
			}
		}
	}
}

// members reads those of an object.
func (p *jsonParser) members(member func(name string) error) error {
	return p.nest(func() error {
		name := p.text()
		p.skip()
		p.pos++ // the colon
		return member(name)
	})
}

func (p *jsonParser) value() (any, error) {
	p.skip()
	if !p.values.spend() {
		return nil, p.fail("the call has more than %d values", p.values.most)
	}
	switch p.b[p.pos] {
	case '{':
		object := map[string]any{}
		return object, p.members(func(name string) (err error) {
			object[name], err = p.value()
			return err
		})
	case '[':
		elements := []any{}
		err := p.nest(func() error {
			v, err := p.value()
			elements = append(elements, v)
			return err
		})
		return elements, err
	case '"':
		return p.text(), nil
	case 't':
		p.pos += len("true")
		return true, nil
	case 'f':
		p.pos += len("false")
		return false, nil
	case 'n':
		p.pos += len("null")
		return nil, nil
	}
	return p.number()
}

// number reads one: an int64 where it is written as one and fits.
func (p *jsonParser) number() (any, error) {
	start := p.pos
	for p.pos < len(p.b) && bytes.IndexByte([]byte("+-.eE0123456789"), p.b[p.pos]) >= 0 {
		p.pos++
	}
	text := string(p.b[start:p.pos])
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, p.fail("%q is too large a number", text)
	}
	return f, nil
}

// text reads a string.
func (p *jsonParser) text() string {
	p.pos++
	rest := p.b[p.pos:]
	end := bytes.IndexByte(rest, '"')
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		p.pos += end + 1
		return string(rest[:end])
	}
	var out []byte
	for {
		c := p.b[p.pos]
		p.pos++
		switch c {
		case '"':
			return string(out)
		case '\\':
			out = p.escape(out)
		default:
			out = append(out, c)
		}
	}
}

// escape appends the character that follows a backslash.
func (p *jsonParser) escape(out []byte) []byte {
	c := p.b[p.pos]
	p.pos++
	if c != 'u' {
		return append(out, "\"\\/\b\f\n\r\t"[bytes.IndexByte([]byte(`"\/bfnrt`), c)])
	}
	r := p.hex()
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r)
	}
	if next := p.pos; bytes.HasPrefix(p.b[next:], []byte(`\u`)) {
		p.pos += 2
		if whole := utf16.DecodeRune(r, p.hex()); whole != utf8.RuneError {
			return utf8.AppendRune(out, whole)
		}
		p.pos = next
	}
	// Half of a pair is no character. As bytes it is no UTF-8, so that Coerce refuses it, as other
	// bytes that are not.
	return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0xbf, 0x80|byte(r)&0xbf)
}

// hex reads four hexadecimal digits.
func (p *jsonParser) hex() rune {
	n, _ := strconv.ParseUint(string(p.b[p.pos:p.pos+4]), 16, 16) // valid JSON has four
	p.pos += 4
	return rune(n)
}
