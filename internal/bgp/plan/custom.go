package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// maxRanges bounds the opposite of a set in a custom filter, maxPairs the work to find what two sets share.
	maxRanges = 1 << 13
	maxPairs  = 1 << 20
	// maxDepth bounds how deep statements and conditions of a custom filter may be nested.
	maxDepth = 64
)

var errTooLarge = errors.New("a condition with too many prefixes")

// parseCustom reads the statements of a custom filter in BIRD's language, as far as they decide by the prefix alone:
//
//	statements:  accept; reject; if CONDITION then STATEMENT [else STATEMENT]; { … }; comments # and /* */
//	conditions:  net ~ SET, net !~ SET, net = PREFIX, net != PREFIX, net.len with = != < <= > >=, true, false,
//	             && || ! and parentheses
//	sets:        a prefix (with all inside it), or [ PREFIX, PREFIX+, PREFIX-, PREFIX{low,high} ]
//
// A filter with anything else is an error, and what is returned beside it lets out no more than without the filter: of
// what can be read it keeps what rejects.
func parseCustom(f Family, text string) (Filter, error) {
	p := &customParser{family: f}
	p.tokens = customTokens(text)
	p.statements(everything(f), 0)
	if p.bad == nil {
		return p.out, nil
	}
	var rejects Filter
	for _, r := range p.out {
		if !r.Accept {
			rejects = append(rejects, r)
		}
	}
	return rejects, p.bad
}

type customParser struct {
	family Family
	tokens []string
	at     int
	out    Filter
	bad    error // the first thing that could not be read
}

// customTokens splits the text. A character that no statement we know has is a token too.
func customTokens(text string) (tokens []string) {
	for i := 0; i < len(text); {
		rest := text[i:]
		n := 1
		switch c := rest[0]; {
		case strings.ContainsRune(" \t\r\n", rune(c)):
			i++
			continue
		case c == '#':
			i += lengthUntil(rest, 1, "\n")
			continue
		case strings.HasPrefix(rest, "/*"):
			i += lengthUntil(rest, 2, "*/")
			continue
		case c == '"':
			n = lengthUntil(rest, 1, `"`)
		case isWord(c):
			for n < len(rest) && isWord(rest[n]) {
				n++
			}
		default:
			for _, op := range []string{"!~", "!=", "<=", ">=", "&&", "||"} {
				if strings.HasPrefix(rest, op) {
					n = len(op)
				}
			}
		}
		tokens = append(tokens, rest[:n])
		i += n
	}
	return tokens
}

// lengthUntil is how far it is to the end of what begins with the first characters of text.
func lengthUntil(text string, first int, end string) int {
	if n := strings.Index(text[first:], end); n >= 0 {
		return first + n + len(end)
	}
	return len(text)
}

// isWord: names, numbers, addresses and prefixes.
func isWord(c byte) bool {
	return c == '_' || c == '.' || c == ':' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (p *customParser) peek() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return ""
}

func (p *customParser) take() string {
	t := p.peek()
	p.at++
	return t
}

func (p *customParser) expect(want string) error {
	if got := p.take(); got != want {
		return fmt.Errorf("%q where %q is wanted", got, want)
	}
	return nil
}

// statements reads statements until the text or the block ends. when is the set for which they are reached.
func (p *customParser) statements(when Set, depth int) {
	for p.at < len(p.tokens) {
		start := p.at
		var err error
		switch {
		case p.peek() != "}":
			err = p.statement(when, depth)
		case depth > 0:
			return
		default:
			err = errors.New(`"}" without "{"`)
		}
		if err == nil {
			continue
		}
		if p.bad == nil {
			p.bad = err
		}
		p.at = start
		p.skip()
	}
}

// skip passes over a statement that cannot be read, with the blocks in it.
func (p *customParser) skip() {
	for depth := 0; p.at < len(p.tokens); {
		switch p.take() {
		case "{":
			depth++
		case "}":
			if depth--; depth <= 0 && p.peek() != "else" {
				return
			}
		case ";":
			if depth == 0 && p.peek() != "else" {
				return
			}
		}
	}
}

func (p *customParser) statement(when Set, depth int) error {
	if depth > maxDepth {
		return errors.New("nested too deep")
	}
	switch word := p.take(); word {
	case ";":
		return nil
	case "accept", "reject":
		if err := p.expect(";"); err != nil {
			return err
		}
		if len(when) > 0 {
			p.out = append(p.out, Rule{when, word == "accept"})
		}
		return nil
	case "{":
		p.statements(when, depth+1)
		return p.expect("}")
	case "if":
		return p.branch(when, depth)
	default:
		return fmt.Errorf("%q: only if, accept and reject can be honoured", word)
	}
}

func (p *customParser) branch(when Set, depth int) error {
	condition, err := p.anyOf(depth)
	if err != nil {
		return err
	}
	if err := p.expect("then"); err != nil {
		return err
	}
	then, err := both(when, condition)
	if err != nil {
		return err
	}
	if err := p.statement(then, depth+1); err != nil || p.peek() != "else" {
		return err
	}
	p.at++
	opposite, err := p.not(condition)
	if err != nil {
		return err
	}
	otherwise, err := both(when, opposite)
	if err != nil {
		return err
	}
	return p.statement(otherwise, depth+1)
}

func (p *customParser) anyOf(depth int) (Set, error) {
	all, err := p.allOf(depth)
	for err == nil && p.peek() == "||" {
		p.at++
		var more Set
		more, err = p.allOf(depth)
		all = append(all, more...)
	}
	if len(all) > maxPairs {
		return nil, errTooLarge
	}
	return all, err
}

func (p *customParser) allOf(depth int) (Set, error) {
	all, err := p.term(depth)
	for err == nil && p.peek() == "&&" {
		p.at++
		var more Set
		if more, err = p.term(depth); err == nil {
			all, err = both(all, more)
		}
	}
	return all, err
}

// both is what two sets share, unless that would take too long to find out.
func both(a, b Set) (Set, error) {
	if len(a)*len(b) > maxPairs {
		return nil, errTooLarge
	}
	return a.intersect(b), nil
}

func (p *customParser) term(depth int) (Set, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	switch word := p.take(); word {
	case "!":
		s, err := p.term(depth + 1)
		if err != nil {
			return nil, err
		}
		return p.not(s)
	case "(":
		s, err := p.anyOf(depth + 1)
		if err != nil {
			return nil, err
		}
		return s, p.expect(")")
	case "true":
		return everything(p.family), nil
	case "false":
		return nil, nil
	case "net":
		return p.byNet()
	case "net.len":
		return p.byLength()
	default:
		return nil, fmt.Errorf("%q: only conditions on net and net.len can be honoured", word)
	}
}

func (p *customParser) not(s Set) (Set, error) {
	rest := everything(p.family)
	for _, r := range s {
		if rest = rest.without(r); len(rest) > maxRanges {
			return nil, errTooLarge
		}
	}
	return rest, nil
}

func (p *customParser) byNet() (Set, error) {
	op := p.take()
	var s Set
	var err error
	switch {
	case (op == "~" || op == "!~") && p.peek() == "[":
		s, err = p.set()
	case op == "~" || op == "!~":
		var prefix netip.Prefix
		if prefix, err = p.prefix(); err == nil {
			s = Set{inside(prefix)}
		}
	case op == "=" || op == "!=":
		var prefix netip.Prefix
		if prefix, err = p.prefix(); err == nil {
			s = Set{exactly(prefix)}
		}
	default:
		return nil, fmt.Errorf("net %q: want ~, !~, = or !=", op)
	}
	if err != nil || op[0] != '!' {
		return s, err
	}
	return p.not(s)
}

func (p *customParser) prefix() (netip.Prefix, error) {
	word := p.take()
	prefix, err := netip.ParsePrefix(word)
	switch {
	case err != nil:
		return prefix, fmt.Errorf("%q is no prefix", word)
	case prefix.Masked() != prefix:
		return prefix, fmt.Errorf("%s has bits set beyond its length", prefix)
	case familyOf(prefix.Addr()) != p.family:
		return prefix, fmt.Errorf("%s is not IPv%d", prefix, p.family)
	}
	return prefix, nil
}

// set reads [ … ].
func (p *customParser) set() (Set, error) {
	p.at++
	var s Set
	for {
		prefix, err := p.prefix()
		if err != nil {
			return nil, err
		}
		if s, err = p.pattern(prefix, s); err != nil {
			return nil, err
		}
		switch next := p.take(); next {
		case ",":
		case "]":
			return s, nil
		default:
			return nil, fmt.Errorf("%q in a set of prefixes", next)
		}
	}
}

// pattern appends what a prefix stands for in a set, with what follows it.
func (p *customParser) pattern(prefix netip.Prefix, s Set) (Set, error) {
	switch p.peek() {
	case "+":
		p.at++
		return append(s, inside(prefix)), nil
	case "-":
		p.at++
		return shorter(prefix, 0, prefix.Bits(), s), nil
	case "{":
		p.at++
		low, err := p.number()
		if err == nil {
			err = p.expect(",")
		}
		high := 0
		if err == nil {
			high, err = p.number()
		}
		if err == nil {
			err = p.expect("}")
		}
		if err != nil {
			return nil, err
		}
		s = shorter(prefix, low, min(high, prefix.Bits()-1), s)
		if low = max(low, prefix.Bits()); low <= high {
			s = append(s, Range{prefix, low, high})
		}
		return s, nil
	}
	return append(s, exactly(prefix)), nil
}

// shorter appends the prefixes that prefix lies in, with lengths from low to high.
func shorter(prefix netip.Prefix, low, high int, s Set) Set {
	for bits := low; bits <= high; bits++ {
		s = append(s, exactly(netip.PrefixFrom(prefix.Addr(), bits)))
	}
	return s
}

// number reads a length in bits.
func (p *customParser) number() (int, error) {
	word := p.take()
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > p.family.bits() {
		return 0, fmt.Errorf("%q is no length of an IPv%d prefix", word, p.family)
	}
	return n, nil
}

func (p *customParser) byLength() (Set, error) {
	op := p.take()
	n, err := p.number()
	if err != nil {
		return nil, err
	}
	all := everything(p.family)[0]
	between := func(low, high int) Set {
		if low > high {
			return nil
		}
		return Set{{all.Prefix, low, high}}
	}
	switch op {
	case "=":
		return between(n, n), nil
	case "!=":
		return append(between(0, n-1), between(n+1, all.Max)...), nil
	case "<":
		return between(0, n-1), nil
	case "<=":
		return between(0, n), nil
	case ">":
		return between(n+1, all.Max), nil
	case ">=":
		return between(n, all.Max), nil
	}
	return nil, fmt.Errorf("net.len %q: want =, !=, <, <=, > or >=", op)
}
