package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// tenant is a few objects and a user, as an operator may find them in his store.
type tenant struct {
	objects map[string]object
	user    cloud
}

// furnish makes a tenant's objects and a user.
func furnish(t *testing.T, c *client, identity string) tenant {
	t.Helper()
	network := c.mustCreate(t, "network", map[string]any{"name": "blue"})
	c.mustCreate(t, "subnet", map[string]any{"name": "blue", "network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24"})
	for range 5 {
		c.mustCreate(t, "port", map[string]any{"name": "p", "network_id": network.ID})
	}
	var ann tenant
	ann.user.Auth.Username, ann.user.Auth.Password = "ann", "correct horse"
	id := *c
	id.base = identity
	var user, projects, roles map[string]any
	type m = map[string]any
	for _, call := range []struct {
		method, path string
		body         any
		out          any
	}{
		{http.MethodPost, "/v3/users", m{"user": m{"name": "ann", "password": "correct horse"}}, &user},
		{http.MethodGet, "/v3/projects?name=admin", nil, &projects},
		{http.MethodGet, "/v3/roles?name=member", nil, &roles},
	} {
		if err := id.call(t.Context(), call.method, call.path, call.body, call.out); err != nil {
			t.Fatal(err)
		}
	}
	path := "/v3/projects/" + firstID(projects["projects"]) + "/users/" + firstID(user["user"]) + "/roles/" + firstID(roles["roles"])
	if err := id.call(t.Context(), http.MethodPut, path, nil, nil); err != nil {
		t.Fatal(err)
	}
	ann.objects = inventory(t, c)
	return ann
}

// firstID is the id of an object, or of the first of a list.
func firstID(v any) string {
	if list, ok := v.([]any); ok {
		v = list[0]
	}
	return v.(map[string]any)["id"].(string)
}

// inventory is every object that a client sees.
func inventory(t *testing.T, c *client) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, kind := range []string{"network", "subnet", "port", "security-group"} {
		for id, o := range c.list(t, kind) {
			all[kind+"/"+id] = o
		}
	}
	return all
}

// check fails the test unless a server has the tenant as it was: the objects, an old token, and the
// user.
func (want tenant) check(t *testing.T, ns *netlab.Namespace, oldToken string) {
	t.Helper()
	c := newClient(ns, "127.0.0.1", oldToken)
	got := inventory(t, c)
	for key, o := range want.objects {
		if got[key] != o {
			t.Errorf("%s: %+v, want %+v", key, got[key], o)
		}
	}
	if len(got) != len(want.objects) {
		t.Errorf("%d objects, want %d", len(got), len(want.objects))
	}
	if err := newClient(ns, "127.0.0.1", "").login(t.Context(), "http://127.0.0.1:5000", want.user); err != nil {
		t.Error(err)
	}
}

// The embedded store moves into a cluster: objects, users and tokens are the same after. It is
// refused while a server has the store, and into a cluster that is in use. The old store is out of
// date then: nothing serves it or backs it up.
func TestMove(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "move")
	etcd := startCluster(t, ns)
	etcd.Protect(t)
	data := t.TempDir()
	server := start(t, ns, serveAt("127.0.0.1", data)...)
	admin := login(t, ns, "127.0.0.1", data)
	ann := furnish(t, admin, "http://127.0.0.1:5000")

	move := append([]string{"move", "--data", data}, flags(etcd)...)
	refuse(t, ns, 1, "stop heddle serve first", move...)
	server.stop(t)
	refuse(t, ns, 1, "holds no store", append([]string{"move", "--data", t.TempDir()}, flags(etcd)...)...)
	refuse(t, ns, 1, "was not moved", "move", "--undo", "--data", data)
	succeed(t, ns, move...)

	// Who goes on with the old store is told where the new one is.
	file := filepath.Join(t.TempDir(), "backup")
	where := "to the etcd cluster at " + strings.Join(etcd.Endpoints, ",")
	refuse(t, ns, 2, where, serveAt("127.0.0.1", data)...)
	refuse(t, ns, 1, where, "backup", file, "--data", data)
	agent := []string{"agent", "--name", "own", "--tunnel-ip", "192.0.2.1", "--state", t.TempDir(), "--server-data", data}
	refuse(t, ns, 2, where, agent...)
	refuse(t, ns, 2, "or let it join, by --join-file", agent...)
	refuse(t, ns, 1, where, move...)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the refused backup left a file: %v", err)
	}

	// Commands of the server's machine find the cluster in its settings.
	settings := filepath.Join(t.TempDir(), "heddle.yaml")
	text := "serve:\n  data: " + data + "\n"
	for pair := range slices.Chunk(flags(etcd), 2) {
		text += "  " + strings.TrimPrefix(pair[0], "--") + ": " + pair[1] + "\n"
	}
	writeFile(t, settings, text)
	for _, command := range []string{"store status", "store tables", "store changes", "store reclaim", "calico get nodes"} {
		refuse(t, ns, 1, "--config with its settings", append(strings.Fields(command), "--data", data)...)
		succeed(t, ns, append(strings.Fields(command), "--config", settings)...)
	}

	server = start(t, ns, serveAt("127.0.0.1", t.TempDir(), flags(etcd)...)...)
	ann.check(t, ns, admin.token)
	verify(t, openCluster(t, etcd))

	// The cluster is in use now, as the refusal says; the old store is the way back.
	admin.mustCreate(t, "network", map[string]any{"name": "new"})
	server.stop(t)
	if text := succeed(t, ns, "move", "--undo", "--data", data); !strings.Contains(text, "is not in it: if any has run there") {
		t.Errorf("heddle move --undo does not say what is lost: %s", text)
	}
	text, code := output(t, ns, move...)
	if !regexp.MustCompile(`it holds \d+ keys of Heddle below /heddle/ and \d+ of Calico below /calico/, .*; its objects last changed on 20`).MatchString(text) || code != 1 || strings.Contains(text, "etcdctl del") {
		t.Errorf("move into a cluster that is in use: exit code %d:\n%s", code, text)
	}
	start(t, ns, serveAt("127.0.0.1", data)...)
	ann.check(t, ns, admin.token)
}

// A backup taken while the server runs, and one taken while it does not, both restore to what there
// was.
func TestBackupRestore(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "backup")
	data, dir := t.TempDir(), t.TempDir()
	server := start(t, ns, serveAt("127.0.0.1", data)...)
	admin := login(t, ns, "127.0.0.1", data)
	ann := furnish(t, admin, "http://127.0.0.1:5000")
	running, stopped := filepath.Join(dir, "running"), filepath.Join(dir, "stopped")
	const never = "heddle_backup_last_verified_timestamp_seconds 0\n"
	server.waitFor(t, "/metrics", http.StatusOK, never)
	if text := succeed(t, ns, "backup", "--verify", running, "--data", data); !strings.Contains(text, "restored for a trial at revision") {
		t.Errorf("heddle backup --verify says %s", text)
	}
	if _, text, err := server.page(t.Context(), "/metrics"); err != nil || strings.Contains(text, never) {
		t.Errorf("the metrics do not have the backup: %v", err)
	}
	if text := succeed(t, ns, "restore", "--trial", running); !regexp.MustCompile(`(?m)^ +1  /heddle/neutron/networks/$`).MatchString(text) {
		t.Errorf("heddle restore --trial lacks the network:\n%s", text)
	}
	refuse(t, ns, 1, "stop heddle serve first", "restore", running, "--data", data)
	server.stop(t)
	succeed(t, ns, "backup", stopped, "--data", data)

	damaged := filepath.Join(dir, "damaged")
	raw, err := os.ReadFile(running)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	writeFile(t, damaged, string(raw))
	cut := filepath.Join(dir, "cut")
	writeFile(t, cut, string(raw[:len(raw)/3]))
	refuse(t, ns, 1, "it has a store already", "restore", running, "--data", data)
	for _, file := range []string{damaged, cut, filepath.Join(dir, "missing")} {
		fresh := filepath.Join(t.TempDir(), "new")
		refuse(t, ns, 1, file, "restore", file, "--data", fresh)
		refuse(t, ns, 1, file, "restore", "--trial", file)
		refuse(t, ns, 1, "holds no store", "backup", filepath.Join(dir, "x"), "--data", fresh)
	}

	for _, file := range []string{running, stopped} {
		fresh := filepath.Join(t.TempDir(), "new")
		succeed(t, ns, "restore", file, "--data", fresh)
		server := start(t, ns, serveAt("127.0.0.1", fresh)...)
		ann.check(t, ns, admin.token)
		verify(t, openData(t, fresh))
		server.stop(t)
	}
}
