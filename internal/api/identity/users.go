package identity

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
	"heddle/internal/store/records"
)

func (s *Service) listUsers(c *call) error {
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	var all []object
	for u := range s.users.All(snap) {
		all = append(all, userView(c.r, u))
	}
	return c.list("users", all, "name", "domain_id", "enabled", "email", "default_project_id")
}

func (s *Service) showUser(c *call) error {
	if err := c.self(c.path("id")); err != nil {
		return err
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	u, err := s.users.Get(snap, c.path("id"))
	if err != nil {
		return explain(err)
	}
	return c.one(http.StatusOK, "user", userView(c.r, u))
}

// readUser puts what a request says, but for the password, over what u has.
func readUser(f *fields, u *User) error {
	f.name(&u.Name, maxLongName)
	f.flag("enabled", &u.Enabled)
	f.text("default_project_id", &u.DefaultProjectID)
	f.rest(&u.Extra, "password_expires_at", "federated", "original_password")
	if f.err == nil && u.Name == "" {
		return missing("name", "user")
	}
	return f.err
}

// takePassword takes the password out of a request; "" is none.
func takePassword(f *fields) (password string) {
	if f.text("password", &password); len(password) > credentials.MaxPassword {
		f.fail("password", "it may have %d bytes.", credentials.MaxPassword)
	}
	return password
}

// hashed is the stored form of a password; that of none is "", which nothing matches.
func (s *Service) hashed(ctx context.Context, password string) (string, error) {
	if password == "" {
		return "", nil
	}
	return s.passwords.hash(ctx, password)
}

func (s *Service) createUser(c *call) error {
	f := c.fields("user")
	u := &User{ID: newID(), DomainID: c.ownDomain(), Enabled: true}
	if f.text("domain_id", &u.DomainID); u.DomainID == "" {
		u.DomainID = c.ownDomain()
	}
	password := takePassword(f)
	err := readUser(f, u)
	if err != nil {
		return err
	}
	if u.PasswordHash, err = s.hashed(c.ctx(), password); err != nil {
		return err
	}
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.users.Put(tx, u) }); err != nil {
		return err
	}
	return c.one(http.StatusCreated, "user", userView(c.r, u))
}

// updateUser changes a user; a new password and disabling him end his tokens.
func (s *Service) updateUser(c *call) error {
	body := c.fields("user")
	_, newPassword := body.left["password"]
	hash, err := s.hashed(c.ctx(), takePassword(body))
	if err != nil {
		return err
	}
	u, err := amend(c.ctx(), s, s.users, c.path("id"), func(u *User) error {
		f, enabled := body.again(), u.Enabled
		f.same("id", u.ID)
		f.same("domain_id", u.DomainID)
		if err := readUser(f, u); err != nil {
			return err
		}
		if newPassword {
			u.PasswordHash = hash
		}
		if newPassword || enabled && !u.Enabled {
			u.Serial++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.one(http.StatusOK, "user", userView(c.r, u))
}

func (s *Service) deleteUser(c *call) error {
	if err := s.update(c.ctx(), func(tx *records.Tx) error { return s.users.Delete(tx, c.path("id")) }); err != nil {
		return err
	}
	return c.none()
}

// changePassword lets a user who knows his password choose another. His tokens end, the one he asks with too. An admin
// needs the original here as well; without it he sets a password by updating the user.
func (s *Service) changePassword(c *call) error {
	id := c.path("id")
	if err := c.self(id); err != nil {
		return err
	}
	f := c.fields("user")
	var original string
	f.text("original_password", &original)
	password := takePassword(f)
	switch {
	case f.err != nil:
		return f.err
	case original == "":
		return missing("original_password", "user")
	case password == "":
		return missing("password", "user")
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	before, err := s.users.Get(snap, id)
	if err != nil {
		return explain(err)
	}
	if err := s.guess(c.ctx(), id, before.PasswordHash, original); err != nil {
		return err
	}
	hash, err := s.passwords.hash(c.ctx(), password)
	if err != nil {
		return err
	}
	_, err = amend(c.ctx(), s, s.users, id, func(u *User) error {
		if u.PasswordHash != before.PasswordHash {
			return api.ErrUnauthorized // changed meanwhile: the original is no longer right
		}
		u.PasswordHash = hash
		u.Serial++
		return nil
	})
	if err != nil {
		return err
	}
	return c.none()
}
