package identity

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// byAppCredential logs in with an application credential: as its user, on its project, with its roles.
func (s *Service) byAppCredential(ctx context.Context, snap *records.Snap, ask *authRequest) (*Token, error) {
	named := ask.Identity.AppCredential
	var cred *AppCredential
	key, stored := "credential/"+named.ID, ""
	if named.ID != "" {
		cred, _ = s.credentials.Peek(snap, named.ID)
	} else {
		key = "credential/" + named.User.key() + "/" + named.Name
		if u := s.findUser(snap, &named.User.ref); u != nil {
			cred = first(s.credentials, snap, "name", inDomain(u.ID, named.Name))
		}
	}
	if cred != nil {
		stored = cred.SecretHash
	}
	if err := s.guess(ctx, key, stored, named.Secret); err != nil {
		return nil, err
	}
	now := s.opts.Now()
	t := &Token{UserID: cred.UserID, ProjectID: cred.ProjectID, Methods: []string{"application_credential"}, Roles: cred.Roles, AppCredentialID: cred.ID}
	if end := cred.ExpiresAt; end != nil {
		if !now.Before(*end) {
			return nil, api.ErrUnauthorized
		}
		t.ExpiresAt = earlier(now.Add(s.opts.TokenLife), *end)
	}
	return t, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (s *Service) appCredentialView(c *call, r records.Reader, cred *AppCredential) object {
	roles := []object{}
	for _, g := range cred.Roles {
		if role, ok := s.roles.Peek(r, g.RoleID); ok {
			roles = append(roles, object{"id": role.ID, "name": role.Name, "domain_id": nil})
		}
	}
	o := object{"id": cred.ID, "name": cred.Name, "description": cred.Description, "user_id": cred.UserID, "project_id": cred.ProjectID,
		"roles": roles, "expires_at": nil, "unrestricted": cred.Unrestricted, "system": nil,
		"links": self(c.r, "users", cred.UserID, "application_credentials", cred.ID)}
	if cred.ExpiresAt != nil {
		o["expires_at"] = cred.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000000") // without Z, as Keystone has it here
	}
	return o
}

func (s *Service) listAppCredentials(c *call) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	var all []object
	for cred := range s.credentials.By(snap, "user", c.path("id")) {
		all = append(all, s.appCredentialView(c, snap, cred))
	}
	return c.list("application_credentials", all, "name")
}

func (s *Service) showAppCredential(c *call) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	cred, ok := s.credentials.Peek(snap, c.path("credential"))
	if !ok || cred.UserID != c.path("id") {
		return notFound("application credential", c.path("credential"))
	}
	return c.one(http.StatusOK, "application_credential", s.appCredentialView(c, snap, cred))
}

// unrestricted refuses tokens of application credentials that may not make or delete others: a program that lost its
// secret to a thief must not have given him new ones.
func (s *Service) unrestricted(c *call, r records.Reader) error {
	l, err := s.check(c.ctx(), c.r.Header.Get(api.TokenHeader))
	if err != nil {
		return err
	}
	if l.token.AppCredentialID == "" {
		return nil
	}
	if cred, ok := s.credentials.Peek(r, l.token.AppCredentialID); !ok || !cred.Unrestricted {
		return c.forbidden()
	}
	return nil
}

func (s *Service) createAppCredential(c *call) error {
	if c.who.UserID != c.path("id") || c.who.ProjectID == "" {
		return c.forbidden() // for oneself, on the project one's token is for
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	if err := s.unrestricted(c, snap); err != nil {
		return err
	}
	cred := &AppCredential{ID: newID(), UserID: c.who.UserID, ProjectID: c.who.ProjectID}
	secret, err := s.readAppCredential(c, snap, cred)
	if err != nil {
		return err
	}
	if cred.SecretHash, err = s.passwords.hash(c.ctx(), secret); err != nil {
		return err
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.credentials.Put(tx, cred) }); err != nil {
		return err
	}
	o := s.appCredentialView(c, snap, cred)
	o["secret"] = secret // this once
	return c.one(http.StatusCreated, "application_credential", o)
}

// readAppCredential reads the request into cred and returns the secret: the caller's, or one made up.
func (s *Service) readAppCredential(c *call, r records.Reader, cred *AppCredential) (secret string, err error) {
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
		if err != nil || !s.opts.Now().Before(end) {
			f.fail("expires_at", "a time to come belongs there, such as 2030-01-02T15:04:05Z.")
		}
		cred.ExpiresAt = &end
	}
	if rules, given := f.left["access_rules"]; given && string(rules) != "[]" && string(rules) != "null" {
		f.fail("access_rules", "access rules cannot be had.")
	}
	var wanted []ref
	f.take("roles", &wanted, "a list of roles")
	cred.Roles, err = s.chosenRoles(r, cred, wanted)
	switch {
	case f.err != nil:
		return "", f.err
	case cred.Name == "":
		return "", missing("name", "application_credential")
	}
	return secret, err
}

// parseExpiry takes a time with or without zone; without, it is UTC.
func parseExpiry(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Parse("2006-01-02T15:04:05", s)
}

// chosenRoles are those of the user's roles on the project that are wanted; all when none is named.
func (s *Service) chosenRoles(r records.Reader, cred *AppCredential, wanted []ref) ([]roleGrant, error) {
	have := s.grants(r, cred.UserID, target{projectID: cred.ProjectID})
	if len(wanted) == 0 {
		return have, nil
	}
	var chosen []roleGrant
	for _, w := range wanted {
		i := slices.IndexFunc(have, func(g roleGrant) bool {
			role, ok := s.roles.Peek(r, g.RoleID)
			return ok && (w.ID == role.ID || w.ID == "" && w.Name == role.Name)
		})
		if i < 0 {
			return nil, api.Errorf(http.StatusBadRequest, "Invalid application credential: the user has no role %s%s on the project.", w.ID, w.Name)
		}
		chosen = append(chosen, have[i])
	}
	return chosen, nil
}

func (s *Service) deleteAppCredential(c *call) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	if err := s.unrestricted(c, snap); err != nil {
		return err
	}
	id := c.path("credential")
	err = s.update(c.ctx(), func(tx *records.Tx) error {
		if cred, err := s.credentials.Get(tx, id); err != nil || cred.UserID != c.path("id") {
			return notFound("application credential", id)
		}
		return s.credentials.Delete(tx, id)
	})
	if err != nil {
		return err
	}
	return c.none()
}
