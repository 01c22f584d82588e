package simulate

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// TestOtherRoutes: a walk lists the routes to a destination that are not taken, and why.
func TestOtherRoutes(t *testing.T) {
	t.Parallel()
	l := example()
	l.Apply(owner("router", "routes"), &topology.Bundle{Routes: []topology.Route{
		{ID: "heavy", RouterID: "r", DstSubnet: prefix("10.2.0.0/24"), NextHop: topology.HopBlackhole, Weight: 20_000},
		{ID: "wide", RouterID: "r", DstSubnet: prefix("10.2.0.0/16"), NextHop: topology.HopReject},
		{ID: "sourced", RouterID: "r", SrcSubnet: prefix("192.0.2.0/24"), DstSubnet: prefix("10.2.0.0/24"), NextHop: topology.HopBlackhole},
		{ID: "elsewhere", RouterID: "r", DstSubnet: prefix("10.99.0.0/16"), NextHop: topology.HopBlackhole},
	}})
	routes := func(dst netip.Addr) (texts []string) {
		x := frameSpec{n: 1, to: 1, src: ipX, dst: dst}
		for _, s := range l.send("p-x", x.tcp(4000, 80)).Walk {
			if strings.HasPrefix(s.Text, "route to ") || strings.HasPrefix(s.Text, "not by ") {
				texts = append(texts, s.Text)
			}
		}
		return texts
	}
	for dst, want := range map[netip.Addr][]string{
		ipY: {"route to 10.2.0.0/24, weight 100: by port ", "not by route to 10.2.0.0/24, weight 0: it is for packets from 192.0.2.0/24",
			"not by route to 10.2.0.0/24, weight 20000: its weight is greater", "not by route to 10.2.0.0/16, weight 0: its prefix is shorter",
			"not by route to 0.0.0.0/0"},
		ip("10.99.0.1"): {"route to 10.99.0.0/16", "not by route to 0.0.0.0/0"},
	} {
		got := routes(dst)
		if len(got) != len(want) {
			t.Errorf("to %v: %q, want %q", dst, got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("to %v: %q, want %q", dst, got[i], want[i])
			}
		}
	}

	l.Apply(gw.owner(), nil)
	l.Apply(owner("router", "routes"), &topology.Bundle{Routes: []topology.Route{
		{ID: "sourced", RouterID: "r", SrcSubnet: prefix("192.0.2.0/24"), DstSubnet: prefix("10.99.0.0/16"), NextHop: topology.HopBlackhole},
	}})
	if got := routes(ip("10.99.0.1")); len(got) != 1 || got[0] != "not by route to 10.99.0.0/16, weight 0: it is for packets from 192.0.2.0/24" {
		t.Errorf("without a route to take: %q", got)
	}
}

// TestLANWithoutCarrier: what no host takes to the LAN is explained.
func TestLANWithoutCarrier(t *testing.T) {
	t.Parallel()
	const missing = "no live host carries the physical network physnet1"
	l := newLab()
	l.network("net")
	l.localnet("net")
	l.port(on("h1", open(1)))
	l.host("h1")
	d := l.send("p1", toMAC(tcp(1, 2, 1, 2), mac(outsider)))
	if d.Verdict != flow.Drop || !strings.HasSuffix(d.Reason, ", and "+missing) || !strings.Contains(walk(d), missing+": nothing goes to the LAN") {
		t.Errorf("no host carries it: %s", walk(d))
	}
	if d := l.arrives("net", "h1", toMAC(tcp(outsider, 2, 1, 2), mac(2))); strings.Contains(walk(d), missing) {
		t.Errorf("from the LAN: %s", walk(d))
	}
	l.host("h2", "physnet1")
	if d := l.send("p1", toMAC(tcp(1, 2, 1, 2), mac(outsider))); d.Verdict != flow.Forward || strings.Contains(walk(d), missing) {
		t.Errorf("another host carries it: %s", walk(d))
	}
}
