package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/xen/model"
)

// FuzzXMLCall: no text makes the decoder panic, and what it reads it reads again from what the
// encoder writes. Integers become text on the way, as the XenAPI has them.
func FuzzXMLCall(f *testing.F) {
	for _, s := range []string{
		call(`<i4>1</i4>`, `<string>a&amp;<![CDATA[b]]></string>`, `<array><data><value>x</value></data></array>`, `<struct><member><name>n</name><value><double>1.5</double></value></member></struct>`),
		`<?xml version="1.0" encoding='utf-8'?><methodCall><methodName>a</methodName><params/></methodCall><!-- -->`,
		string(EncodeXMLCall("a.b", true, map[string]any{"k": []any{}})),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		method, params, err := DecodeXMLCall(body)
		if err != nil {
			return
		}
		written := EncodeXMLCall(method, params...)
		checkXML(t, written)
		method2, params2, err := DecodeXMLCall(written)
		if err != nil {
			if len(written) > MaxCall {
				return
			}
			t.Fatalf("%q, written as %q: %v", body, written, err)
		}
		if again := EncodeXMLCall(method2, params2...); string(again) != string(written) {
			t.Fatalf("%q, written as %q, then as %q", body, written, again)
		}
	})
}

// checkXML: another parser takes what the encoder wrote.
func checkXML(t *testing.T, written []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(written)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%q: %v", written, err)
		}
	}
}

// FuzzXMLReply: no text makes the client's decoder panic.
func FuzzXMLReply(f *testing.F) {
	f.Add(XMLReply(text, "a", nil))
	f.Add(XMLReply(text, nil, model.SessionInvalid("x")))
	f.Add(XMLBareReply(setOf(text), []string{"a"}))
	f.Fuzz(func(_ *testing.T, body []byte) { _, _ = DecodeXMLReply(body) })
}

// FuzzJSONCall: no text makes the decoder panic, and what it reads it reads again from what the
// encoder writes.
func FuzzJSONCall(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","method":"a.b","params":["s",1,-2.5e3,true,{"a":[]},"\u0041\n"],"id":"x"}`, `{"method":"m","params":[],"id":0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := DecodeJSONCall(body)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is no JSON", body)
		}
		written := EncodeJSONCall(call.Method, call.Params...)
		if !json.Valid(written) {
			t.Fatalf("%q, written as %q, which is no JSON", body, written)
		}
		call2, err := DecodeJSONCall(written)
		if err != nil {
			if len(written) > MaxCall {
				return
			}
			t.Fatalf("%q, written as %q: %v", body, written, err)
		}
		if again := EncodeJSONCall(call2.Method, call2.Params...); string(again) != string(written) {
			t.Fatalf("%q, written as %q, then as %q", body, written, again)
		}
	})
}

// FuzzJSONReply: no text makes the client's decoder panic.
func FuzzJSONReply(f *testing.F) {
	f.Add(JSONReply(&JSONCall{ID: []byte("1")}, text, "a", nil))
	f.Add(JSONReply(&JSONCall{ID: []byte("1"), Version2: true}, text, nil, model.SessionInvalid("x")))
	f.Fuzz(func(_ *testing.T, body []byte) { _, _ = DecodeJSONReply(body) })
}

// TestRoundTrip: any field of any class goes through either codec and comes back as it was.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(model.Classes()).Draw(t, "class")
		if len(c.Fields) == 0 || c.Value {
			return
		}
		f := rapid.SampledFrom(c.Fields).Draw(t, "field")
		v := value(t, f.Type)
		version2 := rapid.Bool().Draw(t, "2.0")
		for name, reply := range map[string]func() (any, error){
			"XML": func() (any, error) { return DecodeXMLReply(XMLReply(f.Type, v, nil)) },
			"JSON": func() (any, error) {
				return DecodeJSONReply(JSONReply(&JSONCall{ID: []byte("1"), Version2: version2}, f.Type, v, nil))
			},
		} {
			raw, err := reply()
			if err != nil {
				t.Fatalf("%s of %#v: %v", name, v, err)
			}
			back, err := Coerce(f.Type, raw)
			if diff := cmp.Diff(v, back); err != nil || diff != "" {
				t.Fatalf("%s.%s by %s: %v\n%s", c.Name, f.Name, name, err, diff)
			}
		}
	})
}

// value draws one of a type.
func value(t *rapid.T, of model.Type) any {
	words := rapid.StringOf(rapid.RuneFrom([]rune{'a', '<', '&', '>', ']', '"', '\\', '\r', '\n', ' ', 'é', '😀', '\ufffd', '0'}))
	switch of.Kind {
	case model.Enum:
		return rapid.SampledFrom(of.Values).Draw(t, "word")
	case model.Int:
		return rapid.Int64().Draw(t, "int")
	case model.Float:
		return rapid.Float64().Draw(t, "float")
	case model.Bool:
		return rapid.Bool().Draw(t, "bool")
	case model.Time:
		return model.Zero(of)
	case model.Set:
		switch of.Elem.Kind {
		case model.Int:
			return rapid.SliceOf(rapid.Int64()).Draw(t, "ints")
		case model.Enum:
			return rapid.SliceOf(rapid.SampledFrom(of.Elem.Values)).Draw(t, "words")
		}
		return rapid.SliceOf(words).Draw(t, "set")
	case model.Map:
		return rapid.MapOf(words, words).Draw(t, "map")
	}
	return words.Draw(t, "text")
}
