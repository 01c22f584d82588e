package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"heddle/internal/api"
)

// Accounts logs users in: Heddle's identity service, or the client of an existing Keystone.
type Accounts interface {
	api.Validator
	// LogIn returns a token, or [api.ErrUnauthorized] for a wrong user, password or project.
	LogIn(ctx context.Context, l *api.Login) (token string, err error)
	// Renew returns the token with which a session that is in use goes on, which may be the same.
	Renew(ctx context.Context, token string) (next string, err error)
	// Revoke ends a token, and what it was renewed from. One that has ended already is no error.
	Revoke(ctx context.Context, token string) error
}

const (
	// cookieName has the prefix by which browsers want it to be of this host, of HTTPS and of all
	// paths.
	cookieName = "__Host-heddle"
	// guardHeader is sent by the page with calls that change something: a page of another site
	// cannot send it.
	guardHeader = "X-Heddle-Console"
	// idle is the time without use after which a browser forgets its session.
	idle = time.Hour
)

type sessions struct{ accounts Accounts }

// session names the user who is logged in.
type session struct {
	User    string    `json:"user"`
	Project string    `json:"project"`
	Admin   bool      `json:"admin"`
	Expires time.Time `json:"expires_at"`
}

// guarded returns a handler for calls that only the page can make.
func guarded(h func(w http.ResponseWriter, r *http.Request) error) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := fromPage(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

func fromPage(r *http.Request) error {
	if r.Header.Get(guardHeader) == "" {
		return api.Errorf(http.StatusForbidden, "A browser's session makes this call with the header %s, which the console sends.", guardHeader)
	}
	return nil
}

// logIn begins a session. The token is in a cookie that scripts cannot read.
func (s *sessions) logIn(w http.ResponseWriter, r *http.Request) error {
	private(w)
	if !secret(r) {
		return api.Errorf(http.StatusForbidden, "The console logs in by HTTPS alone, or on the server's own machine: give heddle serve --tls-cert and --tls-key.")
	}
	var l api.Login
	if err := api.ReadStrictJSON(r, &l); err != nil {
		return err
	}
	token, err := s.accounts.LogIn(r.Context(), &l)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusCreated, token)
}

// secret reports whether a request came encrypted, or from this machine.
func secret(r *http.Request) bool {
	u, err := url.Parse(api.BaseURL(r))
	return err == nil && (u.Scheme == "https" || api.Loopback(u.Hostname()))
}

// show answers who is logged in, and keeps the session for another while: the page calls it when it
// is used.
func (s *sessions) show(w http.ResponseWriter, r *http.Request) error {
	private(w)
	token := tokenOf(r)
	if token == "" {
		return api.ErrUnauthorized
	}
	token, err := s.accounts.Renew(r.Context(), token)
	if err == nil {
		err = s.answer(w, r, http.StatusOK, token)
	}
	if errors.Is(err, api.ErrUnauthorized) {
		setCookie(w, "", -1)
	}
	return err
}

func (s *sessions) answer(w http.ResponseWriter, r *http.Request, status int, token string) error {
	who, err := s.accounts.Validate(r.Context(), token)
	if err != nil {
		return err
	}
	setCookie(w, token, int(idle.Seconds()))
	api.WriteJSON(w, status, session{User: who.UserName, Project: who.ProjectName, Admin: who.Admin(), Expires: who.Expires})
	return nil
}

// logOut ends a session, and its token for all that have it.
func (s *sessions) logOut(w http.ResponseWriter, r *http.Request) error {
	private(w)
	if token := tokenOf(r); token != "" {
		if err := s.accounts.Revoke(r.Context(), token); err != nil {
			return err
		}
	}
	setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func setCookie(w http.ResponseWriter, token string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: token, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

func tokenOf(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return c.Value
}

// private keeps an answer out of caches.
func private(w http.ResponseWriter) {
	protect(w.Header())
	w.Header().Set("Cache-Control", "no-store")
}

// questions are the calls other than GET that the page makes. They change nothing.
var questions = []string{"/v1/why", "/v1/reach"}

// shown are the prefixes of what the page shows. No other call takes a session: of those some
// answer with secrets.
var shown = []string{"/v1/events", "/v1/flows", "/v1/history", "/v1/revisions/", "/v1/drops", "/v1/unused-rules", "/v1/health", "/v1/status", "/v1/topology", "/v1/search", "/v1/hosts/", "/v1/ports", "/v1/networks/", "/v1/routers/", "/v1/groups/"}

// WithSession passes calls of the page to next with the token of the browser's session. Other
// requests it leaves as they are.
func WithSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := tokenOf(r)
		if token == "" || r.Header.Get(api.TokenHeader) != "" || !ofPage(r) {
			next.ServeHTTP(w, r)
			return
		}
		private(w)
		if err := fromPage(r); r.Method != http.MethodGet && err != nil {
			api.WriteError(w, r, err)
			return
		}
		r = r.Clone(r.Context())
		r.Header.Set(api.TokenHeader, token)
		next.ServeHTTP(w, r)
	})
}

// ofPage reports whether a request is a call that the page makes.
func ofPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet:
		return slices.ContainsFunc(shown, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) })
	case http.MethodPost:
		return slices.Contains(questions, r.URL.Path)
	}
	return false
}
