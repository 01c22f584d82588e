package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// grantNamed is the assignment that the path names; without {role} its RoleID is empty.
func (c *call) grantNamed() *Assignment {
	return &Assignment{UserID: c.path("user"), ProjectID: c.path("project"), DomainID: c.path("domain"), RoleID: c.path("role")}
}

// parties checks that user and target exist.
func (s *Service) parties(r records.Reader, a *Assignment) error {
	if _, err := s.users.Need(r, a.UserID); err != nil {
		return err
	}
	if a.ProjectID != "" {
		_, err := s.projects.Need(r, a.ProjectID)
		return err
	}
	_, err := s.domains.Need(r, a.DomainID)
	return err
}

func (s *Service) listGrants(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	a := c.grantNamed()
	if err := s.parties(snap, a); err != nil {
		return explain(err)
	}
	var all []object
	for _, g := range s.grants(snap, a.UserID, a.target()) {
		if r, ok := s.roles.Peek(snap, g.RoleID); ok {
			all = append(all, roleView(c.r, r))
		}
	}
	return c.list("roles", all)
}

func (s *Service) checkGrant(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	a := c.grantNamed()
	if _, ok := s.assignments.Peek(snap, a.key()); !ok {
		return noGrant(a)
	}
	return c.none()
}

func noGrant(a *Assignment) error {
	return api.Errorf(http.StatusNotFound, "Could not find role assignment with role: %s, user or group: %s, project, domain, or system: %s.",
		a.RoleID, a.UserID, a.ProjectID+a.DomainID)
}

// createGrant gives a role; giving it twice is no error and leaves tokens alone.
func (s *Service) createGrant(c *call) error {
	a := c.grantNamed()
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.grant(tx, *a) }); err != nil {
		return err
	}
	return c.none()
}

func (s *Service) grant(tx *records.Tx, a Assignment) error {
	if err := s.parties(tx, &a); err != nil {
		return err
	}
	if _, err := s.assignments.Get(tx, a.key()); err == nil {
		return nil
	}
	a.Grant = newID()
	return s.assignments.Put(tx, &a)
}

// revokeGrant takes a role back; tokens that carry it end.
func (s *Service) revokeGrant(c *call) error {
	a := c.grantNamed()
	err := s.update(c.ctx(), func(tx *records.Tx) error {
		if _, err := s.assignments.Get(tx, a.key()); err != nil {
			return noGrant(a)
		}
		return s.assignments.Delete(tx, a.key())
	})
	if err != nil {
		return err
	}
	return c.none()
}

// listAssignments answers GET /v3/role_assignments. Roles are given to users on projects and domains only, so asking for
// those of groups, of the system or inherited ones finds none.
func (s *Service) listAssignments(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	query := c.r.URL.Query()
	var all []object
	if query.Get("group.id") == "" && query.Get("scope.system") == "" && query.Get("scope.OS-INHERIT:inherited_to") == "" {
		for a := range s.assignments.All(snap) {
			if asked(query.Get("user.id"), a.UserID) && asked(query.Get("role.id"), a.RoleID) &&
				asked(query.Get("scope.project.id"), a.ProjectID) && asked(query.Get("scope.domain.id"), a.DomainID) {
				all = append(all, s.assignmentView(c, snap, a))
			}
		}
	}
	return c.list("role_assignments", all)
}

func asked(want, have string) bool { return want == "" || want == have }

func (s *Service) assignmentView(c *call, r records.Reader, a *Assignment) object {
	role, user, on := object{"id": a.RoleID}, object{"id": a.UserID}, object{"id": a.ProjectID + a.DomainID}
	kind := "project"
	if a.DomainID != "" {
		kind = "domain"
	}
	if names := c.r.URL.Query(); names.Has("include_names") && names.Get("include_names") != "0" && names.Get("include_names") != "False" {
		s.addNames(r, a, role, user, on)
	}
	return object{"role": role, "user": user, "scope": object{kind: on},
		"links": self(c.r, kind+"s", a.ProjectID+a.DomainID, "users", a.UserID, "roles", a.RoleID)}
}

func (s *Service) addNames(r records.Reader, a *Assignment, role, user, on object) {
	domain := func(id string) object {
		d, ok := s.domains.Peek(r, id)
		if !ok {
			return object{"id": id}
		}
		return object{"id": id, "name": d.Name}
	}
	if v, ok := s.roles.Peek(r, a.RoleID); ok {
		role["name"] = v.Name
	}
	if v, ok := s.users.Peek(r, a.UserID); ok {
		user["name"], user["domain"] = v.Name, domain(v.DomainID)
	}
	if v, ok := s.projects.Peek(r, a.ProjectID); ok {
		on["name"], on["domain"] = v.Name, domain(v.DomainID)
	}
	if v, ok := s.domains.Peek(r, a.DomainID); ok {
		on["name"] = v.Name
	}
}
