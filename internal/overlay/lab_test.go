package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// lab is a store, hosts as namespaces joined by an underlay, and workloads as namespaces on veth
// pairs.
type lab struct {
	*netlab.Lab
	t      testing.TB
	wire   *netlab.Namespace // the underlay: a bridge
	st     store.Store       // by which tests write and agents work
	server *etcdServer       // behind st, if it can be stopped
	hosts  []*testHost
	ports  uint32 // made; each has its own tunnel key and MAC
}

// testHost is a host with its agent.
type testHost struct {
	lab     *lab
	name    string
	id      string
	ip      netip.Addr
	ns      *netlab.Namespace
	hostNS  *hostnet.Namespace
	options Options
	// clockAhead is by how much the host's clock is wrong when its agent starts.
	clockAhead time.Duration

	agent *Agent
	log   *netlab.Log
	stop  func() // ends the agent and waits for it
}

// newLab makes a lab with so many hosts whose agents do not run yet, over a store in this process.
func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	lab := netlab.ForTest(t)
	st := storetest.Open(t, t.TempDir())
	return buildLab(t, lab, st, hosts)
}

// newRemoteLab is a lab whose store is reached over a connection and can be stopped.
func newRemoteLab(t testing.TB, hosts int) *lab {
	t.Helper()
	lab := netlab.ForTest(t)
	server := &etcdServer{t: t, dir: t.TempDir(), address: freeAddress(t)}
	server.start()
	t.Cleanup(server.stop)
	st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{"http://" + server.address}, SkipLimits: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	l := buildLab(t, lab, st, hosts)
	l.server = server
	return l
}

// etcdServer is an etcd that is stopped and started over the same data at the same address.
type etcdServer struct {
	t            testing.TB
	dir, address string
	running      *backend.Etcd
}

func (s *etcdServer) start() {
	s.t.Helper()
	var err error
	if s.running, err = backend.Open(context.Background(), backend.Options{Embedded: &backend.Embedded{DataDir: s.dir, Listen: s.address, Tick: 10 * time.Millisecond}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *etcdServer) stop() {
	if s.running != nil {
		s.running.Close()
		s.running = nil
	}
}

// freeAddress is an address of the loopback that nobody listens on now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func buildLab(t testing.TB, nl *netlab.Lab, st store.Store, hosts int) *lab {
	t.Helper()
	l := &lab{Lab: nl, t: t, st: st}
	wire := l.MustNamespace(t, "wire")
	l.wire = wire
	wire.MustIP(t, "link add br0 type bridge", "link set br0 up")
	for i := range hosts {
		h := &testHost{lab: l, name: fmt.Sprintf("h%d", i+1), id: uuid.NewString(), ip: netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)})}
		h.ns = l.MustNamespace(t, h.name)
		l.MustVeth(t, h.ns, "eth0", wire, h.name)
		wire.MustIP(t, "link set "+h.name+" master br0")
		h.ns.MustIP(t, fmt.Sprintf("addr add %s/24 dev eth0", h.ip))
		var err error
		if h.hostNS, err = hostnet.OpenNamespace(h.ns.Name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.hostNS.Close() })
		h.options = Options{HostID: h.id, HostName: h.name, Version: "test", TunnelIP: h.ip, Store: l.st, StateDir: t.TempDir(), Namespace: h.hostNS,
			Datapath: h.ns.Name, MaxFlows: 4096, LeaseTTL: 3 * time.Second}
		t.Cleanup(func() {
			if h.stop != nil {
				h.stop()
			}
			if err := Cleanup(h.options); err != nil {
				t.Errorf("clean up %s: %v", h.name, err)
			}
		})
		l.hosts = append(l.hosts, h)
	}
	return l
}

// start runs the host's agent until stop, and waits until it is ready.
func (h *testHost) start() {
	h.lab.t.Helper()
	h.run()
	h.waitReady()
}

// waitLimit bounds each wait of a lab, so that a test that hangs fails with its logs. Thousands of
// hosts take a while on a busy machine, above all under the race detector.
const waitLimit = 4 * time.Minute

// waitReady waits until the host's agent is ready.
func (h *testHost) waitReady() {
	h.lab.t.Helper()
	select {
	case <-h.agent.Ready():
	case <-time.After(waitLimit):
		h.lab.t.Fatalf("agent of %s is not ready; its log:\n%s", h.name, h.log)
	}
}

// run runs the agent without waiting for it.
func (h *testHost) run() {
	t := h.lab.t
	t.Helper()
	h.log = &netlab.Log{}
	o := h.options
	o.Log = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.agent = New(o)
	h.agent.clock.ahead.Store(int64(h.clockAhead))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.agent.Run(ctx) }()
	log := h.log
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent of %s: %v", h.name, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", h.name, log)
		}
	})
}

func (l *lab) start() {
	l.t.Helper()
	for _, h := range l.hosts {
		h.run()
	}
	for _, h := range l.hosts {
		h.waitReady()
		h.waitRegistered()
	}
}

// waitRegistered waits until the store has the host, which an agent may be ready before: ports can
// be bound to it by name.
func (h *testHost) waitRegistered() {
	h.lab.t.Helper()
	h.lab.wait("host "+h.name+" to be registered", func() bool {
		_, err := h.lab.st.Get(h.lab.t.Context(), schema.Underlays.Key(h.id))
		return err == nil
	})
}

// put writes what an object owns; nil takes it away.
func (l *lab) put(owner topology.Owner, b *topology.Bundle) {
	l.t.Helper()
	l.commit(l.op(owner, b))
}

func (l *lab) op(owner topology.Owner, b *topology.Bundle) store.Op {
	l.t.Helper()
	key := schema.Bundles.Key(schema.BundleID(owner))
	if b == nil {
		return store.Op{Key: key, Delete: true}
	}
	value, err := json.Marshal(&schema.Bundle{Owner: owner, Bundle: *b})
	if err != nil {
		l.t.Fatal(err)
	}
	return store.Op{Key: key, Value: value}
}

func (l *lab) commit(ops ...store.Op) {
	l.t.Helper()
	if _, err := l.st.Commit(l.t.Context(), nil, ops); err != nil {
		l.t.Fatal(err)
	}
}

// network is a tenant network with an IPv4 and an IPv6 subnet.
type network struct {
	lab    *lab
	net    neutron.Network
	v4, v6 neutron.Subnet
	ports  int
}

func (l *lab) network(name string) *network {
	l.t.Helper()
	return l.networkAt(name, "10.0.0.0/24")
}

// networkAt is network with another IPv4 subnet.
func (l *lab) networkAt(name, subnet string) *network {
	l.t.Helper()
	cidr := netip.MustParsePrefix(subnet)
	n := &network{lab: l, net: neutron.Network{Standard: neutron.Standard{ID: uuid.NewString(), Name: name}, AdminStateUp: true, MTU: 1450, PortSecurityEnabled: true, NetworkType: "vxlan"}}
	gateway := cidr.Addr().Next()
	n.v4 = neutron.Subnet{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, IPVersion: 4, CIDR: cidr, GatewayIP: &gateway, EnableDHCP: true}
	n.v6 = neutron.Subnet{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, IPVersion: 6, CIDR: netip.MustParsePrefix("2001:db8::/64")}
	b := translate.Network(&n.net)
	l.put(topology.Owner{Kind: "network", ID: n.net.ID}, &b)
	for _, s := range []*neutron.Subnet{&n.v4, &n.v6} {
		b := translate.Subnet(s, &n.net, nil, "")
		l.put(topology.Owner{Kind: "subnet", ID: s.ID}, &b)
	}
	return n
}

// group makes a security group of rules.
func (l *lab) group(rules ...neutron.SecurityGroupRule) *neutron.SecurityGroup {
	l.t.Helper()
	g := &neutron.SecurityGroup{Standard: neutron.Standard{ID: uuid.NewString(), Name: "g"}, Stateful: true}
	l.setRules(g, rules...)
	return g
}

func (l *lab) setRules(g *neutron.SecurityGroup, rules ...neutron.SecurityGroupRule) {
	l.t.Helper()
	g.Rules = nil
	for _, r := range rules {
		r.ID, r.SecurityGroupID = uuid.NewString(), g.ID
		g.Rules = append(g.Rules, r)
	}
	b := translate.SecurityGroup(g)
	l.put(topology.Owner{Kind: "security-group", ID: g.ID}, &b)
}

// allow is a rule for one protocol ("" any) of one family, on a port unless that is 0.
func allow(direction, ethertype, protocol string, port int) neutron.SecurityGroupRule {
	r := neutron.SecurityGroupRule{Direction: direction, Ethertype: ethertype, Protocol: protocol}
	if port != 0 {
		r.PortRangeMin, r.PortRangeMax = &port, &port
	}
	return r
}

// everything allows all traffic.
func everything() []neutron.SecurityGroupRule {
	return []neutron.SecurityGroupRule{allow("egress", "IPv4", "", 0), allow("egress", "IPv6", "", 0), allow("ingress", "IPv4", "", 0), allow("ingress", "IPv6", "", 0)}
}

// machine is a workload: a port and the namespace behind it.
type machine struct {
	*netlab.Namespace
	lab    *lab
	host   *testHost
	net    *network
	port   neutron.Port
	number int
	groups []*neutron.SecurityGroup
	v4, v6 netip.Addr

	scanned int // ports
}

// port makes a port on host without its interface.
func (n *network) port(host *testHost, groups ...*neutron.SecurityGroup) *machine {
	n.lab.t.Helper()
	n.ports++
	n.lab.ports++
	i := byte(10 + n.ports)
	v4 := n.v4.CIDR.Addr().As4()
	v4[3] = i
	m := &machine{lab: n.lab, host: host, net: n, number: n.ports, groups: groups, v4: netip.AddrFrom4(v4),
		v6: netip.MustParseAddr("2001:db8::" + strconv.Itoa(int(i)))}
	m.port = neutron.Port{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, AdminStateUp: true, DeviceOwner: "compute:nova",
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, byte(n.lab.ports >> 8), byte(n.lab.ports)}, PortSecurityEnabled: len(groups) > 0,
		FixedIPs:    []neutron.FixedIP{{SubnetID: n.v4.ID, IPAddress: m.v4}, {SubnetID: n.v6.ID, IPAddress: m.v6}},
		BoundHostID: host.id, TunnelKey: n.lab.ports}
	for _, g := range groups {
		m.port.SecurityGroups = append(m.port.SecurityGroups, g.ID)
	}
	m.port.InterfaceName = translate.InterfaceName(&m.port)
	return m
}

// bind writes the port to the store.
func (m *machine) bind() {
	m.lab.t.Helper()
	b := translate.Port(&m.port, &m.net.net, m.groups)
	m.lab.put(m.owner(), &b)
}

func (m *machine) owner() topology.Owner { return topology.Owner{Kind: "port", ID: m.port.ID} }

// plug makes the machine and its interface.
func (m *machine) plug() {
	t := m.lab.t
	t.Helper()
	if m.Namespace == nil {
		m.Namespace = m.lab.MustNamespace(t, fmt.Sprintf("%s-m%d", m.net.net.Name, m.number))
	}
	m.lab.MustVeth(t, m.host.ns, m.port.InterfaceName, m.Namespace, "eth0")
	m.MustIP(t, "link set eth0 down", fmt.Sprintf("link set eth0 address %s mtu 1450", m.port.MACAddress), "link set eth0 up",
		fmt.Sprintf("addr add %s/24 dev eth0", m.v4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", m.v6))
}

// machine makes a port with its interface and waits until its host serves it.
func (n *network) machine(host *testHost, groups ...*neutron.SecurityGroup) *machine {
	n.lab.t.Helper()
	m := n.port(host, groups...)
	m.plug()
	m.bind()
	m.served()
	return m
}

// served waits until the host says that it serves the port.
func (m *machine) served() {
	m.lab.t.Helper()
	key := schema.PortStates.Key(m.host.id + "/" + m.port.ID)
	m.lab.wait("port "+m.port.ID+" to be served", func() bool {
		_, err := m.lab.st.Get(m.lab.t.Context(), key)
		return err == nil
	})
}

// wait polls until a condition is met that no event reports.
func (l *lab) wait(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), waitLimit)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		for _, h := range l.hosts {
			if h.log != nil {
				l.t.Logf("log of %s:\n%s", h.name, h.log)
			}
		}
		l.t.Fatal(err)
	}
}

// ping sends count echo requests and returns an error if none is answered.
func (m *machine) ping(to netip.Addr, count int) error { return m.pingFor(to, count, 5*time.Second) }

// pingAs is ping with an id, so that one ping can be the flow of another.
func (m *machine) pingAs(id int, to netip.Addr, count int) error {
	_, err := m.Output(m.lab.t.Context(), "ping", "-n", "-e", strconv.Itoa(id), "-c", strconv.Itoa(count), "-i", "0.01", "-W", "5", to.String())
	return err
}

// answers reports whether one echo request is answered soon.
func (m *machine) answers(to netip.Addr) bool { return m.pingFor(to, 1, short) == nil }

func (m *machine) pingFor(to netip.Addr, count int, timeout time.Duration) error {
	_, err := m.Output(m.lab.t.Context(), "ping", "-n", "-c", strconv.Itoa(count), "-i", "0.01", "-W", fmt.Sprint(timeout.Seconds()), to.String())
	return err
}

// listen serves TCP on a port of the machine's and echoes what comes.
func (m *machine) listen(network string, port int) net.Listener {
	m.lab.t.Helper()
	return m.serveEach(network, port, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }) // the client sees what is missing
}

// serveEach has each connection to a TCP port of the machine's handled, and closes it then.
func (m *machine) serveEach(network string, port int, handle func(*net.TCPConn)) net.Listener {
	t := m.lab.t
	t.Helper()
	var l net.Listener
	err := m.Do(func() (err error) {
		l, err = net.Listen(network, ":"+strconv.Itoa(port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	return l
}

// dial connects to a TCP port of an address, giving up after timeout.
func (m *machine) dial(to netip.Addr, port int, timeout time.Duration) (c net.Conn, err error) {
	err = m.Do(func() error {
		d := net.Dialer{Timeout: timeout}
		c, err = d.Dial("tcp", netip.AddrPortFrom(to, uint16(port)).String())
		return err
	})
	return c, err
}

// exchange sends bytes over a connection and reads them back. It fails when nothing more has come
// back for as long as the timeout.
func exchange(c net.Conn, n int, timeout time.Duration) error {
	progress := func() error { return c.SetDeadline(time.Now().Add(timeout)) }
	if err := progress(); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(bytes.Repeat([]byte("heddle-"), (n+6)/7)[:n])
		sent <- err
	}()
	b := make([]byte, n)
	for got := 0; got < n; {
		k, err := c.Read(b[got:])
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", got, n, err)
		}
		got += k
		if err := progress(); err != nil {
			return err
		}
	}
	return <-sent
}

// sendUDP sends a datagram to a port of an address, from the namespace of the thread.
func sendUDP(to string, port int) error {
	c, err := net.Dial("udp", net.JoinHostPort(to, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("heddle"))
	return err
}
