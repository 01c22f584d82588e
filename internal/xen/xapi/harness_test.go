package xapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/wire"
)

// started starts a server of a pool in the store; it ends with the test.
func started(t testing.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return s
}

// clientOf is a session of a client at a server, over XML-RPC or JSON-RPC.
type clientOf struct {
	t       testing.TB
	url     string
	json    bool
	session string
	http    *http.Client // nil: the default one
}

// served starts a server and logs root in, over XML-RPC.
func served(t testing.TB) (*Server, *clientOf) {
	t.Helper()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	file := filepath.Join(t.TempDir(), "root")
	s := started(t, Options{Store: st, RootPasswordFile: file})
	password, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s, connect(t, s, RootAccount, strings.TrimSpace(string(password)))
}

// connect serves a server and logs in.
func connect(t testing.TB, s *Server, name, password string) *clientOf {
	t.Helper()
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	c := &clientOf{t: t, url: h.URL}
	c.session = c.must("session.login_with_password", name, password).(string)
	return c
}

// call makes a call and returns the raw value, or the failure.
func (c *clientOf) call(method string, args ...any) (any, error) {
	if !strings.HasPrefix(method, "session.login") && !strings.HasPrefix(method, "system.") {
		args = append([]any{c.session}, args...)
	}
	path, contentType, body := "/RPC2", "text/xml", wire.EncodeXMLCall(method, args...)
	if c.json {
		path, contentType, body = "/jsonrpc", "application/json", wire.EncodeJSONCall(method, args...)
	}
	status, got, reply := c.post(path, contentType, body)
	if status != http.StatusOK || got != contentType {
		c.t.Fatalf("%s: HTTP %d, %s: %s", method, status, got, reply)
	}
	if c.json {
		return wire.DecodeJSONReply(reply)
	}
	return wire.DecodeXMLReply(reply)
}

func (c *clientOf) post(path, contentType string, body []byte) (status int, got string, reply []byte) {
	c.t.Helper()
	at := c.http
	if at == nil {
		at = http.DefaultClient
	}
	res, err := at.Post(c.url+path, contentType, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	reply, err = io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), reply
}

func (c *clientOf) must(method string, args ...any) any {
	c.t.Helper()
	v, err := c.call(method, args...)
	if err != nil {
		c.t.Fatalf("%s %v: %v", method, args, err)
	}
	return v
}

// fails makes a call that is to fail with a code, and returns the error's parameters.
func (c *clientOf) fails(code, method string, args ...any) []string {
	c.t.Helper()
	v, err := c.call(method, args...)
	failure := (*model.Error)(nil)
	if !errors.As(err, &failure) || failure.Code != code {
		c.t.Fatalf("%s %v: got %v, %v; want %s", method, args, v, err, code)
	}
	return failure.Params
}

// records are a class's, by reference.
func (c *clientOf) records(class string) map[string]any {
	return c.must(class + ".get_all_records").(map[string]any)
}

// batch is an answer of event.from.
type batch struct {
	events []map[string]any
	token  string
	counts map[string]any
}

func (c *clientOf) from(token string, timeout time.Duration, classes ...string) batch {
	c.t.Helper()
	raw := c.must("event.from", classes, token, timeout.Seconds()).(map[string]any)
	b := batch{token: raw["token"].(string), counts: raw["valid_ref_counts"].(map[string]any)}
	for _, e := range raw["events"].([]any) {
		b.events = append(b.events, e.(map[string]any))
	}
	return b
}

// made puts objects in the store and returns the first one's reference.
func made(t testing.TB, s *Server, all ...*objects.Object) string {
	t.Helper()
	err := s.update(t.Context(), func(tx *records.Tx) error {
		for _, o := range all {
			if err := put(tx, o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all[0].Ref
}

// eventually waits for something that a server does by itself.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for !f() {
		select {
		case <-limit:
			t.Fatalf("not within 10 s: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// token is that of a revision in the first history.
func token(rev int64) string { return position{rev: rev}.token() }
