package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"heddle/internal/store/records"
)

const adminName = "admin" // of the first user and of that user's project

// BootstrapOptions describe the first administrator, and where the credentials are written.
type BootstrapOptions struct {
	// Password of the administrator; "" makes a random one at the first start and does nothing at
	// later ones. If it is given at a later start, it is set, and the administrator's roles are
	// restored, for operators who have lost it.
	Password string
	Dir      string // of clouds.yaml and openrc
	URL      string // of the identity service, with /v3
	CAFile   string // of the API's certificate, for the clients; "" = one they trust already
}

// errSeeded means that another server made the administrator meanwhile.
var errSeeded = errors.New("the administrator is there already")

// administrator makes what the first login needs.
type administrator struct {
	*directory
	passwords *passwords
	region    string
	log       *slog.Logger
}

// Bootstrap makes what the first login needs: the domain Default, the roles that policies refer to,
// and user and project admin. The credentials go to clouds.yaml and openrc, readable by their owner
// alone. The service must be running. Several servers may start at once over one store.
func (s *Service) Bootstrap(ctx context.Context, o BootstrapOptions) error {
	a := &administrator{s.directory, s.passwords, s.opts.Region, s.opts.Log}
	if err := a.bootstrap(ctx, o); err != nil {
		return fmt.Errorf("first administrator: %w", err)
	}
	return nil
}

func (a *administrator) bootstrap(ctx context.Context, o BootstrapOptions) error {
	snap, err := a.view(ctx)
	if err != nil {
		return err
	}
	files := cloudFiles{o, a.region}
	_, later := a.domains.Peek(snap, DefaultDomainID)
	if later && o.Password == "" {
		return files.refresh(a.log)
	}
	password := o.Password
	if password == "" {
		password = rand.Text()
	}
	hash, err := a.hashUnlessRight(ctx, a.user(snap), password)
	if err != nil {
		return err
	}
	// The files come first: a password that is not written anywhere would lock all users out.
	if err := files.write(password); err != nil {
		return err
	}
	err = a.update(ctx, func(tx *records.Tx) error { return a.seed(tx, later, hash) })
	if errors.Is(err, errSeeded) {
		return errors.Join(files.remove(), a.bootstrap(ctx, o))
	}
	return err
}

// hashUnlessRight returns the hash to store for the administrator; "" when the password is right
// already.
func (a *administrator) hashUnlessRight(ctx context.Context, user *User, password string) (string, error) {
	if user != nil && user.Enabled {
		if right, err := a.passwords.check(ctx, user.PasswordHash, password); err != nil || right {
			return "", err
		}
	}
	if user != nil {
		a.log.Warn("set the administrator's password, as requested at start", "user", user.Name)
	}
	return a.passwords.hash(ctx, password)
}

func (a *administrator) user(r records.Reader) *User {
	return first(a.users, r, "name", inDomain(DefaultDomainID, adminName))
}

// seed makes what is missing. With a hash the administrator gets this password.
func (a *administrator) seed(tx *records.Tx, later bool, hash string) error {
	_, err := a.domains.Get(tx, DefaultDomainID)
	if there := err == nil; there != later {
		return errSeeded
	}
	if !later {
		err := a.domains.Put(tx, &Domain{ID: DefaultDomainID, Name: "Default", Description: "The default domain", Enabled: true})
		if err != nil {
			return err
		}
	}
	project := first(a.projects, tx, "name", inDomain(DefaultDomainID, adminName))
	if project == nil {
		project = &Project{ID: newID(), DomainID: DefaultDomainID, Name: adminName, Description: "Administrators", Enabled: true}
		if err := a.projects.Put(tx, project); err != nil {
			return err
		}
	}
	user, err := a.seedUser(tx, project.ID, hash)
	if err != nil {
		return err
	}
	return a.seedRoles(tx, user, project)
}

func (a *administrator) seedUser(tx *records.Tx, projectID, hash string) (*User, error) {
	user := a.user(tx)
	switch {
	case user != nil && hash == "":
		return user, nil
	case user == nil:
		user = &User{ID: newID(), DomainID: DefaultDomainID, Name: adminName, DefaultProjectID: projectID}
	default:
		user = clone(user)
		user.Serial++
	}
	if hash != "" {
		user.PasswordHash, user.Enabled = hash, true
	}
	return user, a.users.Put(tx, user)
}

// seedRoles makes the roles that policies refer to and gives the administrator all of them on the
// project.
func (a *administrator) seedRoles(tx *records.Tx, user *User, project *Project) error {
	for _, name := range []string{AdminRole, MemberRole, ReaderRole} {
		role := first(a.roles, tx, "name", name)
		if role == nil {
			role = &Role{ID: newID(), Name: name}
			if err := a.roles.Put(tx, role); err != nil {
				return err
			}
		}
		if err := a.grant(tx, Assignment{UserID: user.ID, ProjectID: project.ID, RoleID: role.ID}); err != nil {
			return err
		}
	}
	return nil
}
