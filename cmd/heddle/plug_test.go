package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"heddle/internal/netlab"
)

// plugSite is a server and an agent on one machine, with a network.
type plugSite struct {
	*site
	host    *host
	api     *client
	network object
	server  *running
	agent   *running
}

// newPlugSite starts a server and an agent, and makes a network with IPv4 and IPv6.
func newPlugSite(t testing.TB) *plugSite {
	t.Helper()
	s := &plugSite{site: newSite(t)}
	s.server = start(t, s.ctl, "serve", "--data", s.data)
	s.host = &host{ns: s.ctl, name: s.ctl.Name, ip: "192.0.2.1", state: filepath.Join(t.TempDir(), "agent")}
	t.Cleanup(func() { succeed(t, s.ctl, "agent", "--cleanup", "--name", s.host.name) })
	s.startAgent(t)
	s.api = login(t, s.ctl, "127.0.0.1", s.data)
	s.network = s.api.mustCreate(t, "network", map[string]any{"name": "blue", "mtu": 1400})
	s.api.mustCreate(t, "subnet", map[string]any{"network_id": s.network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "dns_nameservers": []string{"192.0.2.53"},
		"host_routes": []map[string]string{{"destination": "198.51.100.0/24", "nexthop": "10.0.0.9"}}})
	s.api.mustCreate(t, "subnet", map[string]any{"network_id": s.network.ID, "ip_version": 6, "cidr": "2001:db8::/64", "gateway_ip": "2001:db8::1", "ipv6_address_mode": "dhcpv6-stateful", "ipv6_ra_mode": "dhcpv6-stateful"})
	return s
}

func (s *plugSite) startAgent(t testing.TB) {
	t.Helper()
	s.agent = start(t, s.ctl, s.host.agent("--server-data", s.data)...)
}

// args returns the arguments of a call of plug or unplug.
func (s *plugSite) args(args ...string) []string {
	return append(args, "--data", s.data, "--state", s.host.state)
}

// plug plugs a port and returns what the command prints as JSON.
func (s *plugSite) plug(t *testing.T, args ...string) (printed plugged) {
	t.Helper()
	text := succeed(t, s.ctl, s.args(append([]string{"plug", "-o", "json"}, args...)...)...)
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return printed
}

// refuse calls plug, which must fail with these words.
func (s *plugSite) refuse(t *testing.T, words string, args ...string) {
	t.Helper()
	refuse(t, s.ctl, 1, words, s.args(append([]string{"plug"}, args...)...)...)
}

type plugged struct {
	Device    string
	MAC       string `json:"mac_address"`
	MTU       int
	Addresses []string
	Routes    []string
	Status    string
	Notes     []string
}

// boundPort holds the attributes of a port that plug changes.
type boundPort struct {
	Status  string
	Host    string         `json:"binding:host_id"`
	Profile map[string]any `json:"binding:profile"`
}

func (s *plugSite) port(t *testing.T, id string) boundPort {
	t.Helper()
	var answer struct{ Port boundPort }
	if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/ports/"+id, nil, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Port
}

// newPort makes a port with an address of each family that ends with a number.
func (s *plugSite) newPort(t *testing.T, name string, number int) object {
	t.Helper()
	return s.api.mustCreate(t, "port", map[string]any{"network_id": s.network.ID, "name": name, "fixed_ips": []map[string]string{
		{"ip_address": fmt.Sprintf("10.0.0.%d", number)}, {"ip_address": fmt.Sprintf("2001:db8::%d", number)}}})
}

// ip runs ip in a namespace and returns what it prints.
func ip(t *testing.T, ns *netlab.Namespace, args ...string) string {
	t.Helper()
	text, err := ns.Output(t.Context(), "ip", args...)
	if err != nil {
		t.Fatal(err, text)
	}
	return text
}

// has checks that a text has all of these words.
func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
}

// clean checks that nothing of a plugged port is left.
func (s *plugSite) clean(t *testing.T, port object) {
	t.Helper()
	if p := s.port(t, port.ID); p.Host != "" || len(p.Profile) > 0 {
		t.Errorf("port %s is bound: %+v", port.Name, p)
	}
	if links := ip(t, s.ctl, "-o", "link"); strings.Contains(links, "tap"+port.ID[:11]) {
		t.Errorf("the interface of %s stayed:\n%s", port.Name, links)
	}
	if _, err := os.Stat(filepath.Join(s.host.state, "plugged", port.ID+".json")); !os.IsNotExist(err) {
		t.Errorf("the record of %s: %v, want it gone", port.Name, err)
	}
}

// TestPlug: two namespaces with ports reach each other with nothing done by hand, and what was made
// goes again.
func TestPlug(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	vm1, vm2 := s.lab.MustNamespace(t, "vm1"), s.lab.MustNamespace(t, "vm2")
	p1, p2 := s.newPort(t, "vm1", 11), s.newPort(t, "vm2", 12)
	first := s.plug(t, "vm1", "--netns", vm1.Name)
	if want := []string{"10.0.0.11/24", "2001:db8::11/64"}; !slices.Equal(first.Addresses, want) || first.Status != "ACTIVE" || first.MTU != 1400 {
		t.Errorf("plug says %+v, want the addresses %v, ACTIVE, MTU 1400", first, want)
	}
	has(t, ip(t, vm1, "-o", "link", "show", "eth0"), first.MAC, "mtu 1400")
	has(t, ip(t, s.ctl, "-o", "link", "show", first.Device), "mtu 1400")
	has(t, ip(t, vm1, "-o", "addr", "show", "eth0"), "10.0.0.11/24", "2001:db8::11/64")
	has(t, ip(t, vm1, "route"), "default via 10.0.0.1 dev eth0", "198.51.100.0/24 via 10.0.0.9")
	has(t, ip(t, vm1, "-6", "route"), "default via 2001:db8::1 dev eth0")
	resolver := filepath.Join("/etc/netns", vm1.Name, "resolv.conf")
	raw, err := os.ReadFile(resolver)
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(raw), "nameserver 192.0.2.53", p1.ID)
	if p := s.port(t, p1.ID); p.Host != s.host.name || p.Profile["interface_name"] != first.Device {
		t.Errorf("the port's binding is %+v", p)
	}

	// A process in a namespace without a name, by the port's id.
	sleeper := exec.Command("unshare", "--net", "sleep", "600")
	if err := vm2.Start(sleeper); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	pid := fmt.Sprint(sleeper.Process.Pid)
	within(t, "the process to have its namespace", func() bool {
		own, err := os.Readlink("/proc/" + pid + "/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return own != netns(t, vm2)
	})
	second := s.plug(t, p2.ID, "--pid", pid, "--interface", "net0")
	has(t, strings.Join(second.Notes, "\n"), "name servers are 192.0.2.53")
	for _, address := range []string{"10.0.0.12", "2001:db8::12"} {
		if err := vm1.Reach(t.Context(), address); err != nil {
			t.Error(err)
		}
	}

	// Again at the same place, with another name for it, and with what is missing.
	s.plug(t, "vm2", "--netns", "/proc/"+pid+"/ns/net", "--interface", "net0")
	vm1.MustIP(t, "addr del 10.0.0.11/24 dev eth0")
	again := s.plug(t, "vm1", "--netns", vm1.Name)
	if !slices.Equal(again.Addresses, first.Addresses) || again.Device != first.Device {
		t.Errorf("the second time: %+v, the first time: %+v", again, first)
	}
	has(t, ip(t, vm1, "-o", "addr", "show", "eth0"), "10.0.0.11/24")
	s.refuse(t, "is plugged into network namespace "+vm1.Name, "vm1", "--netns", vm2.Name)
	s.refuse(t, "is plugged into network namespace /proc/"+pid, "vm2", "--tap")

	succeed(t, s.ctl, s.args("unplug", "vm1")...)
	s.clean(t, p1)
	if _, err := os.Stat(filepath.Dir(resolver)); !os.IsNotExist(err) {
		t.Errorf("%s stayed: %v", filepath.Dir(resolver), err)
	}
	refuse(t, s.ctl, 1, "is not plugged on this host", s.args("unplug", "vm1")...)

	// A port that was deleted meanwhile, whose process has ended.
	if err := s.api.call(t.Context(), http.MethodDelete, "/v2.0/ports/"+p2.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	succeed(t, s.ctl, s.args("unplug", "vm2")...)
	if links := ip(t, s.ctl, "-o", "link"); strings.Contains(links, second.Device) {
		t.Errorf("the interface of a deleted port stayed:\n%s", links)
	}
}

// netns returns what /proc says of a namespace.
func netns(t *testing.T, ns *netlab.Namespace) (link string) {
	t.Helper()
	if err := ns.Do(func() (err error) {
		link, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestPlugRefuses: what cannot be plugged is named, and nothing is left of the attempt.
func TestPlugRefuses(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	vm := s.lab.MustNamespace(t, "vm")
	port := s.newPort(t, "vm", 11)
	twins := []object{s.newPort(t, "twin", 12), s.newPort(t, "twin", 13)}
	at := []string{"--netns", vm.Name}
	s.refuse(t, "there is no port missing", append(at, "missing")...)
	s.refuse(t, "2 ports are called twin", append(at, "twin")...)
	s.refuse(t, twins[1].ID, append(at, "twin")...)
	s.refuse(t, "there is no network namespace nowhere: make it with `ip netns add nowhere`", "vm", "--netns", "nowhere")
	s.refuse(t, `"abcdefghijklmnop" cannot be the name of an interface: it may have at most 15 characters`, append(at, "vm", "--interface", "abcdefghijklmnop")...)
	s.refuse(t, "there is no process 2147483647", "vm", "--pid", "2147483647")
	s.refuse(t, "is the host's own", "vm", "--netns", s.ctl.Name)
	refuse(t, s.ctl, 1, "host h9 is not registered (there are: "+s.host.name+")", s.args("plug", "vm", "--tap", "--host", "h9")...)
	refuse(t, s.ctl, 2, "plug: want at least one of --netns, --pid, --tap", s.args("plug", "vm")...)
	refuse(t, s.ctl, 2, "plug: want only one of --netns, --tap", s.args("plug", "vm", "--tap", "--netns", vm.Name)...)
	refuse(t, s.ctl, 2, "plug: --pid 0: no process has this id", s.args("plug", "vm", "--pid", "0")...)
	unplug := func(words, name string) {
		t.Helper()
		refuse(t, s.ctl, 1, words, s.args("unplug", name)...)
	}
	unplug("there is no port missing", "missing")
	unplug("2 ports are called twin: give one's id: ", "twin")
	unplug("port "+port.ID+" is not plugged on this host: `heddle port show "+port.ID+"`", "vm")
	refuse(t, s.ctl, 2, "--interface names an interface in a namespace", s.args("plug", "vm", "--tap", "--interface", "x")...)

	vm.MustIP(t, "link add eth0 type bridge")
	s.refuse(t, "has an interface eth0 already: choose another name (--interface", append(at, "vm")...)
	has(t, ip(t, vm, "-o", "-d", "link", "show", "eth0"), "bridge")
	device := "tap" + port.ID[:11]
	s.ctl.MustIP(t, "link add "+device+" type bridge")
	s.refuse(t, "exists on this host, and heddle plug did not make it", "vm", "--tap")
	s.ctl.MustIP(t, "link del "+device)

	body := map[string]any{"port": map[string]any{"binding:host_id": "elsewhere"}}
	if err := s.api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+twins[0].ID, body, nil); err != nil {
		t.Fatal(err)
	}
	s.refuse(t, "is bound to host elsewhere, which is not registered: `heddle port set "+twins[0].ID, twins[0].ID, "--tap")
	down := map[string]any{"port": map[string]any{"admin_state_up": false}}
	if err := s.api.call(t.Context(), http.MethodPut, "/v2.0/ports/"+twins[1].ID, down, nil); err != nil {
		t.Fatal(err)
	}

	// The agent is away: the error says so, and everything is as before.
	s.agent.stop(t)
	s.refuse(t, "no agent runs on this host: `systemctl start heddle-agent`", "vm", "--netns", vm.Name, "--interface", "net0", "--wait", "5s")
	s.clean(t, port)
	if links := ip(t, vm, "-o", "link"); strings.Contains(links, "net0") {
		t.Errorf("the interface of a failed plug stayed:\n%s", links)
	}
	s.refuse(t, "its admin_state_up is false", twins[1].ID, "--netns", vm.Name, "--interface", "net0", "--wait", "5s")
	s.clean(t, twins[1])
	s.refuse(t, "no agent runs on this host: `systemctl start heddle-agent`", "vm", "--tap")
	s.clean(t, port)
}

// TestPlugHungServer: a server that hangs is not waited for longer than --wait says.
func TestPlugHungServer(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	vm := s.lab.MustNamespace(t, "vm")
	port := s.newPort(t, "vm", 11)
	if err := s.server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.refuse(t, "systemctl status heddle", "vm", "--netns", vm.Name, "--wait", "1s")
	if err := s.server.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.clean(t, port)
}

// TestPlugRouted: namespaces on a routed network reach each other through a policy agent.
func TestPlugRouted(t *testing.T) {
	t.Parallel()
	s := &plugSite{site: newSite(t)}
	start(t, s.ctl, "serve", "--data", s.data)
	s.host = &host{ns: s.ctl, name: s.ctl.Name, state: filepath.Join(t.TempDir(), "agent")}
	t.Cleanup(func() { succeed(t, s.ctl, "agent", "--cleanup", "--name", s.host.name, "--state", s.host.state) })
	s.agent = start(t, s.ctl, "agent", "--policy", "--name", s.host.name, "--server-data", s.data, "--state", s.host.state)
	s.api = login(t, s.ctl, "127.0.0.1", s.data)
	s.network = s.api.mustCreate(t, "network", map[string]any{"name": "lan", "provider:network_type": "routed"})
	s.api.mustCreate(t, "subnet", map[string]any{"network_id": s.network.ID, "ip_version": 4, "cidr": "10.65.0.0/24"})
	var first *netlab.Namespace
	for i, name := range []string{"vm1", "vm2"} {
		vm := s.lab.MustNamespace(t, name)
		s.api.mustCreate(t, "port", map[string]any{"network_id": s.network.ID, "name": name, "fixed_ips": []map[string]string{{"ip_address": fmt.Sprintf("10.65.0.%d", 11+i)}}})
		if r := s.plug(t, name, "--netns", vm.Name); r.Status != "ACTIVE" {
			t.Errorf("plug says %+v", r)
		}
		if first == nil {
			first = vm
		}
	}
	if err := first.Reach(t.Context(), "10.65.0.12"); err != nil {
		t.Error(err)
	}
	has(t, succeed(t, s.ctl, s.args("unplug", "vm1")...), "port vm1 (", ") is unplugged")
	succeed(t, s.ctl, "port", "set", "vm2", "--name", "another", "--data", s.data)
	has(t, succeed(t, s.ctl, s.args("unplug", "another")...), "port another (", ") is unplugged")
}

// TestPlugTap: a persistent tap is made with the MTU of the network. Its port is DOWN until a
// machine opens it.
func TestPlugTap(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	port := s.newPort(t, "guest", 11)
	tap := s.plug(t, "guest", "--tap")
	has(t, ip(t, s.ctl, "-o", "-d", "link", "show", tap.Device), "tun type tap", "persist on", "mtu 1400")
	if tap.Status != "DOWN" || tap.Device != "tap"+port.ID[:11] {
		t.Errorf("plug says %+v", tap)
	}
	has(t, strings.Join(tap.Notes, "\n"), "DOWN until a machine opens the tap")
	again := s.plug(t, "guest", "--tap")
	if again.Device != tap.Device {
		t.Errorf("the second time: %+v", again)
	}
	succeed(t, s.ctl, s.args("unplug", port.ID)...)
	s.clean(t, port)
}

// TestPlugInterrupted: wherever a plug was killed, the next one finishes its work, or unplug undoes
// it.
func TestPlugInterrupted(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	vm := s.lab.MustNamespace(t, "vm")
	port := s.newPort(t, "vm", 11)
	record := filepath.Join(s.host.state, "plugged", port.ID+".json")
	s.agent.stop(t) // so that no plug comes to its end
	reached := map[string]func() bool{
		"the record": func() bool { _, err := os.Stat(record); return err == nil },
		"the interface": func() bool {
			_, err := vm.Output(t.Context(), "ip", "link", "show", "eth0")
			return err == nil
		},
		"the binding": func() bool { return s.port(t, port.ID).Host == s.host.name },
	}
	interrupt := func(step string) {
		t.Helper()
		cmd := heddle(s.args("plug", "vm", "--netns", vm.Name, "--wait", "1h")...)
		cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
		if err := s.ctl.Start(cmd); err != nil {
			t.Fatal(err)
		}
		within(t, step, reached[step])
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for step := range reached {
		interrupt(step)
		succeed(t, s.ctl, s.args("unplug", "vm")...)
		s.clean(t, port)
	}
	for step := range reached {
		interrupt(step)
		other := s.lab.MustNamespace(t, "other"+fmt.Sprint(len(step)))
		if reached["the interface"]() {
			s.refuse(t, "is plugged into network namespace "+vm.Name, "vm", "--netns", other.Name)
		}
		s.startAgent(t)
		again := s.plug(t, "vm", "--netns", vm.Name)
		has(t, ip(t, vm, "-o", "addr", "show", "eth0"), "10.0.0.11/24", "2001:db8::11/64")
		has(t, ip(t, vm, "route"), "default via 10.0.0.1 dev eth0")
		if again.Status != "ACTIVE" {
			t.Errorf("after a plug that was killed with %s: %+v", step, again)
		}
		succeed(t, s.ctl, s.args("unplug", "vm")...)
		s.clean(t, port)
		s.agent.stop(t)
	}

	// The namespace is made again under its name.
	s.startAgent(t)
	s.plug(t, "vm", "--netns", vm.Name)
	for _, args := range [][]string{{"netns", "del", vm.Name}, {"netns", "add", vm.Name}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	s.plug(t, "vm", "--netns", vm.Name)
	has(t, ip(t, vm, "-o", "addr", "show", "eth0"), "10.0.0.11/24")

	// A file that someone else has changed stays.
	resolver := filepath.Join("/etc/netns", vm.Name, "resolv.conf")
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(resolver)) })
	if err := os.WriteFile(resolver, []byte("nameserver 192.0.2.54\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	succeed(t, s.ctl, s.args("unplug", "vm")...)
	s.clean(t, port)
	if raw, err := os.ReadFile(resolver); err != nil || string(raw) != "nameserver 192.0.2.54\n" {
		t.Errorf("%s: %q, %v, want it as it was changed", resolver, raw, err)
	}
}
