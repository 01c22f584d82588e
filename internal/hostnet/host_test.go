package hostnet

import (
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kernelSettings: parameters are read and written, those of a link go with it.
func kernelSettings(t *testing.T, host, machine Net) {
	join(t, host, machine)
	want := func(name, value string) {
		t.Helper()
		got, err := host.Setting(name)
		must(t, err)
		if got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	must(t, host.Set(Setting{"ipv4/conf/a/proxy_arp", "1"}, Setting{"ipv4/neigh/a/proxy_delay", "0"}, Setting{"ipv4/conf/a/proxy_arp", "1"}))
	want("ipv4/conf/a/proxy_arp", "1")
	want("ipv4/neigh/a/proxy_delay", "0")
	err := host.Set(Setting{"ipv4/conf/none/proxy_arp", "1"}, Setting{"ipv4/conf/a/route_localnet", "1"})
	wantErr(t, "a link that is not there", err, ErrNotFound)
	want("ipv4/conf/a/route_localnet", "1")
	_, err = host.Setting("ipv4/conf/none/proxy_arp")
	wantErr(t, "a link that is not there", err, ErrNotFound)
	_, err = host.Setting("../../etc/passwd")
	wantErr(t, "a way out", err, ErrInvalid)
	must(t, host.DeleteLink("a"))
	join(t, host, machine)
	want("ipv4/conf/a/proxy_arp", "0")
}

func proxies(t *testing.T, host, machine Net) {
	join(t, host, machine)
	p := Proxy{Link: "a", IP: netip.MustParseAddr("2001:db8::1")}
	must(t, host.SetProxy(p), host.SetProxy(p))
	list, err := host.Proxies()
	must(t, err)
	if !slices.Equal(list, []Proxy{p}) {
		t.Errorf("proxies %v, want %v", list, p)
	}
	wantErr(t, "a link that is not there", host.SetProxy(Proxy{Link: "zz", IP: p.IP}), ErrNotFound)
	must(t, host.DeleteProxy(p), host.DeleteProxy(p), host.DeleteProxy(Proxy{Link: "zz", IP: p.IP}))
	if list, err = host.Proxies(); err != nil || len(list) != 0 {
		t.Errorf("proxies %v, %v after deletion", list, err)
	}
	must(t, host.SetProxy(p), host.SetUp("a", false))
	if list, err = host.Proxies(); err != nil || len(list) != 0 {
		t.Errorf("proxies %v, %v on a link that is down", list, err)
	}
}

// forwards: a VXLAN of one network is told where its MACs are.
func forwards(t *testing.T, host, machine Net) {
	join(t, host, machine)
	l, err := host.AddLink(LinkSpec{Name: "vx", Kind: VXLAN, Port: 4789, VNI: 4096, Local: netip.MustParseAddr("192.0.2.1"), MAC: MAC{2, 0, 192, 0, 2, 1}})
	must(t, err, host.SetUp("vx", true))
	if l.VXLAN != (VXLANSpec{VNI: 4096, Port: 4789, Local: netip.MustParseAddr("192.0.2.1")}) || l.MAC != (MAC{2, 0, 192, 0, 2, 1}) {
		t.Errorf("made %+v", l)
	}
	f := Forward{MAC: MAC{2, 0, 192, 0, 2, 2}, Remote: netip.MustParseAddr("192.0.2.2")}
	moved := Forward{MAC: f.MAC, Remote: netip.MustParseAddr("192.0.2.3")}
	must(t, host.SetForward("vx", f), host.SetForward("vx", f), host.SetForward("vx", moved))
	list, err := host.Forwards("vx")
	must(t, err)
	if !slices.Equal(list, []Forward{moved}) {
		t.Errorf("forwards %v, want %v", list, moved)
	}
	// A route over the tunnel goes by the outer address of its far end.
	far := Route{Dst: netip.MustParsePrefix("198.51.100.0/26"), Gateway: netip.MustParseAddr("203.0.113.9"), Link: "vx", OnLink: true, Protocol: 80}
	must(t, host.SetRoute(far))
	routes, err := host.Routes()
	must(t, err)
	if !slices.Contains(routes, far) {
		t.Errorf("routes %+v lack %+v", routes, far)
	}
	must(t, host.DeleteForward("vx", moved), host.DeleteForward("vx", moved), host.DeleteForward("zz", f))
	if list, err = host.Forwards("vx"); err != nil || len(list) != 0 {
		t.Errorf("forwards %v, %v after deletion", list, err)
	}
}

// protocols: routes tell who made them, and can be deleted by it.
func protocols(t *testing.T, host, machine Net) {
	join(t, host, machine)
	events, err := host.Watch(t.Context())
	must(t, err)
	a, err := host.Link("a")
	one, two := netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8::1/128")
	hole := netip.MustParsePrefix("203.0.113.0/26")
	must(t, err, host.SetRoute(Route{Dst: one, Link: "a", Protocol: 79}), host.SetRoute(Route{Dst: two, Link: "a", Protocol: 79}),
		host.SetRoute(Route{Dst: hole, Blackhole: true, Protocol: 80}))
	wantText(t, host, `link a veth running mtu 1500
  address 192.0.2.1/24
route 192.0.2.0/24 link a kernel
route 198.51.100.1/32 link a
route 203.0.113.0/26 blackhole
route 2001:db8::1/128 link a
`)
	await(t, events, func(e Event) bool { return e.Kind == RouteChanged && e.Route.Dst == two && e.LinkIndex == a.Index })
	routes, err := host.Routes()
	must(t, err)
	for _, r := range routes {
		if want := map[netip.Prefix]uint8{one: 79, two: 79, hole: 80, netip.MustParsePrefix("192.0.2.0/24"): 2}[r.Dst]; r.Protocol != want {
			t.Errorf("route %+v: want protocol %d", r, want)
		}
	}
	must(t, host.DeleteRouteOf(Route{Dst: one, Protocol: 80}), host.DeleteRouteOf(Route{Dst: two, Link: "gone"}), host.DeleteRouteOf(Route{Dst: hole, Link: "a"}))
	if routes, err = host.Routes(); err != nil || len(routes) != 4 {
		t.Errorf("routes %v, %v: one was deleted for another", routes, err)
	}
	must(t, host.DeleteRouteOf(Route{Dst: one, Protocol: 79}), host.DeleteRouteOf(Route{Dst: two, Link: "a"}), host.DeleteRouteOf(Route{Dst: hole}))
	await(t, events, func(e Event) bool { return e.Kind == RouteChanged && e.Removed && e.Route.Dst == two })
	wantText(t, host, "link a veth running mtu 1500\n  address 192.0.2.1/24\nroute 192.0.2.0/24 link a kernel\n")
}

func TestFakeForgetsConnections(t *testing.T) {
	t.Parallel()
	f := NewFake(nil)
	ip := netip.MustParseAddr
	f.Connect(Connection{ip("192.0.2.1"), ip("203.0.113.1"), ip("192.0.2.2"), ip("192.0.2.1")})
	f.Connect(Connection{ip("192.0.2.3"), ip("192.0.2.4"), ip("192.0.2.4"), ip("192.0.2.3")})
	left := func() int { return len(f.Connections()) }
	forgotten(t, f, left, 2, "192.0.2.9")
	forgotten(t, f, left, 1, "192.0.2.2")
	forgotten(t, f, left, 0, "192.0.2.9", "192.0.2.4")
}

// TestForgetConnections has the kernel track connections and deletes those of some addresses, found
// by us and by itself.
func TestForgetConnections(t *testing.T) {
	t.Parallel()
	host := kernel(t)
	if _, err := exec.LookPath("conntrack"); err != nil {
		t.Skip("needs the program conntrack (apt-get install conntrack)")
	}
	run := func(args ...string) (out []byte) {
		t.Helper()
		must(t, host.namespace.Do(func() (err error) {
			out, err = exec.Command("conntrack", args...).Output()
			return err
		}))
		return out
	}
	track := func(args ...string) {
		t.Helper()
		run(append([]string{"-I", "-p", "udp", "--sport", "1", "--dport", "2", "-t", "60"}, args...)...)
	}
	left := func() int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(string(run("-C"))))
		must(t, err)
		return n
	}
	track("-s", "192.0.2.1", "-d", "203.0.113.1", "--dst-nat", "192.0.2.2")
	track("-s", "192.0.2.3", "-d", "192.0.2.4")
	track("-s", "192.0.2.5", "-d", "192.0.2.6")
	track("-s", "2001:db8::1", "-d", "2001:db8::2")
	forgotten(t, host, left, 4, "192.0.2.9", "2001:db8::9")
	forgotten(t, host, left, 3, "192.0.2.2")
	forgotten(t, host, left, 1, "192.0.2.3", "2001:db8::2")
	track("-s", "192.0.2.3", "-d", "192.0.2.4")
	track("-s", "2001:db8::1", "-d", "2001:db8::2")
	must(t, host.forgetByFilter(netip.MustParseAddr("192.0.2.9")))
	if n := left(); n != 3 {
		t.Errorf("the kernel's filter left %d connections, want 3", n)
	}
	must(t, host.forgetByFilter(netip.MustParseAddr("192.0.2.4")))
	forgotten(t, host, left, 1, "2001:db8::1")
	forgotten(t, host, left, 0, "192.0.2.6")
}

func forgotten(t *testing.T, n Net, left func() int, want int, addresses ...string) {
	t.Helper()
	var list []netip.Addr
	for _, a := range addresses {
		list = append(list, netip.MustParseAddr(a))
	}
	must(t, n.ForgetConnections(list...))
	if got := left(); got != want {
		t.Errorf("%d connections are left without those of %v, want %d", got, addresses, want)
	}
}

// TestUnsupported: a kind of link that this kernel lacks is told apart from one that cannot be
// made.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	host := kernel(t)
	l, err := host.AddLink(LinkSpec{Name: "tunl0", Kind: IPIP, MTU: 1440})
	if err == nil {
		if l.Kind != IPIP || l.MTU != 1440 {
			t.Errorf("made %+v", l)
		}
		return
	}
	if _, found := host.Link("tunl0"); found == nil {
		wantErr(t, "the device that the module makes", err, ErrExists)
		return
	}
	wantErr(t, "a kernel without the module", err, ErrUnsupported)
}
