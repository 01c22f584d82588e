package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/model"
)

// Types that the tests use.
var (
	text    = model.Type{Kind: model.String}
	integer = model.Type{Kind: model.Int}
	float   = model.Type{Kind: model.Float}
	truth   = model.Type{Kind: model.Bool}
	moment  = model.Type{Kind: model.Time}
	color   = model.Type{Kind: model.Enum, Values: []string{"red", "blue"}}
	network = model.Type{Kind: model.RecordOf, Class: "network"}
)

func setOf(t model.Type) model.Type { return model.Type{Kind: model.Set, Elem: &t} }
func mapOf(t model.Type) model.Type { return model.Type{Kind: model.Map, Elem: &t} }

func TestCoerce(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		t         model.Type
		raw, want any
	}{
		"text":              {text, "a\tb\r\n😀\ufffd", "a\tb\r\n😀\ufffd"},
		"enum":              {color, "blue", "blue"},
		"int":               {integer, int64(5), int64(5)},
		"int as text":       {integer, "-9223372036854775808", int64(-9223372036854775808)},
		"int as float":      {integer, 5.0, int64(5)},
		"float":             {float, 0.5, 0.5},
		"float as int":      {float, int64(60), 60.0},
		"float as text":     {float, "60.1", 60.1},
		"bool":              {truth, true, true},
		"time":              {moment, "20261121T09:00:00Z", at},
		"time with dashes":  {moment, "2026-11-21T10:00:00+01:00", at},
		"time without zone": {moment, "20261121T09:00:00", at},
		"set":               {setOf(text), []any{"b", "a"}, []string{"b", "a"}},
		"empty set":         {setOf(color), []any{}, []string{}},
		"set of ints":       {setOf(integer), []any{"1", int64(2)}, []int64{1, 2}},
		"map":               {mapOf(text), map[string]any{"a": "b"}, map[string]string{"a": "b"}},
		"counts":            {mapOf(integer), map[string]any{"a": int64(1)}, map[string]int64{"a": 1}},
		"void":              {model.Type{}, "", nil},
	} {
		got, err := Coerce(c.t, c.raw)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestCoerceRecord: a constructor gets an object with defaults, and only what clients may give.
func TestCoerceRecord(t *testing.T) {
	t.Parallel()
	got, err := Coerce(network, map[string]any{"name_label": "n", "MTU": "9000", "uuid": "mine", "PIFs": []any{"x"}, "allowed_operations": int64(7), "unknown": []any{}})
	want := model.New("network")
	want["name_label"], want["MTU"] = "n", int64(9000)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestNotCoerced: the error says whether the type is wrong or the value.
func TestNotCoerced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		t     model.Type
		raw   any
		value bool // it is the value
	}{
		"int for text":      {text, int64(1), false},
		"nil for text":      {text, nil, false},
		"not UTF-8":         {text, "a\xff", true},
		"control character": {text, "\x00", true},
		"another word":      {color, "green", true},
		"text for int":      {integer, "1x", false},
		"fraction for int":  {integer, 1.5, false},
		"huge for int":      {integer, 1e300, false},
		"text for float":    {float, "NaN", false},
		"text for bool":     {truth, "true", false},
		"bool for time":     {moment, true, false},
		"text for time":     {moment, "yesterday", true},
		"map for set":       {setOf(text), map[string]any{}, false},
		"element":           {setOf(color), []any{"red", "green"}, true},
		"set for map":       {mapOf(text), []any{}, false},
		"key":               {mapOf(text), map[string]any{"\xff": ""}, true},
		"member":            {mapOf(text), map[string]any{"a": int64(1)}, false},
		"text for record":   {network, "", false},
		"field":             {network, map[string]any{"name_label": int64(1)}, false},
		"no such class":     {model.Type{Kind: model.RecordOf}, map[string]any{}, false},
	} {
		v, err := Coerce(c.t, c.raw)
		var bad *ValueError
		var other *TypeError
		if errors.As(err, &bad) != c.value || errors.As(err, &other) == c.value {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	_, err := Coerce(network, map[string]any{"name_label": "\xff"})
	if diff := cmp.Diff(&ValueError{"name_label", "\xff", "is not UTF-8"}, err); diff != "" {
		t.Errorf("the value of a field:\n%s", diff)
	}
	_, err = Coerce(network, map[string]any{"MTU": "large"})
	if diff := cmp.Diff(&TypeError{"MTU", "is string, want an integer"}, err); diff != "" {
		t.Errorf("the type of a field:\n%s", diff)
	}
}
