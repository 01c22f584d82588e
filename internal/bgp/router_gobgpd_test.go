package bgp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/topology/routerbgp"
)

// TestRouterGoBGPd: Debian's gobgpd, another implementation of another age, is a neighbour. A next
// hop that is on no subnet of the router is refused. When its session is removed it withdraws what
// it has learned without waiting for a timer.
func TestRouterGoBGPd(t *testing.T) {
	for _, program := range []string{"gobgpd", "gobgp"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install gobgpd", program)
		}
	}
	l := newWire(t)
	r := l.router("r")
	m := l.machine("g")
	m.ns.MustIP(t, "link set lo up")
	config := filepath.Join(l.dataDir, "gobgpd.toml")
	text := fmt.Sprintf(`[global.config]
as = 64512
router-id = %q
[[neighbors]]
[neighbors.config]
neighbor-address = %q
peer-as = 64512
auth-password = "signed"
[neighbors.timers.config]
connect-retry = 2
hold-time = 240
keepalive-interval = 80
[neighbors.graceful-restart.config]
enabled = true
restart-time = 600
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-unicast"
[neighbors.afi-safis.mp-graceful-restart.config]
enabled = true
`, m.ip, r.ip)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &netlab.Log{}
	cmd := exec.Command("gobgpd", "-f", config, "--api-hosts", "127.0.0.1:50051")
	cmd.Stdout, cmd.Stderr = log, log
	if err := m.ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of gobgpd\n%s", log)
		}
	})
	ask := func(question string) string {
		out, err := m.ns.Output(t.Context(), "gobgp", strings.Fields(question)...)
		if err != nil {
			return err.Error()
		}
		return out
	}
	l.until("gobgpd to answer", func() bool { return strings.Contains(ask("global"), "64512") })
	for _, route := range []string{"198.51.100.0/24 nexthop " + m.ip.String(), "203.0.113.0/24 nexthop 198.18.0.1", "203.0.113.128/25 nexthop " + r.ip.String()} {
		if out := ask("global rib add " + route + " -a ipv4"); strings.TrimSpace(out) != "" {
			t.Fatalf("gobgp: %s", out)
		}
	}
	n := r.neighbour(m.ip, 64512)
	n.Password, n.HoldTime, n.KeepAlive = "signed", 240, 80
	r.apply()
	r.awaitState(m.ip, routerbgp.StateEstablished)
	r.awaitLearned([]string{"198.51.100.0/24[" + m.ip.String() + "]"}, []string{"203."})
	l.until("the refused route to be counted", func() bool {
		p := r.peer(m.ip)
		return p.Received >= 2 && p.Refused.NextHop == p.Received-1
	})
	l.until("the router's network", func() bool { return strings.Contains(ask("global rib -a ipv4"), "10.0.0.0/24") })
	if out := ask("global rib -a ipv4 10.0.0.0/24"); !strings.Contains(out, r.ip.String()) {
		t.Errorf("gobgpd has\n%s\nwant a route by %s", out, r.ip)
	}
	r.plan.Neighbours = nil
	r.apply()
	l.until("the withdrawal when the last session is removed", func() bool { return !strings.Contains(ask("global rib -a ipv4"), "10.0.0.0/24") })
}
