package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// readInSteps reads the text in one piece (step 0), or in single bytes.
func readInSteps(limits Limits, text string, step int) error {
	var r io.Reader = strings.NewReader(text)
	if step == 1 {
		r = iotest.OneByteReader(r)
	}
	got, err := Read(r, int64(len(text)), limits)
	if err == nil && string(got) != text {
		return fmt.Errorf("read %q", got)
	}
	return err
}

// TestRead checks each limit, with the text whole and byte by byte.
func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		text   string
		limits Limits
		fault  Fault
		want   string // members of the path; "-" = accepted
	}{
		{`{"network":{"name":"a\\u12\u00e9\ud83d\ude00é😀\"\\ud800"}}`, Limits{}, 0, "-"},
		{``, Limits{}, 0, "-"},
		{` 1 `, Limits{}, 0, "-"},
		{`{"network":{"name":"\ud800"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"network":{"name":"\uD83Dx"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"network":{"name":"\ud83d\ud83d\ude00"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"network":{"name":"\ud83d\n"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"network":{"name":"\ud83dé"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"network":{"name":"\ude00"}}`, Limits{}, NotUnicode, "network.name"},
		{`{"networks":[{"x":1},{"name":"n","tags":["a",{"b":"\udfff"}]}]}`, Limits{}, NotUnicode, "networks.tags.b"},
		{`{"network":{"\ud800":"n"}}`, Limits{}, NotUnicode, "network"},
		{"{\"network\":{\"name\":\"\xff\"}}", Limits{}, NotUnicode, "network.name"},
		{"{\"network\":{\"name\":\"\xc3\"}}", Limits{}, NotUnicode, "network.name"},
		{"{\"network\":{\"name\":\"\xed\xa0\x80\"}}", Limits{}, NotUnicode, "network.name"},
		{`{"a":[[["]"]]]}`, Limits{Depth: 4}, 0, "-"},
		{`{"a":[[[[]]]]}`, Limits{Depth: 4}, TooDeep, "a"},
		{`{"a":[1,2,3],"b":[]}`, Limits{Values: 6}, 0, "-"},
		{`{"a":[1,2,3],"b":[4]}`, Limits{Values: 6}, TooLarge, "b"},
		{`{"a":["12345678"]}`, Limits{Item: 12}, 0, "-"},
		{`{"a":["1", "1234567890"]}`, Limits{Item: 12}, 0, "-"},
		{`{"a":["12","123456789012"]}`, Limits{Item: 12}, TooLarge, "a"},
		{`{"a":[{"b":"123456789012"}]}`, Limits{Item: 12}, TooLarge, "a.b"},
		{`{"a":{"b":"123456789012"}}`, Limits{Item: 12}, 0, "-"},
		{`{"a":["` + long + `"]}`, Limits{Item: 12}, TooLarge, "a"},
		{`{"a":1,"a":2}`, Limits{}, 0, "-"},
		{`{} {}`, Limits{}, Syntax, ""},
		{`{"a":[1}`, Limits{}, Syntax, "a"},
		{`{"a":tru}`, Limits{}, Syntax, "a"},
		{`{"a":`, Limits{}, Syntax, "a"},
	} {
		for _, step := range []int{0, 1} {
			err := readInSteps(tt.limits, tt.text, step)
			var got *Error
			switch {
			case tt.want == "-" && err != nil:
				t.Errorf("%.80s in steps of %d: %v", tt.text, step, err)
			case tt.want == "-":
			case !errors.As(err, &got) || strings.Join(got.Members(), ".") != tt.want || got.Fault != tt.fault:
				t.Errorf("%.80s in steps of %d: %#v, want fault %d at %s", tt.text, step, err, tt.fault, tt.want)
			}
		}
	}
}

// TestReadStops: an element that is too large is not read to its end, and an error of the reader is
// returned as it is.
func TestReadStops(t *testing.T) {
	t.Parallel()
	text := strings.NewReader(`{"a":["` + strings.Repeat("x", 1<<20) + `"]}`)
	if _, err := Read(text, 0, Limits{Item: 100}); err == nil || text.Len() < 1<<19 {
		t.Errorf("read on with %d bytes left: %v", text.Len(), err)
	}
	failed := errors.New("failed")
	if _, err := Read(iotest.ErrReader(failed), 0, Limits{}); err != failed {
		t.Errorf("got %v", err)
	}
}

func TestReadCountsItems(t *testing.T) {
	t.Parallel()
	var seen []string
	limits := Limits{Items: func(list string, n int) error {
		seen = append(seen, fmt.Sprint(list, n))
		if n == 3 {
			return errors.New("enough")
		}
		return nil
	}}
	err := readInSteps(limits, ` { "x" : [ ] , "ports" : [ {"a":[1,2]} , [3,4] , "5" ,`, 1)
	if got := strings.Join(seen, " "); got != "ports1 ports2 ports3" || err == nil {
		t.Errorf("counted %s, %v", got, err)
	}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	type inner struct {
		Name string `json:"name"`
		On   *bool  `json:"on"`
		N    int64  `json:"n"`
	}
	type outer struct {
		List []inner        `json:"list"`
		Any  map[string]any `json:"any"`
		Raw  json.RawMessage
	}
	var o outer
	if err := Unmarshal([]byte(`{"list":[{"name":"a","on":null},null],"any":{"n":1.10}}`), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.List) != 2 || o.List[0].Name != "a" || o.Any["n"] != json.Number("1.10") {
		t.Errorf("got %+v", o)
	}
	for text, want := range map[string]string{
		`[]`:                            "want an object",
		`{"list":{}}`:                   "list: want a list",
		`{"list":[{"name":3}]}`:         "list[0].name: want a string",
		`{"list":[{},{"on":"x"}]}`:      "list[1].on: want true or false",
		`{"list":[{"n":"x"}]}`:          "list[0].n: want a whole number of 64 bits",
		`{"list":[{"n":1e30}]}`:         "list[0].n: want a whole number of 64 bits",
		`{"list":[{"n":1.5}]}`:          "list[0].n: want a whole number of 64 bits",
		`{"list":[{"colour":3}]}`:       "list[0].colour: unknown field; want n, name, on",
		`{"list":[],"list":[]}`:         "list: is there twice",
		`{"any":{"a":[{"b":1,"b":2}]}}`: "any.a[0].b: is there twice",
		`{"any":{"a":"\ud800"}}`:        `any.a: has one half of a surrogate pair`,
		`{} 1`:                          "invalid character",
		`{`:                             "unexpected EOF",
		``:                              "unexpected EOF",
	} {
		var o outer
		if err := Unmarshal([]byte(text), &o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// FuzzRead: a text that Read accepts and encoding/json too is decoded without replacing anything,
// and its depth and values are within the limits.
func FuzzRead(f *testing.F) {
	for _, text := range []string{`{"a":["\ud83d\ude00",{"b":null}]}`, `"\ud800"`, "\"\xff\"", `[[1,2],{}]`, `"\u00e9"`} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, step int) {
		err := readInSteps(Limits{Depth: 8, Values: 64}, text, step&1)
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		if err == nil {
			if strings.Count(text, "\uFFFD") == 0 && !strings.Contains(strings.ToLower(text), `\ufffd`) && !utf8Clean(v) {
				t.Errorf("%q: replaced something", text)
			}
			if d, n := measure(v); d > 8 || n > 64 {
				t.Errorf("%q: depth %d, %d values", text, d, n)
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Fault == Syntax {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func utf8Clean(v any) bool {
	b, err := json.Marshal(v)
	return err == nil && utf8.Valid(b) && !bytes.ContainsRune(b, utf8.RuneError)
}

func measure(v any) (depth, values int) {
	values = 1
	each := func(x any) {
		d, n := measure(x)
		depth, values = max(depth, d), values+n
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			each(x)
		}
		depth++
	case map[string]any:
		for _, x := range v {
			each(x)
		}
		depth++
	}
	return depth, values
}
