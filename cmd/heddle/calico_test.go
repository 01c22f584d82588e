package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// TestServeOpensCalico: the first start of a server opens the gate of the Calico data and names the
// cluster. What an operator makes of them is left alone by later starts.
func TestServeOpensCalico(t *testing.T) {
	t.Parallel()
	ns, data := netlab.ForTest(t).MustNamespace(t, "serve"), t.TempDir()
	read := func(key string) string {
		t.Helper()
		st, err := backend.OpenRunning(t.Context(), data, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		kv, err := st.Get(t.Context(), key)
		if errors.Is(err, store.ErrNotFound) {
			return "absent"
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(kv.Value)
	}
	change := func(op store.Op) {
		t.Helper()
		st, err := backend.OpenRunning(t.Context(), data, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if _, err := st.Commit(t.Context(), nil, []store.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
	const ready, guid = "/calico/v1/Ready", "/calico/v1/config/ClusterGUID"

	r := start(t, ns, "serve", "--data", data)
	name := read(guid)
	if got := read(ready); got != "true" || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(name) {
		t.Errorf("after the first start %s is %q and %s %q", ready, got, guid, name)
	}
	for _, by := range []struct {
		op   store.Op
		want string
	}{
		{store.Op{Key: ready, Value: []byte("false")}, "false"},
		{store.Op{Key: ready, Delete: true}, "absent"},
	} {
		change(by.op)
		r.stop(t)
		r = start(t, ns, "serve", "--data", data)
		if got := read(ready); got != by.want {
			t.Errorf("an operator made %s %q, a later start %q", ready, by.want, got)
		}
	}
	if got := read(guid); got != name {
		t.Errorf("%s was %q and is %q", guid, name, got)
	}
}

// TestCalicoReachesTheStore: the commands find the embedded store of this machine however it serves
// others, and any program that speaks etcd reaches it where it is told to listen.
func TestCalicoReachesTheStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve, endpoints []string
	}{
		"plain on loopback": {
			[]string{"--etcd-listen", "127.0.0.1:2379"},
			[]string{"--etcd-endpoints", "127.0.0.1:2379"},
		},
		"TLS, for hosts": {
			[]string{"--agents-listen", "127.0.0.1:2379"},
			[]string{"--etcd-endpoints", "127.0.0.1:2379", "--etcd-ca", "DATA/tls/ca.crt", "--etcd-cert", "DATA/tls/root.crt", "--etcd-key", "DATA/tls/root.key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, data := startServer(t, c.serve...)
			for _, where := range [][]string{{"--data", data}, c.endpoints} {
				args := []string{"calico", "ready"}
				for _, a := range where {
					args = append(args, strings.ReplaceAll(a, "DATA", data))
				}
				if got := succeed(t, r.ns, args...); got != "true\n" {
					t.Errorf("heddle %s: %q", strings.Join(args, " "), got)
				}
			}
		})
	}
}

// TestCalicoAccess: a program's certificate is good for Calico's keys alone, until it is taken
// back.
func TestCalicoAccess(t *testing.T) {
	t.Parallel()
	r, data := startServer(t, "--agents-listen", "127.0.0.1:2379")
	dir := filepath.Join(t.TempDir(), "plugin")
	succeed(t, r.ns, "calico", "access", "plugin", "--dir", dir, "--data", data)
	where := []string{"--etcd-endpoints", "127.0.0.1:2379", "--etcd-ca", dir + "/ca.crt", "--etcd-cert", dir + "/client.crt", "--etcd-key", dir + "/client.key"}
	if got := succeed(t, r.ns, append([]string{"calico", "ready"}, where...)...); got != "true\n" {
		t.Errorf("ready: %q", got)
	}
	succeed(t, r.ns, append([]string{"calico", "ready", "false"}, where...)...)
	succeed(t, r.ns, "calico", "access", "plugin", "--remove", "--data", data)
	refuse(t, r.ns, 1, "permission denied", append([]string{"calico", "ready"}, where...)...)
	refuse(t, r.ns, 1, "not found", "calico", "access", "plugin", "--remove", "--data", data)
}
