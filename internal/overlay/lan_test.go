package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// lan is a lab of which the first hosts are on the LAN of physnet1 by eth1, with a machine outside
// on it. Its subnet is 192.0.2.0/24; the hosts have addresses of their own there.
type lan struct {
	*lab
	bridge  *netlab.Namespace // with br0
	outside *machine
}

func newLAN(t testing.TB, hosts, carriers int) *lan {
	t.Helper()
	l := &lan{lab: newLab(t, hosts)}
	l.bridge = l.MustNamespace(t, "lan")
	l.bridge.MustIP(t, "link add br0 type bridge", "link set br0 up")
	l.outside = &machine{lab: l.lab, Namespace: l.MustNamespace(t, "outside"), v4: netip.MustParseAddr("192.0.2.200")}
	l.join(l.outside.Namespace, "eth0", "outside", "192.0.2.200/24")
	for i, h := range l.hosts[:carriers] {
		l.join(h.ns, "eth1", h.name, fmt.Sprintf("192.0.2.%d/24", 101+i))
		h.options.Physical = map[string]string{"physnet1": "eth1"}
	}
	return l
}

// join connects an interface of a namespace to the bridge.
func (l *lan) join(ns *netlab.Namespace, name, port, address string) {
	l.t.Helper()
	l.MustVeth(l.t, ns, name, l.bridge, port)
	l.bridge.MustIP(l.t, "link set "+port+" master br0")
	ns.MustIP(l.t, "addr add "+address+" dev "+name)
}

// physical puts a network on the LAN, in a VLAN unless that is 0.
func (l *lab) physical(n *network, vlan int) *network {
	l.t.Helper()
	n.net.NetworkType, n.net.PhysicalNetwork, n.net.MTU = "flat", "physnet1", 1500
	if vlan != 0 {
		n.net.NetworkType, n.net.SegmentationID = "vlan", &vlan
	}
	l.ports++
	n.net.TunnelKey = l.ports
	b := translate.Network(&n.net)
	l.put(topology.Owner{Kind: "network", ID: n.net.ID}, &b)
	return n
}

// home returns the host that stands for a MAC address on the LAN, once all hosts know which of them
// carry it: an agent may be ready earlier.
func (l *lan) home(n *network, mac packet.MAC) *testHost {
	l.t.Helper()
	for _, h := range l.hosts {
		l.wait("the carriers of the LAN to be known to "+h.name, func() bool { return l.knowsCarriers(h) })
	}
	return l.homeBy(l.hosts[0], n, mac)
}

// knowsCarriers reports whether a host has applied that each host with an interface on the LAN
// carries it and is alive.
func (l *lan) knowsCarriers(by *testHost) bool {
	s, world := by.agent.replica.Snapshot(), by.agent.engine.net
	for _, h := range l.hosts {
		if h.options.Physical == nil {
			continue
		}
		underlay, ok := schema.Underlays.Peek(records.Over(s), h.id)
		if !ok || underlay.PhysicalNetworks["physnet1"] == "" || s.Get(schema.HostStates.Name(), h.id) == nil {
			return false
		}
	}
	world.mu.RLock()
	defer world.mu.RUnlock()
	return world.revision >= s.Version()
}

// homeBy is home as a host sees it.
func (l *lan) homeBy(by *testHost, n *network, mac packet.MAC) *testHost {
	world := by.agent.engine.net
	world.mu.RLock()
	defer world.mu.RUnlock()
	id, _ := world.world.Home(n.net.ID, mac)
	for _, h := range l.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// placed waits until the bridge of the LAN has seen a MAC address at a host, and nowhere else.
func (l *lan) placed(mac packet.MAC, at *testHost) {
	l.t.Helper()
	l.wait(fmt.Sprintf("%s to be seen at %s", mac, at.name), func() bool {
		out, err := l.bridge.Output(l.t.Context(), "bridge", "fdb", "show", "br", "br0")
		if err != nil {
			l.t.Fatal(err)
		}
		found := ""
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); f[0] == mac.String() {
				found += f[2] + " "
			}
		}
		return found == at.name+" "
	})
}

// talk checks ping and TCP between machines.
func talk(t *testing.T, from, to *machine) {
	t.Helper()
	if err := from.ping(to.v4, 3); err != nil {
		from.lab.logs()
		t.Fatalf("%s to %s: %v", from.Name, to.Name, err)
	}
	c, err := from.dial(to.v4, 80, 10*time.Second)
	if err != nil {
		t.Errorf("%s to %s: %v", from.Name, to.Name, err)
		return
	}
	defer c.Close()
	if err := exchange(c, 4<<20, 20*time.Second); err != nil {
		t.Errorf("%s to %s: %v", from.Name, to.Name, err)
	}
}

// TestLAN joins machines of three hosts to a LAN, by two of them: all reach each other and the
// machine outside, broadcasts arrive once, the LAN sees each machine in one place, and the hosts'
// own addresses there go on working.
func TestLAN(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 3, 2)
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	l.start()
	a, b, c, d := n.machine(l.hosts[0]), n.machine(l.hosts[1]), n.machine(l.hosts[2]), n.machine(l.hosts[0])
	all := []*machine{a, b, c, d, l.outside}
	for _, m := range all {
		m.listen("tcp4", 80)
	}
	for _, m := range all {
		for _, to := range all {
			if m != to {
				talk(t, m, to)
			}
		}
	}
	for _, m := range all[:4] {
		at := m.host
		if m == c {
			at = l.home(n, c.port.MACAddress)
		}
		l.placed(m.port.MACAddress, at)
	}
	checkOnce(t, all)
	for i, h := range l.hosts[:2] {
		own := netip.AddrFrom4([4]byte{192, 0, 2, byte(101 + i)})
		if err := l.outside.ping(own, 3); err != nil {
			t.Errorf("the host's own address: %v", err)
		}
		host := &machine{Namespace: h.ns, lab: l.lab}
		if err := host.ping(l.outside.v4, 3); err != nil {
			t.Errorf("from the host: %v", err)
		}
	}
	// Packets between the hosts of the LAN have its full size.
	for _, m := range []*machine{a, b} {
		m.MustIP(t, "link set eth0 mtu 1500")
	}
	if _, err := a.Output(t.Context(), "ping", "-n", "-c", "3", "-i", "0.01", "-W", "5", "-M", "do", "-s", "1472", b.v4.String()); err != nil {
		t.Errorf("packets of 1500 bytes: %v", err)
	}
	// What a tunnel is too narrow for is answered, and sent again in smaller packets.
	c.MustIP(t, "link set eth0 mtu 1500")
	talk(t, c, l.outside)
	talk(t, l.outside, c)
}

// TestLANOfUnderlay has the interface that carries the tunnels carry a physical network as well.
func TestLANOfUnderlay(t *testing.T) {
	t.Parallel()
	l := &lan{lab: newLab(t, 3)}
	l.bridge = l.wire
	l.outside = &machine{lab: l.lab, Namespace: l.MustNamespace(t, "outside"), v4: netip.MustParseAddr("192.0.2.200")}
	l.join(l.outside.Namespace, "eth0", "outside", "192.0.2.200/24")
	for _, h := range l.hosts[:2] {
		h.options.Physical = map[string]string{"physnet1": "eth0"}
	}
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	inner := l.network("blue")
	l.start()
	a, b, c := n.machine(l.hosts[0]), n.machine(l.hosts[1]), n.machine(l.hosts[2])
	x, y := inner.machine(l.hosts[0]), inner.machine(l.hosts[1])
	for _, m := range []*machine{a, b, c, y, l.outside} {
		m.listen("tcp4", 80)
	}
	talk(t, a, b)
	talk(t, c, b)
	talk(t, c, l.outside)
	talk(t, l.outside, a)
	talk(t, x, y)
	own := l.hosts[1].ip
	host := &machine{Namespace: l.hosts[0].ns, lab: l.lab}
	if err := host.ping(own, 3); err != nil {
		t.Errorf("between the hosts' own addresses: %v", err)
	}
}

// checkOnce has each machine broadcast, and checks that all others receive that once.
func checkOnce(t *testing.T, all []*machine) {
	t.Helper()
	conns := make([]*net.UDPConn, len(all))
	for i, m := range all {
		if err := m.Do(func() (err error) {
			conns[i], err = net.ListenUDP("udp4", &net.UDPAddr{Port: 9999})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	for i, m := range all {
		// What is queued anywhere when all have the first mark arrives before the second.
		for _, mark := range []string{"first", "second"} {
			for _, text := range []string{"broadcast", mark} {
				if _, err := conns[i].WriteToUDP([]byte(text), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 255), Port: 9999}); err != nil {
					t.Fatal(err)
				}
			}
			for j, to := range all {
				if n := broadcasts(t, conns[j], mark); j != i && n != 1 {
					t.Errorf("%s received a broadcast of %s %d times", to.Name, m.Name, n)
				}
			}
		}
	}
}

// broadcasts counts the broadcasts that a socket receives before a mark.
func broadcasts(t *testing.T, c *net.UDPConn, mark string) (n int) {
	t.Helper()
	b := make([]byte, 100)
	for {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got, err := c.Read(b)
		if err != nil {
			t.Fatalf("after %d broadcasts: %v", n, err)
		}
		if string(b[:got]) == mark {
			return n
		}
		n++
	}
}

// TestLANVLANs keeps the networks of two VLANs and the untagged one apart, on one interface.
func TestLANVLANs(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 2)
	nets := []*network{l.physical(l.networkAt("flat", "192.0.2.0/24"), 0),
		l.physical(l.networkAt("v100", "192.0.2.0/24"), 100), l.physical(l.networkAt("v200", "192.0.2.0/24"), 200)}
	l.start()
	for i, n := range nets {
		n.ports = 10 * i // addresses apart
		a, b := n.machine(l.hosts[0]), n.machine(l.hosts[1])
		b.listen("tcp4", 80)
		talk(t, a, b)
		if got, want := a.answers(l.outside.v4), i == 0; got != want {
			t.Errorf("network %s reaches the untagged machine: %t, want %t", n.net.Name, got, want)
		}
		if i > 0 {
			other := netip.AddrFrom4([4]byte{192, 0, 2, byte(10*(i-1) + 11)})
			if a.answers(other) {
				t.Errorf("network %s reaches a machine of another VLAN", n.net.Name)
			}
		}
	}
}

// TestLANRouter leads a private network out to a LAN: by SNAT from machines of each host, and back
// in by floating IPs.
func TestLANRouter(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 3, 2)
	r := l.routed()
	l.physical(r.external, 0)
	l.start()
	fromOut := l.outside.serve(80)
	for i, h := range l.hosts {
		m := r.machine(h)
		from := m.serve(80)
		m.connect(l.outside.v4, fromOut, r.gatewayIP)
		floating := r.float(m, fmt.Sprintf("192.0.2.%d", 20+i))
		l.outside.connect(floating, from, l.outside.v4)
		m.connect(l.outside.v4, fromOut, floating)
	}
	l.placed(r.gateway.Port.MACAddress, l.home(r.external, r.gateway.Port.MACAddress))
}

// TestLANHomeDies kills the host that stands for a router's gateway on the LAN: a connection from
// elsewhere goes on over the next one, and so does one in which only the outside sends.
func TestLANHomeDies(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 3, 2)
	r := l.routed()
	l.physical(r.external, 0)
	l.start()
	third := l.hosts[2]
	m := r.machine(third)
	c := m.connect(l.outside.v4, l.outside.serve(80), r.gatewayIP)
	download, from := l.outside.sends(m, 81)
	gateway := r.gateway.Port.MACAddress
	old := l.home(r.external, gateway)
	next := l.hosts[0]
	if old == next {
		next = l.hosts[1]
	}
	l.placed(gateway, old)
	old.stop()
	old.ns.MustIP(t, "link set eth0 down", "link set eth1 down")
	l.wait("another home", func() bool {
		return l.homeBy(third, r.external, gateway) == next && l.homeBy(next, r.external, gateway) == next
	})
	l.placed(gateway, next)
	if _, err := from.Write(make([]byte, 20000)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(download, make([]byte, 20000)); err != nil {
		l.logs()
		t.Errorf("a download by a machine that was silent when its home died: %v", err)
	}
	if err := exchange(c, 1<<20, 30*time.Second); err != nil {
		l.logs()
		t.Errorf("after its home died: %v", err)
	}
}

// sends returns both ends of a connection that another machine opens, and in which it sends
// nothing by itself.
func (m *machine) sends(to *machine, port int) (download, from net.Conn) {
	t := m.lab.t
	t.Helper()
	var l net.Listener
	err := m.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if download, err = to.dial(m.v4, port, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { download.Close() })
	if from, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	if err := download.(*net.TCPConn).SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(download.SetDeadline(time.Now().Add(time.Minute)), from.SetDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	return download, from
}

// TestLANRestart restarts an agent while a connection to the outside is in use, and then sets an
// interface down and up, and takes it away and back: the other host stands for the machine
// meanwhile.
func TestLANRestart(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 2)
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	l.hosts[1].ns.MustIP(t, "link set eth1 down") // the agent sets it up
	l.start()
	h := l.hosts[0]
	m := n.machine(h)
	l.outside.listen("tcp4", 80)
	c, err := m.dial(l.outside.v4, 80, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := exchange(c, 100000, 10*time.Second); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 2 {
		h.stop()
		h.start()
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("a connection during restarts: %v", err)
	}
	mac := m.port.MACAddress
	for _, c := range []struct{ what, away, back string }{{"down", "link set eth1 down", "link set eth1 up"}, {"gone", "link del eth1", ""}} {
		for _, step := range []struct {
			home *testHost
			line string
		}{{l.hosts[1], c.away}, {h, c.back}} {
			if step.line == "" {
				l.join(h.ns, "eth1", h.name, "192.0.2.101/24")
			} else {
				h.ns.MustIP(t, step.line)
			}
			l.wait("the machine to be at home at "+step.home.name, func() bool {
				return l.homeBy(h, n, mac) == step.home && l.homeBy(l.hosts[1], n, mac) == step.home
			})
			l.placed(mac, step.home) // announced, before it sends
			if got, want := carries(h), step.home == h; got != want {
				t.Errorf("interface %s, by %s: the metrics say that %s carries the network: %t", c.what, step.home.name, h.name, got)
			}
			if err := m.ping(l.outside.v4, 3); err != nil {
				t.Errorf("interface %s, by %s: %v", c.what, step.home.name, err)
			}
		}
	}
	if !bytes.Contains([]byte(h.log.String()), []byte("there is no such interface")) {
		t.Error("the log does not say that the interface is missing")
	}
}

// TestLANInterfaceWithoutLAN gives one of two hosts an interface that leads to no LAN: it carries
// nothing, says why, and the other host is the home of the gateway.
func TestLANInterfaceWithoutLAN(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lo", "heddle-vxlan"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t, 2, 2)
			r := l.routed()
			l.physical(r.external, 0)
			bad, good := l.hosts[0], l.hosts[1]
			bad.options.Physical = map[string]string{"physnet1": name}
			l.start()
			l.wait("the good interface to be carried alone", func() bool { return carries(good) && !carries(bad) })
			gateway := r.gateway.Port.MACAddress
			for _, h := range l.hosts {
				l.wait("the home of the gateway for "+h.name, func() bool { return l.homeBy(h, r.external, gateway) == good })
			}
			if log := bad.log.String(); !strings.Contains(log, "not carrying a physical network") || !strings.Contains(log, "interface "+name+" is a ") {
				t.Error("the log does not say why the physical network is not carried")
			}
			m := r.machine(bad)
			m.connect(l.outside.v4, l.outside.serve(80), r.gatewayIP)
		})
	}
}

// TestLANLeft has the home of a gateway lose its place as host, or the store's leave: it carries no
// physical network, stands for nothing on the LAN, and does again once it may.
func TestLANLeft(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 1, 1)
	r := l.routed()
	l.physical(r.external, 0)
	l.start()
	h := l.hosts[0]
	isOn := func() bool {
		return slices.ContainsFunc(h.agent.dp.Ports(), func(p datapath.PortInfo) bool { return p.Localnet })
	}
	report, _ := reportOf(t, l.st, h.id)
	reportAs := func(instance string) {
		report.Instance = instance
		value, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		l.commit(store.Op{Key: schema.HostStates.Key(h.id), Value: value})
	}
	underlay := func() store.KV {
		kv, err := l.st.Get(t.Context(), schema.Underlays.Key(h.id))
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	for _, c := range []struct {
		why          string
		leave, enter func()
		registered   bool // meanwhile the host's record says that it carries the network
	}{
		{"this agent is displaced", func() { reportAs("another") }, func() { reportAs(h.agent.place.instance) }, true},
		{"the store refuses this agent", func() { h.agent.SetDenied(true) }, func() { h.agent.SetDenied(false) }, false},
	} {
		isHome := func() bool { return l.homeBy(h, r.external, r.gateway.Port.MACAddress) == h }
		if err := l.outside.ping(r.gatewayIP, 1); err != nil {
			t.Fatalf("before %s: %v", c.why, err)
		}
		before := underlay()
		c.leave()
		l.wait("the LAN to be left: "+c.why, func() bool { return !isOn() && !carries(h) && isHome() == c.registered })
		l.outside.MustIP(t, "neigh flush dev eth0")
		if l.outside.answers(r.gatewayIP) {
			t.Errorf("%s, but it answers for the gateway on the LAN", c.why)
		}
		if !strings.Contains(h.log.String(), c.why) {
			t.Errorf("the log does not say that %s", c.why)
		}
		// What the bridge had learnt of the gateway is no sign that it is back.
		if _, err := l.bridge.Output(t.Context(), "bridge", "fdb", "del", r.gateway.Port.MACAddress.String(), "dev", h.name, "master"); err != nil {
			t.Fatal(err)
		}
		c.enter()
		l.wait("the LAN to be entered", func() bool { return isOn() && carries(h) && isHome() })
		l.placed(r.gateway.Port.MACAddress, h)
		if now := underlay(); c.registered && now.ModRevision != before.ModRevision {
			t.Errorf("%s, and registers %s after that, which had others stand for its addresses", c.why, now.Value)
		}
	}
	if err := l.outside.ping(r.gatewayIP, 3); err != nil {
		t.Errorf("back on the LAN: %v", err)
	}
}

// TestLANWithoutTunnelAddress takes the tunnel address from the home of a gateway, which the other
// host then does not reach: that one is the home, also after a restart, until the address is back.
func TestLANWithoutTunnelAddress(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 2)
	r := l.routed()
	l.physical(r.external, 0)
	l.start()
	gateway := r.gateway.Port.MACAddress
	h := l.home(r.external, gateway)
	other := l.hosts[0]
	if other == h {
		other = l.hosts[1]
	}
	homeAt := func(want *testHost) func() bool {
		return func() bool { return l.homeBy(other, r.external, gateway) == want }
	}
	h.ns.MustIP(t, fmt.Sprintf("addr del %s/24 dev eth0", h.ip))
	l.wait("the home to move", homeAt(other))
	h.stop()
	h.start()
	if carries(h) || !homeAt(other)() {
		t.Error("a host without its tunnel address carries a physical network when it starts")
	}
	l.placed(gateway, other)
	if err := l.outside.ping(r.gatewayIP, 1); err != nil {
		t.Errorf("to the gateway: %v", err)
	}
	reason := fmt.Sprintf("no interface of this host has the tunnel address %s: give it to one", h.ip)
	if why := h.agent.Unreachable(); !strings.Contains(why, reason) {
		t.Errorf("the agent is not ready for the reason %q, want %q", why, reason)
	}
	if r := h.agent.hostReport(false); !strings.HasPrefix(reason, r.Unreachable) || r.Unreachable == "" || !slices.Equal(r.Uncarried, []string{"physnet1"}) {
		t.Errorf("the agent reports that it is not reached for %q, and so does not carry %q", r.Unreachable, r.Uncarried)
	}
	if n := strings.Count(h.log.String(), reason); n != 1 {
		t.Errorf("the log says %d times that no interface has the tunnel address", n)
	}
	h.ns.MustIP(t, fmt.Sprintf("addr add %s/24 dev eth0", h.ip))
	l.wait("the home to come back", homeAt(h))
	if why := h.agent.Unreachable(); why != "" {
		t.Errorf("the address is back, but: %s", why)
	}
	if r := h.agent.hostReport(false); r.Unreachable != "" || r.Uncarried != nil {
		t.Errorf("the address is back, but the agent reports %q, %q", r.Unreachable, r.Uncarried)
	}
}

// carries reports whether the host's metrics say that it carries physnet1.
func carries(h *testHost) bool {
	return slices.ContainsFunc(h.agent.Metrics(), func(v telemetry.Value) bool {
		return v.Name == "heddle_overlay_physical_network_carried" && v.Label("network") == "physnet1" && v.Value == 1
	})
}

// TestLANPolicy holds a machine's security group against the LAN.
func TestLANPolicy(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 1)
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	g := l.group(allow("egress", "IPv4", "", 0), allow("ingress", "IPv4", "tcp", 80))
	l.start()
	l.outside.listen("tcp4", 81)
	for _, h := range l.hosts {
		m := n.machine(h, g)
		for _, port := range []int{80, 81} {
			m.listen("tcp4", port)
		}
		for port, want := range map[int]bool{80: true, 81: false} {
			timeout := short
			if want {
				timeout = 10 * time.Second
			}
			c, err := l.outside.dial(m.v4, port, timeout)
			if (err == nil) != want {
				t.Errorf("to port %d on %s: %v, want it open: %t", port, h.name, err, want)
			}
			if err == nil {
				c.Close()
			}
		}
		c, err := m.dial(l.outside.v4, 81, 10*time.Second)
		if err != nil {
			t.Errorf("to the outside: %v", err)
			continue
		}
		if err := exchange(c, 100000, 10*time.Second); err != nil {
			t.Errorf("answers from the outside: %v", err)
		}
		c.Close()
	}
}

// TestLANSpoofing sends frames to a LAN in the name of machines: at their home they are dropped,
// and the machines stay where they are.
func TestLANSpoofing(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 1, 1)
	n := l.physical(l.networkAt("flat", "192.0.2.0/24"), 0)
	l.start()
	a, b := n.machine(l.hosts[0]), n.machine(l.hosts[0])
	if err := a.ping(l.outside.v4, 1); err != nil {
		t.Fatal(err)
	}
	sender, err := l.outside.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	receiver, err := b.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	frame := func(src packet.MAC, text string) []byte {
		b := packet.Ethernet{Dst: b.port.MACAddress, Src: src, Type: packet.TypeIPv4}.Append(nil)
		b = packet.IPv4{Src: l.outside.v4, Dst: netip.MustParseAddr("192.0.2.12"), TTL: 64, Proto: 253}.Append(b, len(text))
		return append(b, text...)
	}
	honest := packet.MAC{2, 0, 0, 0, 7, 7}
	for _, f := range [][]byte{frame(a.port.MACAddress, "forged by a stranger"), frame(honest, "honest to the end")} {
		if err := sender.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	forged, err := receiver.Until([]byte("honest to the end"), []byte("forged by a stranger"))
	if err != nil || forged {
		t.Errorf("a frame in the name of a machine of the same host arrived: %t, %v", forged, err)
	}
	if err := b.ping(a.v4, 3); err != nil {
		t.Errorf("to the machine in whose name a stranger sent: %v", err)
	}
}

// TestLANAttacked has a machine on the LAN send from a gateway's MAC address, and claim a floating
// IP: where the LAN sends packets to the floating IP is put right, though its machine is silent.
func TestLANAttacked(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 2)
	r := l.routed()
	l.physical(r.external, 0)
	attacker := l.MustNamespace(t, "attacker")
	l.join(attacker, "eth0", "attacker", "192.0.2.66/24")
	l.start()
	m := r.machine(l.hosts[0])
	from := m.serve(80)
	floating, gateway := r.float(m, "192.0.2.20"), r.gateway.Port.MACAddress
	l.outside.connect(floating, from, l.outside.v4)
	home := l.home(r.external, gateway)
	sender, err := attacker.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	receiver, err := l.outside.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	send := func(src packet.MAC, typ uint16, content []byte) {
		t.Helper()
		frame := packet.Ethernet{Dst: packet.Broadcast, Src: src, Type: typ}.Append(nil)
		if err := sender.Send(append(frame, content...)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(what string, content []byte) {
		t.Helper()
		if _, err := receiver.Until(content, nil); err != nil {
			l.logs()
			t.Fatalf("%s: %v", what, err)
		}
	}
	own := packet.MAC{2, 0, 0, 0, 6, 6}
	for i := range 3 { // the later ones while the first announcement is recent
		mark := fmt.Sprint("stolen ", i, strings.Repeat(".", 40))
		send(gateway, 0x88b5, []byte(mark))
		hears("the frame", []byte(mark))
		hears("the gateway's MAC address announced", rarpRequest(gateway)[:42])
		l.placed(gateway, home)
		claim := packet.ARP{Op: packet.ARPRequest, SHA: own, SPA: floating, TPA: floating}.Append(nil)
		send(own, packet.TypeARP, claim)
		hears("the claim", claim)
		hears("the floating IP announced", packet.ARPRequestFor(floating, gateway, floating))
		l.wait("the floating IP to be at the gateway's address for the outside", func() bool {
			out, err := l.outside.Output(t.Context(), "ip", "neigh", "show", floating.String())
			return err == nil && strings.Contains(out, gateway.String())
		})
	}
	l.outside.connect(floating, from, l.outside.v4)
	if n := home.agent.engine.count.conflicts.Load(); n < 6 {
		t.Errorf("%d conflicts counted, want 6", n)
	}
}

// TestLANAddressMoves gives a floating IP to a machine behind another router, and the address of a
// router's gateway to another gateway: machines on the LAN are told, and go on with the new MAC
// address at once.
func TestLANAddressMoves(t *testing.T) {
	t.Parallel()
	l := newLAN(t, 2, 2)
	first := l.routed()
	l.physical(first.external, 0)
	l.start()
	second := l.routedTo(first.external, "green", "192.0.2.6")
	a, b := first.machine(l.hosts[0]), second.machine(l.hosts[1])
	fromA, fromB := a.serve(80), b.serve(80)
	id := uuid.NewString()
	floating := first.floatAs(id, a, "192.0.2.20")
	l.outside.connect(floating, fromA, l.outside.v4)
	for _, r := range []*routed{first, second} {
		l.home(first.external, r.gateway.Port.MACAddress)
	}
	receiver, err := l.outside.Wire("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	hears := func(ip netip.Addr, mac packet.MAC) {
		t.Helper()
		for i := range 1 + newRepeats {
			if _, err := receiver.Until(packet.ARPRequestFor(ip, mac, ip), nil); err != nil {
				l.logs()
				t.Fatalf("announcement %d of %s: %v", i, ip, err)
			}
		}
		out, err := l.outside.Output(t.Context(), "ip", "neigh", "show", ip.String())
		if err != nil || !strings.Contains(out, mac.String()) {
			t.Errorf("the outside has %s at %s (%v), want %s", ip, out, err, mac)
		}
	}
	second.floatAs(id, b, "192.0.2.20")
	hears(floating, second.gateway.Port.MACAddress)
	l.outside.connect(floating, fromB, l.outside.v4)

	if err := l.outside.ping(first.gatewayIP, 1); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"router-gateway", "router", "port"} {
		id := first.gateway.Port.ID
		if kind == "router" {
			id = first.router.ID
		}
		l.put(topology.Owner{Kind: kind, ID: id}, nil)
	}
	third := l.routedTo(first.external, "red", first.gatewayIP.String())
	hears(third.gatewayIP, third.gateway.Port.MACAddress)
}

// TestUplink leads a router out by a port of its own on an interface of one host: the outside finds
// it by ARP, and machines on every host reach the outside and are reached.
func TestUplink(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	private, up := l.network("blue"), l.networkAt("up", "192.0.2.0/24")
	up.net.NetworkType = "uplink"
	b := translate.Network(&up.net)
	l.put(topology.Owner{Kind: "network", ID: up.net.ID}, &b)
	h := l.hosts[1]
	outside := &machine{lab: l, Namespace: l.MustNamespace(t, "outside"), v4: netip.MustParseAddr("192.0.2.200")}
	l.MustVeth(t, h.ns, "uplink1", outside.Namespace, "eth0")
	r := &routed{lab: l, private: private, external: up}
	inside := r.link(private, "10.0.0.1", "network:router_interface")
	l.ports++
	out := translate.RouterLink{Network: &up.net, Subnets: []*neutron.Subnet{&up.v4}, Port: &neutron.Port{
		Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: up.net.ID, AdminStateUp: true, DeviceOwner: "network:router_interface",
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 9, 9, 9}, FixedIPs: []neutron.FixedIP{{SubnetID: up.v4.ID, IPAddress: netip.MustParseAddr("192.0.2.1")}},
		BoundHostID: h.id, InterfaceName: "uplink1", TunnelKey: l.ports}}
	router := neutron.Router{Standard: neutron.Standard{ID: uuid.NewString(), Name: "edge"}, AdminStateUp: true}
	put := func(kind, id string, b topology.Bundle) { l.put(topology.Owner{Kind: kind, ID: id}, &b) }
	put("router", router.ID, translate.Router(&router, []translate.RouterLink{inside, out}))
	put("router-interface", inside.Port.ID, translate.RouterInterface(&router, inside))
	put("router-interface", out.Port.ID, translate.RouterInterface(&router, out))
	outside.MustIP(t, "addr add 192.0.2.200/24 dev eth0", "route add 10.0.0.0/24 via 192.0.2.1")
	l.start()
	l.wait("the router's port to be served", func() bool {
		_, err := l.st.Get(t.Context(), schema.PortStates.Key(h.id+"/"+translate.ServedPort(out.Port)))
		return err == nil
	})
	outside.listen("tcp4", 80)
	if err := outside.ping(netip.MustParseAddr("192.0.2.1"), 3); err != nil {
		l.logs()
		t.Fatalf("to the router: %v", err)
	}
	for _, at := range l.hosts {
		m := private.machine(at)
		m.MustIP(t, "route add default via 10.0.0.1")
		m.listen("tcp4", 80)
		talk(t, m, outside)
		talk(t, outside, m)
	}
}
