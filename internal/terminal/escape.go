// Package terminal makes text safe to print for people: names that tenants chose and reports of
// hosts may contain what a terminal obeys, or what reorders or forges lines, and may be long.
package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape returns text with control and format characters, among them line breaks, tabs and those
// that change the direction of writing, as Go would quote them, such as \x1b and \u202e.
// Backslashes stay as they are.
func Escape(text string) string {
	if strings.IndexFunc(text, needsEscape) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[0]), 16))
		case needsEscape(r):
			quoted := strconv.QuoteRuneToGraphic(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// EscapeLines escapes each line of text: its line breaks stay.
func EscapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Escape(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Excerpt returns a text of at most so many bytes as it is; of a longer one the beginning, with its
// length.
func Excerpt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// needsEscape counts RuneError, as which invalid bytes are read, too.
func needsEscape(r rune) bool { return r == utf8.RuneError || !strconv.IsGraphic(r) }
