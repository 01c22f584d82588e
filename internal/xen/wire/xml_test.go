package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/model"
)

const replyHead = `<?xml version="1.0"?><methodResponse><params><param>`

// TestXMLReply: replies are, to the letter, what clients in daily use can read.
func TestXMLReply(t *testing.T) {
	t.Parallel()
	success := func(value string) string {
		return replyHead + `<value><struct><member><name>Status</name><value>Success</value></member><member><name>Value</name>` + value + `</member></struct></value></param></params></methodResponse>`
	}
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"void":         {nil, `<value></value>`},
		"empty string": {"", `<value></value>`},
		"string":       {"a<b>&c\r\x01\xff", `<value>a&lt;b&gt;&amp;c&#13;` + "\ufffd\ufffd" + `</value>`},
		"ref":          {model.NullRef, `<value>OpaqueRef:NULL</value>`},
		"int":          {int64(-7), `<value>-7</value>`},
		"float":        {0.1, `<value><double>0.1</double></value>`},
		"bool":         {true, `<value><boolean>1</boolean></value>`},
		"time":         {time.Date(2026, 11, 21, 10, 0, 0, 0, time.FixedZone("", 3600)), `<value><dateTime.iso8601>20261121T09:00:00Z</dateTime.iso8601></value>`},
		"set":          {[]string{"b", "a"}, `<value><array><data><value>b</value><value>a</value></data></array></value>`},
		"empty set":    {[]int64{}, `<value><array><data></data></array></value>`},
		"map":          {map[string]string{"b": "2", "a": ""}, `<value><struct><member><name>a</name><value></value></member><member><name>b</name><value>2</value></member></struct></value>`},
		"counts":       {map[string]int64{"task": 3}, `<value><struct><member><name>task</name><value><i4>3</i4></value></member></struct></value>`},
		"record":       {model.Record{"b": int64(2), "a": false}, `<value><struct><member><name>a</name><value><boolean>0</boolean></value></member><member><name>b</name><value>2</value></member></struct></value>`},
	} {
		if got := string(XMLReply(model.Type{}, c.value, nil)); got != success(c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, success(c.want))
		}
	}
	failure := replyHead + `<value><struct><member><name>Status</name><value>Failure</value></member><member><name>ErrorDescription</name>` +
		`<value><array><data><value>HANDLE_INVALID</value><value>PIF</value><value>OpaqueRef:x</value></data></array></value></member></struct></value></param></params></methodResponse>`
	if got := string(XMLReply(model.Type{}, "ignored", model.HandleInvalid("PIF", "OpaqueRef:x"))); got != failure {
		t.Errorf("failure:\n got %s\nwant %s", got, failure)
	}
	bare := replyHead + `<value><array><data><value>a.b</value></data></array></value></param></params></methodResponse>`
	if got := string(XMLBareReply(model.Type{}, []string{"a.b"})); got != bare {
		t.Errorf("bare:\n got %s\nwant %s", got, bare)
	}
}

// TestXMLValue: a task's result is a value alone, or nothing.
func TestXMLValue(t *testing.T) {
	t.Parallel()
	if got := XMLValue(model.Type{}, "OpaqueRef:x"); got != "<value>OpaqueRef:x</value>" {
		t.Errorf("got %q", got)
	}
	if got := XMLValue(model.Type{}, nil); got != "" {
		t.Errorf("nothing: got %q", got)
	}
}

// TestDecodeXMLCall: calls as different clients write them.
func TestDecodeXMLCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		method string
		params []any
	}{
		"Python": {"<?xml version='1.0'?>\n<methodCall>\n<methodName>session.login_with_password</methodName>\n<params>\n<param>\n<value><string>root</string></value>\n</param>\n" +
			"<param>\n<value><string>a&amp;b</string></value>\n</param>\n</params>\n</methodCall>\n", "session.login_with_password", []any{"root", "a&b"}},
		"npm": {`<?xml version="1.0"?><methodCall><methodName>event.from</methodName><params><param><value><string>OpaqueRef:s</string></value></param><param><value><array><data><value><string>VM</string></value></data></array></value></param>` +
			`<param><value><string/></value></param><param><value><double>60.1</double></value></param></params></methodCall>`, "event.from", []any{"OpaqueRef:s", []any{"VM"}, "", 60.1}},
		"no params":       {`<methodCall><methodName>system.listMethods</methodName></methodCall>`, "system.listMethods", []any{}},
		"empty params":    {`<methodCall><methodName>a</methodName><params/></methodCall>`, "a", []any{}},
		"untyped":         {`<methodCall><methodName>a</methodName><params><param><value> x y </value></param><param><value/></param><param><value></value></param></params></methodCall>`, "a", []any{" x y ", "", ""}},
		"numbers":         {call(`<i4>-1</i4>`, `<int>2</int>`, `<i8>9223372036854775807</i8>`, `<double>1e3</double>`, `<boolean>0</boolean>`), "m", []any{int64(-1), int64(2), int64(9223372036854775807), 1000.0, false}},
		"other scalars":   {call(`<dateTime.iso8601>20261121T09:00:00Z</dateTime.iso8601>`, `<base64>aGk=</base64>`, `<nil/>`), "m", []any{"20261121T09:00:00Z", "hi", nil}},
		"struct":          {call(`<struct><member><name>a</name><value>1</value></member> <member><name>b</name><value><struct/></value></member></struct>`), "m", []any{map[string]any{"a": "1", "b": map[string]any{}}}},
		"array":           {call(`<array><data/></array>`, `<array><data> <value>x</value> </data></array>`), "m", []any{[]any{}, []any{"x"}}},
		"line ends":       {"<methodCall><methodName>m</methodName><params><param><value>a\r\nb\rc&#13;</value></param></params></methodCall>", "m", []any{"a\nb\nc\r"}},
		"entities":        {call(`<string>&lt;&gt;&quot;&apos;&#65;&#x1F600;</string>`), "m", []any{`<>"'A😀`}},
		"literal section": {call(`<string>a<![CDATA[<b>&amp;]]>c</string>`), "m", []any{"a<b>&amp;c"}},
		"comments":        {"\ufeff<?xml version='1.0' encoding=\"UTF-8\" ?><!-- a --><methodCall><!--b--><methodName>m</methodName><params><param><value>a<!-- > --> <?x?> b</value></param></params></methodCall><!-- c -->", "m", []any{"a  b"}},
		"attributes":      {`<methodCall a="b>" c='/'><methodName >m</methodName ><params x="1"/></methodCall>`, "m", []any{}},
		"not UTF-8":       {call("<string>\xff</string>"), "m", []any{"\xff"}},
	} {
		method, params, err := DecodeXMLCall([]byte(c.body))
		if err != nil || method != c.method {
			t.Errorf("%s: %q, %v", name, method, err)
		} else if diff := cmp.Diff(c.params, params); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// call is a call of m with these typed values.
func call(values ...string) string {
	return "<methodCall><methodName>m</methodName><params><param><value>" + strings.Join(values, "</value></param><param><value>") + "</value></param></params></methodCall>"
}

// TestMalformedXML: what is no call is said to be none, whatever it is instead.
func TestMalformedXML(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":          "",
		"text":             "hello",
		"another root":     "<methodResponse></methodResponse>",
		"empty":            "<methodCall/>",
		"no method":        "<methodCall><params/></methodCall>",
		"cut short":        call("<i4>1</i4>")[:60],
		"trailing":         call("<i4>1</i4>") + "x",
		"bad int":          call("<i4>x</i4>"),
		"large int":        call("<i8>9223372036854775808</i8>"),
		"bad bool":         call("<boolean>true</boolean>"),
		"no number":        call("<double>NaN</double>"),
		"unknown type":     call("<date>1</date>"),
		"text before":      call("x<i4>1</i4>"),
		"two types":        call("<i4>1</i4><i4>1</i4>"),
		"crossed":          call("<string>a</i4>"),
		"unknown entity":   call("<string>&nbsp;</string>"),
		"endless entity":   call("<string>&amp</string>"),
		"null character":   call("<string>&#0;</string>"),
		"document type":    `<!DOCTYPE x [<!ENTITY a "b">]>` + call("<i4>1</i4>"),
		"another encoding": `<?xml version="1.0" encoding="UTF-16"?>` + call("<i4>1</i4>"),
		"deep":             call(strings.Repeat("<array><data><value>", 1000) + strings.Repeat("</value></data></array>", 1000)),
		"long":             call("<string>" + strings.Repeat("x", MaxCall) + "</string>"),
		"many values":      call("<array><data>" + strings.Repeat("<value/>", maxCallValues) + "</data></array>"),
		"nameless member":  call("<struct><member><value>1</value></member></struct>"),
	} {
		var syntax *SyntaxError
		if _, _, err := DecodeXMLCall([]byte(body)); !errors.As(err, &syntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodeXMLReply: clients get what servers encode, failures as the model's errors.
func TestDecodeXMLReply(t *testing.T) {
	t.Parallel()
	got, err := DecodeXMLReply(XMLReply(model.Type{}, map[string]string{"a": "b"}, nil))
	if diff := cmp.Diff(map[string]any{"a": "b"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	got, err = DecodeXMLReply(XMLBareReply(model.Type{}, []string{"a"}))
	if diff := cmp.Diff([]any{"a"}, got); err != nil || diff != "" {
		t.Errorf("bare: %v\n%s", err, diff)
	}
	var failure *model.Error
	_, err = DecodeXMLReply(XMLReply(model.Type{}, nil, model.HandleInvalid("VM", "x")))
	if !errors.As(err, &failure) || cmp.Diff(model.HandleInvalid("VM", "x"), failure) != "" {
		t.Errorf("failure: %v", err)
	}
	_, err = DecodeXMLReply([]byte("<methodResponse><fault><value><struct><member><name>faultString</name><value>no</value></member></struct></value></fault></methodResponse>"))
	if !errors.As(err, &failure) || failure.Code != "INTERNAL_ERROR" {
		t.Errorf("fault: %v", err)
	}
}
