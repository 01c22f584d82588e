package selector_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"heddle/calico/selector"
)

// hard is the length up to which agents read an oversized selector.
const hard = 1 << 20

func TestLimits(t *testing.T) {
	t.Parallel()
	fits := `a in {"` + strings.Repeat("x", selector.MaxLength-len(`a in {""}`)) + `"}`
	if s := parse(t, fits); len(s.String()) != selector.MaxLength {
		t.Errorf("the canonical form has %d bytes, want %d", len(s.String()), selector.MaxLength)
	}
	spread := strings.TrimSuffix(strings.Repeat(`a!=""||`, selector.MaxLength/7), "||") // canonical: a != "" || …
	for name, c := range map[string]struct {
		text    string
		options []selector.Option
		cause   string
	}{
		"text":               {fits + " ", nil, "longer than 65536 bytes"},
		"canonical form":     {spread, nil, "in its canonical form longer than 65536 bytes"},
		"given length":       {strings.Repeat(" ", hard+1), []selector.Option{selector.Length(hard)}, "longer than 1048576 bytes"},
		"depth":              {strings.Repeat("(", 500_000), []selector.Option{selector.Length(hard)}, "deeper than 100"},
		"depth of canonical": {deepGroups(100), nil, "deeper than 100"},
	} {
		_, err := selector.Parse(c.text, c.options...)
		var syntax *selector.SyntaxError
		if !errors.As(err, &syntax) || !syntax.TooLarge || !strings.Contains(syntax.Cause, c.cause) {
			t.Errorf("%s: Parse gives %.200v, want one that is too large: %s", name, err, c.cause)
		}
	}
	if _, err := selector.Parse(spread, selector.Length(hard)); err != nil {
		t.Errorf("with another length: %v", err)
	}
	var syntax *selector.SyntaxError
	if _, err := selector.Parse("a ="); !errors.As(err, &syntax) || syntax.TooLarge {
		t.Errorf("a short selector is said to be too large: %v", err)
	}
}

// counted counts the labels that a selector looks at.
type counted struct {
	selector.Map
	gets int
}

func (c *counted) Get(name string) (string, bool) {
	c.gets++
	return c.Map.Get(name)
}

// wide are selectors of n terms, each a shape of its own.
func wide(n int) map[string]string {
	shapes := map[string]func(i int) string{
		"values of one label":       func(i int) string { return fmt.Sprintf(`a == "v%06d"`, i) },
		"falling values":            func(i int) string { return fmt.Sprintf(`a == "v%06d"`, n-i) },
		"sets of one label":         func(i int) string { return fmt.Sprintf(`a in {"v%06d", "w%06d"}`, i, i) },
		"labels":                    func(i int) string { return fmt.Sprintf(`l%06d == "x"`, i) },
		"pairs of labels":           func(i int) string { return fmt.Sprintf(`(a == "v%06d" && b == "w%06d")`, i, i) },
		"two labels, alternating":   func(i int) string { return fmt.Sprintf(`%c == "v%06d"`, 'a'+rune(i%2), i) },
		"opposites of one label":    func(i int) string { return fmt.Sprintf(`!a != "v%06d"`, i) },
		"presence of labels":        func(i int) string { return fmt.Sprintf(`has(l%06d)`, i) },
		"presence of one label":     func(int) string { return `has(z)` },
		"value with presence":       func(i int) string { return fmt.Sprintf(`(a == "v%06d" && has(l%06d))`, i, i%7) },
		"groups of impossible ones": func(i int) string { return fmt.Sprintf(`(a == "v%06d" && a == "w")`, i) },
	}
	all := map[string]string{}
	for name, term := range shapes {
		for _, join := range []string{" || ", " && "} {
			terms := make([]string, n)
			for i := range terms {
				terms[i] = term(i)
			}
			all[name+join] = strings.Join(terms, join)
		}
	}
	// One large set in each of nested groups, which widen it a little.
	set := make([]string, n)
	for i := range set {
		set[i] = fmt.Sprintf(`"v%06d"`, i)
	}
	nested := `a in {` + strings.Join(set, ", ") + `}`
	for i := range 45 {
		nested = fmt.Sprintf(`((%s || a == "w%d") && has(a))`, nested, i)
	}
	all["nested groups"] = nested
	return all
}

// Reading a selector, its bounds and evaluating it take work that follows its length: four times
// the terms allocate and look at no more than about four times as much. Quadratic work would be
// sixteen times as much.
func TestWorkFollowsLength(t *testing.T) {
	const few, factor = 1000, 4
	small, large := wide(few), wide(few*factor)
	for name := range small {
		for _, work := range []struct {
			name string
			of   func(text string) uint64
		}{
			{"Parse", func(text string) uint64 { return allocated(func() { parseLong(t, text) }) }},
			{"Bounds", func(text string) uint64 {
				s := parseLong(t, text)
				return allocated(func() { s.Bounds() })
			}},
			{"Match", func(text string) uint64 {
				c := counted{Map: selector.Map{"a": "none", "b": "none"}}
				parseLong(t, text).Match(&c)
				return uint64(c.gets)
			}},
		} {
			a, b := leastOf(work.of, small[name]), leastOf(work.of, large[name])
			if b > 2*factor*a+4096 {
				t.Errorf("%s, %s: %d for %d terms, %d for %d", name, work.name, a, few, b, few*factor)
			}
		}
	}
}

// Alternatives of one label take one look at it.
func TestAlternativesAreOneSet(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{
		"values of one label || ": 1, "falling values || ": 1, "sets of one label || ": 1, "two labels, alternating || ": 2,
		"opposites of one label || ": 1, "presence of one label || ": 1,
	} {
		c := counted{Map: selector.Map{"a": "none"}}
		if parseLong(t, wide(2000)[name]).Match(&c); c.gets > most {
			t.Errorf("%s: %d looks at labels, want at most %d", name, c.gets, most)
		}
	}
}

func parseLong(t testing.TB, text string) *selector.Selector {
	return parse(t, text, selector.Length(hard))
}

// allocated counts the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// leastOf returns the least of three measurements of one work: the runtime allocates too, now and
// then.
func leastOf(work func(string) uint64, text string) uint64 {
	return min(work(text), work(text), work(text))
}

// The time per term is that of one term in all of these.
func BenchmarkWide(b *testing.B) {
	for _, n := range []int{1000, 4000, 16000} {
		text := wide(n)["values of one label || "]
		b.Run(fmt.Sprintf("terms=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := parseLong(b, text)
				s.Bounds()
				s.Match(selector.Map{"a": "none"})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/term")
		})
	}
}
