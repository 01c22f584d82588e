package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/wire"
)

// call is one that a server got.
type call struct {
	method string
	params []any
}

// server is a pool as a client sees it: it answers each call with what answer says.
type server struct {
	*httptest.Server
	answer func(c call) (any, *model.Error)

	mu    sync.Mutex
	calls []call
	paths []string
}

// newServer starts one. It logs everybody in, as OpaqueRef:session, and asks answer about all other
// calls.
func newServer(t *testing.T, answer func(c call) (any, *model.Error)) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a broken body is no call
	if r.URL.Path == "/jsonrpc" {
		c, err := wire.DecodeJSONCall(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		v, failure := s.take(r, call{c.Method, c.Params})
		w.Header().Set("Content-Type", "application/json")
		w.Write(wire.JSONReply(c, model.Type{}, v, failure))
		return
	}
	method, params, err := wire.DecodeXMLCall(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	v, failure := s.take(r, call{method, params})
	w.Header().Set("Content-Type", "text/xml")
	if raw, ok := v.(recorded); ok {
		io.WriteString(w, string(raw))
		return
	}
	w.Write(wire.XMLReply(model.Type{}, v, failure))
}

// recorded is a whole reply, byte for byte.
type recorded string

func (s *server) take(r *http.Request, c call) (any, *model.Error) {
	s.mu.Lock()
	s.calls, s.paths = append(s.calls, c), append(s.paths, r.URL.Path)
	s.mu.Unlock()
	if v, failure := s.answer(c); v != nil || failure != nil {
		return v, failure
	}
	switch c.method {
	case "session.login_with_password":
		return "OpaqueRef:session", nil
	case "session.logout":
		return "", nil
	}
	return nil, model.MessageMethodUnknown(c.method)
}

// count returns how often a call was made.
func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c.method == method {
			n++
		}
	}
	return n
}

// dial logs in at a server.
func dial(t *testing.T, s *server, o client.Options) *client.Session {
	t.Helper()
	if s.URL == "" {
		s.Start()
	}
	if o.URL == "" {
		o.URL = s.URL
	}
	o.User, o.Password = "root", "secret"
	session, err := client.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// listenBeside listens at another loopback address with the port of a server.
func listenBeside(t *testing.T, address string, s *server) net.Listener {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
