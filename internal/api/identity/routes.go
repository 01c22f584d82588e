package identity

import (
	"context"
	"net/http"
	"strings"

	"heddle/internal/api"
)

// Who may make a call. Where a user may do something for himself alone, the handler says so with call.self.
type level int

const (
	anyone level = iota
	user         // with a valid token
	admin        // with role admin in the token
)

// route is one call of the API.
type route struct {
	pattern string
	action  string // as Keystone's policy names it
	level   level
	serve   func(*call) error
}

func (s *Service) routes() []route {
	return []route{
		{"POST /v3/auth/tokens", "authenticate", anyone, s.login},
		{"GET /v3/auth/tokens", "validate_token", user, s.showToken}, // and HEAD
		{"DELETE /v3/auth/tokens", "revoke_token", user, s.revokeToken},
		{"GET /v3/auth/projects", "get_auth_projects", user, s.ownProjects},
		{"GET /v3/auth/domains", "get_auth_domains", user, s.ownDomains},
		{"GET /v3/auth/catalog", "get_auth_catalog", user, s.showCatalog},

		{"GET /v3/domains", "list_domains", admin, s.listDomains},
		{"POST /v3/domains", "create_domain", admin, s.createDomain},
		{"GET /v3/domains/{id}", "get_domain", user, s.showDomain},
		{"PATCH /v3/domains/{id}", "update_domain", admin, s.updateDomain},
		{"DELETE /v3/domains/{id}", "delete_domain", admin, s.deleteDomain},

		{"GET /v3/projects", "list_projects", admin, s.listProjects},
		{"POST /v3/projects", "create_project", admin, s.createProject},
		{"GET /v3/projects/{id}", "get_project", user, s.showProject},
		{"PATCH /v3/projects/{id}", "update_project", admin, s.updateProject},
		{"DELETE /v3/projects/{id}", "delete_project", admin, s.deleteProject},

		{"GET /v3/projects/{id}/tags", "list_project_tags", user, s.listTags},
		{"PUT /v3/projects/{id}/tags", "update_project_tags", admin, s.replaceTags},
		{"DELETE /v3/projects/{id}/tags", "delete_project_tags", admin, s.deleteTags},
		{"GET /v3/projects/{id}/tags/{tag}", "get_project_tag", user, s.checkTag}, // and HEAD
		{"PUT /v3/projects/{id}/tags/{tag}", "create_project_tag", admin, s.addTag},
		{"DELETE /v3/projects/{id}/tags/{tag}", "delete_project_tag", admin, s.deleteTag},

		{"GET /v3/users", "list_users", admin, s.listUsers},
		{"POST /v3/users", "create_user", admin, s.createUser},
		{"GET /v3/users/{id}", "get_user", user, s.showUser},
		{"PATCH /v3/users/{id}", "update_user", admin, s.updateUser},
		{"DELETE /v3/users/{id}", "delete_user", admin, s.deleteUser},
		{"POST /v3/users/{id}/password", "change_password", user, s.changePassword},
		{"GET /v3/users/{id}/projects", "list_user_projects", user, s.userProjects},

		{"GET /v3/users/{id}/application_credentials", "list_application_credentials", user, s.listAppCredentials},
		{"POST /v3/users/{id}/application_credentials", "create_application_credential", user, s.createAppCredential},
		{"GET /v3/users/{id}/application_credentials/{credential}", "get_application_credential", user, s.showAppCredential},
		{"DELETE /v3/users/{id}/application_credentials/{credential}", "delete_application_credential", user, s.deleteAppCredential},

		{"GET /v3/roles", "list_roles", admin, s.listRoles},
		{"POST /v3/roles", "create_role", admin, s.createRole},
		{"GET /v3/roles/{id}", "get_role", admin, s.showRole},
		{"PATCH /v3/roles/{id}", "update_role", admin, s.updateRole},
		{"DELETE /v3/roles/{id}", "delete_role", admin, s.deleteRole},

		{"GET /v3/role_assignments", "list_role_assignments", admin, s.listAssignments},
		{"GET /v3/projects/{project}/users/{user}/roles", "list_grants", admin, s.listGrants},
		{"GET /v3/projects/{project}/users/{user}/roles/{role}", "check_grant", admin, s.checkGrant}, // and HEAD
		{"PUT /v3/projects/{project}/users/{user}/roles/{role}", "create_grant", admin, s.createGrant},
		{"DELETE /v3/projects/{project}/users/{user}/roles/{role}", "revoke_grant", admin, s.revokeGrant},
		{"GET /v3/domains/{domain}/users/{user}/roles", "list_grants", admin, s.listGrants},
		{"GET /v3/domains/{domain}/users/{user}/roles/{role}", "check_grant", admin, s.checkGrant},
		{"PUT /v3/domains/{domain}/users/{user}/roles/{role}", "create_grant", admin, s.createGrant},
		{"DELETE /v3/domains/{domain}/users/{user}/roles/{role}", "revoke_grant", admin, s.revokeGrant},

		{"GET /v3/services", "list_services", user, s.listed("services", "type", "name")},
		{"GET /v3/services/{id}", "get_service", user, s.listedOne("services")},
		{"GET /v3/endpoints", "list_endpoints", user, s.listed("endpoints", "interface", "service_id", "region", "region_id")},
		{"GET /v3/endpoints/{id}", "get_endpoint", user, s.listedOne("endpoints")},
		{"GET /v3/regions", "list_regions", user, s.listed("regions", "parent_region_id")},
		{"GET /v3/regions/{id}", "get_region", user, s.listedOne("regions")},
	}
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

// withoutSlash takes a slash off the end of the path, which some clients put there.
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
	who    *api.Identity // nil where anyone may call
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

// list answers with the objects that the query's filters let through.
func (c *call) list(kind string, all []object, filters ...string) error {
	writeList(c.w, c.r, kind, all, filters...)
	return nil
}

// none answers without a body.
func (c *call) none() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) forbidden() error {
	return api.Errorf(http.StatusForbidden, "You are not authorized to perform the requested action: identity:%s.", c.action)
}

// self lets a user through to what is his own, and admins to anyone's.
func (c *call) self(userID string) error {
	if c.who.UserID != userID && !c.who.Admin() {
		return c.forbidden()
	}
	return nil
}
