package main

import (
	"strings"
	"testing"
)

// TestDropsRouted: heddle drops has what policy on a routed host has refused, by the rule that
// denies or by the code alone, and names the rules that nothing has matched; so do the metrics.
func TestDropsRouted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	sh := shell{s.ctl, s.data}
	st := openData(t, s.data)
	h := s.addHost(t, "h1", "192.0.2.11")
	h.ns.MustIP(t, "route add default via 192.0.2.1")
	s.ctl.MustIP(t, "route add 10.65.0.0/24 via 192.0.2.11")
	w := s.lab.MustNamespace(t, "w")
	s.lab.MustVeth(t, h.ns, "cali1", w, "eth0")
	w.MustIP(t, "addr add 10.65.0.1/32 dev eth0", "route add default via 169.254.1.1 dev eth0 onlink src 10.65.0.1")
	listenTCP(t, w, 80)
	put(t, st, "/calico/v1/policy/tier/default/policy/web", `{"selector": "all()", "inbound_rules": [{"action": "deny", "protocol": "udp", "dst_ports": [53]},
		{"protocol": "tcp", "dst_ports": [80]}, {"protocol": "tcp", "dst_ports": [443]}], "outbound_rules": [{}]}`,
		"/calico/v1/host/"+h.name+"/workload/vm/w/endpoint/eth0", `{"state": "active", "name": "cali1", "profile_ids": [], "ipv4_nets": ["10.65.0.1/32"]}`)
	start(t, h.ns, "agent", "--policy", "--name", h.name, "--state", h.state, "--join", s.token(t))
	within(t, "the workload to be reached", func() bool { return connects(s.ctl, "10.65.0.1:80") })
	datagrams(t, s.ctl, "10.65.0.1:53", 30)
	datagrams(t, s.ctl, "10.65.0.1:54", 20)
	until(t, "30 packets that a rule denies", "\n30 ", func() string { return sh.run(t, "drops --code policy") })
	has(t, sh.run(t, "drops --code policy --host "+h.name), "\n30       -     inbound    policy  policy-rule inbound/1 of default/web  "+h.name+"\n", "counted by all hosts since ")
	until(t, "20 packets that no rule allows", "\n20       -     -          default-deny  -", func() string { return sh.run(t, "drops --code default-deny") })
	unused := sh.run(t, "drops --unused")
	has(t, unused, "default/web  -      inbound/3   policy default/web  asked, never matched\n")
	if strings.Contains(unused, "inbound/2") {
		t.Errorf("a rule that has let a connection pass is unused:\n%s", unused)
	}
	has(t, shown(t, h.ns, "curl", "-s", "http://127.0.0.1:9699/metrics"), `heddle_dropped_packets_total{code="policy",plane="policy"} 30`)
	put(t, st, "/calico/v1/policy/profile/other/rules", `{"inbound_rules": [{}]}`)
	has(t, sh.run(t, "drops --code policy"), "\n30 ")
}
