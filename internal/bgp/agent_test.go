package bgp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/storetest"
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

// TestPeering: a host and a router exchange what they shall: blocks as wholes, borrowed addresses
// by themselves, nothing else; what the router tells goes into the kernel and out of it again.
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
	l.put("/calico/ipam/v2/host/h/ipv4/block/10.1.4.0-26", "", "/calico/ipam/v2/assignment/ipv4/block/10.1.4.0-26", "")
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

// TestMesh: hosts peer with each other in both families, with AS numbers of their own, over plain
// paths and tunnels; the mesh goes off and on while explicit sessions stay.
func TestMesh(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b, c := l.host("a"), l.host("b"), l.host("c")
	r := l.bird("r", fmt.Sprintf(`protocol bgp a { local $ME as 64512; neighbor %s as 64512; %s ipv4 { import all; export none; add paths on; }; }
		protocol bgp a6 { local $ME6 as 64512; neighbor %s as 64512; %s ipv6 { import all; export none; }; }`, a.ip, quick, a.v6, quick))
	l.pool("10.1.0.0/16", "")
	l.pool("10.2.0.0/16", `, "ipip": "tunl0"`)
	l.pool("10.3.0.0/16", `, "ipip": "vxlan1", "ipip_mode": "cross-subnet"`)
	l.pool("fd00:1::/64", "")
	l.put("/calico/bgp/v1/host/c/as_num", "65003", "/calico/bgp/v1/host/a/network_v4", "192.0.2.1/24",
		"/calico/bgp/v1/host/a/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": 64512}`, r.ip),
		"/calico/v1/host/a/bgp_peer_v6/"+r.v6.String(), fmt.Sprintf(`{"ip": %q, "as_num": "0.64512"}`, r.v6))
	for h, block := range map[*host]string{a: "10.1.4.0/26", b: "10.2.4.0/26", c: "10.3.4.0/26"} {
		l.block(h.name, block)
	}
	l.block("c", "fd00:1::40/122")
	b.workload("cali1", "10.1.9.9/32")
	a.ns.MustIP(t, "link add tunl0 type veth peer name xtunl0") // stands for the tunnel; it comes up later
	for _, h := range []*host{a, b, c} {
		h.start()
	}
	via := func(h *host) string { return " via " + h.ip.String() + " dev eth0" }
	l.await("a to learn", func() string { return a.routes("4") },
		[]string{"10.1.9.9" + via(b), "10.3.4.0/26" + via(c), "blackhole 10.1.4.0/26"}, []string{"10.2.4.0"})
	a.ns.MustIP(t, "link set xtunl0 up", "link set tunl0 up")
	l.await("the tunnel's route", func() string { return a.routes("4") }, []string{"10.2.4.0/26 via " + b.ip.String() + " dev tunl0 metric 81 onlink"}, nil)
	l.await("a to learn IPv6", func() string { return a.routes("6") }, []string{"fd00:1::40/122 via " + c.v6.String() + " dev eth0 metric 81"}, nil)
	l.await("c to learn", func() string { return c.routes("4") }, []string{"10.1.4.0/26" + via(a), "10.1.9.9" + via(b)}, nil)
	l.await("the router to learn", r.routes, []string{"10.1.4.0/26"}, nil)

	// c's host gets an address in another network: its blocks now need the tunnel of their pool.
	l.put("/calico/bgp/v1/host/a/network_v4", "198.51.100.0/24")
	a.ns.MustIP(t, "link add vxlan1 type veth peer name xvxlan1", "link set xvxlan1 up", "link set vxlan1 up")
	l.await("the other tunnel's route", func() string { return a.routes("4") }, []string{"10.3.4.0/26 via " + c.ip.String() + " dev vxlan1"}, nil)

	before := r.since("10.1.4.0/26")
	l.put("/calico/bgp/v1/global/node_mesh", `{"enabled": false}`)
	for _, h := range []*host{a, b, c} {
		l.await("the mesh to end at "+h.name, func() string { return h.routes("4") + "\n" + h.routes("6") }, nil, []string{"10."})
	}
	l.put("/calico/bgp/v1/global/node_mesh", `{"enabled": true}`)
	l.await("the mesh to come back", func() string { return a.routes("4") }, []string{"10.1.9.9" + via(b), "10.3.4.0/26 via"}, nil)
	r.wantStayed("10.1.4.0/26", before)
}

// TestReady: an agent waits until the data is ready, and keeps what it has when it no longer is.
func TestReady(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.host("a")
	l.put("/calico/v1/Ready", "")
	l.pool("10.1.0.0/16", "")
	l.block("a", "10.1.4.0/26")
	a.start()
	l.await("the agent to wait", a.log.String, []string{"time="}, nil)
	if got := a.routes("4"); got != "" {
		t.Errorf("routes before the data is ready: %s", got)
	}
	l.put("/calico/v1/Ready", "true")
	l.await("the blackhole", func() string { return a.routes("4") }, []string{"blackhole 10.1.4.0/26"}, nil)
	l.put("/calico/v1/Ready", "false")
	l.block("a", "10.1.5.0/26")
	l.put("/calico/v1/Ready", "true")
	l.await("the other blackhole", func() string { return a.routes("4") }, []string{"blackhole 10.1.4.0/26", "blackhole 10.1.5.0/26"}, nil)
}

// TestPortTaken: a port that another program has is waited for, and said.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	l.block("h", "10.1.4.0/26")
	var other net.Listener
	if err := h.ns.Do(func() (err error) {
		other, err = net.Listen("tcp", netip.AddrPortFrom(h.ip, 179).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.start()
	log := func() string { return strings.ReplaceAll(h.log.String(), "stop the other", "\nstop the other") }
	l.await("the reason", log, []string{"stop the other BGP speaker"}, nil)
	l.await("the blackhole", func() string { return h.routes("4") }, []string{"blackhole 10.1.4.0/26"}, nil)
	other.Close()
	l.await("the speaker to start", func() string { return strings.ReplaceAll(h.log.String(), "msg=", "\n") }, []string{"ready"}, nil)
}

// TestStoreAway: without etcd all goes on, addresses of workloads included; what changed is caught
// up after.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	r := l.bird("r", tor(routeNet, h))
	l.pool("10.1.0.0/16", "")
	l.put("/calico/bgp/v1/global/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
	l.block("h", "10.1.4.0/26")
	h.start()
	l.await("the router to learn", r.routes, []string{"10.1.4.0/26"}, nil)
	before := r.since("10.1.4.0/26")
	if err := l.st.Close(); err != nil {
		t.Fatal(err)
	}
	h.workload("cali1", "10.1.9.9/32")
	r.configure(tor(routeHost, h))
	l.await("a workload without etcd", r.routes, []string{"10.1.4.0/26", "10.1.9.9/32"}, nil)
	l.await("a route without etcd", func() string { return h.routes("4") }, []string{"10.1.77.7 via"}, []string{"172.16.0.0/16"})
	l.st = storetest.Open(t, l.dataDir)
	l.block("h", "10.1.5.0/26")
	l.await("a block after", r.routes, []string{"10.1.4.0/26", "10.1.5.0/26"}, nil)
	r.wantStayed("10.1.4.0/26", before)
}

// TestSpread: a destination that two routers tell alike is reached over both, and over the one that
// is left.
func TestSpread(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	r, s := l.bird("r", tor(routeNet, h)), l.bird("s", tor(routeNet, h))
	for _, x := range []*bird{r, s} {
		l.put("/calico/bgp/v1/global/peer_v4/"+x.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, x.ip))
	}
	h.start()
	l.await("both ways", func() string { return h.routes("4") }, []string{fmt.Sprintf(
		"172.16.0.0/16 metric 81\nnexthop via %s dev eth0 weight 1\nnexthop via %s dev eth0 weight 1", r.ip, s.ip)}, nil)
	s.configure(tor("", h))
	l.await("one way", func() string { return h.routes("4") }, []string{"172.16.0.0/16 via " + r.ip.String() + " dev eth0 metric 81"}, nil)
	r.configure(tor("", h))
	l.await("none", func() string { return "routes:" + h.routes("4") }, []string{"routes:"}, []string{"routes:1"})
}

// TestRestart: an agent that is killed, or told to end, and starts again costs no route: neither
// the router's, nor those of another host, nor its own. What the router gave up meanwhile goes when
// it has told all it has.
func TestRestart(t *testing.T) {
	t.Parallel()
	t.Run("killed, in a mesh", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		h, other := l.host("h"), l.host("o")
		other.start()
		var there *netlab.Log
		testRestart(h, func() {
			l.await("the other host to learn", func() string { return other.routes("4") }, []string{"10.1.4.0/26", "10.1.9.9"}, nil)
			there = other.monitor()
			h.kill()
		})
		l.await("the other host's session", func() string {
			return fmt.Sprint(strings.Count(other.log.String(), `"session up" peer=`+h.ip.String()))
		}, []string{"2"}, nil)
		wantNoneDeleted(t, there)
	})
	t.Run("told to end", func(t *testing.T) {
		t.Parallel()
		h := newLab(t).host("h")
		testRestart(h, h.stop)
	})
}

// testRestart peers a host with a router, ends the agent, and starts it again.
func testRestart(h *host, end func()) {
	l := h.lab
	r := l.bird("r", tor(routeNet+routeHost, h))
	l.pool("10.1.0.0/16", "")
	l.put("/calico/bgp/v1/host/h/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
	l.block("h", "10.1.4.0/26")
	h.workload("cali1", "10.1.9.9/32")
	h.start()
	l.await("the router to learn", r.routes, []string{"10.1.4.0/26", "10.1.9.9"}, nil)
	l.await("the host to learn", func() string { return h.routes("4") }, []string{"172.16.0.0/16 via", "10.1.77.7 via"}, nil)
	here := h.monitor()
	block, address := r.since("10.1.4.0/26"), r.since("10.1.9.9/32")

	end()
	session := func() string { return r.ask("show protocols all h") }
	const up = "  BGP state:          Established"
	l.await("the router to notice", session, nil, []string{up})
	r.configure(tor(routeNet, h))
	if got := h.routes("4"); !strings.Contains(got, "172.16.0.0/16 via") || !strings.Contains(got, "blackhole 10.1.4.0/26") {
		l.t.Errorf("without the agent the kernel has\n%s", got)
	}
	h.start()
	l.await("the router's peer to be back", session, []string{up}, []string{"    Neighbor graceful restart active"})
	l.await("what the router gave up to go", func() string { return h.routes("4") }, []string{"172.16.0.0/16 via", "blackhole"}, []string{"10.1.77.7"})
	r.wantStayed("10.1.4.0/26", block)
	r.wantStayed("10.1.9.9/32", address)
	wantNoneDeleted(l.t, here)
}

// wantNoneDeleted reads a monitor's log: no route may have gone but the one that the router gave
// up.
func wantNoneDeleted(t testing.TB, log *netlab.Log) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		if strings.HasPrefix(line, "Deleted") && !strings.Contains(line, "10.1.77.7") {
			t.Errorf("a route was gone for a while: %s", line)
		}
	}
}

// TestReflector: hosts of one AS without a mesh learn from each other by a reflector, and several
// ways to one destination where it tells them all (add-paths).
func TestReflector(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b, c := l.host("a"), l.host("b"), l.host("c")
	var config strings.Builder
	for _, h := range []*host{a, b, c} {
		fmt.Fprintf(&config, "protocol bgp %s { local $ME as 64512; neighbor %s as 64512; rr client; %s ipv4 { import all; export all; add paths on; }; }\n", h.name, h.ip, quick)
	}
	r := l.bird("r", config.String())
	l.pool("10.1.0.0/16", "")
	l.put("/calico/bgp/v1/global/node_mesh", `{"enabled": false}`,
		"/calico/bgp/v1/global/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "64512"}`, r.ip))
	l.block("a", "10.1.4.0/26")
	for _, h := range []*host{a, b} {
		h.workload("cali1", "10.1.9.9/32") // one service at two hosts
	}
	for _, h := range []*host{a, b, c} {
		h.start()
	}
	l.await("c to learn", func() string { return c.routes("4") }, []string{"10.1.4.0/26 via " + a.ip.String(),
		fmt.Sprintf("10.1.9.9 metric 81\nnexthop via %s dev eth0 weight 1\nnexthop via %s dev eth0 weight 1", a.ip, b.ip)}, nil)
	a.ns.MustIP(t, "link delete cali1")
	l.await("c to learn that one is gone", func() string { return c.routes("4") }, []string{"10.1.9.9 via " + b.ip.String()}, nil)
	l.await("a to learn of the other", func() string { return a.routes("4") }, []string{"10.1.9.9 via " + b.ip.String()}, nil)
}

// TestForgotten: routes of a router that is gone for good stay for the restart time, and go.
func TestForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	r := l.bird("r", tor(routeNet, h))
	l.put("/calico/bgp/v1/host/h/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
	h.options.RestartTime = 2 * time.Second
	h.start()
	l.await("the host to learn", func() string { return h.routes("4") }, []string{"172.16.0.0/16 via"}, nil)
	h.kill()
	r.ns.MustIP(t, "link set eth0 down")
	h.start()
	l.await("the route to go", func() string { return "routes:" + h.routes("4") }, []string{"routes:"}, []string{"routes:172.16"})
	l.await("the reason", func() string { return strings.ReplaceAll(h.log.String(), "msg=", "\n") }, []string{`"peers have not told all`}, nil)
}

// TestChanges: what changes in etcd and on the host is taken up while the agent runs: an address
// that comes late, another AS number of a peer, a peer that goes. IPv6 works as IPv4 does.
func TestChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.host("h")
	h.ns.MustIP(t, "addr del "+h.v6.String()+"/64 dev eth0")
	r := l.bird("r", fmt.Sprintf(`
		protocol bgp h { local $ME as 65001; neighbor %s as 64512; %s ipv4 { import all; export none; }; }
		protocol static { ipv6; route fd00:77::/64 unreachable; }
		protocol bgp h6 { local $ME6 as 65001; neighbor %s as 64512; %s ipv6 { import all; export where source = RTS_STATIC; next hop self; }; }`, h.ip, quick, h.v6, quick))
	l.pool("10.1.0.0/16", "")
	l.pool("fd00:1::/64", "")
	peer := "/calico/bgp/v1/global/peer_v4/" + r.ip.String()
	l.put(peer, fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip),
		"/calico/bgp/v1/global/peer_v6/"+r.v6.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.v6))
	l.block("h", "10.1.4.0/26")
	l.block("h", "fd00:1::40/122")
	h.workload("cali1", "10.1.9.9/32")
	h.ns.MustIP(t, "route add fd00:1::41/128 dev cali1 proto 80", "route add fd00:1::81/128 dev cali1 proto 80")
	h.start()
	l.await("the router to learn", r.routes, []string{"10.1.4.0/26", "10.1.9.9/32"}, nil)
	l.await("the reason", func() string { return strings.ReplaceAll(h.log.String(), "err=", "\n") }, []string{`"no interface of this host has the address ` + h.v6.String()}, nil)

	h.ns.MustIP(t, "addr add "+h.v6.String()+"/64 dev eth0 nodad")
	l.await("the router to learn IPv6", r.routes, []string{"10.1.4.0/26", "fd00:1::40/122", "fd00:1::81/128"}, []string{"fd00:1::41/128"})
	if line := r.since("fd00:1::40/122"); !strings.HasSuffix(line, " via "+h.v6.String()) {
		t.Errorf("the IPv6 block: %q, want it via %s", line, h.v6)
	}
	l.await("the host to learn IPv6", func() string { return h.routes("6") },
		[]string{"fd00:77::/64 via " + r.v6.String() + " dev eth0 metric 81", "blackhole fd00:1::40/122 dev lo metric 81"}, nil)

	l.put(peer, fmt.Sprintf(`{"ip": %q, "as_num": "65002"}`, r.ip))
	l.await("the session to end", r.routes, []string{"fd00:1::40/122"}, []string{"10.1.4.0/26"})
	l.put(peer, fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
	l.await("the session to come back", r.routes, []string{"10.1.4.0/26", "fd00:1::40/122"}, nil)
	l.put("/calico/bgp/v1/global/peer_v6/"+r.v6.String(), "")
	l.await("the IPv6 session to end", func() string { return "routes:" + h.routes("6") }, []string{"routes:blackhole"}, []string{"fd00:77"})
}

// TestRoutable: what can mean nothing in the kernel's table does not get there, whoever tells it.
func TestRoutable(t *testing.T) {
	t.Parallel()
	for dst, want := range map[string]bool{
		"0.0.0.0/0": true, "10.0.0.0/8": true, "::/0": true, "fd00::/8": true, "2001:db8::1/128": true,
		"127.0.0.0/8": false, "224.0.0.0/4": false, "169.254.0.0/16": false, "ff00::/8": false, "fe80::/10": false, "::1/128": false,
	} {
		if got := routable(netip.MustParsePrefix(dst)); got != want {
			t.Errorf("%s: %v, want %v", dst, got, want)
		}
	}
}
