package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// TestWhyRouted: about endpoints of routed hosts heddle why says what packets then do, before and
// after the rule that it names is applied by the document that it prints, and of the time before.
func TestWhyRouted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	st := openData(t, s.data)
	put(t, st, "/calico/v1/ipam/v4/pool/10.65.0.0-24", `{"cidr": "10.65.0.0/24"}`,
		"/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`,
		"/calico/v1/policy/tier/default/policy/db", `{"selector": "role == \"db\"", "inbound_rules": [{"action": "deny", "protocol": "tcp", "dst_ports": [81]}, {"action": "next-tier"}], "outbound_rules": [{"action": "next-tier"}]}`)
	var workloads []*netlab.Namespace
	for i, name := range []string{"front", "db"} {
		h := s.addHost(t, fmt.Sprintf("h%d", i+1), fmt.Sprintf("192.0.2.1%d", i+1))
		h.ns.MustIP(t, "route add default via 192.0.2.1")
		w := s.lab.MustNamespace(t, name)
		s.lab.MustVeth(t, h.ns, "cali1", w, "eth0")
		w.MustIP(t, fmt.Sprintf("addr add 10.65.0.%d/32 dev eth0", i+1), fmt.Sprintf("route add default via 169.254.1.1 dev eth0 onlink src 10.65.0.%d", i+1))
		listenTCP(t, w, 80)
		listenTCP(t, w, 81)
		put(t, st, "/calico/bgp/v1/host/"+h.name+"/ip_addr_v4", h.ip, "/calico/v1/host/"+h.name+"/bird_ip", h.ip,
			"/calico/v1/host/"+h.name+"/workload/vm/"+name+"/endpoint/eth0", fmt.Sprintf(
				`{"state": "active", "name": "cali1", "profile_ids": ["web"], "ipv4_nets": ["10.65.0.%d/32"], "labels": {"role": %q}}`, i+1, name))
		start(t, h.ns, "agent", "--policy", "--bgp", "--name", h.name, "--state", h.state, "--join", s.token(t))
		workloads = append(workloads, w)
	}
	front := workloads[0]
	within(t, "the database to be reached", func() bool { return connects(front, "10.65.0.2:80") })
	has(t, succeed(t, s.ctl, "why", "--data", s.data, "--from", "front", "--to", "db:80"),
		"allowed: tcp 80 from ", "there passes: arrives at endpoint ", "      by profile rule inbound/1 of profile web\n", "back  passes: ", "note   routed hosts are judged by the store")

	if connects(front, "10.65.0.2:81") {
		t.Error("a port is reached that a policy denies")
	}
	why := []string{"why", "--data", s.data, "--from", "front", "--to", "10.65.0.2:81"}
	text, code := output(t, s.ctl, why...)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	has(t, text, "denied: tcp 81 from ", "there denied (policy): on host ", ": policy default/db inbound rule 1\n", "      by policy rule inbound/1 of policy default/db\n",
		"  heddle calico apply -f - <<'END'\n")
	_, document, _ := strings.Cut(text, "<<'END'\n")
	document, _, found := strings.Cut(document, "\nEND\n")
	if !found {
		t.Fatalf("no document in\n%s", text)
	}
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().UTC().Format(time.RFC3339Nano)
	succeed(t, s.ctl, "calico", "apply", "-f", file, "--data", s.data)
	has(t, succeed(t, s.ctl, why...), "allowed: ", "by policy rule inbound/1 of policy default/db\n")
	within(t, "the document that heddle why printed to let packets in", func() bool { return connects(front, "10.65.0.2:81") })
	within(t, "the past to be answered for", func() bool {
		text, _ := output(t, s.ctl, append(why, "--at", before)...)
		return strings.Contains(text, "denied (policy): on host ")
	})
}
