package identity

import (
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// projectCalls serves projects and their tags.
type projectCalls struct{ resource[Project] }

func newProjects(d *directory) *projectCalls {
	return &projectCalls{resource[Project]{
		directory: d, table: d.projects, kind: "project", filters: projectFilters(), shows: user, render: projectView,
		mayShow: func(c *call, r records.Reader, id string) error {
			if !c.who.Admin() && id != c.who.ProjectID && len(d.grants(r, c.who.UserID, target{projectID: id})) == 0 {
				return c.forbidden()
			}
			return nil
		},
		create: func(c *call, f *fields) (*Project, error) {
			p := &Project{ID: newID(), DomainID: f.domain(c), Enabled: true}
			return p, readProject(f, p)
		},
		change: changing(updateProject),
		// Roles on the project are deleted too. What it owns in other services stays, as in
		// OpenStack.
		mayDelete: func(c *call, p *Project) error {
			if p.ID == c.who.ProjectID {
				return api.Errorf(http.StatusForbidden, "Cannot delete the project that the token asking for it is scoped to.")
			}
			return nil
		},
	}}
}

func projectFilters() []string {
	return []string{"name", "domain_id", "parent_id", "enabled", "is_domain"}
}

func (p *projectCalls) routes() []route {
	routes := p.resource.routes()
	routes[0].serve = p.reading(p.list)
	const tags = "/v3/projects/{id}/tags"
	return append(routes,
		route{"GET " + tags, "list_project_tags", user, p.reading(p.listTags)},
		route{"PUT " + tags, "update_project_tags", admin, p.replaceTags},
		route{"DELETE " + tags, "delete_project_tags", admin, p.deleteTags},
		route{"GET " + tags + "/{tag}", "get_project_tag", user, p.reading(p.checkTag)}, // and HEAD
		route{"PUT " + tags + "/{tag}", "create_project_tag", admin, p.addTag},
		route{"DELETE " + tags + "/{tag}", "delete_project_tag", admin, p.deleteTag},
	)
}

// list also answers OpenStackClient, which asks in this way for the projects of another user.
func (p *projectCalls) list(c *call, snap *records.Snap) error {
	if userID := c.query("user_id"); userID != "" {
		return p.listProjectsOf(c, snap, userID)
	}
	return p.resource.list(c, snap)
}

// readProject puts the attributes of a request over those of p.
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
	return f.named(p.Name, "project")
}

func updateProject(f *fields, p *Project) error {
	enabled := p.Enabled
	f.same("id", p.ID)
	f.same("domain_id", p.DomainID)
	if err := readProject(f, p); err != nil {
		return err
	}
	if enabled && !p.Enabled {
		p.Serial++
	}
	return nil
}

func (p *projectCalls) listTags(c *call, snap *records.Snap) error {
	o, err := p.visible(c, snap)
	return writeTags(c, o, err)
}

func writeTags(c *call, p *Project, err error) error {
	if err != nil {
		return err
	}
	api.WriteJSON(c.w, http.StatusOK, object{"tags": projectView(c.r, p)["tags"], "links": self(c.r, "projects", p.ID, "tags")})
	return nil
}

func (p *projectCalls) checkTag(c *call, snap *records.Snap) error {
	o, err := p.visible(c, snap)
	if err == nil && !slices.Contains(o.Tags, c.path("tag")) {
		err = noTag(c)
	}
	return c.done(err)
}

func noTag(c *call) error { return notFound("project tag", c.path("tag")) }

// retag changes the tags of the project that the path names.
func (p *projectCalls) retag(c *call, change func(tags []string) ([]string, error)) (*Project, error) {
	return amend(c.ctx(), p.directory, p.table, c.path("id"), func(o *Project) (err error) {
		o.Tags, err = change(slices.Clone(o.Tags))
		return err
	})
}

func (p *projectCalls) replaceTags(c *call) error {
	var body struct {
		Tags *[]string `json:"tags"`
	}
	if err := api.ReadJSON(c.r, &body); err != nil {
		return err
	}
	if body.Tags == nil {
		return missing("tags", "request body")
	}
	o, err := p.retag(c, func([]string) ([]string, error) { return checkTags(*body.Tags) })
	return writeTags(c, o, err)
}

func (p *projectCalls) addTag(c *call) error {
	_, err := p.retag(c, func(tags []string) ([]string, error) { return checkTags(append(tags, c.path("tag"))) })
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

func (p *projectCalls) deleteTag(c *call) error {
	_, err := p.retag(c, func(tags []string) ([]string, error) {
		i := slices.Index(tags, c.path("tag"))
		if i < 0 {
			return nil, noTag(c)
		}
		return slices.Delete(tags, i, i+1), nil
	})
	return c.done(err)
}

func (p *projectCalls) deleteTags(c *call) error {
	_, err := p.retag(c, func([]string) ([]string, error) { return nil, nil })
	return c.done(err)
}
