package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// startCluster runs an etcd cluster on the loopback of a namespace.
func startCluster(t *testing.T, ns *netlab.Namespace) *storetest.Cluster {
	t.Helper()
	return storetest.Start(t, storetest.Options{
		Addresses: [storetest.Members]string{"127.0.1.1", "127.0.1.2", "127.0.1.3"},
		Start:     func(cmd *exec.Cmd) error { return ns.Start(cmd) },
	})
}

// flags say how to reach a cluster: as root by certificate.
func flags(c *storetest.Cluster) []string {
	o := c.As("root")
	return []string{"--etcd-endpoints", strings.Join(o.Endpoints, ","), "--etcd-ca", o.CAFile, "--etcd-cert", o.CertFile, "--etcd-key", o.KeyFile}
}

// serveAt are the arguments of a server whose APIs listen on an address of loopback.
func serveAt(address, data string, more ...string) []string {
	return append([]string{"serve", "--data", data, "--neutron-listen", address + ":9696", "--identity-listen", address + ":5000",
		"--operator-listen", address + ":9698", "--metrics", address + ":9697"}, more...)
}

// openCluster opens the cluster's store, however its network is doing.
func openCluster(t *testing.T, c *storetest.Cluster) *backend.Etcd {
	t.Helper()
	o := c.Local()
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// Two servers work over a cluster with TLS and authentication while clients make objects through
// both. The leading member is killed, and then one server: nothing that was acknowledged is lost,
// nothing is half-made, and the other server answers throughout.
func TestTwoServersOverACluster(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "cluster")
	etcd := startCluster(t, ns)
	etcd.Protect(t)
	data := t.TempDir()
	start(t, ns, serveAt("127.0.0.1", data, flags(etcd)...)...)
	// The second one comes with a password.
	password := filepath.Join(t.TempDir(), "password")
	writeFile(t, password, storetest.Password+"\n")
	second := start(t, ns, serveAt("127.0.0.2", t.TempDir(), append(flags(etcd)[:4], "--etcd-cert", filepath.Join(etcd.Dir, "nobody.crt"),
		"--etcd-key", filepath.Join(etcd.Dir, "nobody.key"), "--etcd-user", storetest.User, "--etcd-password-file", password)...)...)

	admin := login(t, ns, "127.0.0.1", data)
	admin.unlimited(t)
	servers := []*client{admin, newClient(ns, "127.0.0.2", admin.token)} // a token of one server is good at the other

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	book := newLedger()
	var running sync.WaitGroup
	for w := range 4 {
		running.Go(func() { book.load(ctx, t, w, servers...) })
	}
	gap := watchAnswers(ctx, &running, servers[0])

	book.waitFor(t, 100)
	etcd.Kill(etcd.Leader(t))
	book.waitFor(t, 100)
	second.kill()
	book.waitFor(t, 100)
	stop()
	running.Wait()
	longest := <-gap
	t.Logf("%d calls acknowledged, longest silence %s", book.calls.Load(), longest)
	if longest > timeout {
		t.Errorf("the server that was left alone did not answer for %s", longest)
	}
	book.check(t, admin)
	verify(t, openCluster(t, etcd))
}

// waitFor waits until clients have had so many more calls acknowledged.
func (l *ledger) waitFor(t *testing.T, more int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	enough := l.calls.Load() + more
	if err := netlab.Until(ctx, "calls to be answered", func() (bool, error) { return l.calls.Load() >= enough, nil }); err != nil {
		t.Fatal(err)
	}
}

// watchAnswers asks a server again and again, and tells the longest time in which it did not
// answer.
func watchAnswers(ctx context.Context, running *sync.WaitGroup, c *client) <-chan time.Duration {
	longest := make(chan time.Duration, 1)
	running.Go(func() {
		var most time.Duration
		for last := time.Now(); ; {
			err := c.call(ctx, "GET", "/v2.0/networks?limit=1", nil, nil)
			most = max(most, time.Since(last))
			if ctx.Err() != nil {
				longest <- most
				return
			}
			if err == nil {
				last = time.Now()
			}
		}
	})
	return longest
}
