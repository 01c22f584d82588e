package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func scanAll(limits JSONLimits, text string, step int) error {
	s := jsonScan{limits: limits}
	for b := []byte(text); len(b) > 0; {
		n := min(step, len(b))
		if err := s.write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// TestJSONScan checks each limit, with the text whole and byte by byte.
func TestJSONScan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text   string
		limits JSONLimits
		want   string // "" = accepted
	}{
		{`{"network":{"name":"a\\u12\u00e9\ud83d\ude00é😀\"\\ud800"}}`, JSONLimits{}, ""},
		{`{"network":{"name":"\ud800"}}`, JSONLimits{}, "network.name"},
		{`{"network":{"name":"\uD83Dx"}}`, JSONLimits{}, "network.name"},
		{`{"network":{"name":"\ud83d\ud83d\ude00"}}`, JSONLimits{}, "network.name"},
		{`{"network":{"name":"\ud83d\n"}}`, JSONLimits{}, "network.name"},
		{`{"network":{"name":"\ud83dé"}}`, JSONLimits{}, "network.name"},
		{`{"network":{"name":"\ude00"}}`, JSONLimits{}, "network.name"},
		{`{"networks":[{"x":1},{"name":"n","tags":["a",{"b":"\udfff"}]}]}`, JSONLimits{}, "networks.tags.b"},
		{`{"network":{"\ud800":"n"}}`, JSONLimits{}, "network"},
		{"{\"network\":{\"name\":\"\xff\"}}", JSONLimits{}, "network.name"},
		{"{\"network\":{\"name\":\"\xc3\"}}", JSONLimits{}, "network.name"},
		{"{\"network\":{\"name\":\"\xed\xa0\x80\"}}", JSONLimits{}, "network.name"},
		{`{"a":[[["]"]]]}`, JSONLimits{Depth: 4}, ""},
		{`{"a":[[[[]]]]}`, JSONLimits{Depth: 4}, "a"},
		{`{"a":[1,2,3],"b":[]}`, JSONLimits{Values: 6}, ""},
		{`{"a":[1,2,3],"b":[4]}`, JSONLimits{Values: 5}, "b"},
		{`{"a":["12345678"]}`, JSONLimits{Item: 12}, ""},
		{`{"a":["12","123456789012"]}`, JSONLimits{Item: 12}, "a"},
		{`{"a":[{"b":"123456789012"}]}`, JSONLimits{Item: 12}, "a.b"},
		{`{"a":{"b":"123456789012"}}`, JSONLimits{Item: 12}, ""},
	} {
		for _, step := range []int{1, 3, len(tt.text)} {
			err := scanAll(tt.limits, tt.text, step)
			var got *JSONError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%s in steps of %d: %v", tt.text, step, err)
			case tt.want != "" && (!errors.As(err, &got) || strings.Join(got.Field, ".") != tt.want):
				t.Errorf("%s in steps of %d: %v, want it to name %s", tt.text, step, err, tt.want)
			}
		}
	}
}

func TestJSONScanCountsItems(t *testing.T) {
	t.Parallel()
	var seen []string
	limits := JSONLimits{Items: func(list string, n int) error {
		seen = append(seen, fmt.Sprint(list, n))
		if n == 3 {
			return errors.New("enough")
		}
		return nil
	}}
	err := scanAll(limits, ` { "x" : [ ] , "ports" : [ {"a":[1,2]} , [3,4] , "5" ,`, 1)
	if got := strings.Join(seen, " "); got != "ports1 ports2 ports3" || err == nil {
		t.Errorf("counted %s, %v", got, err)
	}
}

// FuzzJSONScan: a text that the scan accepts and encoding/json too has been decoded without replacing anything, and its
// depth and values are within the limits.
func FuzzJSONScan(f *testing.F) {
	for _, text := range []string{`{"a":["\ud83d\ude00",{"b":null}]}`, `"\ud800"`, "\"\xff\"", `[[1,2],{}]`, `"\u00e9"`} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, step int) {
		err := scanAll(JSONLimits{Depth: 8, Values: 64}, text, max(1, step))
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		if err == nil {
			if strings.Count(text, "\uFFFD") == 0 && !strings.Contains(strings.ToLower(text), `\ufffd`) && !utf8Clean(v) {
				t.Errorf("%q: replaced something", text)
			}
			if d, n := measure(v); d > 8 || n > 65 {
				t.Errorf("%q: depth %d, %d values", text, d, n)
			}
			return
		}
		var e *JSONError
		if !errors.As(err, &e) {
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
