package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDHCPAgent: the agent with Neutron's files over a plain etcd, then the role of a heddle agent,
// each give a machine its address; the clean-up takes all away.
func TestDHCPAgent(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"dnsmasq", "udhcpc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run scripts/setup", program)
		}
	}
	s := newSite(t)
	start(t, s.ctl, "serve", "--data", s.data, "--etcd-listen", "127.0.0.1:2379")
	name := s.ctl.Name
	vm := s.lab.MustNamespace(t, "vm")
	vm.MustIP(t, "link add eth0 address 02:65:00:00:00:07 type veth peer name tap7 netns "+name, "link set eth0 up")
	s.ctl.MustIP(t, "link set tap7 up")
	st := openData(t, s.data)
	put(t, st, "/calico/v1/Ready", "true", "/calico/dhcp/v1/subnet/s", `{"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1"}`,
		"/calico/v1/host/"+name+"/workload/openstack/i/endpoint/p", `{"state": "active", "name": "tap7", "mac": "02:65:00:00:00:07", "profile_ids": [],
		"ipv4_nets": ["10.65.0.7/32"], "ipv4_subnet_ids": ["s"], "ipv6_nets": [], "ipv6_subnet_ids": []}`)
	lease := func() string {
		out, _ := vm.Output(t.Context(), "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "1", "-T", "1", "-s", "/bin/true")
		return out
	}
	const leased = "lease of 10.65.0.7 obtained"

	dir := t.TempDir()
	neutron, plugin := filepath.Join(dir, "neutron.conf"), filepath.Join(dir, "ml2_conf.ini")
	writeFile(t, neutron, fmt.Sprintf("[DEFAULT]\nhost = %s\nstate_path = %s\n[calico]\netcd_port = 1\n", name, dir))
	writeFile(t, plugin, "[calico]\netcd_port = 2379\n")
	files := []string{"--config-file", neutron, "--config-file", plugin}
	sockets := filepath.Join(dir, "run")
	agent := start(t, s.ctl, append([]string{"dhcp-agent", "--metrics", "127.0.0.1:9695", "--run-dir", sockets}, files...)...)
	if got := lease(); !strings.Contains(got, leased) {
		t.Errorf("by Neutron's files:\n%s", got)
	}
	reload := func(want string) {
		t.Helper()
		if got := succeed(t, s.ctl, "reload", "--run-dir", sockets); got != "dhcp-agent: "+want+"\n" {
			t.Errorf("reload says %q, want %q", got, want)
		}
	}
	writeFile(t, plugin, "[calico]\netcd_port = 2379\n[nova]\nother = 1\n")
	reload("nothing has changed")
	writeFile(t, plugin, "[calico]\netcd_port = 2379\n[DEFAULT]\ndhcp_lease_duration = 600\n")
	reload("needs a restart for the options in config-file; nothing else has changed")
	writeFile(t, plugin, "[calico]\netcd_port = many\n")
	refuse(t, s.ctl, 1, plugin+":2", "reload", "--run-dir", sockets)
	writeFile(t, plugin, "[calico]\netcd_port = 2379\n")
	for _, want := range []string{"# TYPE heddle_dhcp_endpoints gauge", "heddle_dhcp_endpoints 1", "heddle_dhcp_endpoints_waiting 0", "heddle_dhcp_problems 0", "heddle_dhcp_serving 1", "heddle_dhcp_starts_total 1"} {
		if status, text, err := agent.page(t.Context(), "/metrics"); err != nil || status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("metrics: %d, %v, want %s in\n%s", status, err, want, text)
		}
	}
	state := filepath.Join(dir, "state")
	role := []string{"agent", "--dhcp", "--name", name, "--state", state, "--server-data", s.data}
	for _, second := range [][]string{append([]string{"dhcp-agent", "--metrics", "127.0.0.1:9695"}, files...), append(role, "--metrics", "127.0.0.1:9695")} {
		if text, code := output(t, s.ctl, second...); code != 1 || !strings.Contains(text, "another DHCP agent runs on this host") {
			t.Errorf("%s is a second agent: exit code %d, %s", second, code, text)
		}
	}
	agent.stop(t)
	gone := func(what string) {
		t.Helper()
		if links := shown(t, s.ctl, "ip", "-br", "link"); strings.Contains(links, "ns-calico") {
			t.Errorf("%s there is\n%s", what, links)
		}
		if got := lease(); strings.Contains(got, leased) {
			t.Errorf("%s:\n%s", what, got)
		}
	}
	succeed(t, s.ctl, append([]string{"dhcp-agent", "--cleanup"}, files...)...)
	gone("after the clean-up")

	agent = start(t, s.ctl, role...)
	if got := lease(); !strings.Contains(got, leased) {
		t.Errorf("by heddle agent:\n%s", got)
	}
	agent.stop(t)
	succeed(t, s.ctl, append(role, "--cleanup")...)
	gone("after the role's clean-up")

	writeFile(t, plugin, "[calico]\n\netcd_port = many\n")
	if text, code := output(t, s.ctl, append([]string{"dhcp-agent"}, files...)...); code != 2 || !strings.Contains(text, plugin+":3") {
		t.Errorf("a bad option: exit code %d, %s", code, text)
	}
	if text, code := output(t, s.ctl, append(slices.Clone(role), "--dhcp-lease", "5")...); code != 2 || !strings.Contains(text, "lease") {
		t.Errorf("a bad lease: exit code %d, %s", code, text)
	}
}

// TestDHCPAgentWithCalicosRights: a certificate for what lies below /calico/ is enough for the
// agent that runs alone.
func TestDHCPAgentWithCalicosRights(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("needs dnsmasq: run scripts/setup")
	}
	s := newSite(t)
	s.serve(t)
	dir := t.TempDir()
	succeed(t, s.ctl, "calico", "access", "dhcp", "--dir", dir, "--data", s.data)
	file := filepath.Join(dir, "neutron.conf")
	writeFile(t, file, fmt.Sprintf(`[DEFAULT]
state_path = %[1]s
[calico]
etcd_scheme = https
etcd_host = 192.0.2.1
etcd_ca_cert_file = %[1]s/ca.crt
etcd_cert_file = %[1]s/client.crt
etcd_key_file = %[1]s/client.key
`, dir))
	start(t, s.ctl, "dhcp-agent", "--metrics", "127.0.0.1:9695", "--config-file", file)
}

// TestLeaseFromCall: one call to the Neutron API makes a port whose machine leases its addresses of
// both IP versions, has a route and is guarded by its security group; its deletion leaves nothing
// on the host.
func TestLeaseFromCall(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"dnsmasq", "udhcpc", "dhclient"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run scripts/setup", program)
		}
	}
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	h.ns.MustIP(t, "route add default via 192.0.2.1")
	s.ctl.MustIP(t, "route add 10.65.0.0/24 via 192.0.2.11")
	agent := []string{"agent", "--policy", "--dhcp", "--name", h.name, "--state", h.state}
	running := start(t, h.ns, append(agent, "--join", s.token(t))...)

	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"provider:network_type": "routed"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.65.0.0/24"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 6, "cidr": "2001:db8:65::/64",
		"ipv6_address_mode": "dhcpv6-stateful", "ipv6_ra_mode": "dhcpv6-stateful"})
	group := c.mustCreate(t, "security_group", map[string]any{"name": "web"})
	c.mustCreate(t, "security_group_rule", map[string]any{"security_group_id": group.ID, "direction": "ingress",
		"protocol": "tcp", "port_range_min": 80, "port_range_max": 80})
	port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "device_owner": "compute:nova", "binding:host_id": h.name,
		"mac_address": "02:65:00:00:00:07", "fixed_ips": []map[string]any{{"ip_address": "10.65.0.7"}, {"ip_address": "2001:db8:65::7"}},
		"security_groups": []string{group.ID}})
	vm := s.lab.MustNamespace(t, "vm")
	if err := vm.Sysctl("net/ipv6/conf/default/accept_dad", "0"); err != nil { // dhclient will not wait for its address
		t.Fatal(err)
	}
	tap := "tap" + port.ID[:11]
	vm.MustIP(t, "link add eth0 address 02:65:00:00:00:07 type veth peer name "+tap+" netns "+h.ns.Name, "link set eth0 up")
	h.ns.MustIP(t, "link set "+tap+" up")
	dir := t.TempDir()
	script := filepath.Join(dir, "lease.sh")
	writeFile(t, script, `#!/bin/sh
case "$1$reason" in
bound) ip addr add "$ip/$mask" dev "$interface"; ip route add default via "$router" ;;
BOUND6) ip addr add "$new_ip6_address/$new_ip6_prefixlen" dev "$interface" nodad ;;
esac
`)
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	shown(t, vm, "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "5", "-T", "1", "-s", script)
	shown(t, vm, "dhclient", "-6", "-1", "-cf", "/dev/null", "-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "pid"), "-sf", script, "eth0")
	for _, want := range []string{" 10.65.0.7/24 ", " 2001:db8:65::7/128 "} {
		if addresses := shown(t, vm, "ip", "addr", "show", "dev", "eth0"); !strings.Contains(addresses, want) {
			t.Errorf("want%sin\n%s", want, addresses)
		}
	}
	listenTCP(t, vm, 80)
	listenTCP(t, vm, 81)
	within(t, "the machine to be reached", func() bool { return connects(s.ctl, "10.65.0.7:80") })
	if connects(s.ctl, "10.65.0.7:81") {
		t.Error("a port is reached that the group does not open")
	}

	if err := c.call(t.Context(), http.MethodDelete, "/v2.0/ports/"+port.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	within(t, "the route to go", func() bool { return !strings.Contains(shown(t, h.ns, "ip", "route"), "10.65.0.7") })
	within(t, "the gateway device to go", func() bool { return !strings.Contains(shown(t, h.ns, "ip", "link"), "ns-calico") })
	within(t, "dnsmasq to end", func() bool {
		left, err := filepath.Glob(filepath.Join(h.state, "dhcp", "*pid"))
		return err == nil && len(left) == 0
	})
	running.stop(t)
	succeed(t, h.ns, append(agent, "--cleanup")...)
}

// TestCalledAsCalicoDHCPAgent: peers' scripts call the agent by its name.
func TestCalledAsCalicoDHCPAgent(t *testing.T) {
	t.Parallel()
	for called, want := range map[string][]string{
		"/usr/bin/calico-dhcp-agent --config-file f": {"dhcp-agent", "--config-file", "f"},
		"heddle agent": {"agent"},
	} {
		if got := commandArgs(strings.Fields(called)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", called, got, want)
		}
	}
}
