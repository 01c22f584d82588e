package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/store"
)

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, o api.Options) (*api.Server, string) {
	t.Helper()
	o.Name, o.Listen, o.Log = "test", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	s, err := api.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	apitest.Run(t, s)
	return s, s.Addr().String()
}

// tokens is a validator that knows one token of each sort of outcome.
type tokens struct{}

func (tokens) Validate(_ context.Context, token string) (*api.Identity, error) {
	switch token {
	case "good":
		return &api.Identity{UserID: "u", ProjectID: "p", Roles: []string{"member"}}, nil
	case "down":
		return nil, fmt.Errorf("ask keystone: %w", api.ErrUnavailable)
	}
	return nil, api.ErrUnauthorized
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, r *http.Request) {
		c := api.Caller(r.Context())
		api.WriteJSON(w, 200, map[string]any{"user": c.UserID, "project": c.ProjectID, "roles": c.Roles,
			"base": api.BaseURL(r), "client": api.ClientAddr(r.Context())})
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		var v struct {
			N int `json:"n"`
		}
		if err := api.ReadJSON(r, &v); err != nil {
			api.WriteError(w, r, err)
			return
		}
		api.WriteJSON(w, 201, v)
	})
	mux.HandleFunc("GET /secret", func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, r, errors.New("row 7 of /heddle/users is broken"))
	})
	mux.HandleFunc("GET /away", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithDeadline(r.Context(), time.Unix(0, 0))
		defer cancel()
		api.WriteError(w, r.WithContext(ctx), fmt.Errorf("revision: %w: %w", store.ErrUnavailable, ctx.Err()))
	})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("ours") })
	mux.HandleFunc("GET /busy", func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, r, &api.Error{Status: 429, Message: "slow down", RetryAfter: 1500 * time.Millisecond})
	})
	return api.RequireToken(tokens{}, "http://id.example:5000", api.Routes(mux, api.NoRoute))
}

const body401 = `{"error":{"code":401,"title":"Unauthorized","message":"The request you have made requires authentication."}}`

func TestAnswers(t *testing.T) {
	t.Parallel()
	s, err := api.NewServer(api.Options{Name: "test", Listen: "127.0.0.1:0", Handler: handler(), Log: slog.New(slog.DiscardHandler), Proxy: true, MaxBody: 32})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, request, token, body string
		header                     map[string]string
		status                     int
		want                       string
		wantHeader                 [2]string
	}{
		{name: "no token", request: "GET /whoami", status: 401, want: body401,
			wantHeader: [2]string{"Www-Authenticate", `Keystone uri="http://id.example:5000"`}},
		{name: "bad token", request: "GET /whoami", token: "bad", status: 401, want: body401},
		{name: "identity away", request: "GET /whoami", token: "down", status: 503,
			want: `{"error":{"code":503,"title":"Service Unavailable","message":"The server cannot do this at present: its store, or Keystone, does not answer in time. Nothing is wrong with the request; try again."}}`},
		{name: "known", request: "GET /whoami", token: "good", status: 200,
			want: `{"base":"http://example.com","client":"192.0.2.1","project":"p","roles":["member"],"user":"u"}`},
		{name: "behind a proxy", request: "GET /whoami", token: "good", status: 200,
			header: map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil, api.example", "X-Forwarded-Prefix": "/network/", "X-Forwarded-For": "10.0.0.1, 198.51.100.7"},
			want:   `{"base":"https://api.example/network","client":"198.51.100.7","project":"p","roles":["member"],"user":"u"}`},
		{name: "body", request: "POST /echo", token: "good", body: `{"n":1}`, status: 201, want: `{"n":1}`},
		{name: "wrong kind", request: "POST /echo", token: "good", body: `{"n":"x"}`, status: 400,
			want: `{"error":{"code":400,"title":"Bad Request","message":"Invalid input for field 'n': a JSON string is not what belongs there."}}`},
		{name: "list", request: "POST /echo", token: "good", body: `[]`, status: 400,
			want: `{"error":{"code":400,"title":"Bad Request","message":"The request body is not the JSON this call takes: it is a JSON array."}}`},
		{name: "two values", request: "POST /echo", token: "good", body: `{"n":1}{}`, status: 400,
			want: `{"error":{"code":400,"title":"Bad Request","message":"The request body is not the JSON this call takes: invalid character '{' after top-level value"}}`},
		{name: "too large", request: "POST /echo", token: "good", body: `{"n":1,"x":"` + strings.Repeat("x", 40) + `"}`, status: 413,
			want: `{"error":{"code":413,"title":"Request Entity Too Large","message":"Request is too large: the body may have 32 bytes."}}`},
		{name: "hidden", request: "GET /secret", token: "good", status: 500,
			want: `{"error":{"code":500,"title":"Internal Server Error","message":"An unexpected error prevented the server from fulfilling your request."}}`},
		{name: "store away", request: "GET /away", token: "good", status: 503,
			want: `{"error":{"code":503,"title":"Service Unavailable","message":"The server cannot do this at present: it does not reach its store (etcd). Nothing is wrong with the request; try again."}}`},
		{name: "panic", request: "GET /panic", token: "good", status: 500,
			want: `{"error":{"code":500,"title":"Internal Server Error","message":"An unexpected error prevented the server from fulfilling your request."}}`},
		{name: "busy", request: "GET /busy", token: "good", status: 429, wantHeader: [2]string{"Retry-After", "2"},
			want: `{"error":{"code":429,"title":"Too Many Requests","message":"slow down"}}`},
		{name: "query cut short", request: "GET /whoami?name=x;y", token: "good", status: 400,
			want: `{"error":{"code":400,"title":"Bad Request","message":"Invalid query string: \"name=x;y\" is not of the form name=value. Write ';' as %3B, '%' as %25 and '\u0026' as %26."}}`},
		{name: "query with a broken escape", request: "GET /whoami?a=1&name=%zz", token: "good", status: 400,
			want: `{"error":{"code":400,"title":"Bad Request","message":"Invalid query string: \"name=%zz\" is not of the form name=value. Write ';' as %3B, '%' as %25 and '\u0026' as %26."}}`},
		{name: "query escaped", request: "GET /whoami?name=x%3By&&flag", token: "good", status: 200,
			want: `{"base":"http://example.com","client":"192.0.2.1","project":"p","roles":["member"],"user":"u"}`},
		{name: "no route", request: "GET /nowhere", token: "good", status: 404,
			want: `{"error":{"code":404,"title":"Not Found","message":"The resource could not be found."}}`},
		{name: "empty segment", request: "POST //echo", token: "good", body: `{"n":1}`, status: 404,
			want: `{"error":{"code":404,"title":"Not Found","message":"The resource could not be found."}}`},
		{name: "segment of dots", request: "GET /nowhere/../whoami", token: "good", status: 404,
			want: `{"error":{"code":404,"title":"Not Found","message":"The resource could not be found."}}`},
		{name: "wrong method", request: "PUT /echo", token: "good", status: 405, wantHeader: [2]string{"Allow", "POST"},
			want: `{"error":{"code":405,"title":"Method Not Allowed","message":"The method is not allowed for the requested URL."}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			method, path, _ := strings.Cut(c.request, " ")
			r := httptest.NewRequest(method, path, strings.NewReader(c.body))
			r.Header.Set(api.TokenHeader, c.token)
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.status || w.Body.String() != c.want {
				t.Errorf("%s answered %d %s\nwant %d %s", c.request, w.Code, w.Body, c.status, c.want)
			}
			if k := c.wantHeader[0]; k != "" && w.Header().Get(k) != c.wantHeader[1] {
				t.Errorf("%s is %q, want %q", k, w.Header().Get(k), c.wantHeader[1])
			}
			if id := w.Header().Get("x-openstack-request-id"); !regexp.MustCompile(`^req-[0-9a-f-]{36}$`).MatchString(id) {
				t.Errorf("request id is %q", id)
			}
		})
	}
}

func TestForwardedHeadersAreNotBelievedUnasked(t *testing.T) {
	t.Parallel()
	s, err := api.NewServer(api.Options{Name: "test", Listen: "localhost:0", Handler: handler(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/whoami", nil)
	r.Header.Set(api.TokenHeader, "good")
	r.Header.Set("X-Forwarded-Host", "evil.example")
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if got := w.Body.String(); strings.Contains(got, "evil") || !strings.Contains(got, `"client":"192.0.2.1"`) {
		t.Errorf("answer built from forwarded headers: %s", got)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	_, addr := serve(t, api.Options{Handler: handler(), Observe: func(name, method, code string, took time.Duration) {
		seen <- name + " " + method + " " + code
	}})
	req, _ := http.NewRequest("BREW", "http://"+addr+"/whoami", nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got := <-seen; got != "test other 401" {
		t.Errorf("observed %q", got)
	}
}

// TestEndsInOrder proves that a request under way when the server is told to stop is still
// answered.
func TestEndsInOrder(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	s, err := api.NewServer(api.Options{Name: "test", Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(inside)
			<-release
			api.WriteJSON(w, 200, "done")
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	answer := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + s.Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answer <- string(b)
	}()
	<-inside
	cancel()
	close(release)
	if got := <-answer; got != `"done"` {
		t.Errorf("the request under way was answered %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

func TestPlainHTTPOnlyOnLoopback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen string
		allow  bool
		ok     bool
	}{
		{"127.0.0.1:5000", false, true}, {"[::1]:5000", false, true}, {"localhost:5000", false, true},
		{":5000", false, false}, {"0.0.0.0:5000", false, false}, {"192.0.2.1:5000", false, false}, {"host.example:1", false, false},
		{":5000", true, true},
	} {
		_, err := api.NewServer(api.Options{Name: "test", Listen: c.listen, AllowPlain: c.allow})
		if (err == nil) != c.ok {
			t.Errorf("listen %s, plain allowed %v: %v", c.listen, c.allow, err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	der := apitest.SelfSigned(t, certFile, keyFile, 1)
	s, addr := serve(t, api.Options{Handler: handler(), CertFile: certFile, KeyFile: keyFile})
	if s.Fingerprint() != api.Fingerprint(der) {
		t.Errorf("fingerprint %s, want %s", s.Fingerprint(), api.Fingerprint(der))
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequest("GET", "https://"+addr+"/whoami", nil)
	req.Header.Set(api.TokenHeader, "good")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct{ Base string }
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || got.Base != "https://"+addr {
		t.Errorf("base URL %q, %v", got.Base, err)
	}
	if _, err := api.NewServer(api.Options{Name: "test", CertFile: certFile}); err == nil {
		t.Error("a certificate without a key was taken")
	}
}
