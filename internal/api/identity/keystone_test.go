package identity

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
)

// TestKeystone asks a Keystone about tokens; our own identity service plays its part, over HTTP.
func TestKeystone(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	w.user("ann", "pw", "member", "reader")
	token := w.login("ann", "pw", "ann")

	// Between the two a proxy that counts, and that can be cut.
	target := must[*url.URL](t)(url.Parse(w.url))
	target.Path = ""
	var asked atomic.Int32
	forward := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked.Add(1)
		}
		forward.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)

	now := time.Now()
	k := must[*Keystone](t)(NewKeystone(KeystoneOptions{URL: front.URL, Username: "admin", Password: adminPassword, ProjectName: "admin",
		Now: func() time.Time { return now }}))
	id, err := k.Validate(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(id.Roles)
	if id.UserName != "ann" || id.ProjectName != "ann" || id.UserDomainID != "default" || !slices.Equal(id.Roles, []string{"member", "reader"}) || id.Admin() {
		t.Errorf("identity %+v", id)
	}
	own, err := w.s.Validate(ctx, token)
	if err != nil || own.UserID != id.UserID || own.ProjectID != id.ProjectID {
		t.Errorf("asked directly %+v, through Keystone %+v, %v", own, id, err)
	}

	for range 5 {
		if again, err := k.Validate(ctx, token); err != nil || again != id {
			t.Fatalf("again: %v, %v", again, err)
		}
		if _, err := k.Validate(ctx, "nonsense"); !errors.Is(err, api.ErrUnauthorized) {
			t.Fatalf("nonsense: %v", err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("Keystone was asked %d times about two tokens", n)
	}

	// A revoked token dies within a minute; our own is renewed when Keystone no longer takes it.
	if a := w.call(token, "DELETE", "/auth/tokens", "", "X-Subject-Token", token); a.status != 204 {
		t.Fatal(a.body)
	}
	service := k.ownToken()
	if a := w.call(w.token, "DELETE", "/auth/tokens", "", "X-Subject-Token", service); a.status != 204 {
		t.Fatal(a.body)
	}
	now = now.Add(keystoneBelieved)
	if _, err := k.Validate(ctx, token); !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("revoked in Keystone a minute ago: %v", err)
	}
	if k.ownToken() == service {
		t.Error("the service's own token was not renewed")
	}

	// Keystone away: what it said a moment ago still holds, anything else cannot be known.
	known := w.login("ann", "pw", "ann")
	if _, err := k.Validate(ctx, known); err != nil {
		t.Fatal(err)
	}
	front.Close()
	if _, err := k.Validate(ctx, known); err != nil {
		t.Errorf("known a moment ago: %v", err)
	}
	if _, err := k.Validate(ctx, w.token); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("with Keystone away: %v", err)
	}
}

// TestKeystoneWithoutRights proves that a service user who may not ask makes tokens unknown, not
// bad.
func TestKeystoneWithoutRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("service", "pw", "member")
	for name, o := range map[string]KeystoneOptions{
		"not admin":      {URL: w.url + "/", Username: "service", Password: "pw", ProjectName: "service"},
		"wrong password": {URL: w.url, Username: "service", Password: "no", ProjectName: "service"},
	} {
		k := must[*Keystone](t)(NewKeystone(o))
		if _, err := k.Validate(t.Context(), w.token); !errors.Is(err, api.ErrUnavailable) || errors.Is(err, api.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []KeystoneOptions{{}, {URL: "ftp://x", Username: "u", Password: "p", ProjectName: "p"}, {URL: "http://x"}} {
		if _, err := NewKeystone(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestOtherAPIsThroughKeystone puts the validator where Neutron's API has it.
func TestOtherAPIsThroughKeystone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := must[*Keystone](t)(NewKeystone(KeystoneOptions{URL: w.url, Username: "admin", Password: adminPassword, ProjectName: "admin"}))
	server := must[*api.Server](t)(api.NewServer(api.Options{Name: "neutron", Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Handler: api.RequireToken(k, w.url, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			api.WriteJSON(rw, 200, api.Caller(r.Context()).Admin())
		}))}))
	apitest.Run(t, server)
	other := &world{t: t, url: "http://" + server.Addr().String()}
	if a := other.call(w.token, "GET", "/", ""); a.status != 200 || a.body != "true" {
		t.Errorf("admin: %d %s", a.status, a.body)
	}
	if a := other.call("nonsense", "GET", "/", ""); a.status != 401 || a.header.Get("WWW-Authenticate") != `Keystone uri="`+w.url+`"` {
		t.Errorf("nonsense: %d %v", a.status, a.header)
	}
}

func FuzzParseKeystone(f *testing.F) {
	f.Add([]byte(`{"token":{"expires_at":"2030-01-01T00:00:00.000000Z","user":{"id":"u","domain":{"id":"d"}},"roles":[{"name":"admin"}]}}`))
	f.Add([]byte(`{"token":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := parseKeystone(b); err == nil && (id.UserID == "" || id.Expires.IsZero()) {
			t.Errorf("%q was taken as a token: %+v", b, id)
		}
	})
}
