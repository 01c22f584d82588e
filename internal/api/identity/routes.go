package identity

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"heddle/internal/api"
)

// level states who may make a call. Where users may do something for themselves alone, the handler
// calls call.self.
type level int

const (
	anyone level = iota
	user         // with a valid token
	admin        // with role admin in the token
)

// route is one call of the API.
type route struct {
	pattern string
	action  string // its name in Keystone's policy
	level   level
	serve   func(*call) error
}

func (s *Service) routes() []route {
	d := s.directory
	return slices.Concat(
		s.tokenCalls().routes(),
		(&scopeCalls{d}).routes(),
		s.catalog.routes(),
		newDomains(d).routes(),
		newProjects(d).routes(),
		newUsers(d, s.passwords).routes(),
		(&appCredentialCalls{d, s.tokens, s.passwords}).routes(),
		newRoles(d).routes(),
		(&assignmentCalls{d}).routes(),
	)
}

func (s *Service) tokenCalls() *tokenCalls {
	return &tokenCalls{s.directory, s.tokens, s.passwords, &s.catalog, s.opts.TokenLife}
}

// Handler serves the API.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", discoverAll)
	mux.HandleFunc("GET /v3", discover)
	for _, r := range s.routes() {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { serve(r, w, req) }))
		if r.level != anyone {
			h = api.RequireToken(s, s.opts.URL, h)
		}
		mux.Handle(r.pattern, h)
	}
	routes := api.Routes(mux, api.NoRoute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", api.TokenHeader)
		routes.ServeHTTP(w, withoutSlash(r))
	})
}

// withoutSlash removes the slash that some clients put at the end of the path.
func withoutSlash(r *http.Request) *http.Request {
	if len(r.URL.Path) < 2 || !strings.HasSuffix(r.URL.Path, "/") {
		return r
	}
	clean := *r.URL
	clean.Path, clean.RawPath = strings.TrimSuffix(clean.Path, "/"), strings.TrimSuffix(clean.RawPath, "/")
	same := *r
	same.URL = &clean
	return &same
}

func serve(rt route, w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r, action: rt.action, who: api.Who(r.Context())}
	var err error
	if rt.level == admin && !c.who.Admin() {
		err = c.forbidden()
	} else {
		err = rt.serve(c)
	}
	if err != nil {
		api.WriteError(w, r, err)
	}
}

// call is one request being answered.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	action string
	who    *api.Identity // nil at level anyone
}

func (c *call) ctx() context.Context       { return c.r.Context() }
func (c *call) path(name string) string    { return c.r.PathValue(name) }
func (c *call) query(name string) string   { return c.r.URL.Query().Get(name) }
func (c *call) fields(kind string) *fields { return readFields(c.r, kind) }

// one answers with one object.
func (c *call) one(status int, kind string, o object) error {
	api.WriteJSON(c.w, status, object{kind: o})
	return nil
}

// list answers with the objects that pass the query's filters.
func (c *call) list(kind string, all []object, filters ...string) error {
	writeList(c.w, c.r, kind, all, filters...)
	return nil
}

// done answers without a body, unless the call has failed.
func (c *call) done(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (c *call) forbidden() error {
	return api.Errorf(http.StatusForbidden, "You are not authorized to perform the requested action: identity:%s.", c.action)
}

// self returns an error unless the caller is the user or an admin.
func (c *call) self(userID string) error {
	if c.who.UserID != userID && !c.who.Admin() {
		return c.forbidden()
	}
	return nil
}

// ownDomain returns the domain of objects made by requests that name none: that of the scope of the
// caller's token.
func (c *call) ownDomain() string {
	return cmp.Or(c.who.DomainID, c.who.ProjectDomainID, DefaultDomainID)
}
