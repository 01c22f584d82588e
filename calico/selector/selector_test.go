package selector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/calico/selector"
)

func parse(t testing.TB, text string, options ...selector.Option) *selector.Selector {
	t.Helper()
	s, err := selector.Parse(text, options...)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "all()"},
		{" \t ", "all()"},
		{"all( )", "all()"},
		{"!all()", "!all()"},
		{"has( a )", "has(a)"},
		{`a=="b"`, `a == "b"`},
		{"a  ==\t'b'", `a == "b"`},
		{`a == 'say "hi"'`, `a == 'say "hi"'`},
		{`a == "it's"`, `a == "it's"`},
		{`a == ""`, `a == ""`},
		{"a == 'line\nline ü \x00'", "a == \"line\nline ü \x00\""},
		{`a!='b'`, `a != "b"`},
		{`a in{"c","b",'c',}`, `a in {"b", "c"}`},
		{`a in { }`, `a in {}`},
		{`a not	in {"x"}`, `a not in {"x"}`},
		{`a notin {"x"}`, `a not in {"x"}`},
		{`! a == "b"`, `!a == "b"`},
		{`!!has(a)`, `has(a)`},
		{`!(!has(a))`, `has(a)`},
		{`! ! !((has(a)))`, `!has(a)`},
		{`has(a)&&has(b)`, `(has(a) && has(b))`},
		{`has(a) && has(b) || has(c)`, `((has(a) && has(b)) || has(c))`},
		{`has(a) || has(b) && has(c)`, `(has(a) || (has(b) && has(c)))`},
		{`(has(a) || has(b)) && has(c)`, `((has(a) || has(b)) && has(c))`},
		{`(has(a) && has(b)) && has(c)`, `((has(a) && has(b)) && has(c))`},
		{`has(a) && has(b) && has(c)`, `(has(a) && has(b) && has(c))`},
		{`((has(a) && (has(b))))`, `(has(a) && has(b))`},
		{`!(has(a) && has(b))`, `!(has(a) && has(b))`},
		{`!has(a) && has(b)`, `(!has(a) && has(b))`},
		{`!(!(has(a) && has(b)) || has(c))`, `!(!(has(a) && has(b)) || has(c))`},
		// Words are keywords by position.
		{`in in {"x"}`, `in in {"x"}`},
		{`not not in {"x"}`, `not not in {"x"}`},
		{`in-use == "x"`, `in-use == "x"`},
		{`!not == "x"`, `!not == "x"`},
		{`has(has) && has(in) && all == "x"`, `(has(has) && has(in) && all == "x")`},
		{`has != "x"`, `has != "x"`},
		{`a.b/c_d-E9 == "x"`, `a.b/c_d-E9 == "x"`},
		{`contains == "x"`, `contains == "x"`},
		{strings.Repeat("a", 512) + ` == "x"`, strings.Repeat("a", 512) + ` == "x"`},
		{strings.Repeat("(", 100) + "has(a)" + strings.Repeat(")", 100), "has(a)"},
		{strings.Repeat("!", 60001) + "has(a)", "!has(a)"},
	} {
		s := parse(t, c.text)
		if s.String() != c.want {
			t.Errorf("Parse(%q) prints %s, want %s", c.text, s, c.want)
		}
		if again := parse(t, s.String()); again.String() != s.String() || again.UID() != s.UID() {
			t.Errorf("%s reads back as %s", s, again)
		}
	}
	if selector.All().String() != "all()" {
		t.Error("All() prints", selector.All())
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`a contains 'b'`, `a contains "b"`},
		{`a starts  with "b"`, `a starts with "b"`},
		{`a startswith "b"`, `a starts with "b"`},
		{`a ends with "b"`, `a ends with "b"`},
		{`a endswith "b"`, `a ends with "b"`},
		{`global( )`, `global()`},
		{`!global() || starts starts with "s"`, `(!global() || starts starts with "s")`},
	} {
		s := parse(t, c.text, selector.Extensions())
		if s.String() != c.want {
			t.Errorf("Parse(%q) prints %s, want %s", c.text, s, c.want)
		}
		if _, err := selector.Parse(c.text); err == nil {
			t.Errorf("Parse(%q) without extensions succeeds", c.text)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		offset int
		cause  string // part of it
	}{
		{"a", 1, "want ==, !=, in or not in after a label, not the end"},
		{`a b`, 2, `not "b"`},
		{`a = "b"`, 2, "want =="},
		{`a == b`, 5, "string in quotes"},
		{`a == "b`, 5, "does not end"},
		{`a == 'b"`, 5, "does not end"},
		{`"a" == "b"`, 0, "want a label"},
		{`a == "b" & has(c)`, 9, "want && or ||"},
		{`a == "b" | has(c)`, 9, "want && or ||"},
		{`a == "b" &&`, 11, "want a label"},
		{`|| has(a)`, 0, "want a label"},
		{`a == "b" c == "d"`, 9, "want && or ||"},
		{"has(a)\n", 6, "want && or ||"},
		{"has(a) &&\rhas(b)", 9, "want a label"},
		{`has (a)`, 4, "after a label"},
		{`all ()`, 4, "after a label"},
		{`all(a)`, 4, "want )"},
		{`has()`, 4, "want a label"},
		{`has(a b)`, 6, "want )"},
		{`has("a")`, 4, "want a label"},
		{`xhas(a)`, 0, "no function is called xhas"},
		{`global()`, 0, "no function is called global"},
		{`a contains "b"`, 2, "extension"},
		{`a starts with "b"`, 2, "extension"},
		{`a in "b"`, 5, "want {"},
		{`a in {,}`, 6, "string in quotes"},
		{`a in {"b",,}`, 10, "string in quotes"},
		{`a in {"b" "c"}`, 10, "want }"},
		{`a in {"b"`, 9, "want }"},
		{`a inn {"b"}`, 2, "after a label"},
		{`a not {"b"}`, 2, "after a label"},
		{`(has(a)`, 7, "want )"},
		{`has(a))`, 6, "want && or ||"},
		{`()`, 1, "want a label"},
		{`!`, 1, "want a label"},
		{`ä == "b"`, 0, "want a label"},
		{strings.Repeat("a", 513) + ` == "x"`, 0, "longer than 512"},
		{"has(" + strings.Repeat("a", 513) + ")", 4, "longer than 512"},
		{strings.Repeat("(", 60_000), 101, "deeper than 100"},
		{strings.Repeat("!(", 30_000), 202, "deeper than 100"},
		{deepGroups(99), -1, ""},
		{deepGroups(100), -2, "deeper than 100"},
	} {
		_, err := selector.Parse(c.text)
		if c.offset == -1 {
			if err != nil {
				t.Errorf("Parse: %v", err)
			}
			continue
		}
		var syntax *selector.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Parse(%.40q) = %v, want a syntax error", c.text, err)
		} else if c.offset >= 0 && syntax.Offset != c.offset || !strings.Contains(syntax.Cause, c.cause) {
			t.Errorf("Parse(%.40q) says %q at %d, want %q at %d", c.text, syntax.Cause, syntax.Offset, c.cause, c.offset)
		}
	}
}

// deepGroups nests n groups in one, with fewer parentheses written than the canonical text has.
func deepGroups(n int) string {
	text := `has(a) || has(b)`
	for i := range n {
		if i%2 == 0 {
			text = "has(a) && (" + text + ")"
		} else {
			text = "has(a) || " + text
		}
	}
	return text
}

func TestUID(t *testing.T) {
	t.Parallel()
	if got, want := selector.All().UID(), "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"; got != want {
		t.Errorf("UID of all() is %s, want %s", got, want)
	}
	if parse(t, "").UID() != parse(t, " all( )").UID() {
		t.Error("two writings of all() have two UIDs")
	}
	if parse(t, "has(a) && has(b)").UID() == parse(t, "has(b) && has(a)").UID() {
		t.Error("two expressions share a UID")
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	labels := selector.Map{"a": "x", "empty": "", "text": "one two"}
	for _, c := range []struct {
		text string
		want bool
	}{
		{"all()", true}, {"!all()", false}, {"global()", true},
		{"has(a)", true}, {"has(empty)", true}, {"has(none)", false}, {"!has(none)", true},
		{`a == "x"`, true}, {`a == "X"`, false}, {`none == ""`, false}, {`empty == ""`, true},
		{`a != "x"`, false}, {`a != "y"`, true}, {`none != "x"`, true},
		{`!a == "x"`, false}, {`!none == "x"`, true}, {`!none != "x"`, false},
		{`a in {"w", "x"}`, true}, {`a in {}`, false}, {`a in {"y"}`, false}, {`none in {"x"}`, false},
		{`a not in {"w", "x"}`, false}, {`a not in {}`, true}, {`a not in {"y"}`, true}, {`none not in {"x"}`, true},
		{`text contains "e t"`, true}, {`text starts with "one"`, true}, {`text ends with "two"`, true},
		{`text contains "x"`, false}, {`text starts with "two"`, false}, {`none contains ""`, false}, {`!none ends with ""`, true},
		{`has(none) || has(a) && has(empty)`, true}, {`(has(none) || has(a)) && has(none)`, false},
		{`!(has(none) || has(a))`, false}, {`!has(none) || has(none)`, true},
	} {
		if got := parse(t, c.text, selector.Extensions()).Match(labels); got != c.want {
			t.Errorf("%s matches %v: %t, want %t", c.text, labels, got, c.want)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s := parse(t, `a in {"w", "x"} && !(has(b) || c != "d")`)
	labels := selector.Map{"a": "x", "c": "d"}
	if n := testing.AllocsPerRun(100, func() { s.Match(labels) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

func TestValidLabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "a.b/c_d-E9": true, "": false, "a b": false, "ä": false, "a=": false,
		strings.Repeat("x", 512): true, strings.Repeat("x", 513): false,
	} {
		if selector.ValidLabel(name) != want {
			t.Errorf("ValidLabel(%.20q) is %t", name, !want)
		}
	}
}

// expression draws the text of a selector together with what it means.
func expression(t *rapid.T, depth int) (text string, means func(selector.Map) bool) {
	label := rapid.SampledFrom([]string{"a", "b", "in", "not"}).Draw(t, "label")
	value := rapid.SampledFrom([]string{"", "x", "y", `"`, "'"}).Draw(t, "value")
	quoted := `"` + value + `"`
	if value == `"` {
		quoted = `'"'`
	}
	space := rapid.SampledFrom([]string{"", " ", "\t "}).Draw(t, "space")
	equal := func(m selector.Map) bool { v, ok := m[label]; return ok && v == value }
	kinds := 7
	if depth > 0 {
		kinds = 11
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "all(" + space + ")", func(selector.Map) bool { return true }
	case 1:
		return "has(" + space + label + ")", func(m selector.Map) bool { _, ok := m[label]; return ok }
	case 2:
		return label + space + "==" + space + quoted, equal
	case 3:
		return label + space + "!=" + quoted, func(m selector.Map) bool { return !equal(m) }
	case 4:
		return label + " in" + space + "{" + quoted + `,"y",}`, func(m selector.Map) bool { return equal(m) || m[label] == "y" }
	case 5:
		return label + " not in {" + quoted + "}", func(m selector.Map) bool { return !equal(m) }
	case 6:
		return label + " in {}", func(selector.Map) bool { return false }
	case 7:
		inner, means := expression(t, depth-1)
		return "!" + space + "(" + inner + ")", func(m selector.Map) bool { return !means(m) }
	case 8:
		inner, means := expression(t, depth-1)
		return "(" + space + inner + space + ")", means
	case 9:
		l, left := expression(t, depth-1)
		r, right := expression(t, depth-1)
		return "(" + l + ")" + space + "&&(" + r + ")", func(m selector.Map) bool { return left(m) && right(m) }
	}
	l, left := expression(t, depth-1)
	r, right := expression(t, depth-1)
	return l + "||" + space + r, func(m selector.Map) bool { return left(m) || right(m) }
}

var labelsGen = rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "in", "not"}), rapid.SampledFrom([]string{"", "x", "y", `"`}))

// A selector means what its text says; its canonical text means the same and is a fixpoint; where
// it matches its bounds hold.
func TestMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, means := expression(t, 4)
		s, err := selector.Parse(text)
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		again, err := selector.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%s reads back as %v, %v", s, again, err)
		}
		for range 8 {
			labels := selector.Map(labelsGen.Draw(t, "labels"))
			want := means(labels)
			if s.Match(labels) != want || again.Match(labels) != want {
				t.Fatalf("%q (%s) on %v: %t, canonical %t, want %t", text, s, labels, s.Match(labels), again.Match(labels), want)
			}
			if err := checkBounds(s, labels); want && err != nil {
				t.Fatalf("%s matches %v: %v", s, labels, err)
			}
		}
	})
}

func checkBounds(s *selector.Selector, labels selector.Map) error {
	bounds, possible := s.Bounds()
	if !possible {
		return errors.New("said to be impossible")
	}
	for _, b := range bounds {
		v, present := labels[b.Label]
		ok := present != b.Absent
		if ok && b.Values != nil {
			ok = false
			for _, w := range b.Values {
				ok = ok || v == w
			}
		}
		if !ok {
			return fmt.Errorf("bound %+v fails", b)
		}
	}
	return nil
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"all()":                            "[]",
		`a == "x"`:                         "[{a false [x]}]",
		`a != "x"`:                         "[]",
		`a in {"x", "y"}`:                  "[{a false [x y]}]",
		`a in {}`:                          "impossible",
		`a not in {"x"}`:                   "[]",
		`has(a)`:                           "[{a false []}]",
		`!has(a)`:                          "[{a true []}]",
		`!a == "x"`:                        "[]",
		`!all()`:                           "impossible",
		`has(b) && a == "x"`:               "[{a false [x]} {b false []}]",
		`has(a) && a == "x"`:               "[{a false [x]}]",
		`a in {"x", "y"} && a in {"y"}`:    "[{a false [y]}]",
		`a == "1" && a == "2"`:             "impossible",
		`has(a) && !has(a)`:                "impossible",
		`has(a) || !has(a)`:                "[]",
		`a == "1" || a == "2"`:             "[{a false [1 2]}]",
		`a == "1" || has(a)`:               "[{a false []}]",
		`!has(a) || !has(a) && b == "x"`:   "[{a true []}]",
		`a == "1" && has(c) || a in {"0"}`: "[{a false [0 1]}]",
		`a in {} || b == "x"`:              "[{b false [x]}]",
		`a in {} || !all()`:                "impossible",
		`a contains "x"`:                   "[{a false []}]",
	} {
		bounds, possible := parse(t, text, selector.Extensions()).Bounds()
		got := fmt.Sprint(bounds)
		if !possible {
			got = "impossible"
		}
		if got != want {
			t.Errorf("bounds of %s are %s, want %s", text, got, want)
		}
	}
}

// Parse never panics, and what it accepts is a fixpoint of printing and reading, with or without
// extensions.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "all()", `a == "b" && !has(c)`, `(a in {"x", 'y',} || b not in {}) && !!(c != '"')`, `a starts with "b"`, "global()",
		deepGroups(99), "((((", `!(!(`, "has(", "a notin{", "a == 'b",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, extensions bool) {
		var options []selector.Option
		if extensions {
			options = append(options, selector.Extensions())
		}
		s, err := selector.Parse(text, options...)
		if err != nil {
			return
		}
		again, err := selector.Parse(s.String(), options...)
		if err != nil {
			t.Fatalf("%q prints %q, which is refused: %v", text, s, err)
		}
		if again.String() != s.String() {
			t.Fatalf("%q prints %q, which prints %q", text, s, again)
		}
		s.Bounds()
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := selector.Parse(`(role == "web" && has(tier)) || (zone in {"a", "b"} && env != "dev")`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	s := parse(b, `(role == "web" && has(tier)) || (zone in {"a", "b"} && env != "dev")`)
	labels := selector.Map{"role": "db", "zone": "b", "env": "prod"}
	b.ReportAllocs()
	for b.Loop() {
		if !s.Match(labels) {
			b.Fatal("no match")
		}
	}
}
