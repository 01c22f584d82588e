package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/api/operator"
	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
)

// site is a server and hosts, each a namespace, on one underlay.
type site struct {
	lab  *netlab.Lab
	ctl  *netlab.Namespace // 192.0.2.1
	data string            // of the server
}

// newSite makes the underlay.
func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{lab: netlab.ForTest(t), data: t.TempDir()}
	s.ctl = s.lab.MustNamespace(t, "ctl")
	s.ctl.MustIP(t, "link add underlay type bridge", "addr add 192.0.2.1/24 dev underlay", "link set underlay up")
	return s
}

// serve starts the server, with its store open to agents of other hosts.
func (s *site) serve(t testing.TB, more ...string) *running {
	t.Helper()
	return start(t, s.ctl, append(s.serveArgs(), more...)...)
}

// serveArgs are the arguments of the server.
func (s *site) serveArgs() []string {
	return []string{"serve", "--data", s.data, "--agents-listen", "192.0.2.1:2379", "--operator-listen", "192.0.2.1:9698"}
}

// host is a machine that may join.
type host struct {
	ns    *netlab.Namespace
	name  string // not used by any other test: what its agent pins is found by it
	ip    string
	state string
}

// addHost makes a machine with this address on the underlay.
func (s *site) addHost(t testing.TB, short, ip string) *host {
	t.Helper()
	h := &host{ns: s.lab.MustNamespace(t, short), ip: ip, state: filepath.Join(t.TempDir(), short)}
	h.name = h.ns.Name
	s.lab.MustVeth(t, s.ctl, short, h.ns, "eth0")
	s.ctl.MustIP(t, "link set "+short+" master underlay")
	h.ns.MustIP(t, "addr add "+ip+"/24 dev eth0")
	t.Cleanup(func() { succeed(t, h.ns, "agent", "--cleanup", "--name", h.name) })
	return h
}

// agent are the arguments of the host's agent.
func (h *host) agent(more ...string) []string {
	return append([]string{"agent", "--name", h.name, "--state", h.state, "--tunnel-ip", h.ip}, more...)
}

// pins returns the directory of the agent's pinned programs and maps.
func (h *host) pins() string { return filepath.Join("/sys/fs/bpf/heddle", h.name) }

// token makes a join token.
func (s *site) token(t testing.TB, name ...string) string {
	t.Helper()
	return strings.TrimSpace(succeed(t, s.ctl, append([]string{"host", "token", "--data", s.data}, name...)...))
}

// alive reports whether the server lists the host as up.
func (s *site) alive(t *testing.T, h *host) (listed, up bool) {
	t.Helper()
	var all []operator.Host
	if err := json.Unmarshal([]byte(succeed(t, s.ctl, "host", "list", "-o", "json", "--data", s.data)), &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Name == h.name {
			if one.Alive != (one.StartedAt != nil && one.MTU > 0) {
				t.Errorf("host list -o json says %+v, want the start and the MTU of a host that is up", one)
			}
			return true, one.Alive
		}
	}
	return false, false
}

// waitGone waits until nothing is left of what the host has reported, and the server has heard of
// it.
func (s *site) waitGone(t *testing.T, h *host) {
	t.Helper()
	joined, err := hosts.Load(h.state)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st := openData(t, s.data)
	state := schema.StatePrefix + joined.HostID + "/"
	for {
		left, rev, err := st.List(ctx, state)
		if err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(left, func(kv store.KV) bool {
			return strings.HasSuffix(kv.Key, "/tunnel-keys") || strings.HasSuffix(kv.Key, "/metadata-key")
		}) // under no lease
		if len(left) == 0 {
			break
		}
		watch, stop := context.WithCancel(ctx)
		changes, _ := st.Watch(watch, rev, state)
		<-changes
		stop()
	}
	err = netlab.Until(ctx, "the server to hear of it", func() (bool, error) {
		_, up := s.alive(t, h)
		return !up, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A host joins with a token, is listed, and is shut out again.
func TestJoin(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	h1, h2 := s.addHost(t, "h1", "192.0.2.11"), s.addHost(t, "h2", "192.0.2.12")

	refuse(t, h1.ns, 2, "this host has not joined: run `heddle host token` on the server and give the file with its token with --join-file", h1.agent()...)
	refuse(t, h1.ns, 1, "not a join token", h1.agent("--join", "nonsense")...)
	token := s.token(t)
	refuse(t, h1.ns, 1, "it is not the server that made it", h1.agent("--join", forge(t, token))...)
	agent := start(t, h1.ns, h1.agent("--join", token)...)
	if _, up := s.alive(t, h1); !up {
		t.Error("the host has joined and its agent runs, but it is not up")
	}
	refuse(t, h2.ns, 1, "used, expired or unknown", h2.agent("--join", token)...)
	refuse(t, h2.ns, 1, "is for host "+h1.name, h2.agent("--join", s.token(t, h1.name))...)
	server.waitLog(t, `msg="join refused" part=hosts host=`+h2.name)
	server.waitFor(t, "/metrics", http.StatusOK, `heddle_logins_refused_total{api="hosts",reason="bad token"} 2`)

	limits(t, s, h1)
	agent.kill()
	agent = start(t, h1.ns, h1.agent("--join", token, "--physical", "physnet1=eth0")...) // as a service file would have it
	limits(t, s, h1)

	agent.waitLog(t, "to join again, remove host.json")
	distrust(t, h1, h2.ns)

	succeed(t, s.ctl, "host", "remove", h1.name, "--data", s.data)
	if err := read(t, s, h1, "/heddle/topology/"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a removed host reads the store: %v", err)
	}
	if listed, _ := s.alive(t, h1); listed {
		t.Error("a removed host is listed")
	}
	agent.waitLog(t, "the store refuses this process")
	agent.waitLog(t, "the store refuses this agent") // so it leaves its LANs
	agent.waitFor(t, "/readyz", http.StatusServiceUnavailable, "the host was removed or cut off")
	agent.stop(t)
	refuse(t, h1.ns, 1, "`heddle host token "+h1.name+"`", h1.agent()...)
}

// TestJoinMakesNewKeys: a host that joins again, under its id or another, shares no key with the
// one that it was before: what was stolen with its state directory opens nothing any more.
func TestJoinMakesNewKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)
	before := h.secrets(t)
	for _, how := range []struct {
		name  string
		token func() string
	}{
		{"its own id", func() string { return s.token(t, h.name) }},
		{"another id", func() string {
			succeed(t, s.ctl, "host", "remove", "--force", h.name, "--data", s.data)
			return s.token(t)
		}},
	} {
		agent.stop(t)
		token := how.token()
		if err := os.Remove(filepath.Join(h.state, "host.json")); err != nil {
			t.Fatal(err)
		}
		agent = start(t, h.ns, h.agent("--join", token)...)
		now := h.secrets(t)
		for name, secret := range now {
			if bytes.Equal(secret, before[name]) {
				t.Errorf("joined again under %s: the %s is that of the earlier join", how.name, name)
			}
		}
		before = now
	}
}

// secrets returns the private keys in the host's state directory.
func (h *host) secrets(t *testing.T) map[string][]byte {
	t.Helper()
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(h.state, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var tunnels struct {
		Keys []struct{ Private, Wireguard []byte }
	}
	if err := json.Unmarshal(read("tunnel-keys.json"), &tunnels); err != nil || len(tunnels.Keys) != 1 {
		t.Fatalf("tunnel keys: %+v, %v", tunnels, err)
	}
	return map[string][]byte{"key of the certificate": read("host.key"), "key of machines' metadata": read("metadata.key"),
		"tunnel key": tunnels.Keys[0].Private, "WireGuard key": tunnels.Keys[0].Wireguard}
}

// TestAgentRefusesSettings: an agent ends at once with settings by which it could not work.
func TestAgentRefusesSettings(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "host")
	agent := func(tunnelIP string, more ...string) []string {
		return append([]string{"agent", "--name", "h1", "--state", filepath.Join(t.TempDir(), "state"), "--tunnel-ip", tunnelIP}, more...)
	}
	for _, ip := range []string{"127.0.0.1", "0.0.0.0", "224.0.0.5"} {
		refuse(t, ns, 2, fmt.Sprintf("--tunnel-ip %q: other hosts cannot send to it", ip), agent(ip)...)
	}
	for _, ip := range []string{"h1", "2001:db8::1"} {
		refuse(t, ns, 2, fmt.Sprintf("--tunnel-ip %q: want an IPv4 address of this host", ip), agent(ip)...)
	}
	refuse(t, ns, 2, "/etc/heddle/heddle.yaml: agent.tunnel-ip is missing: write it there", agent("")...)
	unset := write(t, "agent:\n") // as the package's heddle.yaml
	refuse(t, ns, 2, unset+": agent.tunnel-ip is missing: write it there", "agent", "--config", unset)
	refuse(t, ns, 2, "--max-flows -5: want a number of flows", agent("192.0.2.1", "--max-flows", "-5")...)
}

// TestTunnelAddressAppears: an agent whose tunnel address no interface has is not ready, says why,
// and is ready once one has it.
func TestTunnelAddressAppears(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := launch(t, h.ns, "agent", "--name", h.name, "--state", h.state, "--tunnel-ip", "192.0.2.99", "--join", s.token(t))
	agent.waitFor(t, "/readyz", http.StatusServiceUnavailable, "no interface of this host has the tunnel address 192.0.2.99: give it to one")
	h.ns.MustIP(t, "addr add 192.0.2.99/24 dev eth0")
	agent.waitReady(t)
}

// distrust runs the host's agent with another authority: it does not speak to a store that this one
// has not signed.
func distrust(t *testing.T, h *host, elsewhere *netlab.Namespace) {
	t.Helper()
	other, _, _ := certify(t)
	raw, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	twin := *h
	twin.state = t.TempDir()
	if err := os.CopyFS(twin.state, os.DirFS(h.state)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(twin.state, "ca.crt"), string(raw))
	if err := os.Chmod(filepath.Join(twin.state, "metadata.key"), 0o600); err != nil { // which the copy did not keep
		t.Fatal(err)
	}
	// An agent without the overlay: what that keeps in the kernel goes by the host's name.
	agent := launch(t, elsewhere, "agent", "--policy", "--name", twin.name, "--state", twin.state)
	agent.waitLog(t, "certificate signed by unknown authority")
	agent.stop(t)
}

// forge returns the token with the fingerprint of another server.
func forge(t *testing.T, token string) string {
	t.Helper()
	prefix, body, _ := strings.Cut(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := json.Unmarshal(raw, &parts); err != nil {
		t.Fatal(err)
	}
	parts["p"] = strings.Repeat("0", len(parts["p"].(string)))
	if raw, err = json.Marshal(parts); err != nil {
		t.Fatal(err)
	}
	return prefix + "." + base64.RawURLEncoding.EncodeToString(raw)
}

// open opens the server's store with the host's certificate, by the socket.
func (s *site) open(t *testing.T, h *host) (*backend.Etcd, error) {
	t.Helper()
	joined, err := hosts.Load(h.state)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &backend.Cluster{Endpoints: []string{"unixs://" + filepath.Join(s.data, "etcd-tls.sock")},
		CAFile: joined.CAFile, CertFile: joined.CertFile, KeyFile: joined.KeyFile, SkipLimits: true}
	return backend.Open(t.Context(), backend.Options{Cluster: cluster})
}

// read lists what is under a prefix with the host's certificate.
func read(t *testing.T, s *site, h *host, prefix string) error {
	t.Helper()
	st, err := s.open(t, h)
	if err != nil {
		return err
	}
	defer st.Close()
	_, _, err = st.List(t.Context(), prefix)
	return err
}

// limits tries what a host may do with the store, and what it may not.
func limits(t *testing.T, s *site, h *host) {
	t.Helper()
	for prefix, may := range map[string]bool{
		"/heddle/topology/": true, "/heddle/hosts/": true, "/heddle/state/": true,
		"/heddle/identity/": false, "/heddle/join/": false, "/heddle/neutron/": false, "/heddle/": false, "/heddle-authority": false, "": false,
	} {
		if err := read(t, s, h, prefix); may != (err == nil) || err != nil && !errors.Is(err, store.ErrDenied) {
			t.Errorf("a host reads %q: %v; may it: %t", prefix, err, may)
		}
	}
	st, err := s.open(t, h)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, key := range []string{"/heddle/topology/port/x", "/heddle/neutron/ports/x", "/heddle/state/another/alive", "/heddle/schema", "/heddle/hosts/another"} {
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte("{}")}}); !errors.Is(err, store.ErrDenied) {
			t.Errorf("a host writes %s: %v", key, err)
		}
	}
}

// After a restore into an empty directory the hosts come back by themselves: the backup has the
// authority by which they know the store, and makes them read everything anew.
func TestRestoreUnderAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)
	admin := login(t, s.ctl, "127.0.0.1", s.data)
	kept := admin.mustCreate(t, "network", map[string]any{"name": "kept"})
	backup := filepath.Join(t.TempDir(), "backup")
	succeed(t, s.ctl, "backup", backup, "--data", s.data)
	admin.mustCreate(t, "network", map[string]any{"name": "made after"})
	server.stop(t)
	for _, name := range []string{"etcd", "tls"} {
		if err := os.RemoveAll(filepath.Join(s.data, name)); err != nil {
			t.Fatal(err)
		}
	}
	succeed(t, s.ctl, "restore", backup, "--data", s.data)
	s.serve(t)
	got := admin.list(t, "network")
	if _, there := got[kept.ID]; len(got) != 1 || !there {
		t.Errorf("restored: %v, want %s alone", got, kept.ID)
	}
	agent.waitFor(t, "/metrics", http.StatusOK, "heddle_overlay_store_revision 1.0000") // those of a restored store begin high
	if _, up := s.alive(t, h); !up {
		t.Error("the host has come back, but it is not up")
	}
}

// A host whose agent is killed is down once its lease has ended, and --cleanup leaves nothing of it
// in the kernel.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t, h.name))...)
	refuse(t, h.ns, 1, fmt.Sprintf("runs on this host, process %d: stop it first", agent.cmd.Process.Pid), "agent", "--cleanup", "--name", h.name)
	if _, err := os.Stat(h.pins()); err != nil {
		t.Errorf("a refused cleanup: %v", err)
	}
	second := fmt.Sprintf("another agent with the role overlay runs on this host, process %d", agent.cmd.Process.Pid)
	refuse(t, h.ns, 1, second, h.agent()...)
	agent.kill()
	if _, up := s.alive(t, h); !up {
		t.Error("a host counts as down before its lease has ended: a restarted agent would be missed")
	}
	if _, err := os.Stat(h.pins()); err != nil {
		t.Errorf("what forwards went with the agent: %v", err)
	}
	refuse(t, h.ns, 2, "no agent has had this state directory", "agent", "--cleanup", "--state", t.TempDir())
	if _, err := os.Stat(h.pins()); err != nil {
		t.Errorf("a cleanup with a directory of no agent: %v", err)
	}
	if out := succeed(t, h.ns, "agent", "--cleanup", "--name", "other"); !strings.Contains(out, "left programs, maps and flows in "+h.pins()+", of another name than other: --name "+h.name+" removes them\n") {
		t.Errorf("--cleanup of another name says %q", out)
	}
	// Without the configuration: the state directory says what the agent was called.
	if out := succeed(t, h.ns, "agent", "--cleanup", "--state", h.state); !strings.Contains(out, "removed programs, maps and flows in "+h.pins()+"\n") {
		t.Errorf("--cleanup says %q", out)
	}
	if out := succeed(t, h.ns, "agent", "--cleanup", "--state", h.state); !strings.Contains(out, "nothing of an agent found") {
		t.Errorf("a second --cleanup says %q", out)
	}
	if _, err := os.Stat(h.pins()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after --cleanup: %v", h.pins(), err)
	}
	if out, err := h.ns.Output(t.Context(), "ip", "-o", "link"); err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("links after --cleanup: %v\n%s", err, out)
	}
	s.waitGone(t, h)
	if listed, up := s.alive(t, h); !listed || up {
		t.Errorf("listed: %t, up: %t; want a host that is down", listed, up)
	}
}

// TestJoinInAnothersPlace: a machine cannot join under the name of a live host. Once the host is
// dead it can, and the agent of before does not start when it comes back, and says why.
func TestJoinInAnothersPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h, other := s.addHost(t, "h1", "192.0.2.11"), s.addHost(t, "h2", "192.0.2.12")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)
	// Without the overlay: what that keeps in the kernel goes by the host's name.
	intruder := []string{"agent", "--policy", "--name", h.name, "--state", other.state, "--join", s.token(t, h.name)}
	refuse(t, other.ns, 1, "Host "+h.name+" is alive: its agent at "+h.ip, intruder...)
	agent.kill()
	joined, err := hosts.Load(h.state)
	if err != nil {
		t.Fatal(err)
	}
	report, st := schema.HostStates.Key(joined.HostID), openData(t, s.data)
	kv, err := st.Get(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Revoke(t.Context(), kv.Lease); err != nil { // as if its time was over
		t.Fatal(err)
	}
	replacement := launch(t, other.ns, intruder...)
	replacement.waitLog(t, "msg=joined")
	agent = launch(t, h.ns, h.agent()...)
	agent.waitEnd(t)
	agent.waitLog(t, "or has joined again since from another machine")
	if _, err := st.Get(t.Context(), report); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the report of an agent without rights: %v", err)
	}
}

// TestServerWithAnotherAuthority: a running agent whose store presents a certificate of another
// authority logs why it does not trust it.
func TestServerWithAnotherAuthority(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)
	server.stop(t)
	if err := os.RemoveAll(filepath.Join(s.data, "tls")); err != nil {
		t.Fatal(err)
	}
	s.serve(t)
	agent.waitLog(t, "certificate signed by unknown authority")
}

// TestJoinBeforeTheServer: a host that boots before its server, or without a token that is good,
// joins when both are there. The token stays until then.
func TestJoinBeforeTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := s.serve(t)
	h, other := s.addHost(t, "h1", "192.0.2.11"), s.addHost(t, "h2", "192.0.2.12")
	file := filepath.Join(t.TempDir(), "join-token")
	writeFile(t, file, s.token(t)+"\n")
	server.stop(t)
	agent := launch(t, h.ns, h.agent("--join-file", file)...)
	agent.waitLog(t, "connection refused")
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the token of a host that has not joined: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	agent.waitLog(t, "there is no such file")
	s.serve(t)
	spent, good := s.token(t), s.token(t)
	joined := start(t, other.ns, other.agent("--join", spent)...)
	joined.stop(t)
	writeFile(t, file, spent)
	agent.waitLog(t, "used, expired or unknown")
	writeFile(t, file, good)
	agent.waitReady(t)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the token of a host that has joined: %v", err)
	}
	agent.stop(t)
	start(t, h.ns, h.agent("--join-file", file)...) // as a service file would have it
}

// TestCertificatesAreRenewed: hosts' certificates end soon and are renewed while agents work. A
// removed host gets none.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t, "--host-certificate-life", "20s")
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)
	agent.waitLog(t, "renewed the certificate of this host")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := netlab.Until(ctx, "host that works with its renewed certificate", func() (bool, error) {
		err := read(t, s, h, "/heddle/topology/")
		if errors.Is(err, store.ErrUnavailable) {
			return false, nil // a busy server
		}
		_, up := s.alive(t, h)
		return up, err
	})
	if err != nil {
		t.Error(err)
	}
	succeed(t, s.ctl, "host", "remove", h.name, "--data", s.data)
	agent.waitLog(t, "was removed or never joined")
}
