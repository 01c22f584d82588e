package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cabled is a host with the link eth0, which is up and has the address 192.0.2.1/24, and with a
// link beside it.
func cabled(t *testing.T) (*Linux, netlink.Link) {
	t.Helper()
	n := kernel(t)
	for _, name := range []string{"eth0", "beside"} {
		_, err := n.AddLink(LinkSpec{Name: name, Kind: Veth, Peer: name + "p"})
		if err := errors.Join(err, n.SetUp(name+"p", true), n.SetUp(name, true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(n.Set(Setting{"ipv4/conf/all/promote_secondaries", "0"}, Setting{"ipv4/conf/eth0/promote_secondaries", "0"}),
		n.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24"))); err != nil {
		t.Fatal(err)
	}
	link, err := n.find("eth0")
	if err != nil {
		t.Fatal(err)
	}
	return n, link
}

// print returns the state of eth0: addresses in the kernel's order, and all routes but those that
// the kernel made.
func (l *Linux) print(t *testing.T) string {
	t.Helper()
	link, err := l.find("eth0")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		c, err := l.readConfigured(link, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.addresses {
			fmt.Fprintf(&out, "%s %s secondary=%t forever=%t\n", a.IPNet, a.Label, family == netlink.FAMILY_V4 && a.Flags&unix.IFA_F_SECONDARY != 0, a.Flags&unix.IFA_F_PERMANENT != 0)
		}
		for _, r := range c.routes {
			fmt.Fprintf(&out, "%s via %s dev %d src %s table %d metric %d\n", routeOf(r).Dst, r.Gw, r.LinkIndex, r.Src, r.Table, r.Priority)
		}
	}
	return out.String()
}

func four(gateway string, addresses ...string) Configuration {
	return configuration(4, gateway, addresses...)
}

func configuration(family int, gateway string, addresses ...string) Configuration {
	c := Configuration{Family: family}
	if gateway != "" {
		c.Gateway = netip.MustParseAddr(gateway)
	}
	for _, a := range addresses {
		c.Addresses = append(c.Addresses, netip.MustParsePrefix(a))
	}
	return c
}

// TestConfigureWithinSubnet replaces an address by another one of the same subnet, which the kernel
// would delete along with the first, and keeps the routes.
func TestConfigureWithinSubnet(t *testing.T) {
	t.Parallel()
	n, link := cabled(t)
	index := link.Attrs().Index
	beside, err := n.find("beside")
	if err != nil {
		t.Fatal(err)
	}
	old := netip.MustParseAddr("192.0.2.1").AsSlice()
	for _, r := range []netlink.Route{
		{Dst: ipNet(netip.MustParsePrefix("203.0.113.0/24")), Gw: netip.MustParseAddr("192.0.2.250").AsSlice(), LinkIndex: index},
		{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/24")), Gw: netip.MustParseAddr("192.0.2.251").AsSlice(), LinkIndex: index, Src: old, Priority: 7},
		{Dst: ipNet(netip.MustParsePrefix("100.64.0.0/10")), LinkIndex: beside.Attrs().Index, Src: old, Scope: netlink.SCOPE_LINK},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: netip.MustParseAddr("192.0.2.252").AsSlice(), LinkIndex: index, Table: 100, Src: old},
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: netip.MustParseAddr("192.0.2.253").AsSlice(), LinkIndex: index, Src: old, Priority: 100},
	} {
		if err := n.handle.RouteAdd(&r); err != nil {
			t.Fatal(err)
		}
	}
	before := n.print(t)
	lost, undo, err := n.Configure("eth0", four("192.0.2.254", "192.0.2.7/24"))
	if err != nil || len(lost) > 0 {
		t.Fatalf("%v, lost %v", err, lost)
	}
	other := beside.Attrs().Index
	want := fmt.Sprintf(`192.0.2.7/24 eth0 secondary=false forever=true
0.0.0.0/0 via 192.0.2.254 dev %[1]d src <nil> table 254 metric 0
100.64.0.0/10 via <nil> dev %[2]d src 192.0.2.7 table 254 metric 0
198.51.100.0/24 via 192.0.2.251 dev %[1]d src 192.0.2.7 table 254 metric 7
203.0.113.0/24 via 192.0.2.250 dev %[1]d src <nil> table 254 metric 0
0.0.0.0/0 via 192.0.2.252 dev %[1]d src 192.0.2.7 table 100 metric 0
`, index, other)
	if got := n.print(t); !sameLines(got, want) {
		t.Errorf("after:\n%s\nwant:\n%s", got, want)
	}
	if value, err := n.Setting("ipv4/conf/eth0/promote_secondaries"); err != nil || value != "0" {
		t.Errorf("promote_secondaries is %s, %v", value, err)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if got := n.print(t); !sameLines(got, before) {
		t.Errorf("undone:\n%s\nbefore:\n%s", got, before)
	}
}

func sameLines(a, b string) bool {
	count := map[string]int{}
	for line := range strings.Lines(a) {
		count[line]++
	}
	for line := range strings.Lines(b) {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestConfigureFails leaves the link as it was when something is refused.
func TestConfigureFails(t *testing.T) {
	t.Parallel()
	n, link := cabled(t)
	if err := n.AddAddress("eth0", netip.MustParsePrefix("192.0.2.2/24")); err != nil {
		t.Fatal(err)
	}
	if err := n.SetRoute(Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.254"), Link: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := n.handle.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("198.51.100.1/24")), ValidLft: 3600, PreferedLft: 1800}); err != nil {
		t.Fatal(err)
	}
	before := n.print(t)
	for what, c := range map[string]Configuration{
		"a gateway that the new address does not reach": four("203.0.113.1", "192.0.2.7/24"),
		"a gateway of a subnet that goes":               four("192.0.2.254", "198.51.100.7/24"),
		"an IPv6 gateway that no address reaches":       configuration(6, "2001:db8:1::1", "2001:db8::1/64"),
		"an address that no interface can have":         configuration(6, "", "2001:db8::1/64", "ff02::1/64"),
	} {
		if _, _, err := n.Configure("eth0", c); err == nil || !strings.Contains(err.Error(), "eth0") || !strings.Contains(err.Error(), "what it had before") {
			t.Errorf("%s: %v", what, err)
		}
		if got := n.print(t); !sameLines(got, before) {
			t.Errorf("%s: after\n%s\nbefore\n%s", what, got, before)
		}
	}
	if _, _, err := n.Configure("none", four("")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a link that is not there: %v", err)
	}
	if _, _, err := n.Configure("eth0", Configuration{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no IP version: %v", err)
	}
}

// TestConfigureOther moves a link to another subnet, makes an address last that would end, and
// takes all away.
func TestConfigureOther(t *testing.T) {
	t.Parallel()
	n, link := cabled(t)
	if err := n.SetRoute(Route{Dst: netip.MustParsePrefix("203.0.113.0/24"), Gateway: netip.MustParseAddr("192.0.2.250"), Source: netip.MustParseAddr("192.0.2.1"), Link: "eth0"}); err != nil {
		t.Fatal(err)
	}
	lost, _, err := n.Configure("eth0", four("198.51.100.254", "198.51.100.1/24"))
	if err != nil || len(lost) != 1 || lost[0].Dst.String() != "203.0.113.0/24" || lost[0].Link != "eth0" {
		t.Errorf("%v, lost %v", err, lost)
	}
	leased := netip.MustParsePrefix("192.0.2.9/24")
	if err := n.handle.AddrAdd(link, &netlink.Addr{IPNet: ipNet(leased), ValidLft: 3600, PreferedLft: 1800}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Configure("eth0", four("", leased.String())); err != nil {
		t.Error(err)
	}
	for _, addresses := range [][]string{{"2001:db8::1/64"}, {"2001:db8::2/64", "2001:db8:1::1/64"}} {
		if _, _, err := n.Configure("eth0", configuration(6, "2001:db8::fe", addresses...)); err != nil {
			t.Error(err)
		}
	}
	want := fmt.Sprintf(`192.0.2.9/24 eth0 secondary=false forever=true
2001:db8::2/64  secondary=false forever=true
2001:db8:1::1/64  secondary=false forever=true
::/0 via 2001:db8::fe dev %d src <nil> table 254 metric 1024
`, link.Attrs().Index)
	if got := n.print(t); !sameLines(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, _, err := n.Configure("eth0", four("")); err != nil {
		t.Error(err)
	}
	if _, _, err := n.Configure("eth0", configuration(6, "")); err != nil {
		t.Error(err)
	}
	if got := n.print(t); got != "" {
		t.Errorf("nothing was to be left: %s", got)
	}
	if err := n.SetUp("eth0", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Configure("eth0", four("203.0.113.1", "192.0.2.7/24")); err == nil {
		t.Error("a gateway that is not reached: no error")
	}
	if l, err := n.Link("eth0"); err != nil || l.Up {
		t.Errorf("the link was down before it was to be configured: %+v, %v", l, err)
	}
}
