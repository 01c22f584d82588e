package simulate

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

func wantAffected(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: affected %v, want %v", what, got, want)
	}
}

func TestAffected(t *testing.T) {
	t.Parallel()
	l := newLab()
	wantAffected(t, "network", l.Apply(owner("network", "net"), &topology.Bundle{Networks: []topology.Network{{ID: "net", AdminStateUp: true}}}))
	wantAffected(t, "group", l.group("web", allowFrom("members", "web", packet.TypeIPv4)))
	l.group("other")
	wantAffected(t, "a new port", l.port(machine(1, "web")), "p1")
	wantAffected(t, "a second port: nobody asked for its address", l.port(machine(2, "web")), "p2")
	l.port(machine(3, "other"))
	wantAffected(t, "the same again", l.port(machine(2, "web")))

	// A packet of p3 to p1 asks the group for p3's address.
	l.send("p3", tcp(3, 1, 1, 2))
	p3 := machine(3, "other", "web")
	p3.groups = []string{"other", "web"}
	wantAffected(t, "an address that was asked for joins", l.port(p3), addr(3).String(), "p3")
	wantAffected(t, "and leaves", l.port(machine(3, "other")), addr(3).String(), "p3")
	l.port(p3)
	l.send("p3", tcp(3, 1, 1, 2))
	member := func(prefix string) []string {
		return l.Apply(owner("port", "pairs"), &topology.Bundle{Memberships: []topology.Membership{{GroupID: "web", PortID: "p9", IPAddress: prefix}}})
	}
	wantAffected(t, "a prefix joins of which no address was asked for", member("10.9.0.0/16"))
	wantAffected(t, "one with an address that was", member("10.0.0.0/16"), "p1", "p2", "p3")
	wantAffected(t, "one leaves of which none was asked for since", l.Apply(owner("port", "pairs"), nil))
	l.send("p3", tcp(3, 1, 1, 2))
	for _, wide := range []string{"10.0.0.0/23", "0.0.0.0/0"} {
		wantAffected(t, wide+" joins", member(wide), "p1", "p2", "p3")
		l.send("p3", tcp(3, 1, 1, 2))
		wantAffected(t, wide+" leaves", l.Apply(owner("port", "pairs"), nil), "p1", "p2", "p3")
		l.send("p3", tcp(3, 1, 1, 2))
	}
	wantAffected(t, "a group of another family joins", member("2001:db8::/32"))
	l.Apply(owner("port", "pairs"), nil)
	wantAffected(t, "a rule", l.group("web", allowPort("r", packet.ProtoTCP, 80)), "p1", "p2", "p3")
	wantAffected(t, "a rule of another group", l.group("other", allowPort("r2", packet.ProtoTCP, 80)), "p3")
	wantAffected(t, "network down", l.Apply(owner("network", "net"), &topology.Bundle{Networks: []topology.Network{{ID: "net"}}}), "p1", "p2", "p3")
	wantAffected(t, "network renamed", l.Apply(owner("network", "net"), &topology.Bundle{Networks: []topology.Network{{ID: "net", Name: "new"}}}), "p1", "p2", "p3")
	wantAffected(t, "subnet", l.Apply(owner("subnet", "s"), &topology.Bundle{Dhcps: []topology.Dhcp{{ID: "s", NetworkID: "net", Enabled: true}}}))
	wantAffected(t, "host", l.ApplyHost("h1", &topology.Host{ID: "h1"}), "p1", "p2", "p3")
	wantAffected(t, "a MAC that moves", l.Apply(owner("port", "a"), &topology.Bundle{
		MACs: []topology.MACEntry{{NetworkID: "net", MAC: mac(1), PortID: "p2"}}}), "p1")
	wantAffected(t, "a port goes whose address was asked for", l.Apply(owner("port", "p3"), nil), addr(3).String(), "p3")
	wantAffected(t, "what is gone goes again", l.Apply(owner("port", "p3"), nil))
	l.group("other", allowFrom("friends", "friends", packet.TypeIPv4))
	p2 := machine(2, "web", "other")
	l.port(p2)
	wantAffected(t, "a group that is asked for comes", l.group("friends"), "p2")
	wantAffected(t, "and goes", l.Apply(owner("security-group", "friends"), nil), "p2")
	wantAffected(t, "a network goes", l.Apply(owner("network", "net"), nil), "p1", "p2")
}

// The agent's answers to questions about neighbours are stopped by the port alone: it is affected
// when an address that a question was filtered by joins or leaves a group.
func TestAffectedAsker(t *testing.T) {
	t.Parallel()
	l := newLab()
	l.network("net")
	web := groupBundle("web")
	silent := literal("silent", topology.Drop, topology.Condition{DlType: packet.TypeARP, IPAddrGroupIDSrc: "ag"})
	web.Chains[0].Rules = append([]topology.Rule{silent}, web.Chains[0].Rules...)
	l.Apply(owner("security-group", "web"), web)
	l.Apply(owner("address-group", "ag"), &topology.Bundle{IPAddrGroups: []topology.IPAddrGroup{{ID: "ag"}}})
	l.port(machine(1, "web"))
	member := &topology.Bundle{MemberSets: []topology.MemberSet{{GroupID: "ag", Prefixes: []netip.Prefix{netip.PrefixFrom(addr(1), 32)}}}}
	for _, b := range []*topology.Bundle{member, nil, member} {
		if _, can := l.sim.CanAsk("p1", mac(1), addr(1)); can != (l.owners[owner("address-block", "ag/0")] == nil) {
			t.Errorf("p1 can ask: %v", can)
		}
		wantAffected(t, "member", l.Apply(owner("address-block", "ag/0"), b), "p1")
	}
}

// An object may pass from one owner to another: the new definition comes before or after the old
// one goes.
func TestOwnersTakeOver(t *testing.T) {
	t.Parallel()
	l := threeOpen()
	p := open(2)
	p.down = true
	b := p.bundle()
	l.Apply(owner("port", "z"), b) // while both claim it, the lower owner counts
	if d := l.send("p1", tcp(1, 2, 1, 2)); len(d.Outputs) != 1 {
		t.Error(walk(d))
	}
	wantAffected(t, "the first owner leaves", l.Apply(owner("port", "p2"), nil), "p2")
	if d := l.send("p1", tcp(1, 2, 1, 2)); d.Device != "p2" {
		t.Error(walk(d))
	}
	wantAffected(t, "the second owner leaves", l.Apply(owner("port", "z"), nil), "p2")
}

// The cost of one more port does not follow the number of ports there are, nor does that of one
// more network.
func BenchmarkApplyPort(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint("ports=", n), func(b *testing.B) {
			l := newLab()
			l.network("net")
			l.group("web", allowFrom("members", "web", packet.TypeIPv4))
			for i := range n {
				l.port(machine(i, "web"))
			}
			p := machine(n, "web")
			bundle := p.bundle()
			b.ReportAllocs()
			for b.Loop() {
				l.Apply(p.owner(), bundle)
				l.Apply(p.owner(), nil)
			}
		})
	}
}

// A changed rule reaches every port of its group.
func BenchmarkApplyRule(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint("ports=", n), func(b *testing.B) {
			l := newLab()
			l.network("net")
			for i := range n {
				l.port(machine(i, "web"))
			}
			one, two := groupBundle("web", allowPort("r", packet.ProtoTCP, 80)), groupBundle("web", allowPort("r", packet.ProtoTCP, 81))
			for b.Loop() {
				l.Apply(owner("security-group", "web"), one)
				l.Apply(owner("security-group", "web"), two)
			}
		})
	}
}

// A change of a router's rules, routes or ports stops the flows that carry the router's id.
func TestAffectedRouters(t *testing.T) {
	t.Parallel()
	l := example()
	f := floating{"C", gw, ip("172.16.0.60"), ipY}
	wantAffected(t, "a floating IP", l.floating(f), "r")
	wantAffected(t, "the same again", l.floating(f))
	wantAffected(t, "a floating IP goes", l.Apply(owner("floating-ip", "C"), nil), "b-gw", "q-gw", "r") // and its neighbour entry
	wantAffected(t, "a router's admin state", l.Apply(owner("router", "r"), &topology.Bundle{Routers: []topology.Router{{ID: "r"}}}), "r")
	l.router("r")
	wantAffected(t, "a route", l.Apply(owner("router", "more"), &topology.Bundle{Routes: []topology.Route{
		{ID: "x", DstSubnet: prefix("192.0.2.0/24"), NextHop: topology.HopPort, NextHopPortID: "q-r2", Weight: 1}}}), "r")
	wantAffected(t, "a network down", l.Apply(owner("network", "net2"), &topology.Bundle{Networks: []topology.Network{{ID: "net2"}}}), "b-r2", "p-y")
	down := r2.bundle()
	down.Ports[0].AdminStateUp = false
	wantAffected(t, "an interface down", l.Apply(r2.owner(), down), "b-r2", "q-r2", "r")
}

func TestStateHosts(t *testing.T) {
	t.Parallel()
	l := newLab()
	port := func(id, host, group string) {
		l.Apply(owner("port", id), &topology.Bundle{Ports: []topology.Port{{ID: id, RouterID: "r", HostID: host, InterfaceName: "eth", PortGroupIDs: []string{group}}}})
	}
	port("a", "h1", "g")
	port("b", "h2", "g")
	port("c", "h3", "other")
	if hosts := l.StateHosts("a"); len(hosts) != 0 {
		t.Errorf("of a group that is not known: %v", hosts)
	}
	l.Apply(owner("router", "r"), &topology.Bundle{PortGroups: []topology.PortGroup{{ID: "g", Stateful: true}, {ID: "other"}}})
	if hosts := l.StateHosts("a"); fmt.Sprint(hosts) != "[h2]" {
		t.Errorf("got %v", hosts)
	}
	if hosts := l.StateHosts("c"); len(hosts) != 0 {
		t.Errorf("of a group without state: %v", hosts)
	}
}
