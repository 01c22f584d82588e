package store

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
)

// rootUser is etcd's user that may do everything.
const rootUser = "root"

// hostID is what a host's id may look like: it becomes part of keys and of a user's name.
var hostID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// grant is something a host may do with a key, or with all keys under a prefix.
type grant struct {
	key    string
	prefix bool
	may    clientv3.PermissionType
}

// end is the end of the range of keys, as etcd has it.
func (g grant) end() string {
	if !g.prefix {
		return ""
	}
	return clientv3.GetPrefixRangeEnd(g.key)
}

// grants are what the agent of a host needs: to see the virtual network and the other hosts, and to report about itself.
// It may read no user, token, or resource of the Neutron API. In Calico's tree it reports under its name, and in a pool of
// the XenAPI it reads the objects, which hold no secret, and what is asked of itself.
func grants(host, name string) []grant {
	const read, readWrite = clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermReadWrite)
	return []grant{
		{"/heddle/schema", false, read},
		{"/heddle/topology/", true, read},
		{"/heddle/hosts/", true, read},
		{underlayPrefix, true, read},
		{"/heddle/tunnel-zones/", true, read},
		{"/heddle/state/", true, read},
		{"/heddle/trace/requests/" + host + "/", true, read},
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

// calicoStatus is where the policy agent of a host says that it lives and what became of its endpoints.
func calicoStatus(name string) string { return calicoHosts + name + "/" }

// underlayPrefix is where each host says how it is reached.
const underlayPrefix = "/heddle/underlay/"

const calicoHosts = "/calico/felix/v1/host/"

// xenRef is how the XenAPI refers to a host.
func xenRef(host string) string { return "OpaqueRef:" + host }

func hostUser(host string) string { return "host-" + host }

// CertificateName is the name in the certificate of a host that has joined, by its id: etcd's user, and the name of what
// the host serves by TLS itself.
func CertificateName(host string) string { return hostUser(host) }

// AllowHost makes the etcd user of a host, by its id, with a role limited to what its agents do; name is that by which
// Calico's tree knows it. Doing it again is fine. It has effect in a store that asks who somebody is: one that serves
// agents, or a cluster with authentication.
func (s *Etcd) AllowHost(ctx context.Context, host, name string) error {
	if !hostID.MatchString(host) {
		return fmt.Errorf("host id %q: want letters, digits, dots, dashes and underscores, at most 63", host)
	}
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("host name %q: want one without slashes", name)
	}
	s.rights.Lock()
	defer s.rights.Unlock()
	s.ledger.forget(host)
	if _, err := s.Commit(ctx, nil, []Op{{Key: CutOffPrefix + host, Delete: true}}); err != nil {
		return err
	}
	return s.allow(ctx, hostUser(host), grants(host, name))
}

// RemoveHost takes a host's rights away at once, how it is reached, the note by which it could renew its certificate, and
// what it reported. The host's own record stays, with an underlay record that names no address. Other agents of an embedded
// store lose their connections for a moment. Removing a host that is not there is fine.
//
// In a cluster a watch that the host has open lives on until its connection ends.
func (s *Etcd) RemoveHost(ctx context.Context, host string) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	return s.removeHost(ctx, host)
}

// removeHost is RemoveHost for callers that hold rights.
func (s *Etcd) removeHost(ctx context.Context, host string) error {
	user := hostUser(host)
	_, err := s.client.UserDelete(s.as(ctx), user)
	if err = unless(err, rpctypes.ErrUserNotFound); err != nil {
		return explain(ctx, "delete etcd user "+user, err)
	}
	if s.member != nil {
		s.member.front.cut()
	}
	_, err = s.client.RoleDelete(s.as(ctx), user)
	if err = unless(err, rpctypes.ErrRoleNotFound); err != nil {
		return explain(ctx, "delete etcd role "+user, err)
	}
	// First how the host is reached, and only then the keys of its tunnels: without the keys other hosts would take it for one
	// of an earlier version, and its frames without a secret. A record that names no address, rather than none, since without
	// one those would count that such a version left in the host's own record. It goes with that, and counts until then.
	underlay := Op{Key: underlayPrefix + host, Delete: true}
	if _, err := s.Get(ctx, "/heddle/hosts/"+host); err == nil {
		underlay = Op{Key: underlay.Key, Value: fmt.Appendf(nil, `{"hostId":%q}`, host)}
	} else if !errors.Is(err, ErrNotFound) {
		return err
	}
	if _, err := s.Commit(ctx, nil, []Op{underlay}); err != nil {
		return err
	}
	for _, prefix := range []string{"/heddle/state/" + host + "/", "/heddle/xen/state/" + xenRef(host) + "/"} {
		if err := s.deleteAll(ctx, prefix); err != nil {
			return err
		}
	}
	_, err = s.Commit(ctx, nil, []Op{{Key: "/heddle/join/hosts/" + host, Delete: true}})
	return err
}

// deleteAtOnce is how many keys one commit deletes.
const deleteAtOnce = 1000

// deleteAll deletes all keys below a prefix that are there now, some in each commit.
func (s *Etcd) deleteAll(ctx context.Context, prefix string) error {
	kvs, _, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(kvs, deleteAtOnce) {
		ops := make([]Op, len(part))
		for i, kv := range part {
			ops[i] = Op{Key: kv.Key, Delete: true}
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

// Issue signs a host's certificate request (PEM) and returns the certificate (PEM) by which etcd knows it, good for life.
func (s *Etcd) Issue(host string, csr []byte, life time.Duration) ([]byte, error) {
	if s.authority == nil {
		return nil, errors.New("store: this store signs no certificates: let it serve agents, or give it the authority of the etcd cluster")
	}
	if !hostID.MatchString(host) {
		return nil, fmt.Errorf("host id %q cannot be in a certificate", host)
	}
	return s.authority.host(csr, hostUser(host), time.Now(), life)
}

// Authority is who signs hosts' certificates, nil when nobody does. Hosts trust it to tell the store's servers.
func (s *Etcd) Authority() *Authority { return s.authority }

// enableAuth makes etcd ask who somebody is. Its root is known by certificate and has no password.
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

// disableAuth lets those in who can reach a listener that is for this machine only. Users and roles stay for later.
func (s *Etcd) disableAuth(ctx context.Context) error {
	status, err := s.client.AuthStatus(s.as(ctx))
	if err != nil || !status.Enabled {
		return err
	}
	_, err = s.client.AuthDisable(s.as(ctx))
	return err
}
