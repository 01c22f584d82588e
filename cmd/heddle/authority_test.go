package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/store/backend"
)

// authorityStatus is the output of heddle ca status -o json.
type authorityStatus struct {
	Rotating    bool `json:"rotating"`
	Authorities []struct {
		Fingerprint, Role string
	} `json:"authorities"`
	Certificates []struct {
		Kind, Name string
		Former     bool
	} `json:"certificates"`
	WaitingFor []string `json:"waiting_for"`
	Problems   []string `json:"problems"`
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
