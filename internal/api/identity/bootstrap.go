package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

const (
	adminName = "admin" // of the first user and of his project
	cloudName = "heddle"
)

// BootstrapOptions say who the first administrator is and where to leave him the key.
type BootstrapOptions struct {
	// Password of the administrator; "" makes a random one at the first start and does nothing at later ones. Given at
	// a later start, it is set anew and his roles are given back: that lets in an operator who has lost his.
	Password string
	Dir      string // where clouds.yaml and openrc are written
	URL      string // of the identity service, with /v3
	CAFile   string // of the API's certificate, for the clients; "" = one they know
}

// errSeeded says that another server made the administrator meanwhile.
var errSeeded = errors.New("the administrator is there already")

// Bootstrap makes what the first login needs: the domain Default, the roles that policies know, and user and project
// admin. The credentials go to clouds.yaml and openrc, readable by their owner alone. The service must be running.
// Several servers may start at once over one store.
func (s *Service) Bootstrap(ctx context.Context, o BootstrapOptions) error {
	if err := s.bootstrap(ctx, o); err != nil {
		return fmt.Errorf("first administrator: %w", err)
	}
	return nil
}

func (s *Service) bootstrap(ctx context.Context, o BootstrapOptions) error {
	snap, err := s.view(ctx)
	if err != nil {
		return err
	}
	_, later := s.domains.Peek(snap, DefaultDomainID)
	if later && o.Password == "" {
		return s.refreshClouds(o)
	}
	password := o.Password
	if password == "" {
		password = rand.Text()
	}
	hash, err := s.hashUnlessRight(ctx, s.adminUser(snap), password)
	if err != nil {
		return err
	}
	// The files come first: a password that nobody has would lock everybody out.
	if err := s.writeClouds(o, password); err != nil {
		return err
	}
	err = s.update(ctx, func(tx *records.Tx) error { return s.seed(tx, later, hash) })
	if errors.Is(err, errSeeded) {
		return errors.Join(removeClouds(o.Dir), s.bootstrap(ctx, o))
	}
	return err
}

// hashUnlessRight is the hash to store for the administrator; "" when he can log in with the password already.
func (s *Service) hashUnlessRight(ctx context.Context, user *User, password string) (string, error) {
	if user != nil && user.Enabled {
		if right, err := s.passwords.check(ctx, user.PasswordHash, password); err != nil || right {
			return "", err
		}
	}
	if user != nil {
		s.opts.Log.Warn("the administrator's password is set anew, as asked at start", "user", user.Name)
	}
	return s.passwords.hash(ctx, password)
}

func (s *Service) adminUser(r records.Reader) *User {
	return first(s.users, r, "name", inDomain(DefaultDomainID, adminName))
}

// seed makes what is missing. With a hash the administrator gets this password.
func (s *Service) seed(tx *records.Tx, later bool, hash string) error {
	_, err := s.domains.Get(tx, DefaultDomainID)
	if there := err == nil; there != later {
		return errSeeded
	}
	err = putMissing(tx, s.domains, DefaultDomainID, &Domain{ID: DefaultDomainID, Name: "Default", Description: "The default domain", Enabled: true})
	if err != nil {
		return err
	}
	project := first(s.projects, tx, "name", inDomain(DefaultDomainID, adminName))
	if project == nil {
		project = &Project{ID: newID(), DomainID: DefaultDomainID, Name: adminName, Description: "Administrators", Enabled: true}
		if err := s.projects.Put(tx, project); err != nil {
			return err
		}
	}
	user, err := s.seedAdmin(tx, project.ID, hash)
	if err != nil {
		return err
	}
	return s.seedRoles(tx, user, project)
}

func putMissing[T any](tx *records.Tx, t *records.Table[T], id string, record *T) error {
	if _, err := t.Get(tx, id); err == nil {
		return nil
	}
	return t.Put(tx, record)
}

func (s *Service) seedAdmin(tx *records.Tx, projectID, hash string) (*User, error) {
	user := s.adminUser(tx)
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
	return user, s.users.Put(tx, user)
}

// seedRoles makes the roles that policies know and gives the administrator all of them on his project.
func (s *Service) seedRoles(tx *records.Tx, user *User, project *Project) error {
	for _, name := range []string{AdminRole, MemberRole, ReaderRole} {
		role := first(s.roles, tx, "name", name)
		if role == nil {
			role = &Role{ID: newID(), Name: name}
			if err := s.roles.Put(tx, role); err != nil {
				return err
			}
		}
		if err := s.grant(tx, Assignment{UserID: user.ID, ProjectID: project.ID, RoleID: role.ID}); err != nil {
			return err
		}
	}
	return nil
}

func cloudsFiles(dir string) (clouds, openrc string) {
	return filepath.Join(dir, "clouds.yaml"), filepath.Join(dir, "openrc")
}

func removeClouds(dir string) error {
	clouds, openrc := cloudsFiles(dir)
	return errors.Join(os.Remove(clouds), os.Remove(openrc))
}

// refreshClouds keeps the files true when the server's address or authority has changed since they were written. Files
// that are not as they were written stay: what the operator has changed is his, and another server's are not here.
func (s *Service) refreshClouds(o BootstrapOptions) error {
	name, _ := cloudsFiles(o.Dir)
	found, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var file struct {
		Clouds map[string]struct {
			Auth struct {
				URL      string `json:"auth_url"`
				Password string `json:"password"`
			} `json:"auth"`
			CAFile string `json:"cacert"`
		} `json:"clouds"`
	}
	if yaml.Unmarshal(found, &file) != nil {
		return nil
	}
	then := file.Clouds[cloudName]
	was := o
	was.URL, was.CAFile = then.Auth.URL, then.CAFile
	written, err := s.cloudsText(was, then.Auth.Password)
	if err != nil || was == o || !bytes.Equal(written, found) {
		return err
	}
	s.opts.Log.Info("clouds.yaml and openrc are written again: the server is reached otherwise now", "url", o.URL, "authority", o.CAFile)
	return s.writeClouds(o, then.Auth.Password)
}

// cloudsText is clouds.yaml.
func (s *Service) cloudsText(o BootstrapOptions, password string) ([]byte, error) {
	type m = map[string]any
	cloud := m{
		"auth": m{"auth_url": o.URL, "username": adminName, "password": password, "project_name": adminName,
			"user_domain_id": DefaultDomainID, "project_domain_id": DefaultDomainID},
		"region_name": s.opts.Region, "identity_api_version": 3,
	}
	if o.CAFile != "" {
		cloud["cacert"] = o.CAFile
	}
	return yaml.Marshal(m{"clouds": m{cloudName: cloud}})
}

// openrcText is openrc.
func (s *Service) openrcText(o BootstrapOptions, password string) []byte {
	env := [][2]string{{"OS_AUTH_URL", o.URL}, {"OS_USERNAME", adminName}, {"OS_PASSWORD", password}, {"OS_PROJECT_NAME", adminName},
		{"OS_USER_DOMAIN_ID", DefaultDomainID}, {"OS_PROJECT_DOMAIN_ID", DefaultDomainID}, {"OS_REGION_NAME", s.opts.Region},
		{"OS_IDENTITY_API_VERSION", "3"}}
	if o.CAFile != "" {
		env = append(env, [2]string{"OS_CACERT", o.CAFile})
	}
	var rc strings.Builder
	for _, v := range env {
		fmt.Fprintf(&rc, "export %s=%s\n", v[0], shellQuote(v[1]))
	}
	return []byte(rc.String())
}

// writeClouds writes the administrator's credentials in the two forms that OpenStack's clients read.
func (s *Service) writeClouds(o BootstrapOptions, password string) error {
	text, err := s.cloudsText(o, password)
	if err != nil {
		return err
	}
	clouds, openrc := cloudsFiles(o.Dir)
	if err := api.WriteFile(clouds, text); err != nil {
		return err
	}
	return api.WriteFile(openrc, s.openrcText(o, password))
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
