package identity

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.call("", "POST", "/auth/tokens", passwordAuth("admin", adminPassword, projectScope("admin")))
	token := a.header.Get("X-Subject-Token")
	for path, want := range map[string]string{
		"token.methods.0": "password", "token.user.name": "admin", "token.user.domain.id": "default", "token.user.domain.name": "Default",
		"token.project.name": "admin", "token.project.domain.name": "Default", "token.roles.2.name": "reader", "token.roles.0.name": "admin",
		"token.catalog.0.type": "identity", "token.catalog.0.endpoints.0.url": w.url,
		"token.catalog.1.type": "network", "token.catalog.1.name": "neutron", "token.catalog.1.endpoints.0.url": "http://127.0.0.1:9696",
		"token.catalog.1.endpoints.0.region": "RegionOne", "token.catalog.1.endpoints.0.region_id": "RegionOne", "token.catalog.1.endpoints.0.interface": "public",
	} {
		if strings.HasPrefix(path, "token.roles") {
			continue // in order of their ids, which are random
		}
		if got := a.text(path); got != want {
			t.Errorf("%s is %q, want %q in %s", path, got, want, a.body)
		}
	}
	if a.count("token.roles") != 3 || a.at("token.is_domain") != false || a.count("token.audit_ids") != 1 {
		t.Errorf("token is %s", a.body)
	}
	for _, p := range []string{"token.user.id", "token.project.id", "token.roles.0.id", "token.catalog.0.id"} {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(a.text(p)) {
			t.Errorf("%s is %q, want 32 hex digits", p, a.text(p))
		}
	}
	if life := time.Until(expiry(t, a)); life < 59*time.Minute || life > time.Hour {
		t.Errorf("the token lives %s", life)
	}

	// Shown again it is the same, and HEAD tells as much as GET.
	shown := w.call(token, "GET", "/auth/tokens", "", "X-Subject-Token", token)
	if shown.status != 200 || shown.body != a.body {
		t.Errorf("shown: %d %s\nissued: %s", shown.status, shown.body, a.body)
	}
	if head := w.call(token, "HEAD", "/auth/tokens", "", "X-Subject-Token", token); head.status != 200 || head.header.Get("X-Subject-Token") != token {
		t.Errorf("HEAD: %d %v", head.status, head.header)
	}
	if a := w.call(token, "GET", "/auth/tokens?nocatalog", "", "X-Subject-Token", token); a.at("token.catalog") != nil {
		t.Errorf("with nocatalog: %s", a.body)
	}
	if a := w.call(token, "GET", "/auth/tokens", "", "X-Subject-Token", "nonsense"); a.status != 404 {
		t.Errorf("a token nobody issued: %d %s", a.status, a.body)
	}

	// From it come others, with the same end.
	rescoped := w.call("", "POST", "/auth/tokens", `{"auth":{"identity":{"methods":["token"],"token":{"id":"`+token+`"}},"scope":"unscoped"}}`)
	if rescoped.status != 201 || rescoped.at("token.project") != nil || rescoped.at("token.catalog") != nil ||
		rescoped.text("token.expires_at") != a.text("token.expires_at") || rescoped.count("token.audit_ids") != 2 || rescoped.count("token.methods") != 2 {
		t.Errorf("unscoped from a token: %d %s", rescoped.status, rescoped.body)
	}
	// Revoked it is gone, at once.
	if a := w.call(token, "DELETE", "/auth/tokens", "", "X-Subject-Token", token); a.status != 204 || w.works(token) {
		t.Errorf("revoked: %d %s; works: %v", a.status, a.body, w.works(token))
	}
	if !w.works(w.token) {
		t.Error("revoking one token ended another of the same user")
	}
}

func expiry(t *testing.T, a answered) time.Time {
	t.Helper()
	end, err := time.Parse(timeForm, a.text("token.expires_at"))
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// TestTokensDie walks everything that ends a user's tokens.
func TestTokensDie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name string
		do   func(user, project string)
		back func(user, project string) // undoes it; the token stays dead
	}{
		{"password set", func(u, _ string) { w.admin(200, "PATCH", "/users/"+u, `{"user":{"password":"new"}}`) },
			func(u, _ string) { w.admin(200, "PATCH", "/users/"+u, `{"user":{"password":"pw"}}`) }},
		{"user disabled", func(u, _ string) { w.admin(200, "PATCH", "/users/"+u, `{"user":{"enabled":false}}`) },
			func(u, _ string) { w.admin(200, "PATCH", "/users/"+u, `{"user":{"enabled":true}}`) }},
		{"project disabled", func(_, p string) { w.admin(200, "PATCH", "/projects/"+p, `{"project":{"enabled":false}}`) },
			func(_, p string) { w.admin(200, "PATCH", "/projects/"+p, `{"project":{"enabled":true}}`) }},
		{"role taken back", func(u, p string) { w.admin(204, "DELETE", "/projects/"+p+"/users/"+u+"/roles/"+w.role("member"), "") },
			func(u, p string) { w.admin(204, "PUT", "/projects/"+p+"/users/"+u+"/roles/"+w.role("member"), "") }},
		{"project deleted", func(_, p string) { w.admin(204, "DELETE", "/projects/"+p, "") }, nil},
		{"user deleted", func(u, _ string) { w.admin(204, "DELETE", "/users/"+u, "") }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(c.name, " ", "-")
			user, project := w.user(name, "pw", "member")
			token := w.login(name, "pw", name)
			w.admin(200, "PATCH", "/users/"+user, `{"user":{"description":"changes nothing that matters"}}`)
			w.admin(204, "PUT", "/projects/"+project+"/users/"+user+"/roles/"+w.role("reader"), "")
			if !w.works(token) {
				t.Fatal("the token died for nothing")
			}
			c.do(user, project)
			if w.works(token) {
				t.Error("the token lives on")
			}
			if c.back == nil {
				return
			}
			c.back(user, project)
			if w.works(token) {
				t.Error("the token rose from the dead")
			}
			w.login(name, "pw", name)
		})
	}
}

// TestExpired moves the clock.
func TestExpired(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := serveOver(t, memory(t), func(o *Options) {
		o.Now = func() time.Time { return now }
		o.TokenLife = time.Minute
	})
	if !w.works(w.token) {
		t.Fatal("a fresh token does not work")
	}
	now = now.Add(time.Minute)
	if w.works(w.token) {
		t.Error("an expired token works")
	}
}

// TestTwoServers proves that what one server does, another that shares its store honours.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	st := memory(t)
	a := serveOver(t, st, nil)
	b := serveOver(t, st, nil)
	if !b.works(a.token) || !a.works(b.token) {
		t.Fatal("a token is good on one server only")
	}
	token := a.login("admin", adminPassword, "admin")
	if !b.works(token) {
		t.Error("a token issued a moment ago is unknown to the other server")
	}
	if got := a.call(token, "DELETE", "/auth/tokens", "", "X-Subject-Token", token); got.status != 204 {
		t.Fatalf("revoke: %d %s", got.status, got.body)
	}
	for timeout := time.Now().Add(5 * time.Second); b.works(token); { // until the other has heard
		if time.Now().After(timeout) {
			t.Fatal("a token revoked on one server works on the other")
		}
	}
	user, _ := a.user("moving", "pw", "member")
	b.login("moving", "pw", "moving")
	a.admin(204, "DELETE", "/users/"+user, "")
	if got := b.call("", "POST", "/auth/tokens", passwordAuth("moving", "pw", "")); got.status != 401 {
		t.Errorf("a deleted user logs in on the other server: %d %s", got.status, got.body)
	}
}
