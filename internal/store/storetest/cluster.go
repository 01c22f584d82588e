// Package storetest gives tests a real store. [Open] starts one in the test's process; [Start] an etcd cluster of three
// members, with TLS towards clients and peers. A member, and an agent by [StartAgent], is a process of its own, so that it
// can be killed as a machine would die: the test binary called again, which [BeMember] or [BeAgent] at the start of
// TestMain turns into one.
package storetest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store"
)

// Members is how many members a cluster has.
const Members = 3

// Password is that of etcd's user [User].
const (
	User     = "heddle"
	Password = "secret"
)

// Options of a cluster.
type Options struct {
	// Addresses are those the members listen on, by name "m0", "m1", "m2", at the ports 2379 and 2380.
	Addresses [Members]string
	// Start starts a member's process, say in a network namespace; nil = Cmd.Start.
	Start func(*exec.Cmd) error
}

// Cluster is three members and the files by which they know each other and their clients. Dir has the authority, ca.crt
// and ca.key, and certificates for clients, as <name>.crt and <name>.key: "root" is etcd's root once the cluster is
// protected, "nobody" is known to no etcd and is for those who come with a password.
type Cluster struct {
	Dir       string
	Endpoints []string // URLs
	opts      Options
	members   [Members]*exec.Cmd // nil while it is down
}

// Start starts the members and waits until they work together. They are killed when the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Start == nil {
		o.Start = (*exec.Cmd).Start
	}
	// A directory with a short name: the path of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cluster{Dir: dir, opts: o}
	for _, a := range o.Addresses {
		c.Endpoints = append(c.Endpoints, fmt.Sprintf("https://%s:%d", a, clientPort))
	}
	if err := makeCertificates(dir, o.Addresses[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	c.Restart(t)
	return c
}

// Restart starts the members that are down, with the data they have, and waits until they work together.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	var waits []func() error
	for i, m := range c.members {
		if m != nil {
			continue
		}
		wait, err := c.start(t, i)
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts one member and returns a function that waits until it works, which it does once a majority is there.
func (c *Cluster) start(t testing.TB, i int) (wait func() error, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberVariable+"="+memberArguments{i, c.Dir, c.opts.Addresses}.String())
	cmd.Stderr = t.Output()
	_, err1 := cmd.StdinPipe() // ends with this process: see EndWithParent
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := c.opts.Start(cmd); err != nil {
		return nil, fmt.Errorf("member %d: %w", i, err)
	}
	c.members[i] = cmd
	return func() error {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != memberReady {
			return fmt.Errorf("member %d does not work: it says %q, %v", i, line, err)
		}
		return nil
	}, nil
}

// Kill ends member i as a power failure would.
func (c *Cluster) Kill(i int) {
	m := c.members[i]
	if m == nil {
		return
	}
	_ = m.Process.Kill() // gone already is fine
	_ = m.Wait()         // it tells that it was killed
	c.members[i] = nil
}

// Stop kills all members.
func (c *Cluster) Stop() {
	for i := range c.members {
		c.Kill(i)
	}
}

// As is how to reach the cluster over the network with one of Dir's certificates.
func (c *Cluster) As(name string) store.Cluster {
	return store.Cluster{
		Endpoints: c.Endpoints,
		CAFile:    filepath.Join(c.Dir, "ca.crt"),
		CertFile:  filepath.Join(c.Dir, name+".crt"),
		KeyFile:   filepath.Join(c.Dir, name+".key"),
	}
}

// Local is how to reach the members that are up as root, whatever network they are in.
func (c *Cluster) Local() store.Cluster {
	o := c.As("root")
	o.Endpoints = nil
	for i, m := range c.members {
		if m != nil {
			o.Endpoints = append(o.Endpoints, "unixs://"+socket(c.Dir, i))
		}
	}
	return o
}

// Protect has etcd ask who somebody is: root by certificate, who may do everything, and User by Password, who may do
// everything with keys.
func (c *Cluster) Protect(t testing.TB) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	ctx := t.Context()
	_, err1 := client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
	_, err2 := client.UserGrantRole(ctx, "root", "root")
	_, err3 := client.UserAdd(ctx, User, Password)
	_, err4 := client.RoleAdd(ctx, User)
	_, err5 := client.RoleGrantPermission(ctx, User, "/", "0", clientv3.PermissionType(clientv3.PermReadWrite))
	_, err6 := client.UserGrantRole(ctx, User, User)
	_, err7 := client.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal("protect the cluster:", err)
	}
}

// Leader is the number of the member that leads now.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	for i, m := range c.members {
		if m == nil {
			continue
		}
		s, err := client.Status(t.Context(), "unixs://"+socket(c.Dir, i))
		if err != nil {
			t.Fatal(err)
		}
		if s.Leader == s.Header.MemberId {
			return i
		}
	}
	t.Fatal("the cluster has no leader")
	return 0
}

func (c *Cluster) client(t testing.TB) *clientv3.Client {
	t.Helper()
	o := c.Local()
	var config *tls.Config
	config, err := o.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: o.Endpoints, TLS: config, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
