package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// DefaultDomainID is the id of the domain that is always there.
const DefaultDomainID = "default"

func domainFilters() []string { return []string{"name", "enabled"} }

func (s *Service) listDomains(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	var all []object
	for d := range s.domains.All(snap) {
		all = append(all, domainView(c.r, d))
	}
	return c.list("domains", all, domainFilters()...)
}

func (s *Service) showDomain(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	id := c.path("id")
	if !c.who.Admin() && id != c.who.UserDomainID && id != c.who.ProjectDomainID && id != c.who.DomainID {
		return c.forbidden()
	}
	d, err := s.domains.Get(snap, id)
	if err != nil {
		return explain(err)
	}
	return c.one(http.StatusOK, "domain", domainView(c.r, d))
}

// readDomain puts what a request says over what d has.
func readDomain(f *fields, d *Domain) error {
	f.name(&d.Name, maxName)
	f.text("description", &d.Description)
	f.flag("enabled", &d.Enabled)
	if f.err == nil && d.Name == "" {
		return missing("name", "domain")
	}
	return f.err
}

func (s *Service) createDomain(c *call) error {
	d := &Domain{ID: newID(), Enabled: true}
	if err := readDomain(c.fields("domain"), d); err != nil {
		return err
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.domains.Put(tx, d) }); err != nil {
		return err
	}
	return c.one(http.StatusCreated, "domain", domainView(c.r, d))
}

func (s *Service) updateDomain(c *call) error {
	body := c.fields("domain")
	d, err := amend(c.ctx(), s, s.domains, c.path("id"), func(d *Domain) error {
		f, enabled := body.again(), d.Enabled
		f.same("id", d.ID)
		if err := readDomain(f, d); err != nil {
			return err
		}
		if d.ID == DefaultDomainID && !d.Enabled {
			return api.Errorf(http.StatusForbidden, "The default domain cannot be disabled: nobody could log in to enable it again.")
		}
		if enabled && !d.Enabled {
			d.Serial++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.one(http.StatusOK, "domain", domainView(c.r, d))
}

func (s *Service) deleteDomain(c *call) error {
	err := s.update(c.ctx(), func(tx *records.Tx) error {
		d, err := s.domains.Get(tx, c.path("id"))
		if err != nil {
			return err
		}
		if d.Enabled {
			return api.Errorf(http.StatusForbidden, "Cannot delete a domain that is enabled, please disable it first.")
		}
		return s.domains.Delete(tx, d.ID)
	})
	if err != nil {
		return err
	}
	return c.none()
}
