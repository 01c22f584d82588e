package identity

import (
	"net/http"
	"slices"

	"heddle/internal/api"
)

func (s *Service) listTags(c *call) error {
	p, err := s.visible(c)
	if err != nil {
		return err
	}
	return c.tags(p)
}

func (c *call) tags(p *Project) error {
	api.WriteJSON(c.w, http.StatusOK, object{"tags": projectView(c.r, p)["tags"], "links": self(c.r, "projects", p.ID, "tags")})
	return nil
}

func (s *Service) checkTag(c *call) error {
	p, err := s.visible(c)
	if err != nil {
		return err
	}
	if !slices.Contains(p.Tags, c.path("tag")) {
		return noTag(c)
	}
	return c.none()
}

func noTag(c *call) error { return notFound("project tag", c.path("tag")) }

// retag changes the tags of the project that the path names.
func (s *Service) retag(c *call, change func(tags []string) ([]string, error)) (*Project, error) {
	return amend(c.ctx(), s, s.projects, c.path("id"), func(p *Project) (err error) {
		p.Tags, err = change(slices.Clone(p.Tags))
		return err
	})
}

func (s *Service) replaceTags(c *call) error {
	var body struct {
		Tags *[]string `json:"tags"`
	}
	if err := api.ReadJSON(c.r, &body); err != nil {
		return err
	}
	if body.Tags == nil {
		return missing("tags", "request body")
	}
	p, err := s.retag(c, func([]string) ([]string, error) { return checkTags(*body.Tags) })
	if err != nil {
		return err
	}
	return c.tags(p)
}

func (s *Service) addTag(c *call) error {
	_, err := s.retag(c, func(tags []string) ([]string, error) { return checkTags(append(tags, c.path("tag"))) })
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

func (s *Service) deleteTag(c *call) error {
	_, err := s.retag(c, func(tags []string) ([]string, error) {
		i := slices.Index(tags, c.path("tag"))
		if i < 0 {
			return nil, noTag(c)
		}
		return slices.Delete(tags, i, i+1), nil
	})
	if err != nil {
		return err
	}
	return c.none()
}

func (s *Service) deleteTags(c *call) error {
	if _, err := s.retag(c, func([]string) ([]string, error) { return nil, nil }); err != nil {
		return err
	}
	return c.none()
}
