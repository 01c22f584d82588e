package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
)

// A host that has joined runs the policy agent alone: what programs write below /calico/ is in
// force on it, with the rights that joining gave, and goes on when the agent is killed.
func TestPolicyAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	w := s.lab.MustNamespace(t, "w1")
	s.lab.MustVeth(t, h.ns, "tap1", w, "eth0")
	w.MustIP(t, "addr add 10.65.0.1/32 dev eth0", "route add default via 169.254.1.1 dev eth0 onlink")
	h.ns.MustIP(t, "route add default via 192.0.2.1")
	s.ctl.MustIP(t, "route add 10.65.0.0/24 via 192.0.2.11")
	listenTCP(t, w, 80)
	settings := filepath.Join(t.TempDir(), "felix.cfg")
	if err := os.WriteFile(settings, []byte("[global]\nInterfacePrefix = tap\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := func(more ...string) []string {
		return append([]string{"agent", "--policy", "--name", h.name, "--state", h.state, "--felix-config", settings}, more...)
	}
	refuse(t, h.ns, 2, "no such file", "agent", "--policy", "--name", h.name, "--state", h.state, "--felix-config", settings+".none")
	sockets := filepath.Join(t.TempDir(), "run")
	agent := start(t, h.ns, arguments("--join", s.token(t), "--run-dir", sockets)...)
	for text, want := range map[string]string{
		"# moved\n[other]\nInterfacePrefix = tap\n": "agent: nothing has changed\n",
		"[global]\nInterfacePrefix = cali\nx = y\n": "agent: needs a restart for felix-config InterfacePrefix, felix-config x; nothing else has changed\n",
		"": "agent: needs a restart for felix-config InterfacePrefix; nothing else has changed\n",
	} {
		writeFile(t, settings, text)
		if got := succeed(t, h.ns, "reload", "--run-dir", sockets); got != want {
			t.Errorf("reload with %q says %q, want %q", text, got, want)
		}
	}
	writeFile(t, settings, "[global]\nInterfacePrefix = tap\n")

	st := openData(t, s.data)
	endpoint := "/calico/v1/host/" + h.name + "/workload/openstack/vm/endpoint/port"
	status := "/calico/felix/v1/host/" + h.name + "/workload/openstack/vm/endpoint/port"
	put(t, st, "/calico/v1/config/EndpointReportingEnabled", "true",
		"/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`,
		endpoint, `{"state": "active", "name": "tap1", "profile_ids": ["web"], "ipv4_nets": ["10.65.0.1/32"]}`)
	within(t, "the workload to be reached", func() bool { return connects(s.ctl, "10.65.0.1:80") })
	within(t, "its status to be up", func() bool {
		kv, err := st.Get(t.Context(), status)
		return err == nil && string(kv.Value) == `{"status":"up"}`
	})
	if _, err := st.Get(t.Context(), "/calico/felix/v1/host/"+h.name+"/status"); err != nil {
		t.Errorf("the agent does not say that it lives: %v", err)
	}
	if _, text, err := agent.page(t.Context(), "/metrics"); err != nil || !strings.Contains(text, "heddle_policy_workloads 1") {
		t.Errorf("metrics: %v\n%s", err, text)
	}
	agent.kill()
	if !connects(s.ctl, "10.65.0.1:80") {
		t.Error("the workload is not reached when the agent was killed")
	}
	put(t, st, "/calico/v1/policy/profile/web/rules", `{}`)
	both := start(t, h.ns, arguments("--tunnel-ip", h.ip)...) // beside the overlay
	if _, text, err := both.page(t.Context(), "/metrics"); err != nil || !strings.Contains(text, "heddle_policy_workloads 1") || !strings.Contains(text, "heddle_overlay_upcalls_total") {
		t.Errorf("metrics of both agents: %v\n%s", err, text)
	}
	both.stop(t)
	if connects(s.ctl, "10.65.0.1:80") {
		t.Error("a change that an agent missed is not in force when the next is ready")
	}
	succeed(t, h.ns, "agent", "--cleanup", "--policy", "--name", h.name)
	if text, err := h.ns.Output(t.Context(), "nft", "list", "ruleset"); err != nil || strings.TrimSpace(text) != "" {
		t.Errorf("left after --cleanup: %v\n%s", err, text)
	}
}

// put writes pairs of keys and values in one transaction.
func put(t *testing.T, st store.Store, pairs ...string) {
	t.Helper()
	var ops []store.Op
	for i := 0; i < len(pairs); i += 2 {
		ops = append(ops, store.Op{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	if _, err := st.Commit(t.Context(), nil, ops); err != nil {
		t.Fatal(err)
	}
}

// within waits until cond holds.
func within(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}

func listenTCP(t *testing.T, ns *netlab.Namespace, port int) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// connects reports whether a TCP connection can be made.
func connects(ns *netlab.Namespace, to string) bool {
	err := ns.Do(func() error {
		c, err := net.DialTimeout("tcp4", to, 200*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err
	})
	return err == nil
}

// TestPolicyAgentKilled: an agent that is killed at any moment leaves a state from which the next
// one gets to the same as one that starts on a clean host.
func TestPolicyAgentKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	const workloads = 4
	for i := range workloads {
		w := s.lab.MustNamespace(t, fmt.Sprintf("w%d", i))
		s.lab.MustVeth(t, h.ns, fmt.Sprintf("cali%d", i), w, "eth0")
	}
	st := openData(t, s.data)
	endpoint := func(i, variant int) (key, value string) {
		key = fmt.Sprintf("/calico/v1/host/%s/workload/o/w%d/endpoint/e", h.name, i)
		if variant%5 == 0 {
			return key, `{"state": "inactive", "name": "gone"}`
		}
		return key, fmt.Sprintf(`{"state": "active", "name": "cali%d", "profile_ids": ["p%d"], "ipv4_nets": ["10.65.0.%d/32"], "labels": {"role": "r%d"}}`, i, variant%3, 1+(i+variant)%6, variant%4)
	}
	change := func(n int) {
		key, value := endpoint(n%workloads, n)
		put(t, st, key, value, fmt.Sprintf("/calico/v1/policy/profile/p%d/rules", n%3), fmt.Sprintf(`{"inbound_rules": [{"src_selector": "role == 'r%d'"}, {"protocol": "tcp", "dst_ports": [%d]}]}`, n%4, 1000+n),
			fmt.Sprintf("/calico/v1/policy/tier/default/policy/q%d", n%3), fmt.Sprintf(`{"selector": "role == 'r%d'", "order": %d, "inbound_rules": [{"src_selector": "role != 'r%d'"}], "outbound_rules": [{}]}`, n%4, n, n%5))
	}
	arguments := []string{"agent", "--policy", "--name", h.name, "--state", h.state}
	start(t, h.ns, append(arguments, "--join", s.token(t))...).stop(t)
	n := 0
	for round := range 6 {
		agent := launch(t, h.ns, arguments...)
		if round%2 == 0 {
			agent.waitReady(t)
		}
		for range 15 + 7*round {
			n++
			change(n)
		}
		agent.kill()
	}
	state := func() string {
		t.Helper()
		agent := start(t, h.ns, arguments...)
		agent.stop(t)
		rules := strings.Split(shown(t, h.ns, "nft", "-s", "list", "ruleset"), "\n")
		slices.Sort(rules)
		return strings.Join(rules, "\n") + shown(t, h.ns, "ip", "route", "show", "proto", "79")
	}
	after := state()
	for _, want := range []string{"chain policy/default/q1/in", "source/cali", "10.65.0."} {
		if !strings.Contains(after, want) {
			t.Errorf("there is no %s in\n%s", want, after)
		}
	}
	succeed(t, h.ns, "agent", "--cleanup", "--policy", "--name", h.name)
	if clean := state(); after != clean {
		t.Errorf("after agents were killed there is\n%s\non a clean host\n%s", after, clean)
	}
}
