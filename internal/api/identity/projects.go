package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

func projectFilters() []string {
	return []string{"name", "domain_id", "parent_id", "enabled", "is_domain"}
}

func (s *Service) listProjects(c *call) error {
	// OpenStackClient asks for another user's projects in this way.
	if userID := c.query("user_id"); userID != "" {
		return s.listProjectsOf(c, userID)
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	var all []object
	for p := range s.projects.All(snap) {
		all = append(all, projectView(c.r, p))
	}
	return c.list("projects", all, projectFilters()...)
}

// visible is a project that the caller may see: any for admins, otherwise those he has a role on.
func (s *Service) visible(c *call) (*Project, error) {
	snap, err := s.view(c.ctx())
	if err != nil {
		return nil, err
	}
	id := c.path("id")
	if !c.who.Admin() && id != c.who.ProjectID && len(s.grants(snap, c.who.UserID, target{projectID: id})) == 0 {
		return nil, c.forbidden()
	}
	p, err := s.projects.Get(snap, id)
	return p, explain(err)
}

func (s *Service) showProject(c *call) error {
	p, err := s.visible(c)
	if err != nil {
		return err
	}
	return c.one(http.StatusOK, "project", projectView(c.r, p))
}

// readProject puts what a request says over what p has.
func readProject(f *fields, p *Project) error {
	f.name(&p.Name, maxName)
	f.text("description", &p.Description)
	f.flag("enabled", &p.Enabled)
	f.tags(&p.Tags)
	var isDomain bool
	if f.flag("is_domain", &isDomain); isDomain {
		f.fail("is_domain", "a project that acts as a domain cannot be had; make a domain.")
	}
	parent := p.DomainID
	if f.text("parent_id", &parent); parent != "" && parent != p.DomainID {
		f.fail("parent_id", "projects lie directly in their domain, not in other projects.")
	}
	f.rest(&p.Extra)
	if f.err == nil && p.Name == "" {
		return missing("name", "project")
	}
	return f.err
}

func (s *Service) createProject(c *call) error {
	f := c.fields("project")
	p := &Project{ID: newID(), DomainID: c.ownDomain(), Enabled: true}
	if f.text("domain_id", &p.DomainID); p.DomainID == "" {
		p.DomainID = c.ownDomain()
	}
	if err := readProject(f, p); err != nil {
		return err
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.projects.Put(tx, p) }); err != nil {
		return err
	}
	return c.one(http.StatusCreated, "project", projectView(c.r, p))
}

// ownDomain is where objects are made when the request does not say: where the caller's token is scoped to.
func (c *call) ownDomain() string {
	for _, id := range []string{c.who.DomainID, c.who.ProjectDomainID} {
		if id != "" {
			return id
		}
	}
	return DefaultDomainID
}

func (s *Service) updateProject(c *call) error {
	body := c.fields("project")
	p, err := amend(c.ctx(), s, s.projects, c.path("id"), func(p *Project) error {
		f, enabled := body.again(), p.Enabled
		f.same("id", p.ID)
		f.same("domain_id", p.DomainID)
		if err := readProject(f, p); err != nil {
			return err
		}
		if enabled && !p.Enabled {
			p.Serial++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.one(http.StatusOK, "project", projectView(c.r, p))
}

// deleteProject takes the roles given on it along. What the project owns in other services stays, as in OpenStack.
func (s *Service) deleteProject(c *call) error {
	id := c.path("id")
	if id == c.who.ProjectID {
		return api.Errorf(http.StatusForbidden, "Cannot delete the project that the token asking for it is scoped to.")
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.projects.Delete(tx, id) }); err != nil {
		return err
	}
	return c.none()
}
