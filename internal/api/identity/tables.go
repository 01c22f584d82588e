package identity

import (
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// tables holds the records of the identity service. Deleting an object also deletes what depends on
// it. Tokens stay: they are invalid without their user and vanish with their lease.
type tables struct {
	domains     *records.Table[Domain]
	projects    *records.Table[Project]
	users       *records.Table[User]
	roles       *records.Table[Role]
	assignments *records.Table[Assignment]
	credentials *records.Table[AppCredential]
	tokens      *records.Table[Token]
}

func newTables() *tables {
	const prefix = schema.IdentityPrefix
	t := &tables{}
	t.domains = records.NewTable("domain", prefix+"domains/", func(d *Domain) string { return d.ID },
		records.Unique("name", func(d *Domain) []string { return []string{d.Name} }))
	t.projects = records.NewTable("project", prefix+"projects/", func(p *Project) string { return p.ID },
		records.Unique("name", func(p *Project) []string { return []string{inDomain(p.DomainID, p.Name)} }),
		records.Ref("domain", t.domains, func(p *Project) []string { return []string{p.DomainID} }, records.Cascade()))
	t.users = records.NewTable("user", prefix+"users/", func(u *User) string { return u.ID },
		records.Unique("name", func(u *User) []string { return []string{inDomain(u.DomainID, u.Name)} }),
		records.Ref("domain", t.domains, func(u *User) []string { return []string{u.DomainID} }, records.Cascade()),
		records.Ref("default_project", t.projects, func(u *User) []string { return []string{u.DefaultProjectID} },
			records.ClearWith(func(u *User, _ string) { u.DefaultProjectID = "" })))
	t.roles = records.NewTable("role", prefix+"roles/", func(r *Role) string { return r.ID },
		records.Unique("name", func(r *Role) []string { return []string{r.Name} }))
	t.assignments = records.NewTable("assignment", prefix+"assignments/", (*Assignment).key,
		records.Ref("user", t.users, func(a *Assignment) []string { return []string{a.UserID} }, records.Cascade()),
		records.Ref("role", t.roles, func(a *Assignment) []string { return []string{a.RoleID} }, records.Cascade()),
		records.Ref("project", t.projects, func(a *Assignment) []string { return []string{a.ProjectID} }, records.Cascade()),
		records.Ref("domain", t.domains, func(a *Assignment) []string { return []string{a.DomainID} }, records.Cascade()))
	t.credentials = records.NewTable("application_credential", prefix+"credentials/", func(c *AppCredential) string { return c.ID },
		records.Unique("name", func(c *AppCredential) []string { return []string{inDomain(c.UserID, c.Name)} }),
		records.Ref("user", t.users, func(c *AppCredential) []string { return []string{c.UserID} }, records.Cascade()),
		records.Ref("project", t.projects, func(c *AppCredential) []string { return []string{c.ProjectID} }, records.Cascade()))
	t.tokens = records.NewTable("token", prefix+"tokens/", func(t *Token) string { return t.Hash })
	return t
}

// inDomain is a name that is unique below a parent, as a key.
func inDomain(parentID, name string) string { return parentID + "/" + name }

// all are the tables as a replica takes them.
func (t *tables) all() []snapshot.Table {
	return []snapshot.Table{t.domains, t.projects, t.users, t.roles, t.assignments, t.credentials, t.tokens}
}

// first is the only element of an index on unique names, or nil.
func first[T any](t *records.Table[T], r records.Reader, index, value string) *T {
	for v := range t.By(r, index, value) {
		return v
	}
	return nil
}
