package calico

import (
	"strings"
	"testing"
)

// TestSyntax shows what is no JSON, of any kind.
func TestSyntax(t *testing.T) {
	checkValues(t, KindTier, []valueCase{
		{"space around", " \t\r\n{ \"order\" : 1 } \n", `{"order":1}`, ""},
		{"nothing", ``, "", `not JSON at byte 1: want a value`},
		{"trailing data", `{} {}`, "", `not JSON at byte 4: want the end`},
		{"trailing comma", `{"order":1,}`, "", `not JSON at byte 12`},
		{"leading comma", `{,"order":1}`, "", `not JSON at byte 2`},
		{"no comma", `{"x":1 "y":2}`, "", `want , or }`},
		{"no colon", `{"x" 1}`, "", `want :`},
		{"no quotes", `{x:1}`, "", `want the name of a member`},
		{"single quotes", `{'x':1}`, "", `want the name of a member`},
		{"open object", `{"x":{`, "", `x: not JSON`},
		{"open list", `{"x":[1,2`, "", `x[1]: not JSON`},
		{"open string", `{"x":"a`, "", `a string does not end`},
		{"open escape", `{"x":"a\`, "", `bad escape`},
		{"list's trailing comma", `{"x":[1,]}`, "", `x[1]: not JSON`},
		{"comment", `{/**/}`, "", `not JSON`},
		{"control character", "{\"x\":\"a\x01\"}", "", `control character`},
		{"newline in a string after an escape", "{\"x\":\"\\t\n\"}", "", `control character`},
		{"escapes", `{"x":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`, "", ""},
		{"bad escape", `{"x":"\x41"}`, "", `bad escape`},
		{"bad hex", `{"x":"\u12g4"}`, "", `bad escape`},
		{"signed hex", `{"x":"\u+123"}`, "", `bad escape`},
		{"half a pair", `{"x":"\ud800"}`, "", `bad escape`},
		{"half a pair and text", `{"x":"\ud800\u0041"}`, "", `bad escape`},
		{"no UTF-8", "{\"x\":\"\xff\"}", "", `is not UTF-8 text`},
		{"byte order mark", "\ufeff{}", "", `not JSON`},
		{"numbers", `{"x":[0,-0,1.5,1e5,-1E-5,1.0e+3]}`, "", ""},
		{"leading zero", `{"x":01}`, "", `want , or }`},
		{"plus", `{"x":+1}`, "", `want a value`},
		{"bare point", `{"x":.5}`, "", `want a value`},
		{"open fraction", `{"x":1.}`, "", `bad number`},
		{"open exponent", `{"x":1e}`, "", `bad number`},
		{"bare minus", `{"x":-}`, "", `bad number`},
		{"infinity", `{"x":-Infinity}`, "", `bad number`},
		{"word", `{"x":nul}`, "", `want a value`},
		{"word with more", `{"x":truex}`, "", `want , or }`},
		{"member twice", `{"order":1,"order":1}`, "", `order: is there twice`},
		{"unknown member twice", `{"x":1,"y":2,"x":1}`, "", `x: is there twice`},
		{"too deep", `{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "", `nested too deep`},
		{"too deep in objects", `{"x":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat("}", 70) + `}`, "", `nested too deep`},
	})
	var many strings.Builder
	for i := range 100 {
		many.WriteString(`"` + strings.Repeat("x", i+1) + `":"",`)
	}
	checkValues(t, KindProfileLabels, []valueCase{
		{"many", `{` + strings.TrimSuffix(many.String(), ",") + `}`, "", ""},
		{"many and one twice", `{` + many.String() + `"xxx":""}`, "", `xxx: is there twice`},
		{"many and the last twice", `{` + many.String() + `"` + strings.Repeat("x", 100) + `":""}`, "", `is there twice`},
	})
}
