package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/model"
)

// TestJSONReply: both versions' replies, with the client's id.
func TestJSONReply(t *testing.T) {
	t.Parallel()
	one, two := &JSONCall{ID: []byte(`"a"`)}, &JSONCall{ID: []byte("0"), Version2: true}
	for name, c := range map[string]struct {
		call    *JSONCall
		value   any
		failure *model.Error
		want    string
	}{
		"1.0":               {one, int64(5), nil, `{"result":5,"error":null,"id":"a"}`},
		"1.0 failure":       {one, nil, model.SessionInvalid("s"), `{"result":null,"error":["SESSION_INVALID","s"],"id":"a"}`},
		"2.0":               {two, "x", nil, `{"jsonrpc":"2.0","result":"x","id":0}`},
		"2.0 failure":       {two, nil, model.SessionInvalid("s"), `{"jsonrpc":"2.0","error":{"code":1,"message":"SESSION_INVALID","data":["s"]},"id":0}`},
		"2.0 bare failure":  {two, nil, model.EventsLost(), `{"jsonrpc":"2.0","error":{"code":1,"message":"EVENTS_LOST","data":[]},"id":0}`},
		"void":              {two, nil, nil, `{"jsonrpc":"2.0","result":"","id":0}`},
		"time":              {two, time.Unix(0, 0), nil, `{"jsonrpc":"2.0","result":"19700101T00:00:00Z","id":0}`},
		"containers":        {two, model.Record{"b": []int64{1}, "a": map[string]string{"k": "v"}, "c": 0.5, "d": true}, nil, `{"jsonrpc":"2.0","result":{"a":{"k":"v"},"b":[1],"c":0.5,"d":true},"id":0}`},
		"strange character": {two, "\"\\\n\x01é\xff", nil, `{"jsonrpc":"2.0","result":"\"\\\u000a\u0001é` + "\ufffd" + `","id":0}`},
	} {
		got := JSONReply(c.call, model.Type{}, c.value, c.failure)
		if string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s is no JSON: %s", name, got)
		}
	}
}

// TestDecodeJSONCall: calls as different clients write them.
func TestDecodeJSONCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want JSONCall
	}{
		"2.0":     {`{"jsonrpc":"2.0","method":"a.b","params":["s",1,-2.5,true,null],"id":"x\u0041"}`, JSONCall{"a.b", []any{"s", int64(1), -2.5, true, nil}, true, []byte(`"x\u0041"`)}},
		"1.0":     {` { "id" : 7 , "params" : [ ] , "method" : "m" } `, JSONCall{"m", []any{}, false, []byte(`7`)}},
		"nested":  {`{"method":"m","params":[{"a":[{}],"b":{}}],"id":0,"other":{"x":[1]}}`, JSONCall{"m", []any{map[string]any{"a": []any{map[string]any{}}, "b": map[string]any{}}}, false, []byte("0")}},
		"escapes": {`{"method":"\/\"\\\b\f\n\r\t\u00e9\ud83d\ude00\ud83d","params":[],"id":1}`, JSONCall{"/\"\\\b\f\n\r\té😀\xed\xa0\xbd", []any{}, false, []byte("1")}},
		"numbers": {`{"method":"m","params":[0,-0,1e2,9223372036854775807,9223372036854775808],"id":1}`, JSONCall{"m", []any{int64(0), int64(0), 100.0, int64(9223372036854775807), 9223372036854775808.0}, false, []byte("1")}},
	} {
		got, err := DecodeJSONCall([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestMalformedJSON: what is no call is said to be none, whatever it is instead.
func TestMalformedJSON(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":        "",
		"no object":      "[]",
		"a batch":        `[{"method":"m","params":[],"id":1}]`,
		"cut short":      `{"method":"m","params":[],"id":1`,
		"trailing":       `{"method":"m","params":[],"id":1}x`,
		"no method":      `{"params":[],"id":1}`,
		"method":         `{"method":1,"params":[],"id":1}`,
		"no params":      `{"method":"m","id":1}`,
		"params":         `{"method":"m","params":{},"id":1}`,
		"notification":   `{"method":"m","params":[]}`,
		"null id":        `{"method":"m","params":[],"id":null}`,
		"list for id":    `{"method":"m","params":[],"id":[]}`,
		"version":        `{"jsonrpc":"3.0","method":"m","params":[],"id":1}`,
		"trailing comma": `{"method":"m","params":[1,],"id":1}`,
		"leading zero":   `{"method":"m","params":[01],"id":1}`,
		"bare point":     `{"method":"m","params":[1.],"id":1}`,
		"bare exponent":  `{"method":"m","params":[1e],"id":1}`,
		"bare minus":     `{"method":"m","params":[-],"id":1}`,
		"huge":           `{"method":"m","params":[1e999],"id":1}`,
		"bad escape":     `{"method":"\x","params":[],"id":1}`,
		"short escape":   `{"method":"\u00`,
		"line end":       "{\"method\":\"a\nb\",\"params\":[],\"id\":1}",
		"deep":           `{"method":"m","params":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `,"id":1}`,
		"deep objects":   `{"method":"m","params":[` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100) + `],"id":1}`,
		"many values":    `{"method":"m","params":[0` + strings.Repeat(",0", maxCallValues) + `],"id":1}`,
		"long":           `{"method":"m","params":["` + strings.Repeat("x", MaxCall) + `"],"id":1}`,
	} {
		var syntax *SyntaxError
		if _, err := DecodeJSONCall([]byte(body)); !errors.As(err, &syntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodeJSONReply: clients get what servers of either version encode, failures as the model's
// errors.
func TestDecodeJSONReply(t *testing.T) {
	t.Parallel()
	for _, call := range []*JSONCall{{ID: []byte("1")}, {ID: []byte("1"), Version2: true}} {
		got, err := DecodeJSONReply(JSONReply(call, model.Type{}, []string{"a"}, nil))
		if diff := cmp.Diff([]any{"a"}, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		for _, want := range []*model.Error{model.HandleInvalid("VM", "x"), {Code: "EVENTS_LOST", Params: []string{}}} {
			var failure *model.Error
			_, err = DecodeJSONReply(JSONReply(call, model.Type{}, nil, want))
			if !errors.As(err, &failure) || cmp.Diff(want, failure) != "" {
				t.Errorf("failure: %v", err)
			}
		}
	}
	for _, body := range []string{"", "{}", `{"error":{}}`, `{"error":[]}`, `{"error":"x"}`, `{"error":[1]}`} {
		var syntax *SyntaxError
		if _, err := DecodeJSONReply([]byte(body)); !errors.As(err, &syntax) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
