package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/api/hosts"
	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// authorityStatus is the output of heddle ca status -o json.
type authorityStatus struct {
	Rotating    bool `json:"rotating"`
	Authorities []struct {
		Fingerprint, Role string
	} `json:"authorities"`
	Certificates []authorityCertificate `json:"certificates"`
	WaitingFor   []string               `json:"waiting_for"`
	Problems     []string               `json:"problems"`
}

type authorityCertificate struct {
	Kind, Name string
	Former     bool
}

// caStatus returns the status of the authority, as a server's machine sees it.
func caStatus(t *testing.T, ns *netlab.Namespace, data string) (v authorityStatus) {
	t.Helper()
	text, _ := output(t, ns, "ca", "status", "-o", "json", "--data", data)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("heddle ca status: %v\n%s", err, text)
	}
	return v
}

// roles returns the authorities' roles.
func (v authorityStatus) roles() (all []string) {
	for _, a := range v.Authorities {
		all = append(all, a.Role)
	}
	return all
}

// current reports whether a host or server has a certificate of the authority that signs.
func (v authorityStatus) current(name string) bool {
	for _, c := range v.Certificates {
		if c.Name == name {
			return !c.Former
		}
	}
	return false
}

// TestAuthorityRotation: the authority is exchanged under traffic and calls, of which none is lost.
// The server is killed on the way. A host that is away is named, and comes back by itself after the
// end; a join token and a client's copy of the authority from before stay good.
func TestAuthorityRotation(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	c := login(t, s.ctl, "127.0.0.1", s.data)
	c.unlimited(t)
	network := c.mustCreate(t, "network", map[string]any{"name": "blue"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})
	var hosts []*host
	var agents []*running
	var vms []*netlab.Namespace
	for i := range 3 {
		h := s.addHost(t, fmt.Sprint("h", i), fmt.Sprintf("192.0.2.1%d", i))
		hosts = append(hosts, h)
		agents = append(agents, start(t, h.ns, h.agent("--join", s.token(t, h.name))...))
	}
	for i, h := range hosts[:2] {
		vm := s.lab.MustNamespace(t, fmt.Sprint("vm", i))
		port, mac := c.bindPort(t, network.ID, h, 10+i)
		plug(t, vm, "eth0", mac, h, port)
		vm.MustIP(t, "link set eth0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", 10+i))
		vms = append(vms, vm)
	}
	within(t, "the machines to reach each other", func() bool { return vms[0].Reach(t.Context(), "10.0.0.11") == nil })
	token, copied := s.token(t), filepath.Join(t.TempDir(), "ca.crt")
	raw, err := os.ReadFile(backend.AuthorityFile(s.data))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, copied, string(raw))
	before := caStatus(t, s.ctl, s.data)
	if !slices.Equal(before.roles(), []string{"signs"}) {
		t.Errorf("before: %+v", before)
	}
	refuse(t, s.ctl, 1, "`heddle ca rotate` begins to exchange it", "ca", "rotate", "--retire", "--data", s.data)
	away := hosts[2]
	agents[2].stop(t)
	ping, err := vms[0].Ping("10.0.0.11")
	if err != nil {
		t.Fatal(err)
	}
	load := loadAPI(t, c)

	succeed(t, s.ctl, "ca", "rotate", "--data", s.data)
	renewed := func() bool {
		v := caStatus(t, s.ctl, s.data)
		return slices.Equal(v.roles(), []string{"signs", "former"}) && v.current(hosts[0].name) && v.current(hosts[1].name) &&
			len(v.WaitingFor) == 1 && strings.Contains(v.WaitingFor[0], "host "+away.name+" is away")
	}
	withinLease(t, "all but the host that is away to have new certificates", renewed)
	refuse(t, s.ctl, 1, "is still trusted", "ca", "rotate", "--data", s.data)
	load.wait(5)
	load.stop() // calls fail while the server is dead
	server.kill()
	s.serve(t)
	if v := caStatus(t, s.ctl, s.data); !v.Rotating {
		t.Errorf("after a crash: %+v", v)
	}
	withinLease(t, "the rotation to be where it was", renewed)
	more := loadAPI(t, c)
	succeed(t, s.ctl, "ca", "rotate", "--retire", "--data", s.data)
	if text, code := output(t, s.ctl, "ca", "status", "--wait", "1m", "--data", s.data); code != 0 || strings.Contains(text, "waiting") {
		t.Errorf("after the end: %d\n%s", code, text)
	}
	more.wait(5)
	more.stop()
	longest, lost, err := ping.End()
	if err != nil || lost > 0 {
		t.Errorf("%d pings lost, longest time without an answer %v: %v", lost, longest, err)
	}
	if load.failed.Load()+more.failed.Load() > 0 {
		t.Errorf("%d calls failed", load.failed.Load()+more.failed.Load())
	}

	after := caStatus(t, s.ctl, s.data)
	if !slices.Equal(after.roles(), []string{"signs"}) || after.Authorities[0].Fingerprint == before.Authorities[0].Fingerprint {
		t.Errorf("after: %+v", after)
	}
	agents[2] = start(t, away.ns, away.agent()...)
	withinLease(t, "the host that was away to be back", func() bool {
		_, up := s.alive(t, away)
		return up && caStatus(t, s.ctl, s.data).current(away.name)
	})
	late := s.addHost(t, "late", "192.0.2.30")
	start(t, late.ns, late.agent("--join", token)...)
	rc := append(readRC(t, s.data), "OS_CACERT="+copied)
	if text, code := outputWith(t, s.ctl, rc, "host", "list"); code != 0 || !strings.Contains(text, late.name) {
		t.Errorf("a client with a copy of the former authority: %s", text)
	}
}

// TestAuthorityRotationOfCluster: a rotation waits for a member that is down, which it names, and
// ends by itself when that is back. Members name each other until they have been started again.
func TestAuthorityRotationOfCluster(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 3)
	s.form(t)
	s1, s3 := s.servers[0], s.servers[2]
	s1.waitMembers(t, "s1", "s2", "s3")
	s3.kill()
	withinLease(t, "the dead server to be missed", func() bool { return slices.Contains(s1.members(t), "s3 false member") })
	succeed(t, s1.ns, "ca", "rotate", "--data", s1.data)
	if v := caStatus(t, s1.ns, s1.data); !slices.Equal(v.roles(), []string{"signs", "next"}) || !slices.ContainsFunc(v.WaitingFor, func(w string) bool { return strings.HasPrefix(w, "server s3 is down") }) {
		t.Errorf("while a server is down: %+v", v)
	}
	refuse(t, s1.ns, 1, "the new one does not sign yet", "ca", "rotate", "--data", s1.data)
	s3.start(t, s3.member()...)
	withinLease(t, "the rotation to be over", func() bool { return !caStatus(t, s1.ns, s1.data).Rotating })
	for _, m := range s.servers {
		if v := caStatus(t, s1.ns, s1.data); !v.current(m.name) {
			t.Errorf("%s has no new certificate: %+v", m.name, v)
		}
	}
	for _, m := range s.servers {
		m.run.stop(t)
		m.start(t, m.member()...)
		m.waitMembers(t, "s1", "s2", "s3")
	}
	withinLease(t, "no server to trust the former authority", func() bool {
		v := caStatus(t, s1.ns, s1.data)
		return slices.Equal(v.roles(), []string{"signs"}) && len(v.Problems) == 0
	})
}

// callXenAPI calls the XenAPI of a server by TLS, which it recognizes by an authority. The data
// directory has the password.
func callXenAPI(t *testing.T, ns *netlab.Namespace, address, data, authority string) (string, int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(data, rootPasswordFile))
	if err != nil {
		t.Fatal(err)
	}
	account := filepath.Join(t.TempDir(), "account")
	writeFile(t, account, "root\n"+string(raw))
	return output(t, ns, "xe", "-s", address, "-p", "8443", "-u", "root", "-pwf", account, "ca="+authority, "host-list")
}

// TestAuthorityRotationBesideXenAPI: the certificate of a heddle xapi that works over the store of
// a server follows the rotation, and it goes on over the cut of connections. Clients with the
// former authority or the new one recognize it.
func TestAuthorityRotationBesideXenAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	start(t, s.ctl, "xapi", "--data", s.data, "--tls-listen", "192.0.2.1:8443")
	rotatesXenAPI(t, s.ctl, "192.0.2.1", s.data)
}

// TestAuthorityRotationOfPool: the same of a heddle xapi that has the store open, which a host has
// joined.
func TestAuthorityRotationOfPool(t *testing.T) {
	t.Parallel()
	p := startPool(t, 1)
	rotatesXenAPI(t, p.lab.Fabric, fabricIP, p.data)
	v := caStatus(t, p.lab.Fabric, p.data)
	if name := p.lab.Hosts()[0].Name; !v.current(name) {
		t.Errorf("host %s has no new certificate: %+v", name, v)
	}
	if !slices.ContainsFunc(v.Certificates, func(c authorityCertificate) bool { return c.Kind == "server" }) {
		t.Errorf("the status lacks the server that has the store open: %+v", v)
	}
	p.xe("network-create", "name-label=after")
	p.until("the host to live", func() bool { return p.xe("host-list", "host-metrics-live=true", "params=uuid", "--minimal") != "" })
}

// rotatesXenAPI exchanges the authority of a data directory's store beside its XenAPI.
func rotatesXenAPI(t *testing.T, ns *netlab.Namespace, address, data string) {
	t.Helper()
	authority, copied := backend.AuthorityFile(data), filepath.Join(t.TempDir(), "ca.crt")
	raw, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, copied, string(raw))
	if text, code := callXenAPI(t, ns, address, data, authority); code != 0 {
		t.Fatalf("before: %s", text)
	}
	before := caStatus(t, ns, data)
	succeed(t, ns, "ca", "rotate", "--data", data)
	if text, code := output(t, ns, "ca", "status", "--wait", "1m", "--data", data); code != 0 {
		t.Fatalf("the rotation is not over: %s", text)
	}
	if after := caStatus(t, ns, data); after.Authorities[0].Fingerprint == before.Authorities[0].Fingerprint {
		t.Errorf("after: %+v", after)
	}
	withinLease(t, "the XenAPI to have a certificate of the new authority", func() bool {
		_, code := callXenAPI(t, ns, address, data, authority)
		return code == 0
	})
	if text, code := callXenAPI(t, ns, address, data, copied); code != 0 {
		t.Errorf("a client with a copy of the former authority: %s", text)
	}
}

// TestAuthoritiesOfFiles follows docs/guides/authority.md, "Authorities of your own": over an etcd
// cluster, the authority of hosts is exchanged, and then that of the cluster. A host goes on.
func TestAuthoritiesOfFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	members := [storetest.Members]string{"192.0.2.2", "192.0.2.3", "192.0.2.4"}
	for _, ip := range members {
		s.ctl.MustIP(t, "addr add "+ip+"/32 dev underlay")
	}
	etcd := storetest.Start(t, storetest.Options{Addresses: members, Start: func(cmd *exec.Cmd) error { return s.ctl.Start(cmd) }})
	etcd.Protect(t)
	files := t.TempDir()
	read := func(path ...string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	newAuthority := func(name string) *storetest.Authority {
		t.Helper()
		dir := filepath.Join(files, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		a, err := storetest.NewAuthority(dir)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	newAuthority("hosts1")
	newAuthority("hosts2")
	second := newAuthority("cluster2")
	cluster1, cluster2 := read(etcd.Dir, "ca.crt"), read(files, "cluster2", "ca.crt")
	hosts1, hosts2 := read(files, "hosts1", "ca.crt"), read(files, "hosts2", "ca.crt")

	membersTrust := func(authorities ...string) {
		t.Helper()
		writeFile(t, filepath.Join(etcd.Dir, "ca.crt"), strings.Join(authorities, ""))
		for i := range members {
			etcd.Kill(i)
			etcd.Restart(t)
		}
	}
	etcdCA, hostsCert, hostsKey := filepath.Join(files, "etcd-ca.crt"), filepath.Join(files, "hosts.crt"), filepath.Join(files, "hosts.key")
	root := etcd.As("root")
	serve := func(trusted, ofHosts string) *running {
		t.Helper()
		writeFile(t, etcdCA, trusted)
		writeFile(t, hostsCert, read(files, ofHosts, "ca.crt"))
		writeFile(t, hostsKey, read(files, ofHosts, "ca.key"))
		return start(t, s.ctl, serveAt("127.0.0.1", s.data, "--etcd-endpoints", strings.Join(root.Endpoints, ","), "--etcd-ca", etcdCA, "--etcd-cert", root.CertFile,
			"--etcd-key", root.KeyFile, "--operator-listen", "192.0.2.1:9698", "--allow-plain-http", "--hosts-ca-cert", hostsCert, "--hosts-ca-key", hostsKey)...)
	}

	membersTrust(cluster1, hosts1)
	server := serve(cluster1, "hosts1")
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t), "--join-plain-http")...)
	follows := func() {
		t.Helper()
		catchesUp(t, agent, login(t, s.ctl, "127.0.0.1", s.data))
	}
	follows()
	refuse(t, s.ctl, 1, "docs/guides/authority.md says how", "ca", "rotate", "--data", s.data)
	if v := caStatus(t, s.ctl, s.data); !v.current(h.name) {
		t.Errorf("before: %+v", v)
	}

	// The authority of hosts.
	membersTrust(cluster1, hosts1, hosts2)
	server.stop(t)
	server = serve(cluster1, "hosts2")
	withinLease(t, "the host to have a certificate of the new authority", func() bool { return caStatus(t, s.ctl, s.data).current(h.name) })
	membersTrust(cluster1, hosts2)
	follows()

	// The cluster's own.
	hostTrusts := func(authority string) bool {
		c, err := hosts.Load(h.state)
		return err == nil && strings.Contains(read(c.CAFile), authority)
	}
	membersTrust(cluster1, cluster2, hosts2)
	server.stop(t)
	server = serve(cluster1+cluster2, "hosts2")
	withinLease(t, "the host to trust the new authority", func() bool { return hostTrusts(cluster2) })
	names := append([]string{"127.0.0.1", "localhost", "m0.sock", "m1.sock", "m2.sock"}, members[:]...)
	for _, name := range []string{"member", "root"} {
		if err := second.Pair(name, names...); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{name + ".crt", name + ".key"} {
			writeFile(t, filepath.Join(etcd.Dir, file), read(files, "cluster2", file))
		}
	}
	membersTrust(cluster1, cluster2, hosts2)
	server.stop(t)
	server = serve(cluster1+cluster2, "hosts2")
	follows()
	membersTrust(cluster2, hosts2)
	server.stop(t)
	serve(cluster2, "hosts2")
	follows()
	withinLease(t, "the host to trust the former authority no more", func() bool { return !hostTrusts(cluster1) })
	late := s.addHost(t, "late", "192.0.2.12")
	start(t, late.ns, late.agent("--join", s.token(t), "--join-plain-http")...)
}
