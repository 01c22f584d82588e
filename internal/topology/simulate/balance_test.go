package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestBalance1: version 1. A client's packets to the VIP get the address of a member, whose replies
// get that of the VIP, whether the client is outside or inside.
func TestBalance1(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from string
		sent       frameSpec
		at         netip.AddrPort
		to, want   string
		back       string
	}{
		{"outside", "p-up", fromUp(vipOutside.Addr()), vipOutside, "p-w", "198.51.100.7:4000→10.1.0.6:8080", "172.16.0.99:80→198.51.100.7:4000"},
		{"inside, SNAT makes the gateway the source", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: vipInside.Addr()}, vipInside, "p-w", "172.16.0.2:1024→10.1.0.6:8080", "10.3.0.200:80→10.2.0.5:4000"},
		{"inside, on the member's subnet", "p-w", frameSpec{n: 6, to: 1, src: ipW, dst: vipInside.Addr()}, vipInside, "p-w", "172.16.0.2:1024→10.1.0.6:8080", "10.3.0.200:80→10.1.0.6:4000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := balanced1(service{at: c.at, members: []backend{memberX}})
			got := l.expectAt(t, c.from, c.sent.tcp(4000, 80), c.to, c.want)
			l.expectAt(t, c.to, tcpReply(got), c.from, c.back)
			l.expectAt(t, c.from, c.sent.tcp(4000, 80), c.to, c.want)
		})
	}
}

// TestBalance1OtherPorts: a VIP of version 1 is nobody's address at other ports.
func TestBalance1OtherPorts(t *testing.T) {
	t.Parallel()
	l := balanced1(service{})
	d := l.send("p-up", fromUp(vipInside.Addr()).tcp(4000, 81))
	if d.Verdict != flow.Postponed || !slices.Contains(d.Touched, "lb-r 10.3.0.200:81 6") {
		t.Errorf("touched %q\n%s", d.Touched, walk(d))
	}
	if d = l.send("p-up", fromUp(vipInside.Addr()).udp(4000, 80)); chosen(d) != "" {
		t.Error(walk(d))
	}
	l.Apply(owner("load-balancer", "lb-r"), &topology.Bundle{LoadBalancers: []topology.LoadBalancer{{ID: "lb-r", RouterID: "r"}}})
	if d = l.send("p-up", fromUp(vipInside.Addr()).tcp(4000, 80)); d.Verdict != flow.Postponed {
		t.Errorf("by a balancer that is down\n%s", walk(d))
	}
}

// TestBalance2: version 2. The member sees the VIP, from a client beside it, behind a router, or
// outside by a floating IP; the member may be the client.
func TestBalance2(t *testing.T) {
	t.Parallel()
	fip := ip("172.16.0.60")
	for _, c := range []struct {
		name, from string
		sent       frameSpec
		member     backend
		to, want   string
		back       string
	}{
		{"beside the VIP", "p-z", fromZ(vip2.Addr()), memberX, "p-w", "10.3.0.210:1024→10.1.0.6:8080", "10.3.0.210:80→10.3.0.5:4000"},
		{"behind the router", "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: vip2.Addr()}, memberX, "p-w", "10.3.0.210:1024→10.1.0.6:8080", "10.3.0.210:80→10.2.0.5:4000"},
		{"by a floating IP", "p-up", fromUp(fip), memberX, "p-w", "10.3.0.210:1024→10.1.0.6:8080", "172.16.0.60:80→198.51.100.7:4000"},
		{"the member itself", "p-z", fromZ(vip2.Addr()), backend{id: "z", addr: ipZ}, "p-z", "10.3.0.210:1024→10.3.0.5:8080", "10.3.0.210:80→10.3.0.5:4000"},
		{"the member itself, behind the router", "p-w", frameSpec{n: 6, to: 1, src: ipW, dst: vip2.Addr()}, memberX, "p-w", "10.3.0.210:1024→10.1.0.6:8080", "10.3.0.210:80→10.1.0.6:4000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := balanced2(service{members: []backend{c.member}})
			l.floating(floating{"V", gw, fip, vip2.Addr()})
			got := l.expectAt(t, c.from, c.sent.tcp(4000, 80), c.to, c.want)
			l.expectAt(t, c.to, tcpReply(got), c.from, c.back)
			l.expectAt(t, c.from, c.sent.tcp(4000, 80), c.to, c.want)
		})
	}
}

// TestVipToVip: a member may be the VIP of another balancer, and two that lead to each other end.
func TestVipToVip(t *testing.T) {
	t.Parallel()
	l := balanced2(service{members: []backend{{id: "b", addr: ip("10.3.0.211"), port: 90}}})
	l.balancer2("b", "net3", 21, ip("10.3.0.211"), ip("10.3.0.1"), prefix("10.3.0.0/24"))
	l.service2("b", service{id: "b", at: netip.MustParseAddrPort("10.3.0.211:90"), members: []backend{memberX}})
	got := l.expectAt(t, "p-z", fromZ(vip2.Addr()).tcp(4000, 80), "p-w", "10.3.0.211:1024→10.1.0.6:8080")
	l.expectAt(t, "p-w", tcpReply(got), "p-z", "10.3.0.210:80→10.3.0.5:4000")
	l.remove("member", "x")
	l.member("b", backend{id: "a", addr: vip2.Addr(), port: 80})
	d := l.send("p-z", fromZ(vip2.Addr()).tcp(4001, 80))
	if d.Verdict != flow.ErrorDrop || len(d.NewNATs) > 0 {
		t.Error(walk(d))
	}
}

// TestReservedPorts: the source of a balancer's own connections is never the port of a listener.
func TestReservedPorts(t *testing.T) {
	t.Parallel()
	l := balanced2(service{members: []backend{memberX}})
	for i := range 3 {
		l.service2("a", service{id: fmt.Sprint("o", i), at: netip.AddrPortFrom(vip2.Addr(), uint16(1024+i))})
	}
	l.service2("a", service{id: "udp", udp: true, at: netip.AddrPortFrom(vip2.Addr(), 1027)})
	l.expectAt(t, "p-z", fromZ(vip2.Addr()).tcp(4000, 80), "p-w", "10.3.0.210:1027→10.1.0.6:8080")
}

// TestBalanceUDP: datagrams are balanced by pools of UDP.
func TestBalanceUDP(t *testing.T) {
	t.Parallel()
	l := balanced2(service{udp: true, members: []backend{memberX}})
	frame := fromZ(vip2.Addr()).udp(4000, 80)
	got := l.expectAt(t, "p-z", frame, "p-w", "10.3.0.210:1024→10.1.0.6:8080")
	l.expectAt(t, "p-w", replyTo(got, func(s frameSpec, f *packet.Frame) []byte { return s.udp(f.TpDst, f.TpSrc) }), "p-z", "10.3.0.210:80→10.3.0.5:4000")
	if d := l.send("p-z", fromZ(vip2.Addr()).tcp(4000, 80)); chosen(d) != "" {
		t.Error(walk(d))
	}
	l.pool(topology.Pool{ID: "pool-s", LoadBalancerID: "lb-lbr-a", AdminStateUp: true, Protocol: topology.BalanceTCP})
	wantReason(t, l.send("p-z", frame), flow.Drop, "lb: no pool")
}

// TestMemberStates goes through the table of services §3.1: who is chosen, and who keeps
// connections.
func TestMemberStates(t *testing.T) {
	t.Parallel()
	active := backend{id: "x", addr: ipW}
	for _, c := range []struct {
		name                      string
		change                    func(l *lab)
		selectable, keeps, sticky bool
	}{
		{"up", func(*lab) {}, true, true, true},
		{"unknown health", func(l *lab) { l.health("x", "") }, true, true, true},
		{"active", func(l *lab) { l.health("x", topology.MemberActive) }, true, true, true},
		{"admin down", func(l *lab) { l.member("s", backend{id: "x", addr: ipW, down: true}) }, false, true, false},
		{"admin down and inactive", func(l *lab) {
			l.member("s", backend{id: "x", addr: ipW, down: true})
			l.health("x", topology.MemberInactive)
		}, false, false, false},
		{"draining", func(l *lab) { l.member("s", backend{id: "x", addr: ipW, weight: -1}) }, false, true, true},
		{"inactive", func(l *lab) { l.health("x", topology.MemberInactive) }, false, false, false},
		{"inactive by its record", func(l *lab) { l.member("s", backend{id: "x", addr: ipW, status: topology.MemberInactive}) }, false, false, false},
		{"inactive without a monitor", func(l *lab) {
			l.health("x", topology.MemberInactive)
			l.remove("health-monitor", "m-s")
		}, true, true, true},
		{"backup", func(l *lab) { l.member("s", backend{id: "x", addr: ipW, backup: true}) }, true, true, true},
		{"removed", func(l *lab) { l.remove("member", "x") }, false, false, false},
		{"at another port", func(l *lab) { l.member("s", backend{id: "x", addr: ipW, port: 8081}) }, true, false, false},
		{"in a pool that is down", func(l *lab) {
			b := l.owners[owner("pool", "pool-s")].Pools[0]
			b.AdminStateUp = false
			l.pool(b)
		}, false, true, false},
	} {
		for _, sticky := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, "/sticky=", sticky), func(t *testing.T) {
				l := balanced2(service{monitored: true, members: []backend{active}, vip: topology.Vip{SessionPersistence: map[bool]string{true: topology.PersistSourceIP}[sticky]}})
				frame := fromZ(vip2.Addr()).tcp(4000, 80)
				first := l.expectAt(t, "p-z", frame, "p-w", "10.3.0.210:1024→10.1.0.6:8080")
				c.change(l)
				keeps := c.keeps
				if sticky {
					keeps = c.sticky
				}
				d := l.send("p-w", tcpReply(first))
				if passes := d.Verdict == flow.Forward; passes != keeps {
					t.Errorf("the reply passes: %v, want %v\n%s", passes, keeps, walk(d))
				}
				d = l.send("p-z", frame)
				if kept := chosen(d) == "x" && len(d.GoneNATs) == 0; kept != keeps {
					t.Errorf("the connection is kept: %v, want %v\n%s", kept, keeps, walk(d))
				}
				if !keeps && !c.selectable {
					wantReason(t, d, flow.Drop, "lb: no member")
				}
				if d = l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: vip2.Addr()}.tcp(4000, 80)); (chosen(d) == "x") != c.selectable {
					t.Errorf("selectable: %v, want %v\n%s", chosen(d) == "x", c.selectable, walk(d))
				}
			})
		}
	}
}

// TestLateBackup: a backup member is chosen only while no other is.
func TestLateBackup(t *testing.T) {
	t.Parallel()
	l := balanced2(service{monitored: true, members: []backend{memberX, {id: "b", addr: ipY, backup: true}}})
	for i := range uint16(50) {
		if m, d := l.connect(vip2, 4000+i); m != "x" {
			t.Fatal(walk(d))
		}
	}
	l.health("x", topology.MemberInactive)
	if m, d := l.connect(vip2, 5000); m != "b" {
		t.Error(walk(d))
	}
	l.health("x", topology.MemberActive)
	if m, d := l.connect(vip2, 5000); m != "b" {
		t.Errorf("a connection left the backup member\n%s", walk(d))
	}
	if m, d := l.connect(vip2, 5001); m != "x" {
		t.Error(walk(d))
	}
}

// TestRefusals: what drops a packet to a VIP, in the words of the trace.
func TestRefusals(t *testing.T) {
	t.Parallel()
	l := balanced2(service{vip: topology.Vip{AllowedSources: []netip.Prefix{prefix("10.2.0.0/16"), prefix("10.3.0.5/32")}, ConnectionLimit: 2}})
	d := l.send("p-w", frameSpec{n: 6, to: 1, src: ipW, dst: vip2.Addr()}.tcp(4000, 80))
	wantReason(t, d, flow.Drop, "lb: source not allowed")
	if !d.Cacheable || !slices.Contains(d.Touched, "v-s") {
		t.Errorf("cacheable %v, touched %q", d.Cacheable, d.Touched)
	}
	for i := range uint16(2) {
		if m, d := l.connect(vip2, 4000+i); m == "" {
			t.Fatal(walk(d))
		}
	}
	_, d = l.connect(vip2, 4002)
	wantReason(t, d, flow.Drop, "lb: connection limit")
	if d.Cacheable {
		t.Error("the flow would outlast the connections")
	}
	if m, d := l.connect(vip2, 4000); m == "" {
		t.Errorf("an open connection is refused\n%s", walk(d))
	}
	l.remove("member", "x")
	l.remove("member", "y")
	_, d = l.connect(vip2, 4000)
	wantReason(t, d, flow.Drop, "lb: no member")
	v := l.owners[owner("listener", "v-s")].Vips[0]
	v.PoolID = ""
	l.vip(v)
	_, d = l.connect(vip2, 4000)
	wantReason(t, d, flow.Drop, "lb: no pool")
	v.AdminStateUp = false
	l.vip(v)
	_, d = l.connect(vip2, 4000)
	wantReason(t, d, flow.ErrorDrop, "10.3.0.210 is an address of the router")
}

// TestSticky: all connections of a client go to one member, also of its prefix, as long as the
// member stays; then to another.
func TestSticky(t *testing.T) {
	t.Parallel()
	l := balanced2(service{monitored: true, pool: topology.Pool{SessionPersistence: topology.PersistSourceIP, PersistenceTimeout: 20, PersistenceBits: 24}})
	l.station("z2", "net3", 7, ip("10.3.0.77"))
	first, d := l.connect(vip2, 4000)
	var life uint16
	for _, n := range d.NewNATs {
		life = max(life, n.Life)
	}
	if life != 20 {
		t.Errorf("the choice lives %d seconds\n%s", life, walk(d))
	}
	for i := range uint16(40) {
		if m, d := l.connect(vip2, 4001+i); m != first {
			t.Fatalf("connection %d of the client went to %s, the first to %s\n%s", i, m, first, walk(d))
		}
		d := l.send("p-z2", frameSpec{n: 7, to: 20, src: ip("10.3.0.77"), dst: vip2.Addr()}.tcp(5000+i, 80))
		if chosen(d) != first {
			t.Fatal(walk(d))
		}
	}
	l.health(first, topology.MemberInactive)
	second, d := l.connect(vip2, 6000)
	if second == first || second == "" {
		t.Fatal(walk(d))
	}
	l.health(first, topology.MemberActive)
	for i := range uint16(20) {
		if m, d := l.connect(vip2, 6001+i); m != second {
			t.Fatal(walk(d))
		}
	}
}

// TestPersistenceOfPool: that of the pool counts first, that of the VIP if the pool has none.
func TestPersistenceOfPool(t *testing.T) {
	t.Parallel()
	isSticky := func(l *lab) bool {
		_, d := l.connect(vip2, 4000)
		return slices.ContainsFunc(d.NewNATs, func(n flow.NATEntry) bool { return n.Kind == flow.ForwardSticky && n.Life == stickyLife })
	}
	if !isSticky(balanced2(service{vip: topology.Vip{SessionPersistence: topology.PersistSourceIP}})) {
		t.Error("the VIP's does not count")
	}
	if isSticky(balanced2(service{})) {
		t.Error("sticky without being asked")
	}
	if !isSticky(balanced2(service{pool: topology.Pool{SessionPersistence: topology.PersistSourceIP}})) {
		t.Error("the pool's does not count")
	}
}

// TestChangedStickiness: connections stay where they are when stickiness or the method changes.
func TestChangedStickiness(t *testing.T) {
	t.Parallel()
	l := balanced2(service{})
	first, _ := l.connect(vip2, 4000)
	p := l.owners[owner("pool", "pool-s")].Pools[0]
	for _, change := range []func(){func() { p.SessionPersistence = topology.PersistSourceIP }, func() { p.LBMethod = topology.MethodSourceIP }, func() { p.SessionPersistence = "" }} {
		change()
		l.pool(p)
		if m, d := l.connect(vip2, 4000); m != first || len(d.GoneNATs) > 0 {
			t.Error(walk(d))
		}
	}
}

// TestErrorsThroughBalancer: an ICMP error about a balanced packet reaches its sender, in both
// directions, and quotes the packet as that sent it.
func TestErrorsThroughBalancer(t *testing.T) {
	t.Parallel()
	l := balanced1(service{at: vipOutside, members: []backend{memberX}})
	got := l.expectAt(t, "p-up", fromUp(vipOutside.Addr()).tcp(4000, 80), "p-w", "198.51.100.7:4000→10.1.0.6:8080")
	l.expectAt(t, "p-w", frameSpec{n: 6, to: 1, src: ipW, dst: ipOut}.icmpError(packet.ICMPUnreachable, 3, got), "p-up",
		"172.16.0.99→198.51.100.7 ICMP 3/3 of 198.51.100.7:4000→172.16.0.99:80")
	back := l.expectAt(t, "p-w", tcpReply(got), "p-up", "172.16.0.99:80→198.51.100.7:4000")
	l.expectAt(t, "p-up", frameSpec{n: 4, to: 4, src: ip("203.0.113.9"), dst: vipOutside.Addr()}.icmpError(packet.ICMPUnreachable, 4, back), "p-w",
		"203.0.113.9→10.1.0.6 ICMP 3/4 of 10.1.0.6:8080→198.51.100.7:4000")
}

// TestBalancedFragments: the first fragment is balanced, later ones go where it went, and without
// it nowhere.
func TestBalancedFragments(t *testing.T) {
	t.Parallel()
	l := balanced1(service{udp: true, at: vipOutside, members: []backend{memberX}})
	whole := fromUp(vipOutside.Addr()).udp(4000, 80)
	fragment := func(later bool, id uint16) []byte {
		s := fromUp(vipOutside.Addr())
		s.h = packet.IPv4{ID: id, MoreFragments: !later}
		payload := whole[34:]
		if later {
			s.h.Offset, payload = 2, make([]byte, 16)
		}
		return s.ip(packet.ProtoUDP, payload)
	}
	wantReason(t, l.send("p-up", fragment(true, 77)), flow.Drop, "lb: a fragment")
	d := l.send("p-up", fragment(false, 77))
	if chosen(d) != "x" || d.FirstFrag == nil || d.Cacheable || d.Rewrite.DstPort != 8080 {
		t.Error(walk(d))
	}
	d = l.send("p-up", fragment(true, 77))
	if chosen(d) != "x" || d.Rewrite.Dst != ipW || d.Cacheable {
		t.Error(walk(d))
	}
}

// TestRepeatableChoice: a trace's choices are the same each time, and a packet that is decided
// twice goes to one member.
func TestRepeatableChoice(t *testing.T) {
	t.Parallel()
	var first []string
	for range 3 {
		l := balanced2(service{})
		var all []string
		for i := range uint16(30) {
			m, _ := l.connect(vip2, 4000+i)
			all = append(all, m)
		}
		if first == nil {
			first = all
		}
		if !slices.Equal(first, all) {
			t.Fatalf("got %v, then %v", first, all)
		}
	}
	if !slices.Contains(first, "x") || !slices.Contains(first, "y") {
		t.Errorf("all went to %v", first)
	}
}

// TestBalancePortsExhausted: when a VIP has no port left towards a member, the drop says what
// helps.
func TestBalancePortsExhausted(t *testing.T) {
	t.Parallel()
	l := balanced2(service{members: []backend{memberX}})
	d := l.sim.Run(Input{PortID: "p-z", Frame: fromZ(vip2.Addr()).tcp(4000, 80), State: noPorts{answer: flow.NATExhausted}, Explain: true})
	wantReason(t, d, flow.ErrorDrop, "all NAT ports of 10.3.0.210 are in use for this destination: members see a load balancer's clients by one address")
}

// TestDroppedConnectionIsNotBound: a connection whose first packet does not reach the chosen member
// is decided anew when there is another to choose.
func TestDroppedConnectionIsNotBound(t *testing.T) {
	t.Parallel()
	l := balanced1(service{members: []backend{{id: "x", addr: ip("10.1.0.1")}}})
	_, d := l.connect(vipInside, 4000)
	wantReason(t, d, flow.ErrorDrop, "10.1.0.1 is an address of the router")
	rests, affected := slices.Clone(d.Touched), l.member("s", memberY)
	if !slices.ContainsFunc(affected, func(id string) bool { return slices.Contains(rests, id) }) {
		t.Errorf("a drop that rests on %q is kept when a member comes, which affects %q", rests, affected)
	}
}

// TestVerdictOfTheCheckingHost: the verdict of the host with the container counts, whatever others
// say later; until it has one, the newest of its former hosts does. That of a host which never had
// the container counts never.
func TestVerdictOfTheCheckingHost(t *testing.T) {
	t.Parallel()
	l := balanced1(service{monitored: true, members: []backend{memberX}})
	says := func(host, status string, seconds int) []string {
		return l.ApplyMemberHealth(host, "x", &topology.MemberHealth{MemberID: "x", HostID: host, Status: status, Since: time.Unix(int64(seconds), 0)})
	}
	sport := uint16(5000)
	want := func(when string, up bool) {
		t.Helper()
		sport++
		if m, d := l.connect(vipInside, sport); (m == "x") != up {
			t.Errorf("%s: the member is chosen: %v, want %v\n%s", when, m == "x", up, walk(d))
		}
	}
	l.checkedAt("")
	says("h4", topology.MemberInactive, 9)
	want("never checked, and down by a host without the container", true)
	l.checkedAt("h1")
	want("not checked yet", true)
	says("h1", topology.MemberInactive, 1)
	want("checked by its host", false)
	if affected := l.checkedAt("h2", "h1"); slices.Contains(affected, "v-s") {
		t.Error("a container that moves changes decisions before its new host has a verdict")
	}
	want("the next host has no verdict yet", false)
	says("h3", topology.MemberActive, 2)
	want("a host without the container has another verdict", false)
	l.checkedAt("", "h2", "h1")
	want("no host has the container", false)
	l.checkedAt("h2", "h1")
	says("h2", topology.MemberActive, 2)
	want("the next host has found it up", true)
	if affected := says("h1", topology.MemberInactive, 3); slices.Contains(affected, "v-s") {
		t.Error("the former host changes decisions")
	}
	want("the former host has another verdict", true)
	if affected := l.checkedAt("h1", "h2"); !slices.Contains(affected, "v-s") {
		t.Error("a container that moves to a host with another verdict changes no decision")
	}
	want("the container is back", false)
	l.ApplyMemberHealth("h1", "x", nil)
	want("the verdict of the host is withdrawn", true)
	l.ApplyMemberHealth("h2", "x", nil)
	want("nothing is known but what a host without the container says", true)
}
