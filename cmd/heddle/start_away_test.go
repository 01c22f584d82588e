package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"heddle/internal/netlab"
)

// Hosts that start while the server is away work with what they last knew: policy, routes by BGP,
// leases and the overlay are in force although nothing was left in the kernel. They say how old it
// is, and catch up when the server is back.
func TestAgentsStartWithoutServer(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"dnsmasq", "udhcpc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: run scripts/setup", program)
		}
	}
	s := newSite(t)
	server := s.serve(t)
	st := openData(t, s.data)
	c := login(t, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(t, "network", map[string]any{"name": "blue"})
	c.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})
	put(t, st, "/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`,
		"/calico/v1/ipam/v4/pool/10.65.0.0-24", `{"cidr": "10.65.0.0/24"}`,
		"/calico/dhcp/v1/subnet/lan", `{"cidr": "10.67.0.0/24", "gateway_ip": "10.67.0.1"}`)

	var agents []*running
	var commands [][]string
	var hosts []*host
	var routed, overlay []*netlab.Namespace
	for i := 1; i <= 2; i++ {
		h := s.addHost(t, fmt.Sprintf("h%d", i), fmt.Sprintf("192.0.2.1%d", i))
		h.ns.MustIP(t, "route add default via 192.0.2.1") // by which the host answers for any gateway
		w := s.lab.MustNamespace(t, fmt.Sprintf("w%d", i))
		s.lab.MustVeth(t, h.ns, "cali1", w, "eth0")
		w.MustIP(t, fmt.Sprintf("addr add 10.65.0.%d/32 dev eth0", i),
			fmt.Sprintf("route add default via 169.254.1.1 dev eth0 onlink src 10.65.0.%d", i))
		listenTCP(t, w, 80)
		put(t, st, "/calico/bgp/v1/host/"+h.name+"/ip_addr_v4", h.ip, "/calico/v1/host/"+h.name+"/bird_ip", h.ip,
			"/calico/v1/host/"+h.name+"/workload/vm/w/endpoint/eth0", fmt.Sprintf(
				`{"state": "active", "name": "cali1", "profile_ids": ["web"], "ipv4_nets": ["10.65.0.%d/32"]}`, i))
		command := h.agent("--policy", "--bgp", "--dhcp")
		agents = append(agents, start(t, h.ns, append(command, "--join", s.token(t))...))
		commands, hosts, routed = append(commands, command), append(hosts, h), append(routed, w)

		port := c.mustCreate(t, "port", map[string]any{"network_id": network.ID, "binding:host_id": h.name, "device_owner": "compute:me",
			"mac_address": fmt.Sprintf("02:00:00:00:00:0%d", i), "fixed_ips": []map[string]any{{"ip_address": fmt.Sprintf("10.0.0.1%d", i)}}})
		vm := s.lab.MustNamespace(t, fmt.Sprintf("vm%d", i))
		vm.MustIP(t, fmt.Sprintf("link add eth0 address 02:00:00:00:00:0%d type veth peer name tap%s netns %s", i, port.ID[:11], h.ns.Name),
			"link set eth0 up", fmt.Sprintf("addr add 10.0.0.1%d/24 dev eth0", i))
		h.ns.MustIP(t, "link set tap"+port.ID[:11]+" up")
		listenTCP(t, vm, 80)
		overlay = append(overlay, vm)
	}
	lan := s.lab.MustNamespace(t, "lan")
	put(t, st, "/calico/v1/host/"+hosts[0].name+"/workload/vm/lan/endpoint/eth0",
		`{"state": "active", "name": "taplan", "mac": "02:67:00:00:00:07", "profile_ids": ["web"], "ipv4_nets": ["10.67.0.7/32"], "ipv4_subnet_ids": ["lan"], "ipv4_gateway": "10.67.0.1"}`)
	lan.MustIP(t, "link add eth0 address 02:67:00:00:00:07 type veth peer name taplan netns "+hosts[0].ns.Name, "link set eth0 up")
	hosts[0].ns.MustIP(t, "link set taplan up")
	leases := func() bool {
		_, err := lan.Output(t.Context(), "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", "/bin/true")
		return err == nil
	}
	works := func(when string) {
		t.Helper()
		within(t, when+": the routed workload of the other host to be reached", func() bool { return connects(routed[0], "10.65.0.2:80") })
		within(t, when+": the overlay's workload of the other host to be reached", func() bool { return connects(overlay[0], "10.0.0.12:80") })
		within(t, when+": a lease", leases)
		if connects(routed[0], "10.65.0.2:81") {
			t.Errorf("%s: a port is reached that the profile does not open", when)
		}
	}
	works("with the server")

	for i, a := range agents {
		a.stop(t)
		succeed(t, hosts[i].ns, append(commands[i], "--cleanup")...) // as after a start of the machine
	}
	server.stop(t)
	if connects(overlay[0], "10.0.0.12:80") || connects(routed[0], "10.65.0.2:80") {
		t.Fatal("something carries packets although everything was taken away")
	}
	for i, h := range hosts {
		agents[i] = launch(t, h.ns, commands[i]...)
		agents[i].waitLog(t, "starting from the last snapshot on disk")
		agents[i].waitLog(t, "age=")
	}
	for _, a := range agents {
		a.waitReady(t) // traffic does not wait for the store
	}
	works("without the server")

	s.serve(t)
	for _, a := range agents {
		a.waitReady(t)
	}
	put(t, openData(t, s.data), "/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [81]}], "outbound_rules": [{}]}`)
	listenTCP(t, routed[1], 81)
	within(t, "a change to arrive after the server is back", func() bool {
		return connects(routed[0], "10.65.0.2:81") && !connects(routed[0], "10.65.0.2:80")
	})
	if files, err := filepath.Glob(filepath.Join(hosts[0].state, "snapshots", "*")); err != nil || len(files) < 5 {
		t.Errorf("kept on disk: %v, %v", files, err)
	}
}
