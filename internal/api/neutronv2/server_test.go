package neutronv2_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/callertest"
	"heddle/internal/api/neutronv2"
	"heddle/internal/control"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Projects of the callers, in the form of Keystone's.
const (
	memberProject = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
	otherProject  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"
	adminProject  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa3"
)

// tokens are valid: the API asks only whose they are.
var tokens = callertest.Tokens{
	"member":  {UserID: "u1", ProjectID: memberProject, Roles: []string{"member", "reader"}},
	"reader":  {UserID: "u4", ProjectID: memberProject, Roles: []string{"reader"}},
	"none":    {UserID: "u5", ProjectID: memberProject},
	"service": {UserID: "u6", ProjectID: memberProject, Roles: []string{"member", "reader", "advsvc"}},
	"other":   {UserID: "u2", ProjectID: otherProject, Roles: []string{"member", "reader"}},
	"admin":   {UserID: "u3", ProjectID: adminProject, Roles: []string{"admin", "member", "reader"}},
}

// server is the API over the real operations and a store in memory, with one live host.
type server struct {
	url  string
	http *http.Client // of its own: servers that end close idle connections of the default one
	db   *records.DB
	st   *store.Memory
}

func newServer(t testing.TB, opts control.Options) *server {
	t.Helper()
	return newServerOf(t, opts, neutronv2.New)
}

// newServerOf is newServer with another set of resources.
func newServerOf(t testing.TB, opts control.Options, handler func(neutronv2.Options) http.Handler) *server {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	t.Cleanup(func() { _ = st.Close() })
	apitest.Run(t, rep)
	db := records.NewDB(st, rep)
	ops, err := control.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.NewServer(api.Options{Name: "network", Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), MaxBody: 4 << 20, Refuse: neutronv2.Refuse, Audited: true,
		Handler: handler(neutronv2.Options{Operations: ops, Tokens: tokens, IdentityURL: "http://identity/v3", DNSDomain: "example.org", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h.Handler())
	t.Cleanup(s.Close)
	return &server{url: s.URL, http: s.Client(), db: db, st: st}
}

// addHost registers a host that is alive.
func (s *server) addHost(t testing.TB, id, name string) {
	t.Helper()
	_, err := s.db.Update(t.Context(), func(tx *records.Tx) error {
		if err := schema.Hosts.Put(tx, &topology.Host{ID: id, Name: name}); err != nil {
			return err
		}
		return schema.HostStates.Put(tx, &topology.HostState{HostID: id, Name: name})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// carry has a host report a physical network.
func (s *server) carry(t testing.TB, id, network string) {
	t.Helper()
	u := &topology.HostUnderlay{HostID: id, PhysicalNetworks: map[string]string{network: "eth1"}}
	if _, err := s.db.Update(t.Context(), func(tx *records.Tx) error { return schema.Underlays.Put(tx, u) }); err != nil {
		t.Fatal(err)
	}
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) doc() map[string]any {
	var doc map[string]any
	_ = json.Unmarshal(a.body, &doc) // an answer need not be JSON
	return doc
}

// do sends a request with a caller's token; path starts below /v2.0 unless it starts with "!".
func (s *server) do(t testing.TB, who, method, path string, body any, header map[string]string) answer {
	t.Helper()
	var raw []byte
	switch body := body.(type) {
	case nil:
	case []byte:
		raw = body
	case string:
		raw = []byte(body)
	default:
		var err error
		if raw, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	if p, root := strings.CutPrefix(path, "!"); root {
		path = p
	} else {
		path = "/v2.0" + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if who != "" {
		r.Header.Set(api.TokenHeader, who)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	res, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, b}
}

// must is do where the status is known.
func (s *server) must(t testing.TB, status int, who, method, path string, body any) answer {
	t.Helper()
	a := s.do(t, who, method, path, body, nil)
	if a.status != status {
		t.Fatalf("%s %s %s as %s: %d %s, want %d", method, path, body, who, a.status, a.body, status)
	}
	return a
}

// create makes one object and returns it.
func (s *server) create(t testing.TB, who, collection, body string) map[string]any {
	t.Helper()
	for _, o := range s.must(t, http.StatusCreated, who, http.MethodPost, "/"+collection, body).doc() {
		return o.(map[string]any)
	}
	t.Fatal("no object")
	return nil
}
