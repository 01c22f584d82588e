package neutron

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Neutron's messages show values as Python prints them, and its clients' tests compare the text.

// pyText is str(v) of a decoded JSON value.
func pyText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return pyRepr(v)
}

// pyRepr is repr(v) of a decoded JSON value; the keys of objects come sorted.
func pyRepr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case json.Number:
		return v.String()
	case string:
		return pyQuote(v)
	case []any:
		return "[" + join(v, pyRepr) + "]"
	case map[string]any:
		return "{" + join(slices.Sorted(maps.Keys(v)), func(k string) string { return pyQuote(k) + ": " + pyRepr(v[k]) }) + "}"
	}
	return fmt.Sprint(v)
}

// pySet is repr() of a set of strings, sorted.
func pySet(keys []string) string {
	if len(keys) == 0 {
		return "set()"
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return "{" + join(keys, pyQuote) + "}"
}

// PythonString returns repr() of a string, as the reference's texts show it.
func PythonString(s string) string { return pyQuote(s) }

func pyQuote(s string) string {
	quote := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	var b strings.Builder
	b.WriteString(quote)
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\'' && quote == "'":
			b.WriteString(`\'`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString(quote)
	return b.String()
}

func join[T any](items []T, text func(T) string) string {
	parts := make([]string, len(items))
	for i, x := range items {
		parts[i] = text(x)
	}
	return strings.Join(parts, ", ")
}
