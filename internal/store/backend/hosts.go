package backend

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store"
)

// rootUser is etcd's user that may do everything.
const rootUser = "root"

// hostID matches the ids of hosts, which become part of keys and users' names.
var hostID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// grant is a right to a key, or to all keys under a prefix.
type grant struct {
	key    string
	prefix bool
	may    clientv3.PermissionType
}

// end returns the end of the range of keys, as etcd has it.
func (g grant) end() string {
	if !g.prefix {
		return ""
	}
	return clientv3.GetPrefixRangeEnd(g.key)
}

// grants returns the rights of a host's agents: they read the virtual network, other hosts,
// Calico's tree and a pool's objects, which have no secrets, and what servers give to this host
// alone, and write reports of their own. They may read no user, token, or resource of the Neutron
// API.
func grants(host, name string) []grant {
	const read, readWrite = clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermReadWrite)
	return []grant{
		{"/heddle/schema", false, read},
		{"/heddle/topology/", true, read},
		{"/heddle/hosts/", true, read},
		{"/heddle/servers/", true, read},
		{underlayPrefix, true, read},
		{"/heddle/tunnel-zones/", true, read},
		{"/heddle/state/", true, read},
		{"/heddle/trace/requests/" + host + "/", true, read},
		{secretsPrefix + host + "/", true, read},
		{"/calico/", true, read},
		{authoritiesPrefix, true, read},
		{underlayPrefix + host, false, readWrite},
		{"/heddle/state/" + host + "/", true, readWrite},
		{calicoStatus(name), true, readWrite},
		{"/heddle/xen/objects/", true, read},
		{"/heddle/xen/orders/" + xenRef(host) + "/", true, read},
		{"/heddle/xen/state/" + xenRef(host) + "/", true, readWrite},
	}
}

// OfHost reports whether a key is one that hosts' agents write.
func OfHost(key string) bool {
	for _, prefix := range []string{"/heddle/state/", underlayPrefix, "/heddle/xen/state/", calicoHosts} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// calicoStatus returns the prefix below which a host's policy agent reports.
func calicoStatus(name string) string { return calicoHosts + name + "/" }

// underlayPrefix begins the keys of hosts' own records of how they are reached.
const underlayPrefix = "/heddle/underlay/"

// secretsPrefix begins the keys of what servers give to single hosts.
const secretsPrefix = "/heddle/secrets/"

// joinedHosts begins the keys of the records by which hosts renew their certificates. A host's is
// deleted last.
const joinedHosts = "/heddle/join/hosts/"

const calicoHosts = "/calico/felix/v1/host/"

// xenRef returns the XenAPI's reference to a host.
func xenRef(host string) string { return "OpaqueRef:" + host }

// hostRole returns the name of the etcd role with a host's rights.
func hostRole(host string) string { return hostRolePrefix + host }

const hostRolePrefix = "host-"

// hostUser returns the name of the etcd user of a host's key, by the key's fingerprint: each join
// has a key of its own, and the rights of an earlier one end with its user. "" returns the user
// that all joins of a host shared under earlier versions.
func hostUser(host, key string) string {
	if key == "" {
		return hostRole(host)
	}
	return hostRole(host) + keyMark + key[:min(len(key), keyInUser)]
}

const (
	// keyMark separates a host's id, which has none, from the fingerprint in a user's name.
	keyMark = "+"
	// keyInUser is the part of a fingerprint in a user's name, in hex digits: with the id, a UUID,
	// it fills the 64 characters that the name in a certificate may have.
	keyInUser = 22
)

// hostOfUser returns the id of the host whose etcd user has a name, or "".
func hostOfUser(user string) string {
	host, ok := strings.CutPrefix(user, hostRolePrefix)
	if !ok {
		return ""
	}
	host, _, _ = strings.Cut(host, keyMark)
	return host
}

// CertificateName returns a host's name as a server in its certificate, by the host's id.
func CertificateName(host string) string { return hostRole(host) }

// AllowHost makes the etcd user of a host's key, with the rights of the host's agents; key is its
// fingerprint, "" that of a host that joined under an earlier version; name is the host's name in
// Calico's tree. It may be called again. It takes effect in a store with authentication: one that
// serves agents, or such a cluster.
func (s *Etcd) AllowHost(ctx context.Context, host, name, key string) error {
	if !hostID.MatchString(host) {
		return fmt.Errorf("host id %q: want letters, digits, dots, dashes and underscores, at most 63", host)
	}
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("host name %q: want one without slashes", name)
	}
	s.rights.Lock()
	defer s.rights.Unlock()
	s.ledger.forget(host)
	if _, err := s.Commit(ctx, nil, []store.Op{{Key: CutOffPrefix + host, Delete: true}}); err != nil {
		return err
	}
	return s.allow(ctx, hostUser(host, key), hostRole(host), grants(host, name))
}

// EndOtherKeys takes the rights of a host's earlier keys away at once: those of all but key. Agents
// that have them lose their connections to an embedded store.
//
// In a cluster a watch of theirs lives on until its connection ends.
func (s *Etcd) EndOtherKeys(ctx context.Context, host, key string) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	users, err := s.hostUsers(ctx, host)
	if err != nil {
		return err
	}
	users = slices.DeleteFunc(users, func(user string) bool { return user == hostUser(host, key) })
	if err := s.deleteUsers(ctx, users); err != nil {
		return err
	}
	if s.member != nil && len(users) > 0 {
		s.member.front.cutHost(host)
	}
	return nil
}

// hostUsers returns the names of the etcd users of a host's keys.
func (s *Etcd) hostUsers(ctx context.Context, host string) ([]string, error) {
	all, err := s.client.UserList(s.as(ctx))
	if err != nil {
		return nil, explain(ctx, "list etcd users", err)
	}
	return slices.DeleteFunc(all.Users, func(user string) bool { return hostOfUser(user) != host }), nil
}

// deleteUsers deletes etcd users; a missing one is no error.
func (s *Etcd) deleteUsers(ctx context.Context, users []string) error {
	for _, user := range users {
		_, err := s.client.UserDelete(s.as(ctx), user)
		if err = unless(err, rpctypes.ErrUserNotFound); err != nil {
			return explain(ctx, "delete etcd user "+user, err)
		}
	}
	return nil
}

// RemoveHost takes a host's rights away at once, with its underlay, the record by which it could
// renew its certificate, and its reports. The host's own record stays. Other agents of an embedded
// store lose their connections for a moment. A missing host is no error.
//
// In a cluster a watch of the host lives on until its connection ends.
func (s *Etcd) RemoveHost(ctx context.Context, host string) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	return s.removeHost(ctx, host)
}

// removeHost is RemoveHost for callers that have locked rights.
func (s *Etcd) removeHost(ctx context.Context, host string) error {
	users, err := s.hostUsers(ctx, host)
	if err != nil {
		return err
	}
	if err := s.deleteUsers(ctx, users); err != nil {
		return err
	}
	if s.member != nil {
		s.member.front.cut()
	}
	_, err = s.client.RoleDelete(s.as(ctx), hostRole(host))
	if err = unless(err, rpctypes.ErrRoleNotFound); err != nil {
		return explain(ctx, "delete etcd role "+hostRole(host), err)
	}
	// The underlay goes before the keys of the host's tunnels: without keys other hosts would take
	// it for one of an earlier version and send in clear. The record is emptied rather than
	// deleted, since without one the addresses in the host's own record count.
	underlay := store.Op{Key: underlayPrefix + host, Delete: true}
	if _, err := s.Get(ctx, "/heddle/hosts/"+host); err == nil {
		underlay = store.Op{Key: underlay.Key, Value: fmt.Appendf(nil, `{"hostId":%q}`, host)}
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, err := s.Commit(ctx, nil, []store.Op{underlay}); err != nil {
		return err
	}
	for _, prefix := range []string{"/heddle/state/" + host + "/", secretsPrefix + host + "/", "/heddle/xen/state/" + xenRef(host) + "/"} {
		if err := s.deleteAll(ctx, prefix); err != nil {
			return err
		}
	}
	_, err = s.Commit(ctx, nil, []store.Op{{Key: joinedHosts + host, Delete: true}})
	return err
}

// deleteAtOnce is the number of keys that one commit deletes.
const deleteAtOnce = 1000

// deleteAll deletes all present keys below a prefix, in several commits.
func (s *Etcd) deleteAll(ctx context.Context, prefix string) error {
	kvs, _, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(kvs, deleteAtOnce) {
		ops := make([]store.Op, len(part))
		for i, kv := range part {
			ops[i] = store.Op{Key: kv.Key, Delete: true}
		}
		if _, err := s.Commit(ctx, nil, ops); err != nil {
			return err
		}
	}
	return nil
}

func unless(err, fine error) error {
	if errors.Is(err, fine) {
		return nil
	}
	return err
}

// Issue signs a host's certificate request (PEM), and returns the certificate, valid for life. It
// is for the etcd user that [Etcd.AllowHost] makes for key.
func (s *Etcd) Issue(host, key string, csr []byte, life time.Duration) ([]byte, error) {
	authority := s.Authority()
	if authority == nil {
		return nil, errors.New("store: this store signs no certificates: let it serve agents, or give it the authority of the etcd cluster")
	}
	if !hostID.MatchString(host) {
		return nil, fmt.Errorf("host id %q cannot be in a certificate", host)
	}
	return authority.host(csr, hostUser(host, key), CertificateName(host), time.Now(), life)
}

// Authority returns the authority of hosts' certificates, or nil.
func (s *Etcd) Authority() *Authority { return s.authority.Load() }

// enableAuth turns on etcd's authentication. Root has a certificate and no password.
func (s *Etcd) enableAuth(ctx context.Context) error {
	ctx = s.as(ctx)
	status, err := s.client.AuthStatus(ctx)
	if err != nil || status.Enabled {
		return err
	}
	_, err = s.client.UserAddWithOptions(ctx, rootUser, "", &clientv3.UserAddOptions{NoPassword: true})
	if err = unless(err, rpctypes.ErrUserAlreadyExist); err != nil {
		return err
	}
	if _, err := s.client.UserGrantRole(ctx, rootUser, "root"); err != nil {
		return err
	}
	_, err = s.client.AuthEnable(ctx)
	return err
}

// disableAuth turns it off for a store that only this machine reaches. Users and roles stay.
func (s *Etcd) disableAuth(ctx context.Context) error {
	status, err := s.client.AuthStatus(s.as(ctx))
	if err != nil || !status.Enabled {
		return err
	}
	_, err = s.client.AuthDisable(s.as(ctx))
	return err
}
