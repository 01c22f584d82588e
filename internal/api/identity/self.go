package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// subject is the token that a call is about, named in a header beside the caller's own. He may ask about his own
// tokens, and services and admins about any.
func (s *Service) subject(c *call) (*live, error) {
	token := c.r.Header.Get(subjectTokenHeader)
	if token == "" {
		return nil, missing(subjectTokenHeader, "the request's headers")
	}
	l, err := s.check(c.ctx(), token)
	if err == api.ErrUnauthorized {
		return nil, notFound("token", "it is unknown, expired or revoked")
	} else if err != nil {
		return nil, err
	}
	return l, c.self(l.identity.UserID)
}

func (s *Service) showToken(c *call) error {
	l, err := s.subject(c)
	if err != nil {
		return err
	}
	c.w.Header().Set(subjectTokenHeader, c.r.Header.Get(subjectTokenHeader))
	return c.one(http.StatusOK, "token", s.tokenView(c.r, l))
}

func (s *Service) revokeToken(c *call) error {
	l, err := s.subject(c)
	if err != nil {
		return err
	}
	if err := s.revoke(c.ctx(), l.token); err != nil {
		return err
	}
	return c.none()
}

func (s *Service) showCatalog(c *call) error {
	return c.list("catalog", s.catalog.view(c.r))
}

// ownProjects lists what the caller can scope a token to.
func (s *Service) ownProjects(c *call) error { return s.listProjectsOf(c, c.who.UserID) }

func (s *Service) userProjects(c *call) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	return s.listProjectsOf(c, c.path("id"))
}

func (s *Service) listProjectsOf(c *call, userID string) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	all := []object{}
	for _, on := range s.targetsOf(snap, userID) {
		if p, ok := s.projects.Peek(snap, on.projectID); ok && p.Enabled {
			all = append(all, projectView(c.r, p))
		}
	}
	return c.list("projects", all, projectFilters()...)
}

func (s *Service) ownDomains(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	all := []object{}
	for _, on := range s.targetsOf(snap, c.who.UserID) {
		if d, ok := s.domains.Peek(snap, on.domainID); ok && d.Enabled {
			all = append(all, domainView(c.r, d))
		}
	}
	return c.list("domains", all, domainFilters()...)
}

// targetsOf are the projects and domains on which a user has roles, each once.
func (s *Service) targetsOf(r records.Reader, userID string) []target {
	var list []target
	seen := map[target]bool{}
	for a := range s.assignments.By(r, "user", userID) {
		if on := a.target(); !seen[on] {
			seen[on] = true
			list = append(list, on)
		}
	}
	return list
}
