package identity

import (
	"context"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
	"heddle/internal/store/records"
)

// userCalls serves users and their passwords.
type userCalls struct {
	resource[User]
	passwords *passwords
}

func newUsers(d *directory, p *passwords) *userCalls {
	u := &userCalls{passwords: p}
	u.resource = resource[User]{
		directory: d, table: d.users, kind: "user", shows: user, render: userView, create: u.create, change: u.change,
		filters: []string{"name", "domain_id", "enabled", "email", "default_project_id"},
		mayShow: func(c *call, _ records.Reader, id string) error { return c.self(id) },
	}
	return u
}

func (u *userCalls) routes() []route {
	return append(u.resource.routes(), route{"POST /v3/users/{id}/password", "change_password", user, u.changePassword})
}

// readUser puts the attributes of a request, but for the password, over those of u.
func readUser(f *fields, u *User) error {
	f.name(&u.Name, maxLongName)
	f.flag("enabled", &u.Enabled)
	f.text("default_project_id", &u.DefaultProjectID)
	f.rest(&u.Extra, "password_expires_at", "federated", "original_password")
	return f.named(u.Name, "user")
}

// takePassword takes the password out of a request; "" is none.
func takePassword(f *fields) (password string) {
	if f.text("password", &password); len(password) > credentials.MaxPassword {
		f.fail("password", "it may have %d bytes.", credentials.MaxPassword)
	}
	return password
}

// hashed returns the stored form of a password; that of none is "", which nothing matches.
func (u *userCalls) hashed(ctx context.Context, password string) (string, error) {
	if password == "" {
		return "", nil
	}
	return u.passwords.hash(ctx, password)
}

func (u *userCalls) create(c *call, f *fields) (*User, error) {
	made := &User{ID: newID(), DomainID: f.domain(c), Enabled: true}
	password := takePassword(f)
	err := readUser(f, made)
	if err == nil {
		made.PasswordHash, err = u.hashed(c.ctx(), password)
	}
	return made, err
}

// change changes a user. A new password ends the user's tokens, and so does disabling.
func (u *userCalls) change(c *call, body *fields) (func(*User) error, error) {
	_, newPassword := body.left["password"]
	hash, err := u.hashed(c.ctx(), takePassword(body))
	return func(o *User) error {
		f, enabled := body.again(), o.Enabled
		f.same("id", o.ID)
		f.same("domain_id", o.DomainID)
		if err := readUser(f, o); err != nil {
			return err
		}
		if newPassword {
			o.PasswordHash = hash
		}
		if newPassword || enabled && !o.Enabled {
			o.Serial++
		}
		return nil
	}, err
}

// changePassword lets a user who knows the password choose another. The user's tokens end, that of
// the request too. An admin needs the original here as well; without it an admin sets a password by
// updating the user.
func (u *userCalls) changePassword(c *call) error {
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
	snap, err := u.view(c.ctx())
	if err != nil {
		return err
	}
	before, err := u.table.Get(snap, id)
	if err != nil {
		return explain(err)
	}
	if err := u.passwords.login(c.ctx(), id, before.PasswordHash, original); err != nil {
		u.passwords.note(c.ctx(), before.Name, err)
		return err
	}
	hash, err := u.passwords.hash(c.ctx(), password)
	if err != nil {
		return err
	}
	_, err = amend(c.ctx(), u.directory, u.table, id, func(o *User) error {
		if o.PasswordHash != before.PasswordHash {
			return api.ErrUnauthorized // changed meanwhile: the original is no longer right
		}
		o.PasswordHash = hash
		o.Serial++
		return nil
	})
	return c.done(err)
}
