package model

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxNesting bounds brackets and nots in an expression.
const maxNesting = 100

// Where is a condition on the records of a class.
type Where struct{ match func(Record) bool }

// Match reports whether a record, whole with its far sides, meets the condition.
func (w *Where) Match(r Record) bool { return w.match(r) }

// ParseWhere reads an expression of C.get_all_records_where:
//
//	expression = conjunction { "or" conjunction }
//	conjunction = term { "and" term }
//	term = "not" term | "true" | "false" | "(" expression ")" | operand "=" operand
//	operand = [ "field" ] string
//
// Strings stand in double or single quotes, within which a backslash takes the next character as it
// is. Values compare as text: integers in decimal, booleans as true and false. Sets and maps cannot
// be compared. A field's _ may be written __, as is the custom where a reference server keeps it.
func ParseWhere(class, expression string) (*Where, error) {
	c := Lookup(class)
	if c == nil {
		return nil, fmt.Errorf("no class %q", class)
	}
	p := &whereParser{class: c, rest: expression}
	if err := p.advance(); err != nil {
		return nil, err
	}
	match, err := p.any()
	if err != nil {
		return nil, err
	}
	if p.word != "" || p.quoted {
		return nil, p.unexpected("the end")
	}
	return &Where{match}, nil
}

// whereParser holds one word of the expression, and what follows it.
type whereParser struct {
	class  *Class
	rest   string
	word   string // a keyword, ( ) or =, or what stood in quotes; "" without quotes is the end
	quoted bool
	depth  int
}

// advance reads the next word.
func (p *whereParser) advance() error {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	p.word, p.quoted = "", false
	if p.rest == "" {
		return nil
	}
	switch c := p.rest[0]; c {
	case '(', ')', '=':
		p.word, p.rest = p.rest[:1], p.rest[1:]
		return nil
	case '"', '\'':
		return p.quotedWord(c)
	}
	end := strings.IndexAny(p.rest, " \t\r\n()=\"'")
	if end < 0 {
		end = len(p.rest)
	}
	p.word, p.rest = p.rest[:end], p.rest[end:]
	return nil
}

func (p *whereParser) quotedWord(quote byte) error {
	var out strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == quote:
			p.word, p.quoted, p.rest = out.String(), true, p.rest[i+1:]
			return nil
		case c == '\\' && i+1 < len(p.rest):
			i++
			out.WriteByte(p.rest[i])
		default:
			out.WriteByte(c)
		}
	}
	return fmt.Errorf("a string has no closing %c", quote)
}

// take passes over a keyword if it comes next.
func (p *whereParser) take(keyword string) (bool, error) {
	if p.quoted || p.word != keyword {
		return false, nil
	}
	return true, p.advance()
}

func (p *whereParser) unexpected(wanted string) error {
	switch {
	case p.quoted:
		return fmt.Errorf("%q comes where %s should", p.word, wanted)
	case p.word == "":
		return fmt.Errorf("the expression ends where %s should come", wanted)
	}
	return fmt.Errorf("%s comes where %s should", p.word, wanted)
}

// any reads an expression: any of its parts is enough.
func (p *whereParser) any() (func(Record) bool, error) {
	return p.joined("or", true, func() (func(Record) bool, error) { return p.joined("and", false, p.term) })
}

// joined reads parts with a keyword between them; the first with a decisive outcome counts.
func (p *whereParser) joined(keyword string, decisive bool, part func() (func(Record) bool, error)) (func(Record) bool, error) {
	var parts []func(Record) bool
	for {
		match, err := part()
		if err != nil {
			return nil, err
		}
		parts = append(parts, match)
		more, err := p.take(keyword)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return func(r Record) bool {
		for _, match := range parts {
			if match(r) == decisive {
				return decisive
			}
		}
		return !decisive
	}, nil
}

func (p *whereParser) term() (func(Record) bool, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("brackets and nots nest deeper than %d", maxNesting)
	}
	defer func() { p.depth-- }()
	if p.quoted {
		return p.comparison()
	}
	switch p.word {
	case "true", "false":
		outcome := p.word == "true"
		return func(Record) bool { return outcome }, p.advance()
	case "not":
		if err := p.advance(); err != nil {
			return nil, err
		}
		match, err := p.term()
		return func(r Record) bool { return !match(r) }, err
	case "(":
		if err := p.advance(); err != nil {
			return nil, err
		}
		match, err := p.any()
		if err != nil {
			return nil, err
		}
		return match, p.must(")")
	}
	return p.comparison()
}

// must passes over a word that has to come next.
func (p *whereParser) must(word string) error {
	found, err := p.take(word)
	if err == nil && !found {
		err = p.unexpected(word)
	}
	return err
}

func (p *whereParser) comparison() (func(Record) bool, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	if err := p.must("="); err != nil {
		return nil, err
	}
	right, err := p.operand()
	return func(r Record) bool { return left(r) == right(r) }, err
}

// operand reads a string, or the name of a field for its value.
func (p *whereParser) operand() (func(Record) string, error) {
	isField, err := p.take("field")
	if err != nil {
		return nil, err
	}
	if !p.quoted {
		return nil, p.unexpected("a string")
	}
	word := p.word
	if !isField {
		return func(Record) string { return word }, p.advance()
	}
	f := p.class.Field(word)
	if f == nil {
		f = p.class.Field(strings.ReplaceAll(word, "__", "_"))
	}
	switch {
	case f == nil:
		return nil, fmt.Errorf("%s has no field %q", p.class.Name, word)
	case f.Type.Kind == Set || f.Type.Kind == Map || f.Type.Kind == RecordOf:
		return nil, fmt.Errorf("the field %s of %s holds many values, which cannot be compared", f.Name, p.class.Name)
	}
	return func(r Record) string { return valueText(r[f.Name]) }, p.advance()
}

// valueText is a single value as an expression writes it.
func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.UTC().Format("20060102T15:04:05Z")
	}
	return ""
}
