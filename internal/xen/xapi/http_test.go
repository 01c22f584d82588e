package xapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"heddle/internal/xen/wire"
)

// TestTransports: each path of spec 1 answers in its own way, to the letter.
func TestTransports(t *testing.T) {
	t.Parallel()
	_, c := served(t)
	tests := []struct {
		name, path, body    string
		status              int
		contentType, answer string
	}{
		{"XML at /", "/", xmlCall("system.isAlive:hello"), 200, "text/xml", xmlSuccess("<boolean>1</boolean>")},
		{"XML at /RPC2", "/RPC2", xmlCall("system.isAlive:hello"), 200, "text/xml", xmlSuccess("<boolean>1</boolean>")},
		{"XML at /xmlrpc", "/xmlrpc", xmlCall("system.isAlive:"), 200, "text/xml", xmlSuccess("<boolean>1</boolean>")},
		{"XML failure", "/", xmlCall("network.get_all", "OpaqueRef:no"), 200, "text/xml",
			`<?xml version="1.0"?><methodResponse><params><param><value><struct><member><name>Status</name><value>Failure</value></member><member><name>ErrorDescription</name>` +
				`<value><array><data><value>SESSION_INVALID</value><value>OpaqueRef:no</value></data></array></value></member></struct></value></param></params></methodResponse>`},
		{"JSON-RPC 2.0", "/jsonrpc", `{"jsonrpc":"2.0","method":"system.isAlive:x","params":[],"id":7}`, 200, "application/json", `{"jsonrpc":"2.0","result":true,"id":7}`},
		{"JSON-RPC 1.0", "/jsonrpc", `{"method":"system.isAlive:x","params":[],"id":"a"}`, 200, "application/json", `{"result":true,"error":null,"id":"a"}`},
		{"JSON-RPC 2.0 failure", "/jsonrpc", `{"jsonrpc":"2.0","method":"network.get_all","params":["x"],"id":0}`, 200, "application/json",
			`{"jsonrpc":"2.0","error":{"code":1,"message":"SESSION_INVALID","data":["x"]},"id":0}`},
		{"JSON-RPC 1.0 failure", "/jsonrpc", `{"method":"network.get_all","params":["x"],"id":0}`, 200, "application/json", `{"result":null,"error":["SESSION_INVALID","x"],"id":0}`},
		{"no XML", "/", "hello", 500, "text/html", ""},
		{"half an XML call", "/", "<methodCall><methodName>x", 500, "text/html", ""},
		{"no JSON", "/jsonrpc", "hello", 500, "text/html", ""},
		{"JSON without params", "/jsonrpc", `{"jsonrpc":"2.0","method":"system.isAlive:x","id":7}`, 500, "text/html", ""},
		{"JSON notification", "/jsonrpc", `{"jsonrpc":"2.0","method":"system.isAlive:x","params":[]}`, 500, "text/html", ""},
		{"too long", "/", strings.Repeat(" ", wire.MaxCall+1), 413, "text/plain; charset=utf-8", ""},
		{"another path", "/elsewhere", "", 404, "text/plain; charset=utf-8", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A charset in the request is fine.
			status, contentType, reply := (&clientOf{t: t, url: c.url}).post(tt.path, "application/json; charset=utf-8", []byte(tt.body))
			if status != tt.status || contentType != tt.contentType || tt.answer != "" && string(reply) != tt.answer {
				t.Errorf("HTTP %d, %s: %s", status, contentType, reply)
			}
		})
	}
}

// TestTooLongAnswered: a client that sends all of a call that is too long before it reads gets 413, not a reset connection.
func TestTooLongAnswered(t *testing.T) {
	t.Parallel()
	s, _ := served(t)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	const size = wire.MaxCall + 24<<20
	for name, framing := range map[string]string{"announced": fmt.Sprintf("Content-Length: %d", size), "in chunks": "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var body io.Writer = conn
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: pool\r\nContent-Type: text/xml\r\n%s\r\n\r\n", framing)
		if strings.Contains(framing, "chunked") {
			body = httputil.NewChunkedWriter(conn)
		}
		part := bytes.Repeat([]byte(" "), 64<<10)
		for range size / len(part) {
			if _, err := body.Write(part); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if closer, ok := body.(io.Closer); ok && body != io.Writer(conn) {
			_ = closer.Close()
			_, _ = io.WriteString(conn, "\r\n")
		}
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close || err != nil || !strings.Contains(string(text), "longer than") {
			t.Errorf("%s: HTTP %d, closes %t: %s, %v", name, res.StatusCode, res.Close, text, err)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("%s: after the answer: %v", name, err)
		}
	}
}

// TestLoneSurrogate: half of a surrogate pair stands for no character, and is refused where it would become another one.
func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	_, c := served(t)
	for _, name := range []string{`a\ud83d`, `\ude00b`, `\ud83d\ud83d\ude00`, `\ude00\ud83d`, `\ud83dx`, `\ud83d\u0041`} {
		body := `{"jsonrpc":"2.0","method":"network.create","params":["` + c.session + `",{"name_label":"` + name + `","MTU":1500}],"id":1}`
		if status, _, reply := c.post("/jsonrpc", "application/json", []byte(body)); status != 200 || !strings.Contains(string(reply), `"INVALID_VALUE"`) {
			t.Errorf("%s: HTTP %d: %s", name, status, reply)
		}
	}
	body := `{"jsonrpc":"2.0","method":"network.create","params":["` + c.session + `",{"name_label":"\ud83d\ude00","MTU":1500}],"id":1}`
	if status, _, reply := c.post("/jsonrpc", "application/json", []byte(body)); status != 200 || !strings.Contains(string(reply), `"result":"OpaqueRef:`) {
		t.Errorf("a whole pair: HTTP %d: %s", status, reply)
	}
}

func xmlCall(method string, args ...any) string { return string(wire.EncodeXMLCall(method, args...)) }

func xmlSuccess(value string) string {
	return `<?xml version="1.0"?><methodResponse><params><param><value><struct><member><name>Status</name><value>Success</value></member><member><name>Value</name><value>` +
		value + `</value></member></struct></value></param></params></methodResponse>`
}

// TestHeaders: browsers may ask, connections stay, and a client that knows gzip gets what it can read.
func TestHeaders(t *testing.T) {
	t.Parallel()
	_, c := served(t)
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		q, err := http.NewRequest(method, c.url+"/jsonrpc", strings.NewReader(`{"method":"system.isAlive:x","params":[],"id":1}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept-Encoding", "gzip")
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "X-Requested-With") {
			t.Errorf("%s: HTTP %d, %v", method, res.StatusCode, res.Header)
		}
		if res.Close || res.Header.Get("Content-Encoding") != "" || res.ContentLength < 0 {
			t.Errorf("%s: closes %v, encoding %q, length %d", method, res.Close, res.Header.Get("Content-Encoding"), res.ContentLength)
		}
	}
	res, err := http.Get(c.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET /: HTTP %d", res.StatusCode)
	}
}

// TestLongPoll: a call that waits for events outlives the HTTP server's limits for reading and writing, and ends when its
// client leaves.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.ReadTimeout, h.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	h.Start()
	t.Cleanup(h.Close)
	slow := &clientOf{t: t, url: h.URL, session: c.session}
	now := c.from("", 0, "*").token
	if b := slow.from(now, 300*time.Millisecond, "*"); len(b.events) != 0 {
		t.Error(b)
	}
	h2 := httptest.NewUnstartedServer(s.Handler())
	h2.Config.ReadTimeout, h2.Config.WriteTimeout, h2.EnableHTTP2 = 50*time.Millisecond, 50*time.Millisecond, true
	h2.StartTLS()
	t.Cleanup(h2.Close)
	res, err := h2.Client().Post(h2.URL+"/", "text/xml", strings.NewReader(xmlCall("event.from", c.session, []string{"*"}, now, 0.3)))
	if err != nil {
		t.Fatal(err)
	}
	var reply bytes.Buffer
	_, err = reply.ReadFrom(res.Body)
	res.Body.Close()
	if _, failure := wire.DecodeXMLReply(reply.Bytes()); res.ProtoMajor != 2 || err != nil || failure != nil {
		t.Errorf("HTTP/%d: %v, %v", res.ProtoMajor, err, failure)
	}

	ctx, leave := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/", strings.NewReader(xmlCall("event.from", c.session, []string{"*"}, now, 600.0)))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(q)
		left <- err
	}()
	eventually(t, "the call waits", func() bool { return len(s.polls) == 1 })
	leave()
	if err := <-left; err == nil {
		t.Error("answered")
	}
	eventually(t, "the call has ended", func() bool { return len(s.polls) == 0 })

	for range maxPolls {
		s.polls <- struct{}{}
	}
	if got := c.fails("INTERNAL_ERROR", "event.from", []string{"*"}, now, 1.0); !strings.Contains(got[0], "wait for events") {
		t.Error(got)
	}
}
