package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/netlab"
)

// serverMachine is a machine that may be a server of a cluster.
type serverMachine struct {
	name, ip string
	ns       *netlab.Namespace
	data     string
	token    string   // file
	run      *running // nil: it does not run
}

// clusterSite is an underlay with machines 192.0.2.1, .2 and so on, which may be servers.
type clusterSite struct {
	*site
	servers []*serverMachine
}

func newClusterSite(t *testing.T, n int) *clusterSite {
	t.Helper()
	s := &clusterSite{site: &site{lab: netlab.ForTest(t)}}
	s.ctl = s.lab.MustNamespace(t, "wire")
	s.ctl.MustIP(t, "link add underlay type bridge", "link set underlay up")
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("s%d", i)
		m := &serverMachine{name: name, ip: fmt.Sprintf("192.0.2.%d", i), ns: s.lab.MustNamespace(t, name), data: t.TempDir()}
		m.token = filepath.Join(t.TempDir(), "token")
		s.lab.MustVeth(t, s.ctl, name, m.ns, "eth0")
		s.ctl.MustIP(t, "link set "+name+" master underlay")
		m.ns.MustIP(t, "addr add "+m.ip+"/24 dev eth0")
		s.servers = append(s.servers, m)
	}
	return s
}

// alone are the arguments of a server that is in no cluster, but for its name.
func (m *serverMachine) alone(more ...string) []string {
	return append([]string{"serve", "--data", m.data, "--name", m.name, "--agents-listen", m.ip + ":2379", "--operator-listen", m.ip + ":9698"}, more...)
}

// member are the arguments of a server that has joined, or joins by a token.
func (m *serverMachine) member(more ...string) []string {
	return m.alone(append([]string{"--cluster", "--join-file", m.token}, more...)...)
}

// join lets a machine join by a token of another server.
func (m *serverMachine) join(t *testing.T, by *serverMachine) {
	t.Helper()
	writeFile(t, m.token, by.serverToken(t, m.name))
	m.start(t, m.member()...)
	if _, err := os.Stat(m.token); err == nil {
		t.Errorf("%s has joined and its token is still there", m.name)
	}
}

// start starts a server, which is killed when the test ends: the last ones of a cluster have no
// majority to leave in order.
func (m *serverMachine) start(t *testing.T, args ...string) {
	t.Helper()
	m.startAs(t, heddle, args...)
}

// startAs is start by the heddle of a release.
func (m *serverMachine) startAs(t *testing.T, of release, args ...string) {
	t.Helper()
	run := launchAs(t, m.ns, of(args...), args...)
	run.waitReady(t)
	t.Cleanup(run.kill)
	m.run = run
}

// serverToken makes a token for a server.
func (m *serverMachine) serverToken(t *testing.T, name ...string) string {
	t.Helper()
	return succeed(t, m.ns, append([]string{"cluster", "token", "--data", m.data}, name...)...)
}

// kill ends a server as a power cut would.
func (m *serverMachine) kill() {
	m.run.kill()
	m.run = nil
}

// members returns the lines of heddle cluster list: name, state and role.
func (m *serverMachine) members(t *testing.T) (lines []string) {
	t.Helper()
	text, code := output(t, m.ns, "cluster", "list", "-o", "json", "--data", m.data)
	var all []struct {
		Name, Role string
		Alive      bool
	}
	if code != 0 || json.Unmarshal([]byte(text), &all) != nil {
		return []string{text}
	}
	for _, one := range all {
		lines = append(lines, fmt.Sprintf("%s %t %s", one.Name, one.Alive, one.Role))
	}
	return lines
}

// waitMembers waits until all of these servers, and no others, are up and vote.
func (m *serverMachine) waitMembers(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	withinLease(t, fmt.Sprintf("the cluster to be %v", want), func() bool {
		got = m.members(t)
		slices.Sort(got)
		for i := range got {
			name, role, _ := strings.Cut(got[i], " true ")
			if role != "leader" && role != "member" {
				return false
			}
			got[i] = name
		}
		return slices.Equal(got, want)
	})
}

// leader returns the server that leads, as m lists it, once one does.
func (s *clusterSite) leader(t *testing.T, m *serverMachine) (found *serverMachine) {
	t.Helper()
	within(t, "a leader", func() bool {
		for _, line := range m.members(t) {
			for _, one := range s.servers {
				if line == one.name+" true leader" {
					found = one
				}
			}
		}
		return found != nil
	})
	return found
}

// form makes a cluster of the first three servers.
func (s *clusterSite) form(t *testing.T) {
	t.Helper()
	s.servers[0].start(t, s.servers[0].alone("--cluster")...)
	for _, m := range s.servers[1:3] {
		m.join(t, s.servers[0])
	}
}

// TestClusterForms: a server that was alone becomes the first of three without moving its data. A
// host that joined before goes on when that server dies, by the others; so does the agent of the
// server's own machine. What no server may do is
// refused with words.
func TestClusterForms(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 4)
	s1, s2, s3, s4 := s.servers[0], s.servers[1], s.servers[2], s.servers[3]
	s1.start(t, s1.alone()...)
	admin := login(t, s1.ns, "127.0.0.1", s1.data)
	before := admin.mustCreate(t, "network", map[string]any{"name": "before"})
	h := s.addHost(t, "h1", "192.0.2.101")
	near := &host{ns: s1.ns, name: s1.ns.Name, ip: s1.ip, state: t.TempDir()}
	t.Cleanup(func() { succeed(t, near.ns, "agent", "--cleanup", "--name", near.name) })
	own := start(t, near.ns, near.agent("--server-data", s1.data)...)
	agent := start(t, h.ns, h.agent("--join", strings.TrimSpace(succeed(t, s1.ns, "host", "token", "--data", s1.data)))...)
	refuse(t, s1.ns, 1, "This server forms no cluster: start it with --cluster", "cluster", "list", "--data", s1.data)
	s1.run.stop(t)
	refuse(t, s1.ns, 2, "want an IP address of this machine", append(s1.alone("--cluster"), "--agents-listen", ":2379")...)

	s1.start(t, s1.alone("--cluster")...)
	s2.join(t, s1)
	s3.join(t, s2)
	for _, m := range s.servers[:3] {
		m.waitMembers(t, "s1", "s2", "s3")
		if all := newClient(m.ns, "127.0.0.1", admin.token).list(t, "network"); all[before.ID].Name != "before" {
			t.Errorf("%s lacks the network that was there before: %v", m.name, all)
		}
	}
	within(t, "the host to know all stores", func() bool {
		c, err := hosts.Load(h.state)
		return err == nil && len(c.Endpoints) == 3 && len(c.Servers) == 3
	})

	refuseServers(t, s1, s4)

	s1.kill()
	s2.waitLed(t)
	catchesUp(t, agent, login(t, s2.ns, "127.0.0.1", s2.data))
	refuse(t, s1.ns, 1, "is one of the 3 members of a cluster (s1, s2, s3): start heddle serve with --cluster", s1.alone()...)
	refuse(t, s1.ns, 1, "is one of the 3 members of a cluster", "backup", filepath.Join(t.TempDir(), "file"), "--data", s1.data)
	refuse(t, s2.ns, 1, "Not enough servers of the cluster are up", "cluster", "remove", "s3", "--data", s2.data)
	withinLease(t, "the status to name the dead server", func() bool {
		text, code := output(t, s2.ns, "status", "--data", s2.data)
		return code == 1 && strings.Contains(text, "cluster: server s1 is down") && strings.Contains(text, "one more failure stops the cloud: 2 of 3")
	})
	refuse(t, s1.ns, 1, "name s3: another server of the cluster, at https://192.0.2.3:2380, has it", append(s1.member(), "--name", "s3")...)
	if err := os.RemoveAll(filepath.Join(s1.data, "etcd", "member", "wal")); err != nil {
		t.Fatal(err)
	}
	refuse(t, s1.ns, 1, "has lost its log", s1.member()...)
	catchesUp(t, own, login(t, s2.ns, "127.0.0.1", s2.data))
}

// refuseServers tries what the cluster of s1 refuses to another machine.
func refuseServers(t *testing.T, s1, s4 *serverMachine) {
	t.Helper()
	try := func(token, words string, args []string) {
		t.Helper()
		writeFile(t, s4.token, token)
		lone := launch(t, s4.ns, args...)
		lone.waitLog(t, words)
		lone.stop(t)
		if raw, err := os.ReadFile(s4.token); err != nil || string(raw) != token {
			t.Errorf("the refused token: %q, %v", raw, err)
		}
	}
	good := s1.serverToken(t)
	try("nonsense", "this is not a join token; make one on the server with `heddle cluster token`", s4.member())
	try(succeed(t, s1.ns, "host", "token", "--data", s1.data), "this join token is for hosts", s4.member())
	try(s1.serverToken(t, "s9"), "The token is for server s9, not s4", s4.member())
	try(good, "The cluster has a server named s2", append(s4.member(), "--name", "s2"))
	try(good, "the cluster's other servers cannot reach a loopback address", append(s4.member(), "--peer-listen", "127.0.0.1:2380"))
	for _, setting := range []string{"--peer-listen", "--agents-listen"} {
		refuse(t, s4.ns, 1, setting+" 192.0.2.99:2999: this machine cannot listen there", append(s4.member(), setting, "192.0.2.99:2999")...)
	}
	for _, m := range s1.members(t) {
		if strings.HasPrefix(m, " ") {
			t.Errorf("a refused server was added: %q", s1.members(t))
		}
	}
	refuse(t, s1.ns, 1, "The cluster has no server named s4", "cluster", "remove", "s4", "--data", s1.data)
}

// waitLed waits until a server can commit.
func (m *serverMachine) waitLed(t *testing.T) {
	t.Helper()
	withinLease(t, "a leader", func() bool {
		_, code := output(t, m.ns, "cluster", "token", "--data", m.data)
		return code == 0
	})
}

// catchesUp makes an object by a server and waits until the agent has it.
func catchesUp(t *testing.T, agent *running, c *client) {
	t.Helper()
	before := agent.storeRevision(t)
	c.mustCreate(t, "network", map[string]any{"name": "after"})
	withinLease(t, "the host to follow", func() bool { return agent.storeRevision(t) > before })
}

// TestClusterLosesServers: the leader dies under load, one member's disk is lost and its machine
// joins again, all machines lose power at once: nothing that was acknowledged is lost.
func TestClusterLosesServers(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 3)
	s.form(t)
	admin := login(t, s.servers[0].ns, "127.0.0.1", s.servers[0].data)
	admin.unlimited(t)
	clients := map[*serverMachine]*client{}
	var all []*client
	for _, m := range s.servers {
		clients[m] = newClient(m.ns, "127.0.0.1", admin.token)
		all = append(all, clients[m])
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	book := newLedger()
	var working sync.WaitGroup
	for w := range 3 {
		working.Go(func() { book.load(ctx, t, w, all...) })
	}
	book.waitFor(t, 50)
	dead := s.leader(t, s.servers[0])
	dead.kill()
	book.waitFor(t, 50)
	stop()
	working.Wait()
	live := s.servers[(slices.Index(s.servers, dead)+1)%3]
	live.waitLed(t)
	book.check(t, clients[live])

	// Its disk is lost. It waits for a token, and is refused while its former self is a member.
	for _, name := range []string{"etcd", "tls", "clouds.yaml", "openrc"} {
		if err := os.RemoveAll(filepath.Join(dead.data, name)); err != nil {
			t.Fatal(err)
		}
	}
	dead.run = launch(t, dead.ns, dead.member()...)
	dead.run.waitLog(t, "there is no such file, and this server has no store: run `heddle cluster token "+dead.name)
	writeFile(t, dead.token, live.serverToken(t, dead.name))
	dead.run.waitLog(t, "To replace it, remove it first: `heddle cluster remove "+dead.name)
	succeed(t, live.ns, "cluster", "remove", dead.name, "--data", live.data)
	dead.run.waitReady(t)
	live.waitMembers(t, "s1", "s2", "s3")
	book.check(t, clients[dead])

	for _, m := range s.servers {
		m.kill()
	}
	for _, m := range s.servers {
		m.run = launch(t, m.ns, m.member()...)
	}
	for _, m := range s.servers {
		m.run.waitReady(t)
		book.check(t, clients[m])
	}
	verify(t, openData(t, live.data))
}

// TestClusterGrowsAndShrinks: one server becomes three and five, and one again, which needs no
// cluster any more. Servers that are removed end and can join again. A backup restores to a server
// that others join.
func TestClusterGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 5)
	s.form(t)
	s1 := s.servers[0]
	admin := login(t, s1.ns, "127.0.0.1", s1.data)
	network := admin.mustCreate(t, "network", map[string]any{"name": "blue"})
	s.servers[3].join(t, s1)
	s.servers[4].join(t, s1)
	s1.waitMembers(t, "s1", "s2", "s3", "s4", "s5")
	s.servers[1].kill()
	s.servers[2].kill()
	s1.waitLed(t)
	for _, m := range s.servers[1:3] {
		want := fmt.Sprintf("removed server %s at https://%s:2380", m.name, m.ip)
		if got := succeed(t, s1.ns, "cluster", "remove", m.name, "--data", s1.data); strings.TrimSpace(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s1.waitMembers(t, "s1", "s4", "s5")

	// One comes back and hears that it was removed while it was dead. The agent of its machine goes
	// on by the others, also when it starts again.
	removed := s.servers[1]
	near := &host{ns: removed.ns, name: removed.ns.Name, ip: removed.ip, state: t.TempDir()}
	t.Cleanup(func() { succeed(t, near.ns, "agent", "--cleanup", "--name", near.name) })
	agent := start(t, near.ns, near.agent("--server-data", removed.data)...)
	removed.run = launch(t, removed.ns, removed.member()...)
	removed.run.waitLog(t, "this server's store was removed from the cluster")
	removed.run.waitEnd(t)
	catchesUp(t, agent, admin)
	agent.stop(t)
	agent = start(t, near.ns, near.agent("--server-data", removed.data)...)
	catchesUp(t, agent, admin)
	agent.stop(t)
	removed.join(t, s1)
	s1.waitMembers(t, "s1", "s2", "s4", "s5")

	backup := filepath.Join(t.TempDir(), "backup")
	succeed(t, removed.ns, "backup", backup, "--data", removed.data)
	for _, name := range []string{"s2", "s4", "s5"} {
		withinLease(t, name+" to be removed", func() bool { // those that remain have been connected for some seconds
			_, code := output(t, s1.ns, "cluster", "remove", name, "--data", s1.data)
			return code == 0
		})
	}
	removed.run.waitLog(t, "this server's store was removed from the cluster")
	removed.run.waitEnd(t)
	s1.waitMembers(t, "s1")
	refuse(t, s1.ns, 1, "is the only member of the cluster", "cluster", "remove", "s1", "--data", s1.data)
	s1.run.stop(t)
	s1.start(t, s1.alone()...)
	if all := newClient(s1.ns, "127.0.0.1", admin.token).list(t, "network"); all[network.ID].Name != "blue" {
		t.Errorf("alone again: %v", all)
	}
	s1.run.stop(t)

	s1.data = t.TempDir()
	succeed(t, s1.ns, "restore", backup, "--data", s1.data)
	s1.start(t, s1.alone("--cluster", "--admin-password", "a new one")...) // which ends all tokens
	admin = login(t, s1.ns, "127.0.0.1", s1.data)
	removed.join(t, s1)
	if all := newClient(removed.ns, "127.0.0.1", admin.token).list(t, "network"); all[network.ID].Name != "blue" {
		t.Errorf("restored, and joined: %v", all)
	}

	// The majority is lost for good.
	s1.kill()
	refuse(t, removed.ns, 1, "heddle cluster reset makes one that is left a cluster of its own", "status", "--data", removed.data)
	refuse(t, removed.ns, 1, "heddle cluster reset makes one that is left a cluster of its own", "cluster", "list", "--data", removed.data)
	refuse(t, removed.ns, 1, "of the servers of a cluster more than half must run", "store", "status", "--config", "", "--data", removed.data)
	if text, _ := output(t, removed.ns, "doctor", "--config", "", "--data", removed.data); !regexp.MustCompile(`unknown +space in the store`).MatchString(text) {
		t.Errorf("the space in a store without a majority is found out:\n%s", text)
	}
	removed.run.stop(t)
	succeed(t, removed.ns, "cluster", "reset", "--data", removed.data)
	removed.start(t, removed.member()...)
	removed.waitMembers(t, "s2")
	if all := newClient(removed.ns, "127.0.0.1", admin.token).list(t, "network"); all[network.ID].Name != "blue" {
		t.Errorf("after the reset: %v", all)
	}
}

// waitEnd waits until the process has ended by itself.
func (r *running) waitEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(time.Minute):
		t.Error("heddle did not end")
	}
}
