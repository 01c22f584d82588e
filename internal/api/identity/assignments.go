package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// assignmentCalls serves the roles of users on projects and domains.
type assignmentCalls struct{ *directory }

func (x *assignmentCalls) routes() []route {
	routes := []route{{"GET /v3/role_assignments", "list_role_assignments", admin, x.reading(x.list)}}
	for _, on := range []string{"/v3/projects/{project}", "/v3/domains/{domain}"} {
		roles := on + "/users/{user}/roles"
		routes = append(routes,
			route{"GET " + roles, "list_grants", admin, x.reading(x.listGrants)},
			route{"GET " + roles + "/{role}", "check_grant", admin, x.reading(x.check)}, // and HEAD
			route{"PUT " + roles + "/{role}", "create_grant", admin, x.create},
			route{"DELETE " + roles + "/{role}", "revoke_grant", admin, x.revoke})
	}
	return routes
}

// grantNamed returns the assignment that the path names; without {role} its RoleID is empty.
func (c *call) grantNamed() *Assignment {
	return &Assignment{UserID: c.path("user"), ProjectID: c.path("project"), DomainID: c.path("domain"), RoleID: c.path("role")}
}

// parties returns an error unless user and target exist.
func (d *directory) parties(r records.Reader, a *Assignment) error {
	_, err := d.users.Need(r, a.UserID)
	switch {
	case err != nil:
	case a.ProjectID != "":
		_, err = d.projects.Need(r, a.ProjectID)
	default:
		_, err = d.domains.Need(r, a.DomainID)
	}
	return err
}

func (x *assignmentCalls) listGrants(c *call, snap *records.Snap) error {
	a := c.grantNamed()
	if err := x.parties(snap, a); err != nil {
		return err
	}
	var all []object
	for _, g := range x.grants(snap, a.UserID, a.target()) {
		if r, ok := x.roles.Peek(snap, g.RoleID); ok {
			all = append(all, roleView(c.r, r))
		}
	}
	return c.list("roles", all)
}

func (x *assignmentCalls) check(c *call, snap *records.Snap) error {
	a := c.grantNamed()
	if _, ok := x.assignments.Peek(snap, a.key()); !ok {
		return noGrant(a)
	}
	return c.done(nil)
}

func noGrant(a *Assignment) error {
	return api.Errorf(http.StatusNotFound, "Could not find role assignment with role: %s, user or group: %s, project, domain, or system: %s.",
		a.RoleID, a.UserID, a.ProjectID+a.DomainID)
}

func (x *assignmentCalls) create(c *call) error {
	return c.done(x.update(c.ctx(), func(tx *records.Tx) error { return x.grant(tx, *c.grantNamed()) }))
}

// grant gives a role. Doing so twice is no error and leaves tokens alone.
func (d *directory) grant(tx *records.Tx, a Assignment) error {
	if err := d.parties(tx, &a); err != nil {
		return err
	}
	if _, err := d.assignments.Get(tx, a.key()); err == nil {
		return nil
	}
	a.Grant = newID()
	return d.assignments.Put(tx, &a)
}

// revoke takes a role back; tokens that carry it end.
func (x *assignmentCalls) revoke(c *call) error {
	a := c.grantNamed()
	return c.done(x.update(c.ctx(), func(tx *records.Tx) error {
		if _, err := x.assignments.Get(tx, a.key()); err != nil {
			return noGrant(a)
		}
		return x.assignments.Delete(tx, a.key())
	}))
}

// list returns all assignments. Only users have roles, and only on projects and domains, so a
// request for those of groups, of the system or inherited ones finds none.
func (x *assignmentCalls) list(c *call, snap *records.Snap) error {
	query := c.r.URL.Query()
	var all []object
	if query.Get("group.id") == "" && query.Get("scope.system") == "" && query.Get("scope.OS-INHERIT:inherited_to") == "" {
		for a := range x.assignments.All(snap) {
			if anyOr(query.Get("user.id"), a.UserID) && anyOr(query.Get("role.id"), a.RoleID) &&
				anyOr(query.Get("scope.project.id"), a.ProjectID) && anyOr(query.Get("scope.domain.id"), a.DomainID) {
				all = append(all, x.render(c, snap, a))
			}
		}
	}
	return c.list("role_assignments", all)
}

// anyOr reports whether a filter, if it is given, has this value.
func anyOr(filter, value string) bool { return filter == "" || filter == value }

func (x *assignmentCalls) render(c *call, r records.Reader, a *Assignment) object {
	role, user, on := object{"id": a.RoleID}, object{"id": a.UserID}, object{"id": a.ProjectID + a.DomainID}
	kind := "project"
	if a.DomainID != "" {
		kind = "domain"
	}
	if names := c.r.URL.Query(); names.Has("include_names") && names.Get("include_names") != "0" && names.Get("include_names") != "False" {
		x.addNames(r, a, role, user, on)
	}
	return object{"role": role, "user": user, "scope": object{kind: on},
		"links": self(c.r, kind+"s", a.ProjectID+a.DomainID, "users", a.UserID, "roles", a.RoleID)}
}

func (x *assignmentCalls) addNames(r records.Reader, a *Assignment, role, user, on object) {
	domain := func(id string) object {
		d, ok := x.domains.Peek(r, id)
		if !ok {
			return object{"id": id}
		}
		return object{"id": id, "name": d.Name}
	}
	if v, ok := x.roles.Peek(r, a.RoleID); ok {
		role["name"] = v.Name
	}
	if v, ok := x.users.Peek(r, a.UserID); ok {
		user["name"], user["domain"] = v.Name, domain(v.DomainID)
	}
	if v, ok := x.projects.Peek(r, a.ProjectID); ok {
		on["name"], on["domain"] = v.Name, domain(v.DomainID)
	}
	if v, ok := x.domains.Peek(r, a.DomainID); ok {
		on["name"] = v.Name
	}
}
