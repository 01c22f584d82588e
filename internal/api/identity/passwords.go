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
}

func newPasswords(now func() time.Time) *passwords {
	return &passwords{credentials.NewPasswords(credentials.DefaultCost()), credentials.NewThrottle(now)}
}

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
		return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: "Too many failed logins. Try again later."}
	}
	right, err := p.check(ctx, stored, password)
	if err != nil {
		return err
	}
	if !right {
		p.throttle.Failed(account, from)
		return api.ErrUnauthorized
	}
	p.throttle.Succeeded(account, from)
	return nil
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
