package bgp

import (
	"fmt"
	"strings"
	"testing"
)

// tor is a BIRD that peers with hosts as a top-of-rack router does, and has routes of its own.
func tor(statics string, hosts ...*host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "protocol static { ipv4; %s }\n", statics)
	for _, h := range hosts {
		fmt.Fprintf(&b, `protocol bgp %s { local $ME as 65001; neighbor %s as 64512; %s graceful restart on;
			ipv4 { import all; export where source = RTS_STATIC; next hop self; }; }
		`, h.name, h.ip, quick)
	}
	return b.String()
}

const routeNet, routeHost = "route 172.16.0.0/16 unreachable;", "route 10.1.77.7/32 unreachable;"

// TestPeering: a host and a router exchange what they shall: blocks as wholes, borrowed addresses by themselves, nothing
// else; what the router tells goes into the kernel and out of it again.
func TestPeering(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	r := l.bird("r", tor(routeNet+routeHost, h))
	l.pool("10.1.0.0/16", "")
	l.put("/calico/bgp/v1/global/node_mesh", `{"enabled": false}`,
		// The seed's other spelling.
		"/calico/v1/config/bgp_peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
	l.block("h", "10.1.4.0/26")
	h.workload("cali1", "10.1.4.7/32", "10.1.9.9/32", "203.0.113.9/32")
	// Somebody else's: to a destination that the router tells too, and one beside it.
	h.ns.MustIP(t, "route add 10.1.77.7/32 via "+r.ip.String()+" proto static", "route add 198.51.100.0/24 via "+r.ip.String())
	h.start()

	via := " via " + h.ip.String()
	l.await("the router to learn", r.routes, []string{"10.1.4.0/26", "10.1.9.9/32"}, []string{"10.1.4.7/32", "203.0.113.9/32", "192.0.2.0/24"})
	if line := r.since("10.1.4.0/26"); !strings.HasSuffix(line, via) {
		t.Errorf("the block: %q, want it%s", line, via)
	}
	learned := "172.16.0.0/16 via " + r.ip.String() + " dev eth0 metric 81"
	l.await("the host to learn", func() string { return h.routes("4") }, []string{"blackhole 10.1.4.0/26 metric 81", learned}, []string{"10.1.77.7"})

	// A workload comes and goes.
	h.workload("cali2", "10.1.9.10/32")
	l.await("a new address", r.routes, []string{"10.1.9.10/32"}, nil)
	h.ns.MustIP(t, "link delete cali2")
	l.await("the address to go", r.routes, []string{"10.1.4.0/26"}, []string{"10.1.9.10/32"})

	// Another block; one that is another's although the affinity is there; then the first goes.
	l.block("h", "10.1.5.0/26")
	l.put("/calico/ipam/v2/host/h/ipv4/block/10.1.6.0-26", "{}", "/calico/ipam/v2/assignment/ipv4/block/10.1.6.0-26", blockText("10.1.6.0/26", "other"))
	l.await("another block", r.routes, []string{"10.1.4.0/26", "10.1.5.0/26"}, []string{"10.1.6.0/26"})
	l.remove("/calico/ipam/v2/host/h/ipv4/block/10.1.4.0-26", "/calico/ipam/v2/assignment/ipv4/block/10.1.4.0-26")
	l.await("the first block to go", r.routes, []string{"10.1.5.0/26", "10.1.4.7/32"}, []string{"10.1.4.0/26"})
	l.await("its blackhole to go", func() string { return h.routes("4") }, []string{"blackhole 10.1.5.0/26"}, []string{"blackhole 10.1.4.0/26"})

	// The router withdraws; somebody else's route to what the router tells goes.
	h.ns.MustIP(t, "route del 10.1.77.7/32 proto static")
	l.await("the route that was another's", func() string { return h.routes("4") }, []string{"10.1.77.7 via " + r.ip.String()}, nil)
	r.configure(tor(routeHost, h))
	l.await("the withdrawal", func() string { return h.routes("4") }, []string{"10.1.77.7 via"}, []string{"172.16.0.0/16"})
	// Somebody removes one of ours.
	h.ns.MustIP(t, "route del 10.1.77.7/32 proto 81")
	l.await("our route to be put back", func() string { return h.routes("4") }, []string{"10.1.77.7 via"}, nil)

	// A filter, live.
	l.put("/calico/bgp/v1/global/custom_filters/v4/no-nine", "if net ~ 10.1.9.0/24 then reject;")
	l.await("the filter", r.routes, []string{"10.1.5.0/26"}, []string{"10.1.9.9/32"})
	if got := h.output("ip", "route", "show", "198.51.100.0/24"); !strings.Contains(got, "via "+r.ip.String()) {
		t.Errorf("somebody else's route is %q", got)
	}
}
