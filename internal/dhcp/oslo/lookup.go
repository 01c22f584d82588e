package oslo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// lookup finds options by their defaults and types, and keeps what is wrong with them.
type lookup struct {
	*Config
	defaults map[place]string // of options that others may name
	refused  []refusal
	names    int // replaced in the value at hand
}

// The bounds of what names in values can come to.
const (
	longestValue = 64 << 10 // bytes
	mostDepth    = 16       // names within names
	mostNames    = 1000     // in all, for one value
)

// find is an option's value with all names replaced; ok is false when it is in no file, or empty, which means the same.
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

// refusal is what is wrong with a value.
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

// isSecret says that nobody is to read an option's value.
func (p place) isSecret() bool { return strings.Contains(p.option, "password") }

// err names all that is wrong, as it follows in the files.
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

// named is the value of the option that a value names.
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

// text is an option's value, checked, or otherwise where it has none.
func (l *lookup) text(p place, otherwise string, check func(string) error) string {
	text, v, ok := l.find(p)
	if !ok {
		return otherwise
	}
	if err := checkText(text); err != nil {
		l.refuse(p, v, err.Error())
		return otherwise
	}
	text = strings.TrimSpace(text)
	if err := check(text); err != nil {
		l.refuse(p, v, err.Error())
		return otherwise
	}
	return text
}

func checkText(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("want a single line without control characters")
	}
	return nil
}

func anything(string) error { return nil }

// list is an option's values, separated by commas or lines.
func (l *lookup) list(p place, otherwise []string, check func(string) error) []string {
	text, v, ok := l.find(p)
	if !ok {
		return otherwise
	}
	var all []string
	for item := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if err := check(item); err != nil {
			l.refuse(p, v, err.Error())
			return otherwise
		}
		all = append(all, item)
	}
	return all
}

// number is an option's value where it is one that ok allows. want says which are.
func (l *lookup) number(p place, otherwise int, want string, ok func(int) bool) int {
	text, v, found := l.find(p)
	if !found {
		return otherwise
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || !ok(int(n)) {
		l.refuse(p, v, "want "+want)
		return otherwise
	}
	return int(n)
}

// flag is an option's value where it is a truth value as oslo.config knows them.
func (l *lookup) flag(p place) bool {
	text, v, ok := l.find(p)
	if !ok {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "on", "yes":
		return true
	case "false", "0", "off", "no":
		return false
	}
	l.refuse(p, v, "want true or false")
	return false
}
