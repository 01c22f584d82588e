package octaviav2_test

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
	"heddle/internal/api/octaviav2"
	"heddle/internal/control"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// Projects of the callers, in the form of Keystone's.
const (
	memberProject = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
	otherProject  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"
	adminProject  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa3"
)

// tokens are valid: the API asks only whose they are.
var tokens = callertest.Tokens{
	"member":   {UserID: "u1", ProjectID: memberProject, Roles: []string{"member", "reader"}},
	"reader":   {UserID: "u4", ProjectID: memberProject, Roles: []string{"reader", "load-balancer_observer"}},
	"lbmember": {UserID: "u5", ProjectID: memberProject, Roles: []string{"reader", "load-balancer_member"}},
	"observer": {UserID: "u6", ProjectID: adminProject, Roles: []string{"reader", "load-balancer_global_observer"}},
	"other":    {UserID: "u2", ProjectID: otherProject, Roles: []string{"member", "reader"}},
	"admin":    {UserID: "u3", ProjectID: adminProject, Roles: []string{"admin", "member", "reader"}},
}

// server is Octavia's and Neutron's API over the real operations and a store in memory.
type server struct {
	url, network string
	http         *http.Client // of its own: servers that end close idle connections of the default one
	db           *records.DB
	ops          *control.Service
}

func newServer(t testing.TB) *server {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	t.Cleanup(func() { _ = st.Close() })
	apitest.Run(t, rep)
	db := records.NewDB(st, rep)
	ops, err := control.New(db, control.Options{Ordered: true})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := &server{db: db, ops: ops}
	serve := func(name string, h http.Handler, refuse func(http.ResponseWriter, *http.Request, *api.Error)) string {
		srv, err := api.NewServer(api.Options{Name: name, Listen: "127.0.0.1:0", Log: log, MaxBody: octaviav2.MaxBody, Refuse: refuse, Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		running := httptest.NewServer(srv.Handler())
		t.Cleanup(running.Close)
		s.http = running.Client()
		return running.URL
	}
	s.network = serve("network", neutronv2.New(neutronv2.Options{Operations: ops, Tokens: tokens, IdentityURL: "http://identity/v3", Log: log}), neutronv2.Refuse)
	s.url = serve("load-balancer", octaviav2.New(octaviav2.Options{
		Operations: ops, Tokens: tokens, IdentityURL: "http://identity/v3", ProviderAliases: []string{"amphora"}, Log: log,
	}), octaviav2.Refuse)
	return s
}

// answer is the answer to a request.
type answer struct {
	status int
	body   []byte
}

func (a answer) doc() any {
	var doc any
	_ = json.Unmarshal(a.body, &doc) // an answer need not be JSON
	return doc
}

// one returns the object that is answered.
func (a answer) one() map[string]any {
	doc, _ := a.doc().(map[string]any)
	for _, o := range doc {
		m, _ := o.(map[string]any)
		return m
	}
	return nil
}

// id returns the id of the object that is answered.
func (a answer) id() string { s, _ := a.one()["id"].(string); return s }

// do sends a request with a caller's token. Paths are below /v2/lbaas, unless they start with "!"
// or are Neutron's, "network:…".
func (s *server) do(t testing.TB, who, method, path, body string, header map[string]string) answer {
	t.Helper()
	url := s.url + "/v2/lbaas" + path
	if p, ok := strings.CutPrefix(path, "!"); ok {
		url = s.url + p
	} else if p, ok := strings.CutPrefix(path, "network:"); ok {
		url = s.network + "/v2.0" + p
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
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
	return answer{res.StatusCode, b}
}

// must is do where the status is known.
func (s *server) must(t testing.TB, status int, who, method, path, body string) answer {
	t.Helper()
	a := s.do(t, who, method, path, body, nil)
	if a.status != status {
		t.Fatalf("%s %s %s as %s: %d %s, want %d", method, path, body, who, a.status, a.body, status)
	}
	return a
}

// subnet makes a network of the member's with a subnet, and returns their ids.
func (s *server) subnet(t testing.TB, cidr string) (network, subnet string) {
	t.Helper()
	network = s.must(t, http.StatusCreated, "member", http.MethodPost, "network:/networks", `{"network":{}}`).id()
	subnet = s.must(t, http.StatusCreated, "member", http.MethodPost, "network:/subnets",
		`{"subnet":{"network_id":"`+network+`","ip_version":4,"cidr":"`+cidr+`"}}`).id()
	return network, subnet
}
