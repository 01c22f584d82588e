package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// An etcd that was wiped and started empty is neither followed nor written to: traffic goes on,
// readiness says why nothing else does, a restarted agent works with what it kept, and a restarted
// server makes no new cloud of it. All go on when the data is back. Before, a machine moves live
// between the hosts.
func TestWipedStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	etcd := storetest.StartSingle(t)
	cluster := []string{"--etcd-endpoints", etcd.Endpoint}
	server := start(t, s.ctl, append([]string{"serve", "--data", s.data}, cluster...)...)
	admin := login(t, s.ctl, "127.0.0.1", s.data)
	network := admin.mustCreate(t, "network", map[string]any{"name": "blue"})
	admin.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})
	var agents []*running
	var hosts []*host
	var vms []*netlab.Namespace
	for i := 1; i <= 2; i++ {
		h := s.addHost(t, fmt.Sprintf("h%d", i), fmt.Sprintf("192.0.2.1%d", i))
		agents, hosts = append(agents, start(t, h.ns, h.agent(cluster...)...)), append(hosts, h)
		port := admin.mustCreate(t, "port", map[string]any{"network_id": network.ID, "binding:host_id": h.name, "device_owner": "compute:me",
			"mac_address": fmt.Sprintf("02:00:00:00:00:0%d", i), "fixed_ips": []map[string]any{{"ip_address": fmt.Sprintf("10.0.0.1%d", i)}}})
		vm := s.lab.MustNamespace(t, fmt.Sprintf("vm%d", i))
		vm.MustIP(t, fmt.Sprintf("link add eth0 address 02:00:00:00:00:0%d type veth peer name tap%s netns %s", i, port.ID[:11], h.ns.Name),
			"link set eth0 up", fmt.Sprintf("addr add 10.0.0.1%d/24 dev eth0", i))
		h.ns.MustIP(t, "link set tap"+port.ID[:11]+" up")
		listenTCP(t, vm, 80)
		vms = append(vms, vm)
	}
	reached := func(when string) {
		t.Helper()
		within(t, when+": a new connection between hosts", func() bool { return connects(vms[0], "10.0.0.12:80") })
	}
	reached("before")
	migrate(t, s, admin, network.ID, hosts[0], hosts[1], map[string]*netlab.Namespace{"10.0.0.11": vms[0], "10.0.0.12": vms[1]})
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{etcd.Endpoint}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })

	restore := etcd.Wipe(t)
	server.waitFor(t, "/readyz", http.StatusServiceUnavailable, "it has no /heddle/schema: restore a backup")
	for _, r := range append(agents, server) {
		r.waitLog(t, "it has no /heddle/schema: restore a backup")
	}
	if _, err := admin.create(t.Context(), "network", map[string]any{"name": "into the void"}); err == nil {
		t.Error("a network was made in a store that was wiped")
	}
	reached("over the wiped store")

	agents[0].stop(t)
	agents[0] = launch(t, hosts[0].ns, hosts[0].agent(cluster...)...)
	agents[0].waitLog(t, "starting from the last snapshot on disk")
	agents[0].waitLog(t, "topology loaded")
	reached("after a restart of the agent")
	server.stop(t)
	refuse(t, s.ctl, 1, "it has no /heddle/schema: restore a backup of it, or remove "+filepath.Join(s.data, knownStoreFile), append([]string{"serve", "--data", s.data}, cluster...)...)
	if kvs, _, err := st.List(t.Context(), ""); err != nil || len(kvs) > 0 {
		t.Errorf("the wiped store has %v, %v", kvs, err)
	}

	restore()
	start(t, s.ctl, append([]string{"serve", "--data", s.data}, cluster...)...)
	for _, a := range agents {
		a.waitReady(t)
	}
	admin = login(t, s.ctl, "127.0.0.1", s.data)
	if networks := admin.list(t, "network"); len(networks) != 1 {
		t.Errorf("networks after the restore: %v", networks)
	}
	reached("after the restore")
	if _, err := os.Stat(filepath.Join(hosts[0].state, knownStoreFile)); err != nil {
		t.Error(err)
	}
}

// The XenAPI and tunnel controllers over an etcd that was wiped hold out, too: nothing is written
// to it, neither begins anew over it, and both go on when the data is back.
func TestWipedStoreOfAPool(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartSingle(t)
	cluster := []string{"--etcd-endpoints", etcd.Endpoint}
	ns, data, own := netlab.ForTest(t).MustNamespace(t, "pool"), t.TempDir(), t.TempDir()
	password := filepath.Join(data, rootPasswordFile)
	server := append([]string{"xapi", "--data", data, "--tls-listen", ""}, cluster...)
	controller := append([]string{"tunnel-controller", "--data", own, "--password-file", password, "--ovsdb", "unix:/none/{host}"}, cluster...)
	pool := start(t, ns, server...)
	tunnels := start(t, ns, controller...)
	leads := func() bool {
		_, page, err := tunnels.page(t.Context(), "/metrics")
		return err == nil && strings.Contains(page, "\nheddle_tunnel_leader 1\n")
	}
	within(t, "the controller to lead", leads)
	create := []string{"xe", "-s", "127.0.0.1", "-p", "8080", "--nossl", "-u", "root", "-pw", rootPassword(t, data), "network-create", "name-label=blue"}
	succeed(t, ns, create...)
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{etcd.Endpoint}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })

	restore := etcd.Wipe(t)
	for _, r := range []*running{pool, tunnels} {
		r.waitLog(t, "it has no /heddle/schema: restore a backup")
	}
	within(t, "the controller to lead no more", func() bool { return !leads() })
	if said, code := output(t, ns, create...); code == 0 {
		t.Errorf("a network was made in a store that was wiped: %s", said)
	}
	pool.stop(t)
	refuse(t, ns, 1, "it has no /heddle/schema: restore a backup of it, or remove "+filepath.Join(data, knownStoreFile), server...)
	refuse(t, ns, 1, "it has no /heddle/schema: restore a backup of it, or remove "+filepath.Join(own, knownStoreFile), controller...)
	if kvs, _, err := st.List(t.Context(), ""); err != nil || len(kvs) > 0 {
		t.Errorf("the wiped store has %v, %v", kvs, err)
	}

	restore()
	start(t, ns, server...)
	within(t, "the controller to lead again", leads)
	if said := succeed(t, ns, "xe", "-s", "127.0.0.1", "-p", "8080", "--nossl", "-u", "root", "-pw", rootPassword(t, data), "network-list", "params=name-label"); !strings.Contains(said, "blue") {
		t.Errorf("networks after the restore: %s", said)
	}
}
