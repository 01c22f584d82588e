package identity

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// DefaultDomainID is the id of the domain that always exists.
const DefaultDomainID = "default"

func newDomains(d *directory) *resource[Domain] {
	return &resource[Domain]{
		directory: d, table: d.domains, kind: "domain", filters: []string{"name", "enabled"}, shows: user, render: domainView,
		mayShow: func(c *call, _ records.Reader, id string) error {
			if !c.who.Admin() && id != c.who.UserDomainID && id != c.who.ProjectDomainID && id != c.who.DomainID {
				return c.forbidden()
			}
			return nil
		},
		create: func(_ *call, f *fields) (*Domain, error) {
			d := &Domain{ID: newID(), Enabled: true}
			return d, readDomain(f, d)
		},
		change: changing(updateDomain),
		mayDelete: func(_ *call, d *Domain) error {
			if d.Enabled {
				return api.Errorf(http.StatusForbidden, "Cannot delete a domain that is enabled, please disable it first.")
			}
			return nil
		},
	}
}

func readDomain(f *fields, d *Domain) error {
	f.name(&d.Name, maxName)
	f.text("description", &d.Description)
	f.flag("enabled", &d.Enabled)
	return f.named(d.Name, "domain")
}

func updateDomain(f *fields, d *Domain) error {
	enabled := d.Enabled
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
}
