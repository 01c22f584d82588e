package overlay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// routed is a private network behind a router with SNAT, and an external network without routes to
// it.
type routed struct {
	lab               *lab
	private, external *network
	router            neutron.Router
	inside, gateway   translate.RouterLink
	gatewayIP         netip.Addr
}

func (l *lab) routed() *routed {
	l.t.Helper()
	external := l.networkAt("ext", "192.0.2.0/24")
	external.v4.GatewayIP = nil // the router reaches the machines there directly
	return l.routedTo(external, "blue", "192.0.2.5")
}

// routedTo makes a private network behind a router with SNAT, on an external network.
func (l *lab) routedTo(external *network, private, gateway string) *routed {
	l.t.Helper()
	r := &routed{lab: l, private: l.network(private), external: external, gatewayIP: netip.MustParseAddr(gateway)}
	r.inside = r.link(r.private, "10.0.0.1", "network:router_interface")
	r.gateway = r.link(r.external, gateway, "network:router_gateway")
	r.router = neutron.Router{Standard: neutron.Standard{ID: uuid.NewString(), Name: "r"}, AdminStateUp: true,
		Gateways: []neutron.RouterGateway{{NetworkID: r.external.net.ID, PortID: r.gateway.Port.ID, EnableSNAT: true}}}
	put := func(kind, id string, b topology.Bundle) {
		l.t.Helper()
		l.put(topology.Owner{Kind: kind, ID: id}, &b)
	}
	put("router", r.router.ID, translate.Router(&r.router, []translate.RouterLink{r.gateway, r.inside}))
	put("router-gateway", r.gateway.Port.ID, translate.RouterGateway(&r.router, r.gateway, true))
	put("router-interface", r.inside.Port.ID, translate.RouterInterface(&r.router, r.inside))
	return r
}

// link makes the Neutron port by which the router is on a network.
func (r *routed) link(n *network, ip, owner string) translate.RouterLink {
	r.lab.t.Helper()
	r.lab.ports++
	p := &neutron.Port{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, AdminStateUp: true, DeviceOwner: owner,
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 1, byte(r.lab.ports >> 8), byte(r.lab.ports)},
		FixedIPs:   []neutron.FixedIP{{SubnetID: n.v4.ID, IPAddress: netip.MustParseAddr(ip)}}}
	b := translate.Port(p, &n.net, nil)
	r.lab.put(topology.Owner{Kind: "port", ID: p.ID}, &b)
	return translate.RouterLink{Port: p, Network: &n.net, Subnets: []*neutron.Subnet{&n.v4}}
}

// float gives a machine a floating IP.
func (r *routed) float(m *machine, ip string) netip.Addr {
	r.lab.t.Helper()
	return r.floatAs(uuid.NewString(), m, ip)
}

// floatAs gives a machine a floating IP that another one may have had.
func (r *routed) floatAs(id string, m *machine, ip string) netip.Addr {
	r.lab.t.Helper()
	f := &neutron.FloatingIP{Standard: neutron.Standard{ID: id}, FloatingNetworkID: r.external.net.ID, FloatingIPAddress: netip.MustParseAddr(ip),
		PortID: m.port.ID, FixedIPAddress: m.v4, RouterID: r.router.ID, ServedBy: r.gateway.Port.ID}
	b := translate.FloatingIP(f, &r.router, r.gateway)
	r.lab.put(topology.Owner{Kind: "floating-ip", ID: f.ID}, &b)
	return f.FloatingIPAddress
}

// machine makes a machine on the private network, with the router as its way out.
func (r *routed) machine(h *testHost) *machine {
	r.lab.t.Helper()
	m := r.private.machine(h)
	m.MustIP(r.lab.t, "route add default via 10.0.0.1")
	return m
}

// serve echoes what comes in on a TCP port of the machine, and says from where it is reached.
func (m *machine) serve(port int) (from chan netip.Addr) {
	m.lab.t.Helper()
	from = make(chan netip.Addr, 16)
	m.serveEach("tcp4", port, func(c *net.TCPConn) {
		from <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		_, _ = io.Copy(c, c) // the client sees what is missing
	})
	return from
}

// connect opens a connection, and checks where the server sees it come from.
func (m *machine) connect(to netip.Addr, from chan netip.Addr, want netip.Addr) net.Conn {
	t := m.lab.t
	t.Helper()
	c, err := m.dial(to, 80, 10*time.Second)
	if err != nil {
		m.lab.logs()
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if got := <-from; got != want {
		t.Errorf("a connection to %s comes from %s, want %s", to, got, want)
	}
	if err := exchange(c, 100000, 10*time.Second); err != nil {
		m.lab.logs()
		t.Fatalf("connection to %s: %v", to, err)
	}
	return c
}

func (l *lab) logs() {
	for _, h := range l.hosts {
		l.t.Logf("log of %s:\n%s", h.name, h.log)
	}
}

// TestRouters: machines reach the outside by the router's address, and are reached by a floating
// IP, on one host and on two. Connections last while agents are restarted.
func TestRouters(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 2} {
		t.Run(fmt.Sprint(hosts, " hosts"), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, hosts)
			r := l.routed()
			l.start()
			near, far := l.hosts[0], l.hosts[hosts-1]
			client, web, outside := r.machine(near), r.machine(near), r.external.machine(far)
			floating := r.float(web, "192.0.2.20")
			fromOut, fromWeb := outside.serve(80), web.serve(80)

			out := client.connect(outside.v4, fromOut, r.gatewayIP)
			in := outside.connect(floating, fromWeb, outside.v4)
			if err := client.ping(outside.v4, 3); err != nil {
				t.Error(err)
			}
			hairpin := client.connect(floating, fromWeb, r.gatewayIP)
			through := func(when string) {
				t.Helper()
				for name, c := range map[string]net.Conn{"SNAT": out, "floating IP": in, "floating IP from inside": hairpin} {
					if err := exchange(c, 20000, 10*time.Second); err != nil {
						l.logs()
						t.Fatalf("connection by %s %s: %v", name, when, err)
					}
				}
			}
			for _, h := range l.hosts {
				blocks := h.agent.engine.ports.Held()
				h.stop()
				through("without the agent of " + h.name)
				h.start()
				through("after a start of the agent of " + h.name)
				e := h.agent.engine
				if got := e.ports.Held(); got != blocks {
					t.Errorf("%s holds %d blocks of ports, before its agent's restart %d", h.name, got, blocks)
				}
				if n := e.count.different.Load(); n != 0 {
					t.Errorf("%d flows of %s are not as they should be", n, h.name)
				}
			}
			if s := near.agent.engine.nats.Stats(); s.Entries == 0 {
				t.Errorf("no translations: %+v", s)
			}
			client.connect(outside.v4, fromOut, r.gatewayIP)
		})
	}
}

// TestUnknownNeighbour: packets to a machine that is not there wait, and then their sender is told.
func TestUnknownNeighbour(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	r := l.routed()
	l.start()
	h := l.hosts[0]
	client := r.machine(h)
	text, err := client.Output(t.Context(), "ping", "-n", "-c", "1", "-W", "10", "192.0.2.99")
	if err == nil {
		t.Error("a machine that is not there answers")
	}
	if all := text + fmt.Sprint(err); !strings.Contains(all, "From 10.0.0.1") || !strings.Contains(all, "Destination Host Unreachable") {
		t.Errorf("ping says %s", all)
	}
	if n := h.agent.engine.count.drops[dropOverdueNeighbour].Load(); n != 1 {
		t.Errorf("%d packets waited too long, want 1", n)
	}
	if n := h.agent.engine.waiting.count(); n != 0 {
		t.Errorf("%d packets still wait", n)
	}
}

// TestRoutedSizes: a router answers packets that are too big for the way in its own name, so that
// TCP finds what passes, and fragments pass by a floating IP in both directions.
func TestRoutedSizes(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	r := l.routed()
	l.start()
	client, web, outside := r.machine(l.hosts[0]), r.machine(l.hosts[0]), r.external.machine(l.hosts[1])
	floating := r.float(web, "192.0.2.20")
	for _, m := range []*machine{client, web, outside} {
		m.MustIP(t, "link set eth0 mtu 1500")
	}
	client.connect(outside.v4, outside.serve(80), r.gatewayIP)
	outside.connect(floating, web.serve(80), outside.v4)
	for _, c := range []struct {
		from     *machine
		to, name netip.Addr
	}{{client, outside.v4, netip.MustParseAddr("10.0.0.1")}, {outside, floating, r.gatewayIP}} {
		c.from.MustIP(t, "route flush cache")
		text, err := c.from.Output(t.Context(), "ping", "-n", "-c", "2", "-i", "0.05", "-W", "1", "-M", "do", "-s", "1450", c.to.String())
		if err == nil || !strings.Contains(text, fmt.Sprintf("From %v icmp_seq=1 Frag needed and DF set (mtu = 1450)", c.name)) {
			t.Errorf("from %v to %v: %v\n%s", c.from.v4, c.to, err, text)
		}
	}
	for _, m := range []struct {
		*machine
		to netip.Addr
	}{{web, outside.v4}, {outside, floating}} {
		m.MustIP(t, "link set eth0 mtu 1450")
		if text, err := m.Output(t.Context(), "ping", "-n", "-c", "2", "-i", "0.05", "-W", "5", "-s", "4000", m.to.String()); err != nil {
			t.Errorf("fragments from %v to %v: %v\n%s", m.v4, m.to, err, text)
		}
	}
	text, err := client.Output(t.Context(), "ping", "-n", "-c", "1", "-t", "1", "-W", "5", outside.v4.String())
	if err == nil || !strings.Contains(text, "From 10.0.0.1 icmp_seq=1 Time to live exceeded") {
		t.Errorf("a packet's time to live does not end at the router: %v\n%s", err, text)
	}
}
