package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"heddle/internal/neutron"
)

// unauthorized is Keystone's text of every 401, whatever the reason, so that guesses reveal
// nothing.
const unauthorized = "The request you have made requires authentication."

var (
	// ErrUnauthorized: the token (or password) is missing, unknown, expired or revoked.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnavailable: tokens cannot be checked at present, as while Keystone is down.
	ErrUnavailable = errors.New("identity is not available")
)

// TokenHeader carries the caller's token.
const TokenHeader = "X-Auth-Token"

// Identity is the user, scope and roles of a token. It is shared between requests: never change
// one.
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

	Roles []string // names; case matters
	// ApplicationCredentialID is that by which the token was issued; "" = by none.
	ApplicationCredentialID string
	Expires                 time.Time
}

// Admin reports whether the token has the role admin.
func (id *Identity) Admin() bool { return slices.Contains(id.Roles, "admin") }

// Caller returns the caller that Neutron's operations take. This is the only place that maps the
// two.
func (id *Identity) Caller() neutron.Caller {
	return neutron.Caller{UserID: id.UserID, ProjectID: id.ProjectID, Roles: id.Roles}
}

// Validator checks tokens. Validate returns ErrUnauthorized for an invalid token, and
// ErrUnavailable when it cannot check one. It must be fast: every request of every API calls it.
type Validator interface {
	Validate(ctx context.Context, token string) (*Identity, error)
}

// Login is a user with a password, and the project that a token should be for.
type Login struct {
	User       string `json:"user"`
	Password   string `json:"password"`
	UserDomain string `json:"user_domain"` // name; "" = Default
	// Project is the name of the project; "" = the user's default project. It is in ProjectDomain.
	Project       string `json:"project"`
	ProjectDomain string `json:"project_domain"` // name; "" = Default
}

// RequireToken passes requests with a valid token to next, where Who and Caller return whose it is.
// Others get 401 with a pointer to identityURL, the public address of the identity service
// (neutron-api §1); "" is this API itself.
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

// validateTime bounds the validation of a token, also for requests that may last.
const validateTime = 10 * time.Second

func validate(v Validator, r *http.Request) (*Identity, error) {
	token := r.Header.Get(TokenHeader)
	if token == "" {
		return nil, ErrUnauthorized
	}
	ctx, cancel := context.WithTimeout(r.Context(), validateTime)
	defer cancel()
	return v.Validate(ctx, token)
}

// Who returns the identity of the request that ctx belongs to; nil unless RequireToken was passed.
func Who(ctx context.Context) *Identity { return of(ctx).who }

// Caller returns the caller for Neutron's operations; without rights unless RequireToken was
// passed.
func Caller(ctx context.Context) neutron.Caller {
	if id := Who(ctx); id != nil {
		return id.Caller()
	}
	return neutron.Caller{}
}

// Admin returns a handler for callers with the role admin alone, behind RequireToken. The error of
// h is the answer.
func Admin(h func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return Answering(func(w http.ResponseWriter, r *http.Request) error {
		if who := Who(r.Context()); who == nil || !who.Admin() {
			return Errorf(http.StatusForbidden, "This call wants the role admin.")
		}
		return h(w, r)
	})
}

// Answering returns a handler that answers with the error of h, if it returns one.
func Answering(h func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			WriteError(w, r, err)
		}
	}
}
