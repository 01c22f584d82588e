package identity

import (
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// Roles that policies know. They are always there and cannot be changed.
const (
	AdminRole  = "admin"
	MemberRole = "member"
	ReaderRole = "reader"
)

// builtIn says whether a role is one of those that policies know.
func (r *Role) builtIn() bool {
	return slices.Contains([]string{AdminRole, MemberRole, ReaderRole}, r.Name)
}

func (r *Role) changeable() error {
	if r.builtIn() {
		return api.Errorf(http.StatusForbidden, "Unable to change immutable role resource: `%s`: policies know the role %s by its name.", r.ID, r.Name)
	}
	return nil
}

func (s *Service) listRoles(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	var all []object
	for r := range s.roles.All(snap) {
		all = append(all, roleView(c.r, r))
	}
	return c.list("roles", all, "name", "domain_id")
}

func (s *Service) showRole(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	r, err := s.roles.Get(snap, c.path("id"))
	if err != nil {
		return explain(err)
	}
	return c.one(http.StatusOK, "role", roleView(c.r, r))
}

// readRole puts what a request says over what r has.
func readRole(f *fields, r *Role) error {
	f.name(&r.Name, maxLongName)
	f.text("description", &r.Description)
	var domain string
	if f.text("domain_id", &domain); domain != "" {
		f.fail("domain_id", "roles belong to no domain.")
	}
	if f.err == nil && r.Name == "" {
		return missing("name", "role")
	}
	return f.err
}

func (s *Service) createRole(c *call) error {
	r := &Role{ID: newID()}
	if err := readRole(c.fields("role"), r); err != nil {
		return err
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.roles.Put(tx, r) }); err != nil {
		return err
	}
	return c.one(http.StatusCreated, "role", roleView(c.r, r))
}

func (s *Service) updateRole(c *call) error {
	body := c.fields("role")
	r, err := amend(c.ctx(), s, s.roles, c.path("id"), func(r *Role) error {
		if err := r.changeable(); err != nil {
			return err
		}
		f := body.again()
		f.same("id", r.ID)
		return readRole(f, r)
	})
	if err != nil {
		return err
	}
	return c.one(http.StatusOK, "role", roleView(c.r, r))
}

func (s *Service) deleteRole(c *call) error {
	err := s.update(c.ctx(), func(tx *records.Tx) error {
		r, err := s.roles.Get(tx, c.path("id"))
		if err != nil {
			return err
		}
		if err := r.changeable(); err != nil {
			return err
		}
		return s.roles.Delete(tx, r.ID)
	})
	if err != nil {
		return err
	}
	return c.none()
}
