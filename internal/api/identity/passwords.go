package identity

import (
	"context"
	"errors"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
)

// passwords hashes and checks passwords and other secrets, with the API's errors.
type passwords struct {
	hashes   *credentials.Passwords
	throttle *credentials.Throttle
	refusals *credentials.Refusals
}

func newPasswords(o Options) *passwords {
	return &passwords{
		credentials.NewPasswords(credentials.DefaultCost()), credentials.NewThrottle(o.Now),
		credentials.NewRefusals(credentials.RefusalOptions{
			API: "identity", Message: "log-in refused", Subject: "account",
			Reasons: append(credentials.LoginReasons(), credentials.NoAccess), Log: o.Log, Now: o.Now,
		}),
	}
}

// refusedLogin is the error of a refused login. Clients do not get its reason.
type refusedLogin struct {
	error
	reason credentials.Reason
}

func (e *refusedLogin) Unwrap() error { return e.error }

// hash returns the stored form of a password.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	stored, err := p.hashes.Hash(ctx, api.ClientAddr(ctx), password)
	return stored, passwordError(err)
}

// check reports whether the password belongs to the stored hash. An empty hash belongs to no
// password.
func (p *passwords) check(ctx context.Context, stored, password string) (bool, error) {
	right, err := p.hashes.Check(ctx, api.ClientAddr(ctx), stored, password)
	return right, passwordError(err)
}

// login returns an error unless the password is right, and slows down clients that guess; account
// is their target.
func (p *passwords) login(ctx context.Context, account, stored, password string) error {
	from := api.ClientAddr(ctx)
	if wait := p.throttle.Wait(account, from); wait > 0 {
		return &refusedLogin{tooManyLogins(wait), credentials.TooManyAttempts}
	}
	right, err := p.check(ctx, stored, password)
	if err != nil {
		return err
	}
	if !right {
		p.throttle.Failed(account, from)
		if stored == "" {
			return &refusedLogin{api.ErrUnauthorized, credentials.UnknownAccount}
		}
		return &refusedLogin{api.ErrUnauthorized, credentials.WrongPassword}
	}
	p.throttle.Succeeded(account, from)
	return nil
}

func tooManyLogins(wait time.Duration) error {
	return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: "Too many failed logins. Try again later."}
}

// note logs and counts a login that failed with err, if it was refused.
func (p *passwords) note(ctx context.Context, account string, err error) {
	reason := credentials.NoAccess
	if refused := (*refusedLogin)(nil); errors.As(err, &refused) {
		reason = refused.reason
	} else if !errors.Is(err, api.ErrUnauthorized) {
		return
	}
	p.refusals.Note(account, api.ClientAddr(ctx), reason)
}

func passwordError(err error) error {
	switch {
	case errors.Is(err, credentials.ErrTooLong):
		return api.Errorf(http.StatusBadRequest, "Invalid input for field 'password': it may have %d bytes.", credentials.MaxPassword)
	case errors.Is(err, credentials.ErrBusy):
		return &api.Error{Status: http.StatusServiceUnavailable, Message: "Too many logins at once; try again.", RetryAfter: time.Second}
	}
	return err
}
