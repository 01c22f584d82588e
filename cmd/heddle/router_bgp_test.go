package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// edge is a cloud whose router speaks BGP with routers outside, one behind an interface of each
// host.
type edge struct {
	*site
	t      *testing.T
	api    *client
	server *running
	hosts  []*host
	agents []*running
	birds  []*birdOutside
}

// birdOutside is a machine with BIRD: 203.0.113.1/30 for the first host, 203.0.113.5/30 for the
// second. The router is the next address.
type birdOutside struct {
	t               *testing.T
	ns              *netlab.Namespace
	address, router string
	config, control string
	cmd             *exec.Cmd
	log             netlab.Log
}

// beyond is an address behind all machines outside, which they announce.
const beyond = "198.51.100.1"

func newEdge(t *testing.T) *edge {
	t.Helper()
	for _, program := range []string{"bird", "birdc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install bird2", program)
		}
	}
	e := &edge{site: newSite(t), t: t}
	e.server = e.serve(t)
	e.api = login(t, e.ctl, "127.0.0.1", e.data)
	for i := range 2 {
		h := e.addHost(t, fmt.Sprintf("h%d", i+1), fmt.Sprintf("192.0.2.1%d", i+1))
		e.hosts = append(e.hosts, h)
		e.agents = append(e.agents, start(t, h.ns, h.agent("--join", e.token(t))...))
		e.birds = append(e.birds, e.birdBehind(h, i))
	}
	return e
}

// birdBehind makes a machine with BIRD behind an interface of a host.
func (e *edge) birdBehind(h *host, i int) *birdOutside {
	t := e.t
	t.Helper()
	dir, err := os.MkdirTemp("", "hbird") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &birdOutside{t: t, ns: e.lab.MustNamespace(t, fmt.Sprintf("b%d", i+1)), config: filepath.Join(dir, "conf"), control: filepath.Join(dir, "ctl"),
		address: fmt.Sprintf("203.0.113.%d", 4*i+1), router: fmt.Sprintf("203.0.113.%d", 4*i+2)}
	e.lab.MustVeth(t, h.ns, "uplink1", b.ns, "eth0")
	b.ns.MustIP(t, "link set lo up", "addr add "+b.address+"/30 dev eth0", "addr add "+beyond+"/32 dev lo")
	// The hold time is short, so that a host that is lost is soon noticed.
	writeFile(t, b.config, fmt.Sprintf(`log stderr all;
router id %[1]s;
protocol device {}
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol static { ipv4; route %[4]s/32 via "lo"; route 0.0.0.0/0 blackhole; }
protocol bgp heddle { local %[1]s as 6500%[3]d; neighbor %[2]s as 64512; password "s3cret"; connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 9;
  graceful restart; ipv4 { import all; export where source = RTS_STATIC; }; }
`, b.address, b.router, i+1, beyond))
	b.start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("BIRD behind h%d:\n%s\n%s\n%s", i+1, b.ask("show protocols all heddle"), b.ask("show route"), &b.log)
		}
		b.kill()
	})
	return b
}

// start starts BIRD.
func (b *birdOutside) start() {
	b.cmd = exec.Command("bird", "-f", "-c", b.config, "-s", b.control)
	b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
	if err := b.ns.Start(b.cmd); err != nil {
		b.t.Fatal(err)
	}
}

// kill ends BIRD as a crash would.
func (b *birdOutside) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

func (b *birdOutside) ask(question string) string {
	out, err := b.ns.Output(b.t.Context(), "birdc", append([]string{"-s", b.control}, strings.Fields(question)...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// route returns BIRD's route to a destination of the router, "" for none.
func (b *birdOutside) route(dst string) string {
	if out := b.ask("show route protocol heddle"); strings.Contains(out, dst) {
		return out
	}
	return ""
}

// pings reports whether an echo is answered.
func pings(t *testing.T, from *netlab.Namespace, to string, more ...string) bool {
	_, err := from.Output(t.Context(), "ping", append([]string{"-n", "-c", "1", "-W", "1", to}, more...)...)
	return err == nil
}

// openstack runs the openstack command as the administrator, and returns what it prints.
func (e *edge) openstack(args ...string) string {
	e.t.Helper()
	return openstack(e.t, e.ctl, []string{"OS_CLIENT_CONFIG_FILE=" + filepath.Join(e.data, "clouds.yaml"), "OS_CLOUD=heddle"}, args...)
}

// bgp returns what heddle bgp show says of the router.
func (e *edge) bgp() (router struct {
	Host, Status string
	Learned      int
	Peers        []struct {
		Address, State string
		LastError      string `json:"last_error"`
		Since          time.Time
		Received       int
	}
}) {
	e.t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(succeed(e.t, e.ctl, "bgp", "show", "-o", "json", "--data", e.data)), &all); err != nil {
		e.t.Fatal(err)
	}
	if len(all) == 1 {
		if err := json.Unmarshal(all[0], &router); err != nil {
			e.t.Fatal(err)
		}
	}
	return router
}

// awaitSessions waits until the sessions with these peers are up.
func (e *edge) awaitSessions(peers ...*birdOutside) {
	e.t.Helper()
	within(e.t, "sessions", func() bool {
		up := map[string]bool{}
		for _, p := range e.bgp().Peers {
			up[p.Address] = p.State == "ESTABLISHED"
		}
		for _, p := range peers {
			if !up[p.address] {
				return false
			}
		}
		return true
	})
}

// router makes a router of the network blue with an uplink to each machine outside.
func (e *edge) router() {
	e.t.Helper()
	e.openstack("subnet", "create", "blue", "--network", "blue", "--subnet-range", "10.0.0.0/24")
	e.openstack("router", "create", "edge")
	e.openstack("router", "add", "subnet", "edge", "blue")
	for i, b := range e.birds {
		name := fmt.Sprintf("up%d", i+1)
		e.openstack("network", "create", name, "--provider-network-type", "uplink")
		e.openstack("subnet", "create", name, "--network", name, "--subnet-range", fmt.Sprintf("203.0.113.%d/30", 4*i), "--gateway", "none", "--no-dhcp")
		e.openstack("port", "create", name, "--network", name, "--fixed-ip", "ip-address="+b.router, "--host", e.hosts[i].name, "--binding-profile", "interface_name=uplink1")
		e.openstack("router", "add", "port", "edge", name)
	}
}

// peers makes the machines outside peers of the router's speaker.
func (e *edge) peers() {
	e.t.Helper()
	for i, b := range e.birds {
		name := fmt.Sprintf("b%d", i+1)
		e.openstack("bgp", "peer", "create", name, "--peer-ip", b.address, "--remote-as", fmt.Sprintf("6500%d", i+1), "--auth-type", "md5", "--password", "s3cret")
		e.openstack("bgp", "speaker", "add", "peer", "edge", name)
	}
}

// TestRouterBGP: a router with an uplink at each of two hosts speaks BGP with a
// machine behind each. These learn the tenant's prefix, and reach its machine by the virtual
// network; the machine reaches what they announce. That survives the end of the speaker and of the
// agent, and another host takes over from one that is lost.
func TestRouterBGP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	network := e.api.mustCreate(t, "network", map[string]any{"name": "blue"})
	e.router()
	port, mac := e.api.bindPort(t, network.ID, e.hosts[1], 33)
	e.api.allowAll(t, port)
	vm := e.lab.MustNamespace(t, "vm")
	plug(t, vm, "eth0", mac, e.hosts[1], port)
	vm.MustIP(t, "link set eth0 up", "addr add 10.0.0.33/24 dev eth0", "route add default via 10.0.0.1")

	router := e.openstack("router", "show", "edge", "-c", "id", "-f", "value")
	e.api.mustCreate(t, "bgp_speaker", map[string]any{"name": "edge", "local_as": 64512, "ip_version": 4, "logical_router": router})
	e.peers()
	e.awaitSessions(e.birds...)
	for _, b := range e.birds {
		within(t, "the tenant's prefix at "+b.address, func() bool { return strings.Contains(b.route("10.0.0.0/24"), "via "+b.router) })
		within(t, "the machine to be reached from "+b.address, func() bool { return pings(t, b.ns, "10.0.0.33", "-I", b.address) })
	}
	within(t, "what is learned", func() bool {
		r := e.bgp()
		return r.Learned == 2 && r.Peers[0].Received == 2 && r.Peers[1].Received == 2
	})
	within(t, "what is announced to be reached", func() bool { return pings(t, vm, beyond) })
	if got := e.openstack("network", "agent", "list", "-f", "value"); !strings.Contains(got, "BGP dynamic routing agent") {
		t.Errorf("no BGP agent is listed:\n%s", got)
	}
	table := succeed(t, e.ctl, "bgp", "show", "--data", e.data)
	for _, word := range []string{"edge", "64512", "RUNNING", "203.0.113.1", "65001", "established"} {
		if !strings.Contains(table, word) {
			t.Errorf("heddle bgp show says nothing of %s:\n%s", word, table)
		}
	}
	if got := e.openstack("bgp", "speaker", "list", "advertised", "routes", "edge", "-f", "value"); !strings.Contains(got, "10.0.0.0/24") {
		t.Errorf("advertised routes:\n%s", got)
	}

	t.Log("the agent is killed")
	since := map[string]time.Time{}
	for _, p := range e.bgp().Peers {
		since[p.Address] = p.Since
	}
	i := 0
	if e.bgp().Host == e.hosts[1].name {
		i = 1
	}
	e.agents[i].kill()
	for _, b := range e.birds {
		if b.route("10.0.0.0/24") == "" {
			t.Errorf("without an agent %s has lost its route", b.address)
		}
	}
	e.agents[i] = start(t, e.hosts[i].ns, e.hosts[i].agent()...)
	e.awaitSessions(e.birds...)
	for _, p := range e.bgp().Peers {
		if !p.Since.Equal(since[p.Address]) {
			t.Errorf("after the agent's end the session with %s is up since %s, want %s", p.Address, p.Since, since[p.Address])
		}
	}

	t.Log("a host is lost")
	other := e.birds[1-i]
	e.agents[i].kill()
	e.hosts[i].ns.MustIP(t, "link set eth0 down", "link set uplink1 down")
	withinLease(t, "another host to take over", func() bool { return e.bgp().Host == e.hosts[1-i].name })
	within(t, "the session from the other host", func() bool {
		for _, p := range e.bgp().Peers {
			if p.Address == other.address && p.State == "ESTABLISHED" {
				return true
			}
		}
		return false
	})
	within(t, "the prefix again", func() bool { return other.route("10.0.0.0/24") != "" })
	if i == 0 { // else the machine is gone with the host
		within(t, "the machine to be reached again", func() bool { return pings(t, other.ns, "10.0.0.33", "-I", other.address) })
	}
}

// TestAnnouncedFloatingIPs: BIRD has a route to a floating IP while that is associated, and routes
// to tenants' networks while the speaker advertises these.
func TestAnnouncedFloatingIPs(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	network := e.api.mustCreate(t, "network", map[string]any{"name": "blue"})
	e.router()
	port, _ := e.api.bindPort(t, network.ID, e.hosts[1], 33)
	e.openstack("network", "create", "public", "--external")
	e.openstack("subnet", "create", "public", "--network", "public", "--subnet-range", "198.18.0.0/24", "--no-dhcp")
	e.openstack("router", "set", "edge", "--external-gateway", "public")
	e.openstack("bgp", "speaker", "create", "edge", "--ip-version", "4", "--local-as", "64512")
	e.openstack("bgp", "speaker", "add", "network", "edge", "public")
	e.peers()
	e.awaitSessions(e.birds...)
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for dst, is := range want {
			for _, b := range e.birds {
				within(t, fmt.Sprintf("%s: a route to %s at %s: %v", when, dst, b.address, is), func() bool {
					return strings.Contains(b.route(dst), "via "+b.router) == is
				})
			}
		}
	}
	address := e.openstack("floating", "ip", "create", "public", "-c", "floating_ip_address", "-f", "value")
	floating := address + "/32"
	expect("not associated", map[string]bool{"10.0.0.0/24": true, floating: false})
	e.openstack("floating", "ip", "set", "--port", port.ID, address)
	expect("associated", map[string]bool{"10.0.0.0/24": true, floating: true})
	e.openstack("bgp", "speaker", "set", "edge", "--no-advertise-tenant-networks")
	expect("without tenants' networks", map[string]bool{"10.0.0.0/24": false, floating: true})
	e.openstack("floating", "ip", "unset", "--port", address)
	expect("no longer associated", map[string]bool{"10.0.0.0/24": false, floating: false})
	e.openstack("bgp", "speaker", "set", "edge", "--advertise-tenant-networks")
	expect("with tenants' networks", map[string]bool{"10.0.0.0/24": true, floating: false})
	e.openstack("floating", "ip", "set", "--port", port.ID, address)
	e.openstack("bgp", "speaker", "set", "edge", "--no-advertise-floating-ip-host-routes")
	expect("without floating IPs", map[string]bool{"10.0.0.0/24": true, floating: false})
}

// withinLease is within for what takes as long as a lease.
func withinLease(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}

// allowAll admits all to a port.
func (c *client) allowAll(t *testing.T, port object) {
	t.Helper()
	body := map[string]any{"port": map[string]any{"port_security_enabled": false, "security_groups": []string{}}}
	if err := c.call(t.Context(), http.MethodPut, "/v2.0/ports/"+port.ID, body, nil); err != nil {
		t.Fatal(err)
	}
}
