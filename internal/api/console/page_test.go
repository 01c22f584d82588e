package console

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/api"
	"heddle/internal/api/callertest"
)

// maxSize bounds the page, compressed.
const maxSize = 120 << 10

// TestSize holds the page's promise to be small.
func TestSize(t *testing.T) {
	size := 0
	err := fs.WalkDir(dist, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := dist.ReadFile(name)
		size += len(squeeze(raw))
		return err
	})
	if err != nil || size > maxSize {
		t.Errorf("the page has %d bytes compressed, %v: at most %d", size, err, maxSize)
	}
}

// TestDistIsBuilt: the committed page is what its sources give.
func TestDistIsBuilt(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node: run scripts/setup")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS("web/src")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"build", "package.json", "package-lock.json", "tsconfig.json"} {
		raw, err := os.ReadFile(filepath.Join("web", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("bash", filepath.Join(dir, "build")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built := os.DirFS(dir)
	names, err := fs.Glob(built, "dist/*")
	committed, err2 := fs.Glob(dist, distDir+"/*")
	if err != nil || err2 != nil || len(names) != len(committed) {
		t.Errorf("built %v, committed %v, %v, %v", names, committed, err, err2)
	}
	for _, name := range names {
		want, err := fs.ReadFile(built, name)
		if err != nil {
			t.Fatal(err)
		}
		if have, _ := dist.ReadFile("web/" + name); !bytes.Equal(have, want) {
			t.Errorf("%s is not what its sources give: make generate", name)
		}
	}
}

// accounts knows the tokens admin and member, each with its name as the password.
type accounts struct {
	callertest.Tokens
	revoked []string
}

func (a *accounts) LogIn(_ context.Context, l *api.Login) (string, error) {
	if a.Tokens[l.User] == nil || l.Password != l.User {
		return "", api.ErrUnauthorized
	}
	return l.User, nil
}

// Renew has the session of the token member go on with the token admin.
func (a *accounts) Renew(_ context.Context, token string) (string, error) {
	switch {
	case a.Tokens[token] == nil:
		return "", api.ErrUnauthorized
	case token == "member":
		return "admin", nil
	}
	return token, nil
}

func (a *accounts) Revoke(_ context.Context, token string) error {
	a.revoked = append(a.revoked, token)
	return nil
}

// site is a server with the console and calls of the operators' API, which answer with the caller.
type pageSite struct {
	*httptest.Server
	accounts *accounts
}

func newPageSite(t *testing.T) *pageSite {
	t.Helper()
	a := &accounts{Tokens: callertest.WithRoles("admin", "member")}
	open, guarded := http.NewServeMux(), http.NewServeMux()
	guarded.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		api.WriteJSON(w, http.StatusOK, api.Who(r.Context()).UserID)
	})
	RegisterPage(open, a)
	open.Handle("/", WithSession(api.RequireToken(a, "", guarded)))
	s := &pageSite{httptest.NewTLSServer(open), a}
	t.Cleanup(s.Close)
	return s
}

// call makes a call with the header of the page, unless it is plain, and a session's cookie, unless
// that is "".
func (s *pageSite) call(t *testing.T, method, path, cookie, body string, plain bool) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if !plain {
		req.Header.Set(guardHeader, "1")
	}
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: cookie})
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestPages: each page is served, with the headers that keep other pages and scripts out.
func TestPages(t *testing.T) {
	s := newPageSite(t)
	for _, path := range []string{"/", "/ask?from=a&to=b", "/hosts", "/ports/11111111-0000-4000-8000-000000000001", "/assets/app.js"} {
		res := s.call(t, http.MethodGet, path, "", "", true)
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if have := res.Header.Get(name); have != want {
				t.Errorf("%s: %s is %q, want %q", path, name, have, want)
			}
		}
	}
	if res := s.call(t, http.MethodGet, "/nope", "", "", true); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("what is no page: %s", res.Status)
	}
}

// TestSession: a browser logs in, calls, and logs out; its token is in a cookie alone.
func TestSession(t *testing.T) {
	s := newPageSite(t)
	for _, wrong := range []string{`{"user": "admin", "password": "wrong"}`, `{"user": "nope", "password": "nope"}`} {
		if res := s.call(t, http.MethodPost, "/v1/session", "", wrong, false); res.StatusCode != http.StatusUnauthorized || len(res.Cookies()) > 0 {
			t.Errorf("%s: %s, %v", wrong, res.Status, res.Cookies())
		}
	}
	res := s.call(t, http.MethodPost, "/v1/session", "", `{"user": "admin", "password": "admin"}`, false)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("log-in: %s", res.Status)
	}
	c := res.Cookies()[0]
	if c.Value != "admin" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 3600 {
		t.Errorf("cookie %+v", c)
	}
	if res := s.call(t, http.MethodGet, "/v1/session", "admin", "", false); res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("while it is used: %s, %v", res.Status, res.Cookies())
	}
	if res := s.call(t, http.MethodGet, "/v1/session", "member", "", false); res.StatusCode != http.StatusOK || res.Cookies()[0].Value != "admin" {
		t.Errorf("with a token that is renewed: %s, %v", res.Status, res.Cookies())
	}
	res = s.call(t, http.MethodDelete, "/v1/session", "admin", "", false)
	if c := res.Cookies(); res.StatusCode != http.StatusNoContent || len(c) != 1 || c[0].MaxAge != -1 || len(s.accounts.revoked) != 1 {
		t.Errorf("log-out: %s, %+v, revoked %v", res.Status, c, s.accounts.revoked)
	}
	if res := s.call(t, http.MethodGet, "/v1/session", "gone", "", false); res.StatusCode != http.StatusUnauthorized || res.Cookies()[0].MaxAge != -1 {
		t.Errorf("with a token that has ended: %s, %+v", res.Status, res.Cookies())
	}
}

// TestSessionsCallWhatThePageShows: a cookie is good for the page's own calls, and for those that
// ask by POST only together with the header that the page sends.
func TestSessionsCallWhatThePageShows(t *testing.T) {
	s := newPageSite(t)
	for _, c := range []struct {
		method, path string
		plain        bool
		status       int
	}{
		{http.MethodGet, "/v1/health", true, http.StatusOK},
		{http.MethodGet, "/v1/hosts/h1", true, http.StatusOK},
		{http.MethodPost, "/v1/why", false, http.StatusOK},
		{http.MethodPost, "/v1/why", true, http.StatusForbidden},
		{http.MethodDelete, "/v1/hosts/h1", false, http.StatusUnauthorized},
		{http.MethodPost, "/v1/hosts", false, http.StatusUnauthorized},
		{http.MethodPost, "/v1/join-tokens", false, http.StatusUnauthorized},
		{http.MethodGet, "/v1/join-tokens", false, http.StatusUnauthorized},
		{http.MethodGet, "/v1/authority", false, http.StatusUnauthorized},
		{http.MethodPost, "/v1/session", true, http.StatusForbidden},
		{http.MethodDelete, "/v1/session", true, http.StatusForbidden},
	} {
		if res := s.call(t, c.method, c.path, "admin", "{}", c.plain); res.StatusCode != c.status {
			t.Errorf("%s %s, plain %v: %s, want %d", c.method, c.path, c.plain, res.Status, c.status)
		}
	}
}

// TestLogInWantsHTTPS: a password is not taken where others can read it on the way.
func TestLogInWantsHTTPS(t *testing.T) {
	a := &accounts{Tokens: callertest.WithRoles("admin")}
	s := &sessions{a}
	for url, taken := range map[string]bool{
		"https://heddle.example:9698/v1/session": true, "http://127.0.0.1:9698/v1/session": true, "http://localhost:9698/v1/session": true,
		"http://192.0.2.1:9698/v1/session": false, "http://heddle.example/v1/session": false,
	} {
		err := s.logIn(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, url, strings.NewReader(`{"user": "admin", "password": "admin"}`)))
		var refused *api.Error
		if taken != (err == nil) || !taken && (!errors.As(err, &refused) || refused.Status != http.StatusForbidden) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
