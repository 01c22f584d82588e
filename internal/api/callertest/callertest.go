// Package callertest validates the tokens of tests. It is apart from apitest, since the tests
// within package api use that one.
package callertest

import (
	"context"

	"heddle/internal/api"
)

// Tokens is a validator that knows these tokens.
type Tokens map[string]*api.Identity

// Validate implements [api.Validator].
func (all Tokens) Validate(_ context.Context, token string) (*api.Identity, error) {
	if id, ok := all[token]; ok {
		return id, nil
	}
	return nil, api.ErrUnauthorized
}

// WithRoles returns tokens that are called as the role of their user, who is u- and the role.
func WithRoles(roles ...string) Tokens {
	all := Tokens{}
	for _, r := range roles {
		all[r] = &api.Identity{UserID: "u-" + r, Roles: []string{r}}
	}
	return all
}
