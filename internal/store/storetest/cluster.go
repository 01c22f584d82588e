// Package storetest gives tests a real store: [Open] in the test's process, [Start] as an etcd
// cluster of three members with TLS. A member, like an agent of [StartAgent], is a process that can
// be killed: the test binary, which [BeMember] or [BeAgent] in TestMain turns into one.
package storetest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/internal/store/backend"
)

// Members is the number of members of a cluster.
const Members = 3

// Password is that of etcd's user [User].
const (
	User     = "heddle"
	Password = "secret"
)

// Options configure a cluster.
type Options struct {
	// Addresses are those of the members "m0", "m1" and "m2", with the ports 2379 and 2380.
	Addresses [Members]string
	// Start starts a member's process, say in a network namespace; nil = Cmd.Start.
	Start func(*exec.Cmd) error
}

// Cluster is three members. Dir has the authority, ca.crt and ca.key, and certificates for clients,
// <name>.crt and <name>.key: "root" is etcd's root once the cluster is protected, "nobody" is no
// user of etcd, for clients with a password.
type Cluster struct {
	Dir       string
	Endpoints []string // URLs
	opts      Options
	members   [Members]*exec.Cmd // nil while it is down
}

// Start starts the members and waits for a leader. They are killed when the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Start == nil {
		o.Start = (*exec.Cmd).Start
	}
	dir := shortDir(t)
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

// Restart starts the members that are down, with their data, and waits for a leader.
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

// start starts a member and returns a function that waits until it works, which takes a majority.
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
	_ = m.Wait()         // its error is that it was killed
	c.members[i] = nil
}

// Runs reports whether the process of member i runs.
func (c *Cluster) Runs(i int) bool {
	m := c.members[i]
	if m == nil {
		return false
	}
	// A process that has ended is a zombie until it is waited for.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.Process.Pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// Signal sends a signal to member i, if it is up.
func (c *Cluster) Signal(i int, sig os.Signal) {
	if m := c.members[i]; m != nil {
		_ = m.Process.Signal(sig) // gone already is fine
	}
}

// Stop kills all members.
func (c *Cluster) Stop() {
	for i := range c.members {
		c.Kill(i)
	}
}

// As returns the access to the cluster with one of Dir's certificates.
func (c *Cluster) As(name string) backend.Cluster {
	return backend.Cluster{
		Endpoints: c.Endpoints,
		CAFile:    filepath.Join(c.Dir, "ca.crt"),
		CertFile:  filepath.Join(c.Dir, name+".crt"),
		KeyFile:   filepath.Join(c.Dir, name+".key"),
	}
}

// Local returns root's access to the members that are up, from any network.
func (c *Cluster) Local() backend.Cluster {
	o := c.As("root")
	o.Endpoints = nil
	for i, m := range c.members {
		if m != nil {
			o.Endpoints = append(o.Endpoints, "unixs://"+socket(c.Dir, i))
		}
	}
	return o
}

// answerTime bounds the calls of Protect and Leader on a busy machine.
const answerTime = 2 * time.Minute

// eventually calls f until it succeeds, since calls fail during an election.
func (c *Cluster) eventually(t testing.TB, what string, f func(context.Context, *clientv3.Client) error) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	for {
		err := f(ctx, client)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Protect turns on etcd's authentication, with all rights for root, who has a certificate, and all
// rights to keys for User, who has Password.
func (c *Cluster) Protect(t testing.TB) {
	t.Helper()
	c.eventually(t, "protect the cluster", func(ctx context.Context, client *clientv3.Client) error {
		_, err1 := client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
		_, err2 := client.UserGrantRole(ctx, "root", "root")
		_, err3 := client.UserAdd(ctx, User, Password)
		_, err4 := client.RoleAdd(ctx, User)
		_, err5 := client.RoleGrantPermission(ctx, User, "/", "0", clientv3.PermissionType(clientv3.PermReadWrite))
		_, err6 := client.UserGrantRole(ctx, User, User)
		// An earlier attempt may have done a part.
		for _, err := range []*error{&err1, &err3, &err4} {
			if errors.Is(*err, rpctypes.ErrUserAlreadyExist) || errors.Is(*err, rpctypes.ErrRoleAlreadyExist) {
				*err = nil
			}
		}
		if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
			return err
		}
		_, err := client.AuthEnable(ctx)
		return err
	})
}

// Leader returns the number of the member that leads, once there is one.
func (c *Cluster) Leader(t testing.TB) (leader int) {
	t.Helper()
	c.eventually(t, "find the leader", func(ctx context.Context, client *clientv3.Client) error {
		for i, m := range c.members {
			if m == nil {
				continue
			}
			s, err := client.Status(ctx, "unixs://"+socket(c.Dir, i))
			if err != nil {
				return err
			}
			if s.Leader == s.Header.MemberId {
				leader = i
				return nil
			}
		}
		return errors.New("no member leads")
	})
	return leader
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
