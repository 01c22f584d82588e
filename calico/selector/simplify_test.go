package selector

import (
	"strings"
	"testing"
)

// A simplified expression holds exactly where the one that was written does.
func FuzzSimplify(f *testing.F) {
	for _, operand := range []string{`a == "x"`, `a != "x"`, `!a in {"x", "y"}`, `a not in {"y"}`, `(b == "y" && has(a))`, `has(b)`, `!has(a)`, `a in {}`} {
		for _, join := range []string{" || ", " && "} {
			mixed := operand + join + `a == "y"` + join + `b == "x"` + join + `!b != "z"` + join + `a in {"z"}` + join + `a not in {"z", "x"}`
			f.Add(mixed, "x", "y")
			f.Add("!("+strings.Repeat(operand+join, 6)+operand+")", "y", "\x00")
			f.Add(strings.Repeat("("+mixed+")"+join, 5)+`has(b)`, "z", "x")
		}
	}
	f.Fuzz(func(t *testing.T, text, a, b string) {
		p := parser{text: text, maxLength: MaxLength, extensions: true}
		p.skipSpace()
		var written node
		if _, err := p.group(&written); err != nil || p.pos < len(text) || len(text) > MaxLength {
			return
		}
		s, err := Parse(text, Extensions())
		if err != nil {
			return // its canonical form is too long
		}
		for _, labels := range []Map{{}, {"a": a}, {"b": b}, {"a": a, "b": b}} {
			if got, want := s.Match(labels), written.match(labels); got != want {
				t.Errorf("%s on %v: %t, as written %t", text, labels, got, want)
			}
		}
	})
}
