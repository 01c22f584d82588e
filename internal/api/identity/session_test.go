package identity

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"heddle/internal/api"
)

// account is an identity service that people log in at.
type account interface {
	api.Validator
	LogIn(ctx context.Context, l *api.Login) (string, error)
	Revoke(ctx context.Context, token string) error
}

// TestLogIn: a user gets a token with a password, and it ends when it is revoked; also by an
// existing Keystone, whose part our own service plays.
func TestLogIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ann", "pw", "member")
	for name, s := range map[string]account{
		"own":      w.s,
		"Keystone": must[*Keystone](t)(NewKeystone(KeystoneOptions{URL: w.url, Username: "admin", Password: adminPassword, ProjectName: "admin"})),
	} {
		ctx := t.Context()
		token, err := s.LogIn(ctx, &api.Login{User: "ann", Password: "pw", Project: "ann"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if id, err := s.Validate(ctx, token); err != nil || id.UserName != "ann" || id.ProjectName != "ann" {
			t.Errorf("%s: the token is of %+v, %v", name, id, err)
		}
		for range 2 {
			if err := s.Revoke(ctx, token); err != nil {
				t.Errorf("%s: revoke: %v", name, err)
			}
			if _, err := s.Validate(ctx, token); !errors.Is(err, api.ErrUnauthorized) {
				t.Errorf("%s: a revoked token: %v", name, err)
			}
		}
		token, err = s.LogIn(ctx, &api.Login{User: "admin", Password: adminPassword, UserDomain: "Default"})
		if id, err2 := s.Validate(ctx, token); err != nil || err2 != nil || !id.Admin() {
			t.Errorf("%s: the administrator, on the default project: %+v, %v, %v", name, id, err, err2)
		}
		for _, wrong := range []api.Login{{User: "ann", Password: "wrong"}, {User: "nope", Password: "pw"}, {User: "ann", Password: "pw", Project: "admin"}, {User: "ann", Password: "pw", UserDomain: "nope"}} {
			if _, err := s.LogIn(ctx, &wrong); !errors.Is(err, api.ErrUnauthorized) {
				t.Errorf("%s: %+v: %v, want a refusal", name, wrong, err)
			}
		}
		for range 20 {
			if _, err := s.LogIn(ctx, &api.Login{User: "bob", Password: "guess"}); !errors.Is(err, api.ErrUnauthorized) {
				t.Errorf("%s: a guess: %v", name, err)
			}
		}
		var limited *api.Error
		if _, err = s.LogIn(ctx, &api.Login{User: "bob", Password: "guess"}); !errors.As(err, &limited) || limited.Status != http.StatusTooManyRequests || limited.RetryAfter <= 0 {
			t.Errorf("%s: after 20 wrong passwords: %v, want to wait", name, err)
		}
	}
}

// TestRenew: a session goes on while it is used, for twelve hours at most, ends after an hour
// without use, and ends with all of its tokens at log-out.
func TestRenew(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := serveOver(t, memory(t), func(o *Options) { o.Now = func() time.Time { return now } })
	w.user("ann", "pw", "member")
	ctx := t.Context()
	begun := now.UTC()
	login := must[string](t)(w.s.LogIn(ctx, &api.Login{User: "ann", Password: "pw", Project: "ann"}))
	if same := must[string](t)(w.s.Renew(ctx, login)); same != login {
		t.Error("a new token is renewed at once")
	}
	tokens := []string{login}
	used := func(after time.Duration) string {
		t.Helper()
		now = now.Add(after)
		tokens = append(tokens, must[string](t)(w.s.Renew(ctx, tokens[len(tokens)-1])))
		return tokens[len(tokens)-1]
	}
	for range 13 {
		used(50 * time.Minute)
	}
	id := must[*api.Identity](t)(w.s.Validate(ctx, used(30*time.Minute)))
	if id.UserName != "ann" || id.ProjectName != "ann" || len(id.Roles) != 1 || !id.Expires.Equal(begun.Add(12*time.Hour)) {
		t.Errorf("after eleven hours the session is of %+v", id)
	}
	if used(20*time.Minute) != tokens[len(tokens)-2] {
		t.Error("a session is renewed beyond twelve hours")
	}
	other := must[string](t)(w.s.LogIn(ctx, &api.Login{User: "ann", Password: "pw"}))
	if err := w.s.Revoke(ctx, tokens[len(tokens)-1]); err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if _, err := w.s.Validate(ctx, token); !errors.Is(err, api.ErrUnauthorized) {
			t.Errorf("after log-out a token of the session is answered %v", err)
		}
	}
	if _, err := w.s.Validate(ctx, other); err != nil {
		t.Errorf("another session of the user: %v", err)
	}
	now = now.Add(time.Hour)
	if _, err := w.s.Renew(ctx, other); !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("a session that was not used for an hour: %v", err)
	}
}
