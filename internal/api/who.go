package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"heddle/internal/neutron"
)

// unauthorized is Keystone's text of every 401, whatever the reason: who guesses learns nothing.
const unauthorized = "The request you have made requires authentication."

var (
	// ErrUnauthorized: the token (or password) is missing, unknown, expired or revoked.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnavailable: who is asking cannot be found out at present, such as with Keystone or the store away.
	ErrUnavailable = errors.New("identity is not available")
	// ErrOutcomeUnknown: the store did not say in time whether the change was made.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// TokenHeader carries the token of who is asking.
const TokenHeader = "X-Auth-Token"

// Identity is who a token stands for and what it may do. It is shared between requests: never change one.
type Identity struct {
	UserID         string
	UserName       string
	UserDomainID   string
	UserDomainName string

	// The scope: a project, or a domain, or neither.
	ProjectID         string
	ProjectName       string
	ProjectDomainID   string
	ProjectDomainName string
	DomainID          string
	DomainName        string

	Roles   []string // names; case matters
	Expires time.Time
}

// Admin says whether the token may do everything.
func (id *Identity) Admin() bool { return slices.Contains(id.Roles, "admin") }

// Caller is the identity as Neutron's operations know it. This is the only place that maps the two.
func (id *Identity) Caller() neutron.Caller {
	return neutron.Caller{UserID: id.UserID, ProjectID: id.ProjectID, Roles: id.Roles}
}

// Validator finds out who a token stands for. It answers ErrUnauthorized for a token that is worth nothing and
// ErrUnavailable when it cannot tell. It must be fast: every request of every API asks it.
type Validator interface {
	Validate(ctx context.Context, token string) (*Identity, error)
}

// RequireToken lets only requests with a valid token through to next, where Who and Caller tell whose it is. Others get
// 401 with a pointer to identityURL, the public address of the identity service (neutron-api §1); "" is this API itself.
func RequireToken(v Validator, identityURL string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := validate(v, r)
		if err != nil {
			if errors.Is(err, ErrUnauthorized) {
				w.Header().Set("WWW-Authenticate", challenge(r, identityURL))
			}
			WriteError(w, r, err)
			return
		}
		q, inServer := r.Context().Value(requestKey{}).(*request)
		if !inServer {
			q = of(r.Context())
			r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
			q.base = baseURL(r, false)
		}
		q.who = id
		next.ServeHTTP(w, r)
	})
}

func challenge(r *http.Request, identityURL string) string {
	if identityURL == "" {
		identityURL = BaseURL(r)
	}
	return `Keystone uri="` + identityURL + `"`
}

func validate(v Validator, r *http.Request) (*Identity, error) {
	token := r.Header.Get(TokenHeader)
	if token == "" {
		return nil, ErrUnauthorized
	}
	return v.Validate(r.Context(), token)
}

// Who is the identity of the request that ctx belongs to; nil where RequireToken was not passed.
func Who(ctx context.Context) *Identity { return of(ctx).who }

// Caller is who asks in the words of Neutron's operations; without rights where RequireToken was not passed.
func Caller(ctx context.Context) neutron.Caller {
	if id := Who(ctx); id != nil {
		return id.Caller()
	}
	return neutron.Caller{}
}
