package calico

import (
	"net/netip"
	"slices"
	"strconv"
	"unicode/utf8"
)

// writer writes one JSON text without space.
type writer struct {
	text []byte
}

// open begins an object or a list.
func (w *writer) open(c byte) { w.text = append(w.text, c) }

// end ends what open began.
func (w *writer) end(c byte) { w.text = append(w.text, c) }

// comma separates from what is before.
func (w *writer) comma() {
	if c := w.text[len(w.text)-1]; c != '{' && c != '[' {
		w.text = append(w.text, ',')
	}
}

// name begins a member, whose value comes next.
func (w *writer) name(name string) {
	w.comma()
	w.text = append(appendText(w.text, name), ':')
}

func (w *writer) stringMember(name, value string) {
	w.name(name)
	w.text = appendText(w.text, value)
}

// optional writes a member unless it is empty.
func (w *writer) optional(name, value string) {
	if value != "" {
		w.stringMember(name, value)
	}
}

func (w *writer) boolMember(name string, value bool) {
	w.name(name)
	w.text = strconv.AppendBool(w.text, value)
}

func (w *writer) intMember(name string, value int) {
	w.name(name)
	w.number(value)
}

func (w *writer) number(n int) { w.text = strconv.AppendInt(w.text, int64(n), 10) }

func (w *writer) null() { w.text = append(w.text, "null"...) }

// order writes a member, or nothing for an infinite order.
func (w *writer) order(order *float64) {
	if order != nil {
		w.name("order")
		w.text = appendNumber(w.text, *order)
	}
}

// appendNumber writes a number that is not infinite.
func appendNumber(text []byte, f float64) []byte {
	if f > -1<<53 && f < 1<<53 && f == float64(int64(f)) { // -0 too
		return strconv.AppendInt(text, int64(f), 10)
	}
	return strconv.AppendFloat(text, f, 'g', -1, 64)
}

func (w *writer) texts(name string, list []string) {
	w.name(name)
	w.open('[')
	for _, s := range list {
		w.comma()
		w.text = appendText(w.text, s)
	}
	w.end(']')
}

func (w *writer) optionalTexts(name string, list []string) {
	if len(list) > 0 {
		w.texts(name, list)
	}
}

func (w *writer) prefixes(name string, list []netip.Prefix) {
	w.name(name)
	w.open('[')
	for _, p := range list {
		w.comma()
		w.prefix(p)
	}
	w.end(']')
}

func (w *writer) prefix(p netip.Prefix) {
	w.text = append(w.text, '"')
	w.text = p.AppendTo(w.text)
	w.text = append(w.text, '"')
}

func (w *writer) prefixMember(name string, p netip.Prefix) {
	w.name(name)
	w.prefix(p)
}

func (w *writer) addresses(name string, list []netip.Addr) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.open('[')
	for _, a := range list {
		w.comma()
		w.address(a)
	}
	w.end(']')
}

func (w *writer) address(a netip.Addr) {
	w.text = append(w.text, '"')
	w.text = a.AppendTo(w.text)
	w.text = append(w.text, '"')
}

// addressMember writes a member, or nothing for no address.
func (w *writer) addressMember(name string, a netip.Addr) {
	if a.IsValid() {
		w.name(name)
		w.address(a)
	}
}

// stringMap writes an object of strings, sorted by name.
func (w *writer) stringMap(m map[string]string) {
	w.open('{')
	for _, name := range sortedNames(m) {
		w.stringMember(name, m[name])
	}
	w.end('}')
}

// sortedNames are the keys of a map in order.
func sortedNames[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// unknown writes the members that this package does not know, sorted by name. They have been checked.
func (w *writer) unknown(u Unknown) {
	for _, name := range sortedNames(u) {
		w.name(name)
		w.text = append(w.text, compact(string(u[name]))...)
	}
}

// checkUnknown refuses members that are not JSON, or that an object of type T knows.
func checkUnknown[T any, P interface {
	*T
	member
}](u Unknown) *Error {
	for _, name := range sortedNames(u) {
		if !utf8.ValidString(name) {
			return refuse(entry("", name), nil, "is not UTF-8 text")
		}
		if P(new(T)).member(&reader{data: "null"}, name) {
			return refuse(name, nil, "is a known member and cannot be among the unknown ones")
		}
		if err := read(u[name], nil, (*reader).skip); err != nil {
			return err.in(name)
		}
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// appendText writes a string. Bytes that are not UTF-8 are replaced; objects that have such are refused before.
func appendText(text []byte, s string) []byte {
	text = append(text, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
				i++
				continue
			}
			text = append(text, s[start:i]...)
			text = appendEscape(text, c)
			i++
			start = i
			continue
		}
		char, n := utf8.DecodeRuneInString(s[i:])
		if char == utf8.RuneError && n == 1 {
			text = append(append(text, s[start:i]...), "\ufffd"...)
			start = i + n
		}
		i += n
	}
	return append(append(text, s[start:]...), '"')
}

func appendEscape(text []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(text, '\\', c)
	case '\n':
		return append(text, '\\', 'n')
	case '\r':
		return append(text, '\\', 'r')
	case '\t':
		return append(text, '\\', 't')
	}
	return append(text, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
