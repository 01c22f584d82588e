package oslo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// lookup finds options by their defaults and types, and collects errors.
type lookup struct {
	*Config
	defaults map[place]string // of options that others may name
	refused  []refusal
	names    int // replaced in the value at hand
}

// Bounds of the expansion of names in values.
const (
	longestValue = 64 << 10 // bytes
	mostDepth    = 16       // names within names
	mostNames    = 1000     // in all, for one value
)

// find returns an option's value with all names replaced. ok is false if it is in no file, or
// empty, which means the same.
func (l *lookup) find(p place) (text string, v value, ok bool) {
	v, ok = l.values[p]
	if !ok {
		return "", v, false
	}
	l.names = 0
	text, err := l.expand(v.text, p.group, []place{p})
	if err != nil {
		l.refuse(p, v, err.Error())
		return "", v, false
	}
	return text, v, strings.TrimSpace(text) != ""
}

// refusal is an error about a value.
type refusal struct {
	value
	err error
}

func (l *lookup) refuse(p place, v value, reason string) {
	err := fmt.Errorf("%s:%d: %s = %q: %s", v.file, v.line, p, v.text, reason)
	if p.isSecret() { // the reason may quote it too
		err = fmt.Errorf("%s:%d: %s, which is not shown: want a single line without control characters, and $$ for a dollar sign", v.file, v.line, p)
	}
	l.refused = append(l.refused, refusal{v, err})
}

// isSecret reports whether an option's value must not be shown.
func (p place) isSecret() bool { return strings.Contains(p.option, "password") }

// err returns all errors in the order of the files.
func (l *lookup) err() error {
	slices.SortStableFunc(l.refused, func(a, b refusal) int { return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.line, b.line)) })
	var errs []error
	for _, r := range l.refused {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

// expand replaces names by the values of options. within are those being replaced.
func (l *lookup) expand(text, group string, within []place) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if plain, escaped := strings.CutSuffix(before, `\`); escaped {
			out.WriteString(plain + "$")
			text = after
			continue
		}
		out.WriteString(before)
		name, rest := nameAfter(after)
		if name == "" { // $$, or a dollar sign that names nothing
			out.WriteByte('$')
			text = strings.TrimPrefix(after, "$")
			continue
		}
		value, err := l.named(name, group, within)
		if err != nil {
			return "", err
		}
		if out.WriteString(value); out.Len() > longestValue {
			return "", fmt.Errorf("its value is too long, more than %d bytes", longestValue)
		}
		text = rest
	}
}

// nameAfter splits what follows a dollar sign into the name there, in braces or not, and the rest.
func nameAfter(text string) (name, rest string) {
	inner, braced := strings.CutPrefix(text, "{")
	n := 0
	for n < len(inner) && (isNameStart(inner[n]) || n > 0 && (inner[n] == '.' || '0' <= inner[n] && inner[n] <= '9')) {
		n++
	}
	name, rest = inner[:n], inner[n:]
	if !braced {
		return name, rest
	}
	rest, closed := strings.CutPrefix(rest, "}")
	if !closed {
		return "", text
	}
	return name, rest
}

func isNameStart(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// named returns the value of the option that a value names.
func (l *lookup) named(name, group string, within []place) (string, error) {
	candidates := []place{{group, name}, {defaultGroup, name}}
	if other, option, dotted := strings.Cut(name, "."); dotted {
		candidates = []place{{strings.ToLower(other), option}}
	}
	for _, p := range candidates {
		v, ok := l.values[p]
		text, hasDefault := l.defaults[p]
		switch {
		case ok:
			text = v.text
		case !hasDefault:
			continue
		}
		for _, outer := range within {
			if outer == p {
				return "", fmt.Errorf("$%s names itself", name)
			}
		}
		if len(within) > mostDepth {
			return "", fmt.Errorf("$%s is more than %d names deep", name, mostDepth)
		}
		if l.names++; l.names > mostNames {
			return "", fmt.Errorf("it holds too many names, more than %d", mostNames)
		}
		return l.expand(text, p.group, append(within, p))
	}
	return "", fmt.Errorf("there is no option %s for $%s", name, name)
}

// readOption parses an option's value. If it has none, or a wrong one, which is refused, it returns
// otherwise.
func readOption[T any](l *lookup, p place, otherwise T, parse func(text string) (T, error)) T {
	text, v, ok := l.find(p)
	if !ok {
		return otherwise
	}
	x, err := parse(text)
	if err != nil {
		l.refuse(p, v, err.Error())
		return otherwise
	}
	return x
}

// text reads a single line, which check accepts.
func (l *lookup) text(p place, otherwise string, check func(string) error) string {
	return readOption(l, p, otherwise, func(text string) (string, error) {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return "", errors.New("want a single line without control characters")
		}
		text = strings.TrimSpace(text)
		return text, check(text)
	})
}

func anything(string) error { return nil }

// list reads values, separated by commas or lines, each of which check accepts.
func (l *lookup) list(p place, otherwise []string, check func(string) error) []string {
	return readOption(l, p, otherwise, func(text string) (all []string, err error) {
		for item := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' }) {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			if err := check(item); err != nil {
				return nil, err
			}
			all = append(all, item)
		}
		return all, nil
	})
}

// number reads a number that ok accepts. want names those numbers.
func (l *lookup) number(p place, otherwise int, want string, ok func(int) bool) int {
	return readOption(l, p, otherwise, func(text string) (int, error) {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil || !ok(int(n)) {
			return 0, errors.New("want " + want)
		}
		return int(n), nil
	})
}

// flag reads a truth value in oslo.config's spellings.
func (l *lookup) flag(p place) bool {
	return readOption(l, p, false, func(text string) (bool, error) {
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "true", "1", "on", "yes":
			return true, nil
		case "false", "0", "off", "no":
			return false, nil
		}
		return false, errors.New("want true or false")
	})
}
