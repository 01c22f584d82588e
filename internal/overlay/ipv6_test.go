package overlay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// network6 is a network whose IPv6 subnet has a mode, a gateway and a DNS server.
func (l *lab) network6(name, cidr, mode string) *network {
	l.t.Helper()
	n := l.network(name)
	n.v6.CIDR = netip.MustParsePrefix(cidr)
	gateway := n.v6.CIDR.Addr().Next()
	n.v6.GatewayIP, n.v6.EnableDHCP, n.v6.IPv6RAMode, n.v6.IPv6AddressMode = &gateway, true, mode, mode
	n.v6.DNSNameservers = []netip.Addr{netip.MustParseAddr("2001:db8::53")}
	n.putSubnet6()
	return n
}

func (n *network) putSubnet6() {
	n.lab.t.Helper()
	b := translate.Subnet(&n.v6, &n.net, nil, "")
	n.lab.put(topology.Owner{Kind: "subnet", ID: n.v6.ID}, &b)
}

// router6 is a router on networks by their IPv6 gateways.
type router6 struct {
	lab    *lab
	router neutron.Router
	links  []translate.RouterLink
}

func (l *lab) router6(networks ...*network) *router6 {
	l.t.Helper()
	r := &router6{lab: l, router: neutron.Router{Standard: neutron.Standard{ID: uuid.NewString(), Name: "r"}, AdminStateUp: true}}
	for _, n := range networks {
		r.links = append(r.links, r.link(n, *n.v6.GatewayIP, "network:router_interface"))
	}
	r.put()
	for _, k := range r.links {
		r.join(k)
	}
	return r
}

func (r *router6) put() {
	r.lab.t.Helper()
	b := translate.Router(&r.router, r.links)
	r.lab.put(topology.Owner{Kind: "router", ID: r.router.ID}, &b)
}

// link makes the Neutron port by which the router is on a network.
func (r *router6) link(n *network, ip netip.Addr, owner string) translate.RouterLink {
	r.lab.t.Helper()
	r.lab.ports++
	p := &neutron.Port{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, AdminStateUp: true, DeviceOwner: owner, DeviceID: r.router.ID,
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 1, byte(r.lab.ports >> 8), byte(r.lab.ports)},
		FixedIPs:   []neutron.FixedIP{{SubnetID: n.v6.ID, IPAddress: ip}}}
	b := translate.Port(p, &n.net, nil)
	r.lab.put(topology.Owner{Kind: "port", ID: p.ID}, &b)
	return translate.RouterLink{Port: p, Network: &n.net, Subnets: []*neutron.Subnet{&n.v6}}
}

func (r *router6) join(k translate.RouterLink) {
	r.lab.t.Helper()
	b := translate.RouterInterface(&r.router, k)
	r.lab.put(topology.Owner{Kind: "router-interface", ID: k.Port.ID}, &b)
}

func (r *router6) leave(k translate.RouterLink) {
	r.lab.t.Helper()
	r.lab.put(topology.Owner{Kind: "router-interface", ID: k.Port.ID}, nil)
	r.lab.put(topology.Owner{Kind: "port", ID: k.Port.ID}, nil)
}

// eui64 is the address that a machine makes in a prefix (RFC 4291 appendix A).
func eui64(p netip.Prefix, m packet.MAC) netip.Addr {
	a, own := p.Addr().As16(), packet.LinkLocal(m).As16()
	copy(a[8:], own[8:])
	return netip.AddrFrom16(a)
}

// Parameters of a machine's kernel.
const (
	asksNoRouter = "router_solicitations=0"
	ignoresMTU   = "accept_ra_mtu=0"
)

// machine6 makes a machine whose interface has no address but what it gets from the network.
func (n *network) machine6(h *testHost, parameters ...string) *machine {
	t := n.lab.t
	t.Helper()
	m := n.port(h, n.lab.group(everything()...))
	m.v6 = eui64(n.v6.CIDR, m.port.MACAddress)
	if n.v6.IPv6AddressMode == "dhcpv6-stateful" {
		a := n.v6.CIDR.Addr().As16()
		a[15] = byte(0x10 + m.number)
		m.v6 = netip.AddrFrom16(a)
	}
	m.port.FixedIPs = []neutron.FixedIP{{SubnetID: n.v6.ID, IPAddress: m.v6}}
	m.Namespace = n.lab.MustNamespace(t, fmt.Sprintf("%s-m%d", n.net.Name, m.number))
	n.lab.MustVeth(t, h.ns, m.port.InterfaceName, m.Namespace, "eth0")
	m.MustIP(t, "link set eth0 down", fmt.Sprintf("link set eth0 address %s", m.port.MACAddress))
	for _, p := range parameters {
		name, value, _ := strings.Cut(p, "=")
		if err := m.Sysctl("net/ipv6/conf/eth0/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	m.bind()
	m.MustIP(t, "link set eth0 up")
	m.served()
	return m
}

// shows returns what ip prints in the machine.
func (m *machine) shows(args ...string) string {
	m.lab.t.Helper()
	out, err := m.Output(m.lab.t.Context(), "ip", append([]string{"-6"}, args...)...)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return out
}

func (m *machine) awaitShown(what string, shown bool, text string, args ...string) {
	m.lab.t.Helper()
	m.lab.wait(what, func() bool { return strings.Contains(m.shows(args...), text) == shown })
}

// usable waits until the machine has its address, and DAD has found nobody else with it.
func (m *machine) usable() {
	m.lab.t.Helper()
	m.lab.wait(m.v6.String()+" to be usable", func() bool {
		out := m.shows("addr", "show", "dev", "eth0", "scope", "global", "-tentative")
		return strings.Contains(out, m.v6.String()+"/")
	})
}

// awaitMTU waits until the machine's kernel has an MTU for IPv6.
func (m *machine) awaitMTU(want string) {
	m.lab.t.Helper()
	m.lab.wait("MTU "+want, func() bool {
		got, err := m.Output(m.lab.t.Context(), "cat", "/proc/sys/net/ipv6/conf/eth0/mtu")
		return err == nil && strings.TrimSpace(got) == want
	})
}

// dhclientScript applies what dhclient gets, and keeps its environment for the test.
const dhclientScript = `#!/bin/sh
env >"$RESULT.$reason"
case "$reason" in
BOUND6) ip addr add "$new_ip6_address/$new_ip6_prefixlen" dev "$interface" nodad ;;
esac
`

// dhclient runs dhclient on the machine until it has what it asks for, and returns the variables
// that its script had for a reason.
func (m *machine) dhclient(reason string, args ...string) string {
	t := m.lab.t
	t.Helper()
	dir := t.TempDir()
	script, result := filepath.Join(dir, "script"), filepath.Join(dir, "result")
	if err := os.WriteFile(script, []byte(dhclientScript), 0o700); err != nil {
		t.Fatal(err)
	}
	m.lab.wait("the link-local address of "+m.Name, func() bool {
		return strings.Contains(m.shows("addr", "show", "dev", "eth0", "scope", "link", "-tentative"), "fe80")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args = append([]string{"-6", "-1", "-cf", "/dev/null", "-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "pid"),
		"-e", "RESULT=" + result, "-sf", script}, args...)
	if out, err := m.Output(ctx, "dhclient", append(args, "eth0")...); err != nil {
		m.lab.logs()
		t.Fatal(err, out)
	}
	got, err := os.ReadFile(result + "." + reason)
	if err != nil {
		files, _ := filepath.Glob(result + "*")
		t.Fatal(err, files)
	}
	return string(got)
}

// TestUnsolicitedAdvertisements: machines that ask for no router learn of prefixes, routers and
// their end as these come and go, from the agent of their own host.
func TestUnsolicitedAdvertisements(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network6("blue", "2001:db8:1::/64", "slaac")
	l.start()
	ms := []*machine{n.machine6(l.hosts[0], asksNoRouter), n.machine6(l.hosts[1], asksNoRouter)}
	for _, m := range ms {
		m.usable()
		m.awaitShown("no default route", false, "default", "route")
	}
	r := l.router6(n)
	via := "default via " + packet.LinkLocal(r.links[0].Port.MACAddress).String()
	for _, m := range ms {
		m.awaitShown("a default route", true, via, "route")
		m.awaitMTU("1450")
	}
	n.net.MTU = 1400
	n.putSubnet6()
	for _, m := range ms {
		m.awaitMTU("1400")
	}
	r.leave(r.links[0])
	for _, m := range ms {
		m.awaitShown("the router to be gone", false, "default", "route")
	}
	n.v6.IPv6RAMode = ""
	n.putSubnet6()
	for _, m := range ms {
		m.awaitShown("the address to be deprecated", true, "deprecated", "addr", "show", "dev", "eth0", "scope", "global")
	}
	if sent := l.hosts[0].agent.engine.count.advertised.Load(); sent == 0 {
		t.Error("no advertisement is counted")
	}
}

// TestIPv6Networks: machines of two subnets on two hosts, one with SLAAC and one with DHCPv6, get
// addresses and their default route by the kernel and a DHCPv6 client alone, and reach each other
// through their router.
func TestIPv6Networks(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	blue, green := l.network6("blue", "2001:db8:1::/64", "slaac"), l.network6("green", "2001:db8:2::/64", "dhcpv6-stateful")
	r := l.router6(blue, green)
	l.start()
	x, y, z := blue.machine6(l.hosts[0]), green.machine6(l.hosts[1]), blue.machine6(l.hosts[0], ignoresMTU)
	got := y.dhclient("BOUND6")
	for _, want := range []string{"new_ip6_address=" + y.v6.String(), "new_dhcp6_name_servers=2001:db8::53"} {
		if !strings.Contains(got, want) {
			t.Errorf("dhclient got no %s:\n%s", want, got)
		}
	}
	for m, k := range map[*machine]translate.RouterLink{x: r.links[0], y: r.links[1], z: r.links[0]} {
		m.usable()
		m.awaitShown("a default route", true, "default via "+packet.LinkLocal(k.Port.MACAddress).String(), "route")
	}
	if all := y.shows("addr", "show", "dev", "eth0", "scope", "global"); strings.Count(all, "inet6") != 1 {
		t.Errorf("with DHCPv6 a machine has\n%s", all)
	}

	x.exchanges6(y)
	x.meetsRouter(r.links[0].Port, y)
	z.isToldMTU(r.links[0].Port, y)
	r.leadsTo(netip.MustParseAddr("2001:db8:99::1"), y, x)
	r.leadsOut(x, l.hosts[1])
}

// exchanges6 has a machine exchange a megabyte by TCP over IPv6 with another one.
func (m *machine) exchanges6(with *machine) {
	t := m.lab.t
	t.Helper()
	with.listen("tcp6", 80)
	c, err := m.dial(with.v6, 80, 10*time.Second)
	if err == nil {
		defer c.Close()
		err = exchange(c, 1_000_000, 10*time.Second)
	}
	if err != nil {
		m.lab.logs()
		t.Fatal(err)
	}
}

// meetsRouter checks what the machine sees of the router by one of its ports, on its way to another
// network and otherwise.
func (m *machine) meetsRouter(q *neutron.Port, to *machine) {
	t := m.lab.t
	t.Helper()
	router := q.FixedIPs[0].IPAddress
	out, err := m.Output(t.Context(), "busybox", "traceroute6", "-n", "-q", "1", "-w", "5", "-m", "4", to.v6.String())
	hops := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(hops) != 3 || !strings.Contains(hops[1], " "+router.String()+" ") || !strings.Contains(hops[2], " "+to.v6.String()+" ") {
		t.Errorf("traceroute6: %v\n%s", err, out)
	}
	out, err = m.Output(t.Context(), "ping", "-n", "-c", "1", "-t", "1", "-W", "5", to.v6.String())
	if all := out + fmt.Sprint(err); !strings.Contains(all, "From "+router.String()) || !strings.Contains(all, "Time exceeded: Hop limit") {
		t.Errorf("ping of one hop: %v", all)
	}
	for _, a := range []string{router.String(), packet.LinkLocal(q.MACAddress).String() + "%eth0"} {
		if out, err := m.Output(t.Context(), "ping", "-n", "-c", "1", "-W", "5", a); err != nil {
			t.Errorf("the router does not answer: %v\n%s", err, out)
		}
	}
	if all := m.shows("neigh"); strings.Count(all, "lladdr "+q.MACAddress.String()+" router") != 2 {
		t.Errorf("the machine's neighbours are\n%s", all)
	}
}

// isToldMTU checks that the router by one of its ports reports packets to another machine that are
// too big for the tunnel.
func (m *machine) isToldMTU(q *neutron.Port, to *machine) {
	t := m.lab.t
	t.Helper()
	out, err := m.Output(t.Context(), "ping", "-n", "-c", "1", "-s", "1452", "-M", "do", "-W", "5", to.v6.String())
	if all := out + fmt.Sprint(err); !strings.Contains(all, "From "+q.FixedIPs[0].IPAddress.String()) || !strings.Contains(all, "Packet too big: mtu=1450") {
		t.Errorf("ping of 1500 bytes: %s", all)
	}
	if err := m.ping(to.v6, 1); err != nil {
		t.Error(err)
	}
}

// leadsTo gives the router a route to an address behind a machine, and checks that another machine
// reaches it.
func (r *router6) leadsTo(a netip.Addr, behind, from *machine) {
	t := r.lab.t
	t.Helper()
	behind.MustIP(t, fmt.Sprintf("addr add %s/128 dev lo", a))
	behind.port.AllowedAddressPairs = []neutron.AddressPair{{IPAddress: a.String(), MACAddress: behind.port.MACAddress}}
	behind.bind()
	r.router.Routes = []neutron.HostRoute{{Destination: netip.PrefixFrom(a, 64).Masked(), Nexthop: behind.v6}}
	r.put()
	r.lab.wait("the extra route", func() bool { return from.answers(a) })
}

// leadsOut gives the router a gateway on an external network, whose machine has a route back, and
// checks that it sees the address of a machine behind the router: there is no NAT.
func (r *router6) leadsOut(m *machine, host *testHost) {
	t := r.lab.t
	t.Helper()
	ext := r.lab.network6("ext", "2001:db8:e::/64", "")
	outside := ext.machine6(host, asksNoRouter)
	outside.MustIP(t, "addr add 2001:db8:e::1/64 dev eth0 nodad", "route add 2001:db8:1::/64 via 2001:db8:e::5")
	outside.port.FixedIPs = []neutron.FixedIP{{SubnetID: ext.v6.ID, IPAddress: *ext.v6.GatewayIP}}
	outside.v6 = *ext.v6.GatewayIP
	outside.bind()
	out := r.link(ext, netip.MustParseAddr("2001:db8:e::5"), "network:router_gateway")
	r.router.Gateways = []neutron.RouterGateway{{NetworkID: ext.net.ID, PortID: out.Port.ID, EnableSNAT: true}}
	r.links = append(r.links, out)
	r.put()
	b := translate.RouterGateway(&r.router, out, true)
	r.lab.put(topology.Owner{Kind: "router-gateway", ID: out.Port.ID}, &b)
	r.lab.wait("the way out", func() bool { return m.answers(outside.v6) })
	seen := make(chan netip.Addr, 1)
	listener := outside.accept(81, seen)
	defer listener.Close()
	c, err := m.dial(outside.v6, 81, 10*time.Second)
	if err != nil {
		r.lab.logs()
		t.Fatal(err)
	}
	defer c.Close()
	if from := <-seen; from != m.v6 {
		t.Errorf("the outside sees %v, want %v", from, m.v6)
	}
}

// accept accepts one connection to a TCP port, and sends from where it came.
func (m *machine) accept(port int, from chan<- netip.Addr) net.Listener {
	t := m.lab.t
	t.Helper()
	var l net.Listener
	if err := m.Do(func() (err error) {
		l, err = net.Listen("tcp6", fmt.Sprint(":", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			from <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
			c.Close()
		}
	}()
	return l
}
