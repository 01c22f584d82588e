package identity

import (
	"net/http"
	"slices"

	"heddle/internal/api"
)

// Roles that policies refer to by name. They always exist and cannot be changed.
const (
	AdminRole  = "admin"
	MemberRole = "member"
	ReaderRole = "reader"
)

func newRoles(d *directory) *resource[Role] {
	return &resource[Role]{
		directory: d, table: d.roles, kind: "role", filters: []string{"name", "domain_id"}, shows: admin, render: roleView,
		create: func(_ *call, f *fields) (*Role, error) {
			r := &Role{ID: newID()}
			return r, readRole(f, r)
		},
		change: changing(func(f *fields, r *Role) error {
			if err := r.changeable(); err != nil {
				return err
			}
			f.same("id", r.ID)
			return readRole(f, r)
		}),
		mayDelete: func(_ *call, r *Role) error { return r.changeable() },
	}
}

// changeable returns an error for the roles that policies refer to.
func (r *Role) changeable() error {
	if slices.Contains([]string{AdminRole, MemberRole, ReaderRole}, r.Name) {
		return api.Errorf(http.StatusForbidden, "Unable to change immutable role resource: `%s`: policies know the role %s by its name.", r.ID, r.Name)
	}
	return nil
}

func readRole(f *fields, r *Role) error {
	f.name(&r.Name, maxLongName)
	f.text("description", &r.Description)
	var domain string
	if f.text("domain_id", &domain); domain != "" {
		f.fail("domain_id", "roles belong to no domain.")
	}
	return f.named(r.Name, "role")
}
