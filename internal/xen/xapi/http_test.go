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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/store"
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

// TestTooLongAnswered: a client that sends all of a call that is too long before it reads gets 413,
// not a reset connection.
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

// TestLoneSurrogate: half of a surrogate pair stands for no character, and is refused where it
// would become another one.
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

// TestHeaders: browsers may ask, connections stay, and a client that knows gzip gets what it can
// read.
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

// TestLongPoll: a call that waits for events outlives the HTTP server's limits for reading and
// writing, and ends when its client leaves. Time passes only while all wait.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		t.Cleanup(func() { st.Close() })
		file := filepath.Join(t.TempDir(), "root")
		s := started(t, Options{Store: st, RootPasswordFile: file})
		password, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const limit, wait = 5 * time.Second, 2 * bodyTimeout
		serve := func(http2 bool) *httptest.Server {
			h, dial := piped(s.Handler())
			h.Config.ReadTimeout, h.Config.WriteTimeout, h.EnableHTTP2 = limit, limit, http2
			if http2 {
				h.StartTLS()
			} else {
				h.Start()
			}
			h.Client().Transport.(*http.Transport).DialContext = dial
			t.Cleanup(h.Close)
			return h
		}
		first := serve(false)
		c := &clientOf{t: t, url: first.URL, http: first.Client()}
		c.session = c.must("session.login_with_password", RootAccount, strings.TrimSpace(string(password))).(string)
		now := c.from("", 0, "*").token
		begun := time.Now()
		if b := c.from(now, wait, "*"); len(b.events) != 0 || time.Since(begun) < wait {
			t.Errorf("after %v: %v", time.Since(begun), b)
		}
		second := serve(true)
		res, err := second.Client().Post(second.URL+"/", "text/xml", strings.NewReader(xmlCall("event.from", c.session, []string{"*"}, now, wait.Seconds())))
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
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, first.URL+"/", strings.NewReader(xmlCall("event.from", c.session, []string{"*"}, now, 600.0)))
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan error, 1)
		go func() {
			_, err := first.Client().Do(q)
			left <- err
		}()
		synctest.Wait()
		if len(s.polls) != 1 {
			t.Fatalf("%d calls wait", len(s.polls))
		}
		leave()
		if err := <-left; err == nil {
			t.Error("answered")
		}
		synctest.Wait()
		if len(s.polls) != 0 {
			t.Fatal("the call goes on without its client")
		}

		for range maxPolls {
			s.polls <- struct{}{}
		}
		if got := c.fails("INTERNAL_ERROR", "event.from", []string{"*"}, now, 1.0); !strings.Contains(got[0], "wait for events") {
			t.Error(got)
		}
	})
}

// piped returns a server over pipes in memory, not started, and what dials it.
func piped(h http.Handler) (s *httptest.Server, dial func(context.Context, string, string) (net.Conn, error)) {
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}, func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pipes is a listener for connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
