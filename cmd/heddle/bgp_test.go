package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/nettest"
	"heddle/internal/store"
)

// TestBGPAgent: a host that has joined runs the BGP speaker with the rights it has got, tells of it, and takes its routes
// away when told to.
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

// TestBGPGuide does what the guide says, as far as its files go: a mesh of two hosts, then a router between them.
func TestBGPGuide(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bird", "birdc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install bird2", program)
		}
	}
	guide, err := os.ReadFile("../../docs/guides/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	s := newSite(t)
	s.serve(t)
	applyAfter := func(what string) {
		t.Helper()
		succeed(t, s.ctl, "calico", "apply", "-f", file("objects.yaml", indented(t, string(guide), what)), "--data", s.data)
	}
	apply := func(name string) { t.Helper(); applyAfter("In `" + name + "`:") }
	apply("mesh.yaml")
	st := openData(t, s.data)
	put := func(key, value string) {
		t.Helper()
		if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: key, Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	put("/calico/v1/ipam/v4/pool/10.1.0.0-16", `{"cidr": "10.1.0.0/16"}`)
	hosts := map[string]*host{}
	for i, name := range []string{"h1", "h2"} {
		h := s.addHost(t, name, fmt.Sprintf("192.0.2.1%d", i+1))
		hosts[name] = h
		put("/calico/ipam/v2/host/"+name+"/ipv4/block/10.1."+fmt.Sprint(i+1)+".0-26", "{}")
		put("/calico/ipam/v2/assignment/ipv4/block/10.1."+fmt.Sprint(i+1)+".0-26", fmt.Sprintf(
			`{"cidr": "10.1.%d.0/26", "affinity": "host:%s", "allocations": [%snull], "attributes": []}`, i+1, name, strings.Repeat("null, ", 63)))
		start(t, h.ns, "agent", "--name", name, "--state", h.state, "--join", s.token(t), "--bgp")
	}
	const way = "10.1.2.0/26 via "
	until(t, "h2's block at h1", way+"192.0.2.12", func() string { return shown(t, hosts["h1"].ns, "ip", "route") })

	router := s.addHost(t, "router", "192.0.2.254")
	_, rest, _ := strings.Cut(string(guide), "```bird\n")
	config, _, _ := strings.Cut(rest, "```")
	control := filepath.Join(dir, "ctl")
	bird := exec.Command("bird", "-f", "-c", file("bird.conf", config), "-s", control)
	if err := router.ns.Start(bird); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bird.Process.Kill()
		_ = bird.Wait()
	})
	apply("router.yaml")
	until(t, "h2's block over the router", way+"192.0.2.254", func() string { return shown(t, hosts["h1"].ns, "ip", "route") })
	until(t, "h1's block at the router", "10.1.1.0/26 via 192.0.2.11", func() string { return shown(t, router.ns, "ip", "route") })
	if text := shown(t, router.ns, "birdc", "-s", control, "show", "route"); !strings.Contains(text, "[AS64601i]") {
		t.Errorf("the router has\n%s", text)
	}

	// The filters: one of the addresses below is in the lab, one is a service's.
	hosts["h1"].ns.MustIP(t, "link add cali1 type veth peer name peer1", "link set cali1 up", "link set peer1 up",
		"route add 10.1.9.9/32 dev cali1", "route add 10.1.8.8/32 dev cali1", "route add 10.96.5.0/24 dev cali1")
	until(t, "the address outside the own block", "10.1.9.9 via 192.0.2.11", func() string { return shown(t, router.ns, "ip", "route") })
	applyAfter("and before the rule for pools:")
	until(t, "the service", "10.96.5.0/24 via 192.0.2.11", func() string { return shown(t, router.ns, "ip", "route") })
	if text := shown(t, router.ns, "ip", "route"); strings.Contains(text, "10.1.9.9") || !strings.Contains(text, "10.1.8.8 via 192.0.2.11") {
		t.Errorf("with the filters the router has\n%s", text)
	}
}

// indented is the block of indented lines after the first mention of what.
func indented(t *testing.T, text, what string) string {
	t.Helper()
	_, text, found := strings.Cut(text, what+"\n\n")
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, inside := strings.CutPrefix(line, "    ")
		if !inside {
			break
		}
		b.WriteString(line)
	}
	if !found || b.Len() == 0 {
		t.Fatalf("the guide has nothing after %q", what)
	}
	return b.String()
}

// shown returns the output of a command in a namespace.
func shown(t *testing.T, ns *nettest.Namespace, name string, args ...string) string {
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
	if err := nettest.Until(ctx, what, func() (bool, error) { return strings.Contains(f(), text), nil }); err != nil {
		t.Fatalf("%v: there is\n%s", err, f())
	}
}
