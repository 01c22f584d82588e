package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"heddle/internal/api"
)

// LogIn returns a token for a user with a password, as POST /v3/auth/tokens does: with its turns,
// its limits, and its log of refusals.
func (s *Service) LogIn(ctx context.Context, l *api.Login) (token string, err error) {
	ask := &authRequest{}
	ask.Identity.Methods = []string{"password"}
	ask.Identity.Password = &passwordMethod{userRef{named(l.User, l.UserDomain), l.Password}}
	if l.Project != "" {
		project := named(l.Project, l.ProjectDomain)
		ask.Scope.Project = &project
	}
	if err := ask.check(); err != nil {
		return "", err
	}
	snap, err := s.directory.view(ctx)
	if err != nil {
		return "", err
	}
	token, _, err = s.tokenCalls().admitNoted(ctx, snap, ask)
	return token, explain(err)
}

// named refers to an object by its name in a domain, "" = Default.
func named(name, domain string) ref {
	r := ref{Name: name, Domain: &domainRef{Name: domain}}
	if domain == "" {
		r.Domain.ID = DefaultDomainID
	}
	return r
}

const (
	// renewAfter is the age from which a token of a session is renewed: not at each of its uses, as
	// each renewal is a write.
	renewAfter = 5 * time.Minute
	// sessionLife bounds for how long a session goes on by renewals.
	sessionLife = 12 * time.Hour
)

// Renew returns the token with which a session that is in use goes on: the same one, or after a
// while one with a new life, which the log-in bounds. It is worth what the first one is.
func (s *Service) Renew(ctx context.Context, token string) (string, error) {
	l, err := s.tokens.check(ctx, token)
	if err != nil {
		return "", err
	}
	old, now := l.token, s.tokens.now().UTC()
	since := old.Since
	if since.IsZero() {
		since = old.IssuedAt
	}
	until := now.Add(s.opts.TokenLife)
	if last := since.Add(sessionLife); last.Before(until) {
		until = last
	}
	if now.Sub(old.IssuedAt) < renewAfter || !until.After(old.ExpiresAt) || old.AppCredentialID != "" {
		return token, nil
	}
	snap, err := s.directory.view(ctx)
	if err != nil {
		return "", err
	}
	next := &Token{UserID: old.UserID, ProjectID: old.ProjectID, DomainID: old.DomainID, Methods: old.Methods, Roles: old.Roles,
		AuditIDs: []string{old.chain()}, IssuedAt: now, ExpiresAt: until, Since: since}
	token, _, err = s.tokens.issue(ctx, snap, next)
	return token, explain(err)
}

// Revoke ends a token, with all tokens of the same log-in: those that it was renewed from are good
// for a while. One that has ended already is no error.
func (s *Service) Revoke(ctx context.Context, token string) error {
	l, err := s.tokens.check(ctx, token)
	if errors.Is(err, api.ErrUnauthorized) {
		return nil
	} else if err != nil {
		return err
	}
	return s.tokens.revokeChain(ctx, l.token)
}

// LogIn returns a token that Keystone issues for a user with a password.
func (k *Keystone) LogIn(ctx context.Context, l *api.Login) (token string, err error) {
	account, from := l.UserDomain+"/"+l.User, api.ClientAddr(ctx)
	if wait := k.throttle.Wait(account, from); wait > 0 {
		return "", tooManyLogins(wait)
	}
	token, err = k.newToken(ctx, l)
	switch {
	case errors.Is(err, errLoginRefused):
		k.throttle.Failed(account, from)
		return "", api.ErrUnauthorized
	case err != nil:
		return "", fmt.Errorf("log in to Keystone at %s as %s: %w: %w", k.url, l.User, api.ErrUnavailable, err)
	}
	k.throttle.Succeeded(account, from)
	return token, nil
}

// Renew returns the token as it is: how long tokens live, and from what, is Keystone's to say.
func (k *Keystone) Renew(_ context.Context, token string) (string, error) { return token, nil }

// Revoke ends a token, at Keystone and here.
func (k *Keystone) Revoke(ctx context.Context, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, k.url+"/auth/tokens", nil)
	if err != nil {
		return err
	}
	req.Header[api.TokenHeader] = []string{token}
	req.Header[subjectTokenHeader] = []string{token}
	status, _, answer, err := k.do(req)
	switch {
	case err != nil:
		return fmt.Errorf("revoke a token at Keystone %s: %w: %w", k.url, api.ErrUnavailable, err)
	case status != http.StatusNoContent && status != http.StatusNotFound && status != http.StatusUnauthorized: // which means that it has ended
		return fmt.Errorf("revoke a token at Keystone %s: %w: status %d: %.200s", k.url, api.ErrUnavailable, status, answer)
	}
	k.forget(token)
	return nil
}
