package main

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/xen/model"
)

// TestPoolMTU: what a network says its machines may send gets through a tunnel whole, and where the
// transport cannot carry it the tunnels' statuses say so. Switches in user space drop what is too
// large without a word.
func TestPoolMTU(t *testing.T) {
	t.Parallel()
	const most = 1558 // the wire's 1600 bytes without GRE's 42
	n := startNetwork(t, 2, model.Record{"MTU": int64(most)})
	for i, h := range n.lab.Hosts() {
		h.Space.MustIP(t, fmt.Sprintf("link set vm%d mtu %d", i+1, most))
		n.machines[i].MustIP(t, fmt.Sprintf("link set eth0 mtu %d", most))
		bridge := n.call("network.get_bridge", n.network).(string)
		out, err := h.Vsctl("get", "interface", bridge, "mtu_request")
		if err != nil || out != fmt.Sprint(most) {
			t.Errorf("%s on %s has the MTU %s, want %d (%v)", bridge, h.Name, out, most, err)
		}
	}
	const headers = 20 + 8 // IPv4, ICMP
	if _, err := n.machines[0].Output(t.Context(), "ping", "-n", "-q", "-c3", "-i0.2", "-W5", "-Mdo", fmt.Sprintf("-s%d", most-headers), machineIP(1)); err != nil {
		t.Errorf("packets of the network's MTU do not get through: %v", err)
	}
	for i, tunnel := range n.tunnels {
		if s := n.call("tunnel.get_status", tunnel).(map[string]string); s["error"] != "" {
			t.Errorf("the status on host %d is %v", i+1, s)
		}
	}

	n.call("network.set_MTU", n.network, int64(most+1))
	n.awaitStatus("MTU_TOO_LARGE", n.all(), func(s map[string]string) bool {
		return s["active"] == "true" && strings.HasPrefix(s["error"], "MTU_TOO_LARGE") && strings.Contains(s["error"], fmt.Sprint(most))
	})
	n.call("network.set_MTU", n.network, int64(most))
	n.awaitStatus("no error", n.all(), func(s map[string]string) bool { return s["active"] == "true" && s["error"] == "" })
}
