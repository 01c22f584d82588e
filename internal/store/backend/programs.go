package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store"
)

// Credentials give a program access to a store by TLS. They are PEM.
type Credentials struct {
	CA, Certificate, Key []byte
}

// programCertificates begins the keys of the fingerprints of the authorities that have signed
// programs' certificates. Only root can read them.
const programCertificates = "/heddle-programs/"

func programUser(name string) string { return "program-" + name }

// OpenAuthority connects as root to the server that has the embedded store in dataDir open, with
// its authority. A server without --agents-listen has none.
func OpenAuthority(ctx context.Context, dataDir string, log *slog.Logger) (*Etcd, error) {
	c, err := Running(dataDir)
	if err != nil {
		return nil, err
	}
	o := Embedded{DataDir: dataDir}
	if c.CAFile == "" {
		return nil, fmt.Errorf("store in %s: its server has no --agents-listen, so clients have no certificates", dataDir)
	}
	if c.Authority, err = o.readAuthority(); err != nil {
		return nil, err
	}
	return Open(ctx, Options{Cluster: &c, Log: log})
}

// AllowProgram makes the etcd user of a program that may read and write the keys below a prefix,
// and signs its certificate. Calling it again signs another. The store must have authentication and
// an authority.
func (s *Etcd) AllowProgram(ctx context.Context, name, prefix string) (Credentials, error) {
	authority := s.Authority()
	if authority == nil {
		return Credentials{}, errors.New("store: this store signs no certificates: let it serve agents")
	}
	if !hostID.MatchString(name) {
		return Credentials{}, fmt.Errorf("name %q: want letters, digits, dots, dashes and underscores, at most 63", name)
	}
	user := programUser(name)
	if err := s.allow(ctx, user, user, []grant{{prefix, true, clientv3.PermissionType(clientv3.PermReadWrite)}}); err != nil {
		return Credentials{}, err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return Credentials{}, err
	}
	cert, err := authority.issue(user, user, key.Public(), time.Now(), authorityLife)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{CA: authority.PEM(), Certificate: cert, Key: keyPEM}, s.set(ctx, programCertificates+name, []byte(authority.Fingerprint()))
}

// RemoveProgram takes a program's rights away. A watch that it has open lives on until its
// connection ends.
func (s *Etcd) RemoveProgram(ctx context.Context, name string) error {
	user := programUser(name)
	_, err := s.client.UserDelete(s.as(ctx), user)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return fmt.Errorf("program %s: %w", name, store.ErrNotFound)
	}
	if err != nil {
		return explain(ctx, "delete etcd user "+user, err)
	}
	_, err = s.client.RoleDelete(s.as(ctx), user)
	if err = explain(ctx, "delete etcd role "+user, unless(err, rpctypes.ErrRoleNotFound)); err != nil {
		return err
	}
	_, err = s.Commit(ctx, nil, []store.Op{{Key: programCertificates + name, Delete: true}})
	return err
}

// allow makes a user with a role that has exactly these grants.
func (s *Etcd) allow(ctx context.Context, user, role string, grants []grant) error {
	if err := s.setGrants(ctx, role, grants); err != nil {
		return err
	}
	there, err := s.client.UserGet(s.as(ctx), user)
	if err == nil && slices.Contains(there.Roles, role) {
		return nil
	}
	_, err = s.client.UserAddWithOptions(s.as(ctx), user, "", &clientv3.UserAddOptions{NoPassword: true})
	if err = unless(err, rpctypes.ErrUserAlreadyExist); err != nil {
		return explain(ctx, "add etcd user "+user, err)
	}
	_, err = s.client.UserGrantRole(s.as(ctx), user, role)
	return explain(ctx, "grant role to "+user, err)
}

// setGrants makes a role that has exactly these grants.
func (s *Etcd) setGrants(ctx context.Context, role string, grants []grant) error {
	before, err := s.client.RoleGet(s.as(ctx), role)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		before = &clientv3.AuthRoleGetResponse{}
		_, err = s.client.RoleAdd(s.as(ctx), role)
		err = unless(err, rpctypes.ErrRoleAlreadyExist)
	}
	if err != nil {
		return explain(ctx, "add etcd role "+role, err)
	}
	has := map[grant]bool{}
	for _, p := range before.Perm {
		g := grant{string(p.Key), len(p.RangeEnd) > 0, clientv3.PermissionType(p.PermType)}
		if g.end() == string(p.RangeEnd) && slices.Contains(grants, g) {
			has[g] = true
			continue
		}
		_, err := s.client.RoleRevokePermission(s.as(ctx), role, string(p.Key), string(p.RangeEnd))
		if err = unless(err, rpctypes.ErrPermissionNotGranted); err != nil {
			return explain(ctx, fmt.Sprintf("revoke %s from %s", p.Key, role), err)
		}
	}
	for _, g := range grants {
		if has[g] {
			continue
		}
		if _, err := s.client.RoleGrantPermission(s.as(ctx), role, g.key, g.end(), g.may); err != nil {
			return explain(ctx, "grant "+g.key+" to "+role, err)
		}
	}
	return nil
}
