package identity

import "heddle/internal/store/records"

// scopeCalls lists the projects and domains on which users have roles, to which they can scope
// tokens.
type scopeCalls struct{ *directory }

func (x *scopeCalls) routes() []route {
	return []route{
		{"GET /v3/auth/projects", "get_auth_projects", user, x.reading(x.ownProjects)},
		{"GET /v3/auth/domains", "get_auth_domains", user, x.reading(x.ownDomains)},
		{"GET /v3/users/{id}/projects", "list_user_projects", user, x.reading(x.userProjects)},
	}
}

func (x *scopeCalls) ownProjects(c *call, snap *records.Snap) error {
	return x.listProjectsOf(c, snap, c.who.UserID)
}

func (x *scopeCalls) userProjects(c *call, snap *records.Snap) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	return x.listProjectsOf(c, snap, c.path("id"))
}

// listProjectsOf answers with the enabled projects on which a user has roles.
func (d *directory) listProjectsOf(c *call, snap *records.Snap, userID string) error {
	all := []object{}
	for _, on := range d.targetsOf(snap, userID) {
		if p, ok := d.projects.Peek(snap, on.projectID); ok && p.Enabled {
			all = append(all, projectView(c.r, p))
		}
	}
	return c.list("projects", all, projectFilters()...)
}

func (x *scopeCalls) ownDomains(c *call, snap *records.Snap) error {
	all := []object{}
	for _, on := range x.targetsOf(snap, c.who.UserID) {
		if d, ok := x.domains.Peek(snap, on.domainID); ok && d.Enabled {
			all = append(all, domainView(c.r, d))
		}
	}
	return c.list("domains", all, "name", "enabled")
}
