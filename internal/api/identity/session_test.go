package identity

import (
	"context"
	"errors"
	"net/http"
	"testing"

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
