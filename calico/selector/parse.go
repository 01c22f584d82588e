package selector

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxLabelLength is the greatest length of a label's name in bytes.
	MaxLabelLength = 512
	// MaxLength bounds a selector in bytes, as written and in its canonical form: every host
	// evaluates the selectors of its policies.
	MaxLength = 64 << 10
	// MaxDepth bounds the nesting of groups, and so the parser's stack.
	MaxDepth = 100
)

// SyntaxError is the reason why a text is no selector.
type SyntaxError struct {
	Offset int // of the byte at which reading failed, from 0
	Cause  string
	// TooLarge reports that the text exceeds MaxLength or MaxDepth. The rest of it was not read.
	TooLarge bool
}

// Error names the place by counting bytes from 1.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("selector, at byte %d: %s", e.Offset+1, e.Cause)
}

// Option changes what Parse reads.
type Option func(*parser)

// Length has Parse accept up to so many bytes instead of MaxLength.
func Length(bytes int) Option { return func(p *parser) { p.maxLength = bytes } }

// Extensions has Parse accept the operators contains, starts with, ends with and global().
func Extensions() Option { return func(p *parser) { p.extensions = true } }

// Parse reads a selector. Empty or blank text is `all()`. An error is a *SyntaxError.
func Parse(text string, options ...Option) (*Selector, error) {
	p := parser{text: text, maxLength: MaxLength}
	for _, o := range options {
		o(&p)
	}
	if len(text) > p.maxLength {
		return nil, p.tooLong("")
	}
	p.skipSpace()
	if p.pos == len(text) {
		return All(), nil
	}
	s := &Selector{}
	_, err := p.group(&s.root)
	if err == nil && p.pos < len(text) {
		err = p.fail("want && or || or the end, not " + p.seen())
	}
	if err != nil {
		return nil, err
	}
	if s.text = canonical(text, &s.root); len(s.text) > p.maxLength {
		return nil, p.tooLong("in its canonical form ")
	}
	s.root.simplify()
	return s, nil
}

// ValidLabel reports whether name can name a label: 1 to 512 of [A-Za-z0-9_./-].
func ValidLabel(name string) bool {
	p := parser{text: name}
	p.word()
	return p.pos == len(name) && 0 < len(name) && len(name) <= MaxLabelLength
}

// canonical returns the canonical text of n, without a copy if it was written so.
func canonical(text string, n *node) string {
	var room [256]byte
	b := n.appendText(room[:0])
	if string(b) == text {
		return text
	}
	return string(b)
}

// parser reads a text once. Each method reads one part of the grammar, up to the next token.
type parser struct {
	text       string
	pos        int
	depth      int // of parentheses open at pos
	maxLength  int
	extensions bool
}

func (p *parser) fail(cause string) error { return &SyntaxError{Offset: p.pos, Cause: cause} }

func (p *parser) seen() string {
	if p.pos >= len(p.text) {
		return "the end"
	}
	rest := p.text[p.pos:]
	if len(rest) > 20 {
		rest = rest[:20]
	}
	return fmt.Sprintf("%q", rest)
}

func (p *parser) skipSpace() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}

// take steps over a token and the space after it, if it is there.
func (p *parser) take(token string) bool {
	if !strings.HasPrefix(p.text[p.pos:], token) {
		return false
	}
	p.pos += len(token)
	p.skipSpace()
	return true
}

// group reads operations joined by && and ||, and returns how deep groups nest.
func (p *parser) group(n *node) (height int, err error) { return p.joined(n, opOr, "||") }

// joined reads operands with a token between them: groups joined by && for ||, else operations.
func (p *parser) joined(n *node, o op, token string) (height int, err error) {
	if height, err = p.operand(n, o); err != nil || !p.take(token) {
		return height, err
	}
	kids := make([]node, 1, 2)
	kids[0] = *n
	for {
		kids = append(kids, node{})
		h, err := p.operand(&kids[len(kids)-1], o)
		if err != nil {
			return 0, err
		}
		height = max(height, h)
		if !p.take(token) {
			break
		}
	}
	if height++; height > MaxDepth {
		return 0, p.tooDeep()
	}
	*n = node{op: o, kids: kids}
	return height, nil
}

func (p *parser) operand(n *node, of op) (height int, err error) {
	if of == opOr {
		return p.joined(n, opAnd, "&&")
	}
	return p.operation(n)
}

func (p *parser) tooDeep() error {
	return &SyntaxError{Offset: p.pos, Cause: fmt.Sprintf("groups nest deeper than %d", MaxDepth), TooLarge: true}
}

// tooLong returns the error of a text that is too long, as written or in the form given.
func (p *parser) tooLong(form string) error {
	return &SyntaxError{Offset: min(len(p.text), p.maxLength), TooLarge: true,
		Cause: fmt.Sprintf("the selector is %slonger than %d bytes; write alternatives of one label as a set, label in {…}, or split the policy", form, p.maxLength)}
}

// operation reads one operand: any number of "!", of which the parity counts, before a primary.
func (p *parser) operation(n *node) (height int, err error) {
	negate := false
	for p.take("!") {
		negate = !negate
	}
	if p.take("(") {
		height, err = p.parenthesised(n)
	} else {
		err = p.primary(n)
	}
	n.negate = n.negate != negate
	return height, err
}

// parenthesised reads what follows an opening parenthesis, with the closing one.
func (p *parser) parenthesised(n *node) (height int, err error) {
	if p.depth++; p.depth > MaxDepth {
		return 0, p.tooDeep()
	}
	if height, err = p.group(n); err != nil {
		return 0, err
	}
	p.depth--
	return height, p.want(")")
}

func (p *parser) want(token string) error {
	if p.take(token) {
		return nil
	}
	return p.fail("want " + token + ", not " + p.seen())
}

// primary reads all(), has(label), global() or a label with its operator. A word is a label unless
// a parenthesis follows at once.
func (p *parser) primary(n *node) error {
	start := p.pos
	word := p.word()
	if p.pos < len(p.text) && p.text[p.pos] == '(' {
		switch {
		case word == "all", word == "global" && p.extensions:
			n.op, n.global = opAll, word == "global"
			p.take("(")
			return p.want(")")
		case word == "has":
			return p.has(n)
		case word != "":
			p.pos = start
			return p.fail("no function is called " + word)
		}
	}
	if err := p.checkLabel(start, word); err != nil {
		return err
	}
	n.label = word
	p.skipSpace()
	return p.comparison(n)
}

func (p *parser) has(n *node) error {
	p.take("(")
	start := p.pos
	n.op, n.label = opHas, p.word()
	if err := p.checkLabel(start, n.label); err != nil {
		return err
	}
	p.skipSpace()
	return p.want(")")
}

// word reads a run of the characters of label names.
func (p *parser) word() string {
	start := p.pos
	for p.pos < len(p.text) && isLabelByte(p.text[p.pos]) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func isLabelByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '-' <= c && c <= '9' || c == '_' // '-', '.', '/' come before '0'
}

func (p *parser) checkLabel(start int, word string) error {
	if word == "" {
		return p.fail("want a label, has(…), all(), ! or (, not " + p.seen())
	}
	if len(word) > MaxLabelLength {
		p.pos = start
		return p.fail(fmt.Sprintf("the label's name is longer than %d bytes", MaxLabelLength))
	}
	return nil
}

func (p *parser) comparison(n *node) (err error) {
	if n.op, err = p.operator(); err != nil {
		return err
	}
	if n.op == opIn || n.op == opNotIn {
		n.set, err = p.set()
		return err
	}
	n.value, err = p.quoted()
	return err
}

func (p *parser) operator() (op, error) {
	switch {
	case p.take("=="):
		return opEqual, nil
	case p.take("!="):
		return opNotEqual, nil
	}
	start := p.pos
	word := p.word()
	p.skipSpace()
	switch word {
	case "in":
		return opIn, nil
	case "notin":
		return opNotIn, nil
	case "not":
		if p.word() == "in" {
			p.skipSpace()
			return opNotIn, nil
		}
	}
	if o, ok := p.extension(word); ok && p.extensions {
		return o, nil
	} else if p.pos = start; ok {
		return 0, p.fail("the operator " + p.seen() + " is an extension, and these are off")
	}
	return 0, p.fail(`want ==, !=, in or not in after a label, not ` + p.seen())
}

// extension reads the rest of an operator of later versions whose first word has been read.
func (p *parser) extension(word string) (op, bool) {
	if word == "starts" || word == "ends" {
		word += p.word()
		p.skipSpace()
	}
	o, ok := map[string]op{"contains": opContains, "startswith": opStarts, "endswith": opEnds}[word]
	return o, ok
}

// set reads {"a", "b"}, with or without a comma at its end.
func (p *parser) set() ([]string, error) {
	if err := p.want("{"); err != nil {
		return nil, err
	}
	var set []string
	for !p.take("}") {
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		set = append(set, s)
		if !p.take(",") {
			if err := p.want("}"); err != nil {
				return nil, err
			}
			break
		}
	}
	if len(set) > 1 {
		slices.Sort(set)
		set = slices.Compact(set)
	}
	return set, nil
}

// quoted reads a string between quotes of either kind. There are no escapes.
func (p *parser) quoted() (string, error) {
	if p.pos == len(p.text) || p.text[p.pos] != '"' && p.text[p.pos] != '\'' {
		return "", p.fail("want a string in quotes, not " + p.seen())
	}
	start := p.pos + 1
	length := strings.IndexByte(p.text[start:], p.text[p.pos])
	if length < 0 {
		return "", p.fail("the string that begins here does not end")
	}
	p.pos = start + length + 1
	p.skipSpace()
	return p.text[start : start+length], nil
}
