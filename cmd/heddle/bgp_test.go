package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
)

// TestBGPAgent: a host that has joined runs the BGP speaker with the rights it has got, tells of
// it, and takes its routes away when told to.
func TestBGPAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	st := openData(t, s.data)
	block := `{"cidr": "10.1.4.0/26", "affinity": "host:` + h.name + `", "allocations": [` + strings.Repeat("null, ", 63) + `null], "attributes": []}`
	var ops []store.Op
	for key, value := range map[string]string{
		"/calico/bgp/v1/host/" + h.name + "/ip_addr_v4":              h.ip,
		"/calico/bgp/v1/host/router/ip_addr_v4":                      "192.0.2.254",
		"/calico/v1/ipam/v4/pool/10.1.0.0-16":                        `{"cidr": "10.1.0.0/16"}`,
		"/calico/ipam/v2/host/" + h.name + "/ipv4/block/10.1.4.0-26": "{}",
		"/calico/ipam/v2/assignment/ipv4/block/10.1.4.0-26":          block,
	} {
		ops = append(ops, store.Op{Key: key, Value: []byte(value)})
	}
	if _, err := st.Commit(t.Context(), nil, ops); err != nil {
		t.Fatal(err)
	}
	r := start(t, h.ns, "agent", "--name", h.name, "--state", h.state, "--join", s.token(t), "--bgp", "--bgp-hold-time", "9s")

	routes := func() string { return shown(t, h.ns, "ip", "route", "show", "proto", "81") }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	until(t, "the block's route", "blackhole 10.1.4.0/26", routes)
	for _, want := range []string{`heddle_bgp_session_up{origin="mesh",peer="192.0.2.254"} 0`, "heddle_bgp_routes_exported 1", "heddle_bgp_routes_imported 0", "heddle_bgp_problems 0", "heddle_bgp_failing 0",
		"heddle_bgp_routes_in_kernel 1", "heddle_bgp_routes_failing 0"} {
		if status, text, err := r.page(ctx, "/metrics"); err != nil || status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("metrics: %d, %v, want %s in\n%s", status, err, want, text)
		}
	}
	r.stop(t)
	put(t, st, "/calico/v1/Ready", "no")
	r = launch(t, h.ns, "agent", "--name", h.name, "--state", h.state, "--bgp")
	until(t, "the reason why it is not ready", "BGP agent (waits for /calico/v1/Ready)", func() string {
		_, text, _ := r.page(ctx, "/readyz") // or it does not listen yet
		return text
	})
	r.stop(t)
	if got := routes(); got == "" {
		t.Error("the route went with the agent")
	}
	succeed(t, h.ns, "agent", "--cleanup", "--overlay=false", "--bgp", "--name", h.name)
	if got := routes(); got != "" {
		t.Errorf("after the clean-up there is %q", got)
	}
	if text, code := output(t, h.ns, "agent", "--bgp", "--bgp-router-id", "::1", "--name", h.name, "--state", h.state); code != 2 || !strings.Contains(text, "--bgp-router-id") {
		t.Errorf("a bad router ID: exit code %d, %s", code, text)
	}
}

// shown returns the output of a command in a namespace.
func shown(t *testing.T, ns *netlab.Namespace, name string, args ...string) string {
	t.Helper()
	out, err := ns.Output(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// until waits for text to be in what f says.
func until(t *testing.T, what, text string, f func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return strings.Contains(f(), text), nil }); err != nil {
		t.Fatalf("%v: there is\n%s", err, f())
	}
}
