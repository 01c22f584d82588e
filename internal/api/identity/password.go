package identity

import (
	"context"
	"errors"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
)

// passwords hashes and checks passwords, with the API's errors.
type passwords struct{ *credentials.Passwords }

func newPasswords(c credentials.Cost) passwords {
	return passwords{credentials.NewPasswords(c)}
}

// hash returns the stored form of a password.
func (p passwords) hash(ctx context.Context, password string) (string, error) {
	stored, err := p.Hash(ctx, password)
	return stored, passwordError(err)
}

// check reports whether the password belongs to the stored hash. An empty hash belongs to no password.
func (p passwords) check(ctx context.Context, stored, password string) (bool, error) {
	right, err := p.Check(ctx, stored, password)
	return right, passwordError(err)
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
