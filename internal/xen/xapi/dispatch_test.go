package xapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/wire"
)

// TestHandlers: each message of the model is carried out by somebody, and nothing else is.
func TestHandlers(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	s := New(Options{Store: st})
	for name, c := range model.Calls() {
		message := c.Verb == model.Do || c.Verb == model.Create
		if message && s.handlers[name] == nil {
			t.Errorf("nobody carries out %s", name)
		}
	}
	for name := range s.handlers {
		if model.Calls()[name] == nil {
			t.Errorf("%s is no call of the model", name)
		}
	}
}

// TestEveryReading: each call that only reads answers for an object of its class, as the model
// types it, by both transports.
func TestEveryReading(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	for _, class := range model.Classes() {
		self := c.session
		if objects.Table(class.Name) != nil {
			o := newObject(class.Name, nil)
			for _, f := range class.Fields { // what must be unique, and not taken by another's default
				if f.Far == nil && f.Type.Kind == model.String && f.Name != "uuid" {
					o.Fields[f.Name] = "x"
				}
			}
			self = made(t, s, o)
		}
		for name, call := range model.Calls() {
			var args []any
			switch {
			case call.Class != class:
				continue
			case call.Verb == model.GetAll, call.Verb == model.GetAllRecords:
			case call.Verb == model.GetAllRecordsWhere:
				args = []any{"true"}
			case call.Verb == model.GetByNameLabel:
				args = []any{"x"}
			case call.Verb == model.GetRecord, call.Verb == model.GetField:
				args = []any{self}
			default:
				continue
			}
			for _, json := range []bool{false, true} {
				c := *c
				c.json = json
				raw := c.must(name, args...)
				if _, err := wire.Coerce(call.Result, raw); err != nil && call.Result.Kind != model.RecordOf {
					t.Errorf("%s answers %v: %v", name, raw, err)
				}
			}
		}
	}
}

// TestStoreAway: while the store is away what is known is still answered, and what would change it
// says why it does not.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	_, network, _, _, _ := aPool(t, s)
	if err := s.opts.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.must("network.get_name_label", network.Ref); got != "n1" {
		t.Error(got)
	}
	c.fails("HANDLE_INVALID", "network.get_name_label", "OpaqueRef:x")
	for _, call := range [][]any{{"network.set_name_label", network.Ref, "x"}, {"Async.network.destroy", network.Ref}, {"task.create", "x", ""}, {"session.login_with_password", "root", "x"}} {
		if got := c.fails("INTERNAL_ERROR", call[0].(string), call[1:]...); !strings.Contains(got[0], "the store cannot be reached") {
			t.Errorf("%s: %v", call[0], got)
		}
	}
}

// FuzzHandler: whatever bytes come in, the answer is a whole one, and nothing is changed by who has
// not logged in.
func FuzzHandler(f *testing.F) {
	for _, seed := range []string{
		xmlCall("session.login_with_password", "root", "x"), xmlCall("system.listMethods"), xmlCall("event.from", "s", []string{"*"}, "", 0.0),
		xmlCall("session.logout", "SESSION"), xmlCall("Async.tunnel.create", "SESSION", "a", "b"), xmlCall("PIF.get_all_records_where", "SESSION", `field "device"="x"`),
		xmlCall("network.create", "SESSION", map[string]any{"name_label": "x", "MTU": "1500"}), xmlCall("network.add_to_other_config", "SESSION", "OpaqueRef:x", "k", "v"),
		xmlCall("event.from", "SESSION", []string{"network", "PIF/OpaqueRef:1"}, token(1), 0.0), xmlCall("pool.set_tags", "SESSION", "x", []string{"a"}),
		`{"jsonrpc":"2.0","method":"pool.get_all","params":["SESSION"],"id":1}`, `{"method":"session.get_record","params":["SESSION","SESSION"],"id":"x"}`,
		`{"method":"system.isAlive:","params":[],"id":0}`, "", "{", "<", "\xff", "<methodCall/>", strings.Repeat("[", 100),
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	st := store.NewMemory()
	f.Cleanup(func() { st.Close() })
	s := started(f, Options{Store: st})
	withAccounts(f, s, func(ctx context.Context, a *Accounts) error { return a.Add(ctx, "ada", "x", model.PoolAdmin) })
	admin, _ := accounts.Peek(s.now(), "ada")
	// Nothing happens by itself at the server that strangers ask.
	quietly := store.NewMemory()
	f.Cleanup(func() { quietly.Close() })
	quiet := started(f, Options{Store: quietly})
	f.Fuzz(func(t *testing.T, body string, loggedIn bool) {
		at, before := quiet, quiet.now().Revision()
		if loggedIn {
			at = s
			body = strings.ReplaceAll(body, "SESSION", s.sessions.begin(s, admin, "").ref)
		}
		for _, path := range []string{"/", "/jsonrpc"} {
			w := httptest.NewRecorder()
			// A client that leaves at once: calls that wait for events do not hold up the search.
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			at.Handler().ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodPost, path, bytes.NewReader([]byte(body))))
			if err := whole(path, w); err != nil {
				t.Fatalf("%s: %q: %v", path, body, err)
			}
		}
		if after := quiet.now().Revision(); after != before {
			t.Fatalf("%q changed something", body)
		}
	})
}

// whole returns an error if an answer as such is wrong.
func whole(path string, w *httptest.ResponseRecorder) error {
	switch {
	case w.Code == http.StatusInternalServerError:
		return nil
	case w.Code != http.StatusOK:
		return fmt.Errorf("HTTP %d", w.Code)
	}
	var err error
	if path == "/jsonrpc" {
		_, err = wire.DecodeJSONReply(w.Body.Bytes())
	} else {
		_, err = wire.DecodeXMLReply(w.Body.Bytes())
	}
	if bad := (*wire.SyntaxError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", w.Body, err)
	}
	return nil
}
