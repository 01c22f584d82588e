package bgp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/topology/routerbgp"
)

// TestRouterTableLimit: in any sequence of changes no neighbour has more destinations in use than
// allowed, and none is left out while there is room.
func TestRouterTableLimit(t *testing.T) {
	const limit, destinations = 5, 12
	random := rand.New(rand.NewPCG(1, 2))
	table := newRouterTable(limit)
	best := map[netip.Prefix][]learnedPath{}
	neighbours := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	for step := range 2000 {
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(destinations)), 0}), 24)
		best[dst] = nil
		for _, n := range neighbours {
			if random.IntN(2) == 0 {
				best[dst] = append(best[dst], learnedPath{n, n})
			}
		}
		before := table.gateways(dst)
		if changed := table.set(dst, best[dst]); changed == slices.Equal(before, table.gateways(dst)) {
			t.Fatalf("step %d: set says %t", step, changed)
		}
		for _, dst := range table.waiting() {
			table.set(dst, best[dst])
		}
		for _, n := range neighbours {
			used, all := 0, 0
			for dst, paths := range best {
				if slices.Contains(table.gateways(dst), n) {
					used++
				}
				if slices.Contains(paths, learnedPath{n, n}) {
					all++
				}
			}
			if used != min(all, limit) || len(table.used[n]) != used || len(table.excess[n]) != all-used {
				t.Fatalf("step %d: of %d destinations of %s %d are in use, %d by the table, %d refused; want %d in use", step, all, n, used, len(table.used[n]), len(table.excess[n]), min(all, limit))
			}
		}
	}
}

func TestRefusal(t *testing.T) {
	p := &routerbgp.Plan{Own: []netip.Addr{netip.MustParseAddr("203.0.113.2")},
		Links: []routerbgp.Link{{Subnet: netip.MustParsePrefix("203.0.113.0/24")}, {Subnet: netip.MustParsePrefix("10.0.0.0/24"), Tenant: true}}}
	for _, c := range []struct {
		dst, gateway string
		want         routerbgp.Refused
	}{
		{"0.0.0.0/0", "203.0.113.1", routerbgp.Refused{}},
		{"203.0.113.128/25", "203.0.113.1", routerbgp.Refused{}},
		{"10.0.0.0/16", "203.0.113.1", routerbgp.Refused{}},
		{"10.0.0.0/24", "203.0.113.1", routerbgp.Refused{Tenant: 1}},
		{"10.0.0.7/32", "203.0.113.1", routerbgp.Refused{Tenant: 1}},
		{"198.51.100.0/24", "192.0.2.1", routerbgp.Refused{NextHop: 1}},
		{"198.51.100.0/24", "203.0.113.2", routerbgp.Refused{NextHop: 1}},
		{"224.0.0.0/4", "203.0.113.1", routerbgp.Refused{Invalid: 1}},
		{"127.0.0.1/32", "203.0.113.1", routerbgp.Refused{Invalid: 1}},
		{"240.0.0.0/5", "203.0.113.1", routerbgp.Refused{Invalid: 1}},
	} {
		var got routerbgp.Refused
		if reason := refusal(&got, p, netip.MustParsePrefix(c.dst), netip.MustParseAddr(c.gateway)); reason != nil {
			*reason++
		}
		if got != c.want {
			t.Errorf("%s by %s: refused %+v, want %+v", c.dst, c.gateway, got, c.want)
		}
	}
}

func TestParseSignatures(t *testing.T) {
	const text = "TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure\nTcpExt: 1 2 3 4\nIpExt: InNoRoutes\nIpExt: 5\n"
	if got, want := parseSignatures([]byte(text)), (signatures{missing: 2, unexpected: 3, wrong: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, broken := range []string{"", "TcpExt: TCPMD5Failure\n", "TcpExt: TCPMD5Failure\nTcpExt: x\n", "TcpExt: A TCPMD5Failure\nTcpExt: 1\n"} {
		if got := parseSignatures([]byte(broken)); got != (signatures{}) {
			t.Errorf("%q: got %+v", broken, got)
		}
	}
}

func TestAttemptText(t *testing.T) {
	for text, want := range map[string]string{
		"dial tcp 192.0.2.1:0->192.0.2.9:179: connect: no route to host": "cannot connect: no route to host",
		"dial tcp 192.0.2.1:0->192.0.2.9:179: i/o timeout":               "cannot connect: no answer from TCP port 179: the neighbour is not reached, or has another MD5 password",
		"odd": "cannot connect: odd",
	} {
		if got := attemptText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
