package calico

import (
	"net/netip"
	"slices"
	"strconv"
	"unicode/utf8"

	"heddle/calico/selector"
)

// writer writes one JSON text without space.
type writer struct {
	text    []byte
	options []selector.Option
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

// quoted returns the text that begins a member, for [writer.begin].
func quoted(name string) string { return string(appendText(nil, name)) + ":" }

func (w *writer) begin(quoted string) {
	w.comma()
	w.text = append(w.text, quoted...)
}

func (w *writer) string(s string) { w.text = appendText(w.text, s) }

func (w *writer) boolean(b bool) { w.text = strconv.AppendBool(w.text, b) }

func (w *writer) number(n int) { w.text = strconv.AppendInt(w.text, int64(n), 10) }

// float writes a number that is not infinite.
func (w *writer) float(f float64) {
	if f > -1<<53 && f < 1<<53 && f == float64(int64(f)) { // -0 too
		w.number(int(f))
	} else {
		w.text = strconv.AppendFloat(w.text, f, 'g', -1, 64)
	}
}

func (w *writer) null() { w.text = append(w.text, "null"...) }

// writeList writes a list, each entry with write.
func writeList[V any](w *writer, list []V, write func(w *writer, v V)) {
	w.open('[')
	for _, v := range list {
		w.comma()
		write(w, v)
	}
	w.end(']')
}

func (w *writer) prefix(p netip.Prefix) {
	w.text = append(w.text, '"')
	w.text = p.AppendTo(w.text)
	w.text = append(w.text, '"')
}

func (w *writer) address(a netip.Addr) {
	w.text = append(w.text, '"')
	w.text = a.AppendTo(w.text)
	w.text = append(w.text, '"')
}

// stringMap writes an object of strings, sorted by name.
func (w *writer) stringMap(m map[string]string) {
	w.open('{')
	for _, name := range sortedNames(m) {
		w.name(name)
		w.string(m[name])
	}
	w.end('}')
}

// sortedNames returns the keys of a map in order.
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

// unknown writes unknown members, sorted by name. They have been checked.
func (w *writer) unknown(u Unknown) {
	for _, name := range sortedNames(u) {
		w.name(name)
		w.text = append(w.text, compact(string(u[name]))...)
	}
}

const hexDigits = "0123456789abcdef"

// appendText writes a string. It replaces invalid UTF-8, which checked objects do not have.
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
