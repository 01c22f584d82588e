package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// maxRanges bounds the complement of a set in a custom filter, maxPairs the work for an
	// intersection.
	maxRanges = 1 << 13
	maxPairs  = 1 << 20
	// maxDepth bounds the nesting of statements and conditions.
	maxDepth = 64
)

const tooLarge = "a condition with too many prefixes"

// parseCustom reads the statements of a custom filter in BIRD's language, as far as they decide by
// the prefix alone:
//
//	statements:  accept; reject; if CONDITION then STATEMENT [else STATEMENT]; { … };
//	             comments # and /* */
//	conditions:  net ~ SET, net !~ SET, net = PREFIX, net != PREFIX, net.len with = != < <= > >=,
//	             true, false, && || ! and parentheses
//	sets:        a prefix (with all inside it), or [ PREFIX, PREFIX+, PREFIX-, PREFIX{low,high} ]
//
// A filter with anything else is an error; the returned filter then keeps only statements that
// reject, so that it accepts no more than none would.
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
	err    error // of the statement being read
	bad    error // of the first statement that could not be read
}

// fail notes the first error of a statement. What is read after it does not count.
func (p *customParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// customTokens splits the text. Other characters are tokens too.
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

// lengthUntil returns the length of text up to and with the first end after its first characters.
func lengthUntil(text string, first int, end string) int {
	if n := strings.Index(text[first:], end); n >= 0 {
		return first + n + len(end)
	}
	return len(text)
}

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

func (p *customParser) expect(want string) {
	if got := p.take(); got != want {
		p.fail("%q where %q is wanted", got, want)
	}
}

// statements reads statements until the text or the block ends. when is the set for which they are
// reached.
func (p *customParser) statements(when Set, depth int) {
	for p.at < len(p.tokens) {
		start := p.at
		switch {
		case p.peek() != "}":
			p.statement(when, depth)
		case depth > 0:
			return
		default:
			p.fail(`"}" without "{"`)
		}
		if p.err == nil {
			continue
		}
		if p.bad == nil {
			p.bad = p.err
		}
		p.at, p.err = start, nil
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

func (p *customParser) statement(when Set, depth int) {
	if p.err != nil {
		return
	}
	if depth > maxDepth {
		p.fail("nested too deep")
		return
	}
	switch word := p.take(); word {
	case ";":
	case "accept", "reject":
		if p.expect(";"); p.err == nil && len(when) > 0 {
			p.out = append(p.out, Rule{when, word == "accept"})
		}
	case "{":
		p.statements(when, depth+1)
		p.expect("}")
	case "if":
		condition := p.anyOf(depth)
		p.expect("then")
		p.statement(p.both(when, condition), depth+1)
		if p.err == nil && p.peek() == "else" {
			p.at++
			p.statement(p.both(when, p.not(condition)), depth+1)
		}
	default:
		p.fail("%q: only if, accept and reject can be honoured", word)
	}
}

func (p *customParser) anyOf(depth int) Set {
	all := p.allOf(depth)
	for p.err == nil && p.peek() == "||" {
		p.at++
		all = append(all, p.allOf(depth)...)
	}
	if len(all) > maxPairs {
		p.fail(tooLarge)
	}
	return all
}

func (p *customParser) allOf(depth int) Set {
	all := p.term(depth)
	for p.err == nil && p.peek() == "&&" {
		p.at++
		all = p.both(all, p.term(depth))
	}
	return all
}

// both returns the intersection of two sets, unless that would take too long to find.
func (p *customParser) both(a, b Set) Set {
	if len(a)*len(b) > maxPairs {
		p.fail(tooLarge)
	}
	if p.err != nil {
		return nil
	}
	return a.intersect(b)
}

// not returns the complement of a set.
func (p *customParser) not(s Set) Set {
	rest := everything(p.family)
	for _, r := range s {
		if p.err != nil {
			return nil
		}
		if rest = rest.without(r); len(rest) > maxRanges {
			p.fail(tooLarge)
		}
	}
	return rest
}

func (p *customParser) term(depth int) Set {
	if depth > maxDepth {
		p.fail("nested too deep")
		return nil
	}
	switch word := p.take(); word {
	case "!":
		return p.not(p.term(depth + 1))
	case "(":
		s := p.anyOf(depth + 1)
		p.expect(")")
		return s
	case "true":
		return everything(p.family)
	case "false":
		return nil
	case "net":
		return p.byNet()
	case "net.len":
		return p.byLength()
	default:
		p.fail("%q: only conditions on net and net.len can be honoured", word)
		return nil
	}
}

func (p *customParser) byNet() (s Set) {
	op := p.take()
	switch {
	case (op == "~" || op == "!~") && p.peek() == "[":
		s = p.set()
	case op == "~" || op == "!~":
		s = Set{inside(p.prefix())}
	case op == "=" || op == "!=":
		s = Set{exactly(p.prefix())}
	default:
		p.fail("net %q: want ~, !~, = or !=", op)
	}
	if p.err != nil || op[0] != '!' {
		return s
	}
	return p.not(s)
}

// prefix reads a prefix; a default route if it cannot.
func (p *customParser) prefix() netip.Prefix {
	word := p.take()
	prefix, err := netip.ParsePrefix(word)
	switch {
	case err != nil:
		p.fail("%q is no prefix", word)
	case prefix.Masked() != prefix:
		p.fail("%s has bits set beyond its length", prefix)
	case familyOf(prefix.Addr()) != p.family:
		p.fail("%s is not IPv%d", prefix, p.family)
	default:
		return prefix
	}
	return everything(p.family)[0].Prefix
}

// set reads [ … ].
func (p *customParser) set() (s Set) {
	p.at++
	for p.err == nil {
		s = p.pattern(p.prefix(), s)
		switch next := p.take(); next {
		case ",":
		case "]":
			return s
		default:
			p.fail("%q in a set of prefixes", next)
		}
	}
	return nil
}

// pattern appends what a prefix stands for in a set, with what follows it.
func (p *customParser) pattern(prefix netip.Prefix, s Set) Set {
	switch p.peek() {
	case "+":
		p.at++
		return append(s, inside(prefix))
	case "-":
		p.at++
		return shorter(prefix, 0, prefix.Bits(), s)
	case "{":
		p.at++
		low := p.number()
		p.expect(",")
		high := p.number()
		p.expect("}")
		s = shorter(prefix, low, min(high, prefix.Bits()-1), s)
		if low = max(low, prefix.Bits()); low <= high {
			s = append(s, Range{prefix, low, high})
		}
		return s
	}
	return append(s, exactly(prefix))
}

// shorter appends the prefixes that prefix lies in, with lengths from low to high.
func shorter(prefix netip.Prefix, low, high int, s Set) Set {
	for bits := low; bits <= high; bits++ {
		s = append(s, exactly(netip.PrefixFrom(prefix.Addr(), bits)))
	}
	return s
}

// number reads a length in bits.
func (p *customParser) number() int {
	word := p.take()
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > p.family.bits() {
		p.fail("%q is no length of an IPv%d prefix", word, p.family)
		return 0
	}
	return n
}

func (p *customParser) byLength() Set {
	op := p.take()
	n := p.number()
	all := everything(p.family)[0]
	between := func(low, high int) Set {
		if low > high {
			return nil
		}
		return Set{{all.Prefix, low, high}}
	}
	s, ok := map[string]Set{"=": between(n, n), "!=": append(between(0, n-1), between(n+1, all.Max)...),
		"<": between(0, n-1), "<=": between(0, n), ">": between(n+1, all.Max), ">=": between(n, all.Max)}[op]
	if !ok {
		p.fail("net.len %q: want =, !=, <, <=, > or >=", op)
	}
	return s
}
