package main

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// TestRoutedHosts: policy agent and BGP speaker together make workloads of two hosts reach each
// other, over plain routes and through the tunnel of a pool that asks for one. Without the agents
// that goes on.
func TestRoutedHosts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	st := openData(t, s.data)
	put(t, st, "/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`,
		"/calico/v1/ipam/v4/pool/10.65.0.0-24", `{"cidr": "10.65.0.0/24"}`,
		"/calico/v1/ipam/v4/pool/10.66.0.0-24", `{"cidr": "10.66.0.0/24", "ipip": "vxlan0"}`)
	var agents []*running
	var hosts []*host
	var workloads []*netlab.Namespace
	for i := 1; i <= 2; i++ {
		h := s.addHost(t, fmt.Sprintf("h%d", i), fmt.Sprintf("192.0.2.1%d", i))
		h.ns.MustIP(t, "route add default via 192.0.2.1") // by which the host answers for any gateway
		w := s.lab.MustNamespace(t, fmt.Sprintf("w%d", i))
		s.lab.MustVeth(t, h.ns, "cali1", w, "eth0")
		w.MustIP(t, fmt.Sprintf("addr add 10.65.0.%d/32 dev eth0", i), fmt.Sprintf("addr add 10.66.0.%d/32 dev eth0", i),
			fmt.Sprintf("route add default via 169.254.1.1 dev eth0 onlink src 10.65.0.%d", i),
			fmt.Sprintf("route add 10.66.0.0/24 via 169.254.1.1 dev eth0 onlink src 10.66.0.%d", i))
		listenTCP(t, w, 80)
		put(t, st, "/calico/bgp/v1/host/"+h.name+"/ip_addr_v4", h.ip, "/calico/v1/host/"+h.name+"/bird_ip", h.ip,
			"/calico/v1/host/"+h.name+"/workload/vm/w/endpoint/eth0", fmt.Sprintf(
				`{"state": "active", "name": "cali1", "profile_ids": ["web"], "ipv4_nets": ["10.65.0.%d/32", "10.66.0.%d/32"]}`, i, i))
		agents = append(agents, start(t, h.ns, "agent", "--policy", "--bgp", "--name", h.name, "--state", h.state, "--join", s.token(t)))
		hosts, workloads = append(hosts, h), append(workloads, w)
	}
	plain, tunnelled := "10.65.0.2:80", "10.66.0.2:80"
	for _, to := range []string{plain, tunnelled} {
		within(t, to+" to be reached", func() bool { return connects(workloads[0], to) })
	}
	if connects(workloads[0], "10.65.0.2:81") {
		t.Error("a port is reached that the profile does not open")
	}
	routes := shown(t, hosts[0].ns, "ip", "route", "show", "proto", "81")
	for _, want := range []string{"10.65.0.2 via 192.0.2.12 dev eth0", "10.66.0.2 via 192.0.2.12 dev vxlan0"} {
		if !strings.Contains(routes, want) {
			t.Errorf("want %q in\n%s", want, routes)
		}
	}
	for _, a := range agents {
		a.kill()
	}
	for _, to := range []string{plain, tunnelled} {
		if !connects(workloads[0], to) {
			t.Errorf("%s is not reached when the agents were killed", to)
		}
	}
}
