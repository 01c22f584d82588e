package identity

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// appCredentialCalls serves application credentials, which let programs log in.
type appCredentialCalls struct {
	*directory
	issued    *tokenStore
	passwords *passwords
}

func (x *appCredentialCalls) routes() []route {
	const all = "/v3/users/{id}/application_credentials"
	return []route{
		{"GET " + all, "list_application_credentials", user, x.reading(x.list)},
		{"POST " + all, "create_application_credential", user, x.reading(x.create)},
		{"GET " + all + "/{credential}", "get_application_credential", user, x.reading(x.show)},
		{"DELETE " + all + "/{credential}", "delete_application_credential", user, x.reading(x.remove)},
	}
}

func (x *appCredentialCalls) render(c *call, r records.Reader, cred *AppCredential) object {
	roles := []object{}
	for _, g := range cred.Roles {
		if role, ok := x.roles.Peek(r, g.RoleID); ok {
			roles = append(roles, object{"id": role.ID, "name": role.Name, "domain_id": nil})
		}
	}
	o := object{"id": cred.ID, "name": cred.Name, "description": cred.Description, "user_id": cred.UserID, "project_id": cred.ProjectID,
		"roles": roles, "expires_at": nil, "unrestricted": cred.Unrestricted, "system": nil,
		"links": self(c.r, "users", cred.UserID, "application_credentials", cred.ID)}
	if cred.ExpiresAt != nil {
		o["expires_at"] = cred.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000000") // without Z, as in Keystone
	}
	return o
}

func (x *appCredentialCalls) list(c *call, snap *records.Snap) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	var all []object
	for cred := range x.credentials.By(snap, "user", c.path("id")) {
		all = append(all, x.render(c, snap, cred))
	}
	return c.list("application_credentials", all, "name")
}

func (x *appCredentialCalls) show(c *call, snap *records.Snap) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	cred, ok := x.credentials.Peek(snap, c.path("credential"))
	if !ok || cred.UserID != c.path("id") {
		return notFound("application credential", c.path("credential"))
	}
	return c.one(http.StatusOK, "application_credential", x.render(c, snap, cred))
}

// unrestricted returns an error for tokens of application credentials that may not make or delete
// others: a thief of a program's secret must not be able to make more of them.
func (x *appCredentialCalls) unrestricted(c *call, r records.Reader) error {
	l, err := x.issued.check(c.ctx(), c.r.Header.Get(api.TokenHeader))
	if err != nil {
		return err
	}
	if l.token.AppCredentialID == "" {
		return nil
	}
	if cred, ok := x.credentials.Peek(r, l.token.AppCredentialID); !ok || !cred.Unrestricted {
		return c.forbidden()
	}
	return nil
}

// maxAppCredentials is the number of application credentials of a user.
const maxAppCredentials = 100

func (x *appCredentialCalls) create(c *call, snap *records.Snap) error {
	if c.who.UserID != c.path("id") || c.who.ProjectID == "" {
		return c.forbidden() // users make them for themselves, on their token's project
	}
	if err := x.unrestricted(c, snap); err != nil {
		return err
	}
	cred := &AppCredential{ID: newID(), UserID: c.who.UserID, ProjectID: c.who.ProjectID}
	secret, err := x.read(c, snap, cred)
	if err != nil {
		return err
	}
	if cred.SecretHash, err = x.passwords.hash(c.ctx(), secret); err != nil {
		return err
	}
	err = x.update(c.ctx(), func(tx *records.Tx) error {
		if len(x.credentials.Referrers(tx, "user", cred.UserID)) >= maxAppCredentials {
			return api.Errorf(http.StatusForbidden, "Unable to create additional application credentials, maximum of %d already exceeded for user.", maxAppCredentials)
		}
		return x.credentials.Put(tx, cred)
	})
	if err != nil {
		return err
	}
	o := x.render(c, snap, cred)
	o["secret"] = secret // this once
	return c.one(http.StatusCreated, "application_credential", o)
}

// read reads the request into cred and returns the secret: the caller's, or a random one.
func (x *appCredentialCalls) read(c *call, r records.Reader, cred *AppCredential) (secret string, err error) {
	f := c.fields("application_credential")
	f.name(&cred.Name, maxLongName)
	f.text("description", &cred.Description)
	f.flag("unrestricted", &cred.Unrestricted)
	if f.text("secret", &secret); secret == "" {
		secret = rand.Text() + rand.Text()
	}
	var expires string
	if f.text("expires_at", &expires); expires != "" {
		end, err := parseExpiry(expires)
		if err != nil || !x.issued.now().Before(end) {
			f.fail("expires_at", "a time to come belongs there, such as 2030-01-02T15:04:05Z.")
		}
		cred.ExpiresAt = &end
	}
	if rules, given := f.left["access_rules"]; given && string(rules) != "[]" && string(rules) != "null" {
		f.fail("access_rules", "access rules cannot be had.")
	}
	var wanted []ref
	f.take("roles", &wanted, "a list of roles")
	cred.Roles, err = x.chosenRoles(r, cred, wanted)
	switch {
	case f.err != nil:
		return "", f.err
	case cred.Name == "":
		return "", missing("name", "application_credential")
	}
	return secret, err
}

// parseExpiry reads a time with or without a zone; without one it is UTC.
func parseExpiry(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Parse("2006-01-02T15:04:05", s)
}

// chosenRoles returns those of the user's roles on the project that the request names; all when it
// names none.
func (x *appCredentialCalls) chosenRoles(r records.Reader, cred *AppCredential, wanted []ref) ([]roleGrant, error) {
	have := x.grants(r, cred.UserID, target{projectID: cred.ProjectID})
	if len(wanted) == 0 {
		return have, nil
	}
	var chosen []roleGrant
	for _, w := range wanted {
		i := slices.IndexFunc(have, func(g roleGrant) bool {
			role, ok := x.roles.Peek(r, g.RoleID)
			return ok && (w.ID == role.ID || w.ID == "" && w.Name == role.Name)
		})
		if i < 0 {
			return nil, api.Errorf(http.StatusBadRequest, "Invalid application credential: the user has no role %s%s on the project.", w.ID, w.Name)
		}
		chosen = append(chosen, have[i])
	}
	return chosen, nil
}

func (x *appCredentialCalls) remove(c *call, snap *records.Snap) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	if err := x.unrestricted(c, snap); err != nil {
		return err
	}
	id := c.path("credential")
	return c.done(x.update(c.ctx(), func(tx *records.Tx) error {
		if cred, err := x.credentials.Get(tx, id); err != nil || cred.UserID != c.path("id") {
			return notFound("application credential", id)
		}
		return x.credentials.Delete(tx, id)
	}))
}
