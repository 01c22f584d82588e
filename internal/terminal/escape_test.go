package terminal

import (
	"fmt"
	"strconv"
	"testing"
	"unicode/utf8"
)

func TestExcerpt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd… (5 bytes)", "abcé": "abc… (5 bytes)"} {
		if got := Excerpt(text, 4); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "",
		"web, größe 漢字 \u00a0 👍":    "web, größe 漢字 \u00a0 👍",
		`C:\x1b`:                    `C:\x1b`,
		"\x1b]0;pwned\a\x1b[2J":     `\x1b]0;pwned\a\x1b[2J`,
		"a\r\n\tb\x00\x7f":          `a\r\n\tb\x00\x7f`,
		"c1 \u009b2J \u0085":        `c1 \u009b2J \u0085`,
		"bidi \u202e\u2066\u200f":   `bidi \u202e\u2066\u200f`,
		"lines\u2028\u2029\ufeff":   `lines\u2028\u2029\ufeff`,
		"bytes \x9b2J \xff \ufffd.": "bytes \\x9b2J \\xff \ufffd.",
	} {
		if got := Escape(text); got != want {
			t.Errorf("%+q: got %+q, want %+q", text, got, want)
		}
	}
	if got, want := EscapeLines("a\x1b\nb\r\n"), "a\\x1b\nb\\r\n"; got != want {
		t.Errorf("lines: got %q, want %q", got, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[2J\u202e\x9b\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := Escape(text)
		for _, r := range got {
			if !strconv.IsGraphic(r) {
				t.Errorf("%+q: %s is left", text, fmt.Sprintf("%+q", r))
			}
		}
		if !utf8.ValidString(got) || Escape(got) != got {
			t.Errorf("%+q: got %+q, which is not safe", text, got)
		}
	})
}
