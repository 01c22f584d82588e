package identity

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/credentials"
	"heddle/internal/store"
)

// FuzzRequests sends arbitrary bodies, paths and queries to every call, as administrator: whatever
// comes is answered as the client's mistake or done, never with 500, and every answer of an error
// is one that clients can read.
func FuzzRequests(f *testing.F) {
	st := store.NewMemory()
	s := New(Options{Store: st})
	s.passwords.hashes = credentials.NewPasswords(cheap())
	f.Cleanup(func() { _ = st.Close() })
	apitest.Run(f, s)
	ctx, dir := context.Background(), f.TempDir()
	if err := s.Bootstrap(ctx, BootstrapOptions{Password: adminPassword, Dir: dir}); err != nil {
		f.Fatal(err)
	}
	server, err := api.NewServer(api.Options{Name: "identity", Listen: "127.0.0.1:0", Handler: s.Handler(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler()
	send := func(method, path, body, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Method = method
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
		r.Header.Set(api.TokenHeader, token)
		r.Header.Set(subjectTokenHeader, token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(ctx))
		return w
	}
	login := func() string {
		s.passwords.throttle = credentials.NewThrottle(s.opts.Now)
		w := send("POST", "/v3/auth/tokens", passwordAuth("admin", adminPassword, projectScope("admin")), "")
		return w.Header().Get(subjectTokenHeader)
	}
	token := login()
	if token == "" {
		f.Fatal("cannot log in")
	}
	for _, r := range s.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		f.Add(method, path, `{"user":{"name":"x","password":"p","enabled":false,"default_project_id":null}}`)
	}
	f.Add("POST", "/v3/auth/tokens", passwordAuth("admin", "x", projectScope("admin")))
	f.Add("POST", "/v3/auth/tokens", `{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"name":"x","user":{"name":"u"}}}}}`)
	f.Add("POST", "/v3/auth/tokens", `{"auth":{"identity":{"methods":["token"],"token":{"id":"x"}},"scope":{"OS-TRUST:trust":{"id":"x"}}}}`)
	f.Add("POST", "/v3/projects", `{"project":{"name":"\u0000","tags":["a,b"],"x":{"y":[1e999]}}}`)
	f.Add("PATCH", "/v3/domains/default", `{"domain":{"enabled":null,"name":" "}}`)
	f.Add("GET", "/v3/projects?name__icontains=a&enabled=maybe&tags=a,,b", "")
	f.Add("GET", "/v3/role_assignments?include_names=1&user.id=%zz", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if !strings.HasPrefix(path, "/") {
			return
		}
		w := send(method, path, body, token)
		if w.Code >= 500 {
			t.Errorf("%s %q %q answered %d %s", method, path, body, w.Code, w.Body)
		}
		if w.Code == 401 {
			// The request ended the session, or the administrator's career, as it may.
			if err := s.Bootstrap(ctx, BootstrapOptions{Password: adminPassword, Dir: dir}); err != nil {
				t.Fatal(err)
			}
			token = login()
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	st := store.NewMemory()
	b.Cleanup(func() { _ = st.Close() })
	s := New(Options{Store: st})
	s.passwords.hashes = credentials.NewPasswords(cheap())
	apitest.Run(b, s)
	ctx := b.Context()
	if err := s.Bootstrap(ctx, BootstrapOptions{Password: adminPassword, Dir: b.TempDir()}); err != nil {
		b.Fatal(err)
	}
	snap, err := s.directory.view(ctx)
	if err != nil {
		b.Fatal(err)
	}
	user := first(s.directory.users, snap, "name", inDomain(DefaultDomainID, adminName))
	t := &Token{UserID: user.ID, ProjectID: user.DefaultProjectID, ExpiresAt: s.opts.Now().Add(s.opts.TokenLife),
		Roles: s.directory.grants(snap, user.ID, target{projectID: user.DefaultProjectID})}
	token, _, err := s.tokens.issue(ctx, snap, t)
	if err != nil {
		b.Fatal(err)
	}
	validate := func(b *testing.B) {
		if _, err := s.Validate(ctx, token); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			validate(b)
		}
	})
	b.Run("after a change", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.tokens.forget()
			validate(b)
		}
	})
}
