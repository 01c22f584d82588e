package services

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay"
	"heddle/internal/services/plan"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// lab is a store, a scheduler, and hosts with the agents of the overlay and of service containers.
type lab struct {
	*netlab.Lab
	t       testing.TB
	st      store.Store
	objects *replica.Replica
	db      *records.DB
	hosts   []*testHost
	net     neutron.Network
	subnet  neutron.Subnet
	ports   byte
	lease   time.Duration // of hosts that start
}

// testHost is a host with its agents.
type testHost struct {
	lab   *lab
	id    string
	name  string
	ns    *netlab.Namespace
	inner *hostnet.Namespace
	dir   string
	log   *netlab.Log
	agent *Agent
	stop  func() // ends the agents and waits for them
}

// shortLease has a lost host soon noticed.
const shortLease = 3 * time.Second

// waitLimit bounds each wait of a lab, so that a test that hangs fails with its logs.
const waitLimit = 2 * time.Minute

func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	return newLabOf(t, hosts, shortLease)
}

// newLabOf makes a lab whose hosts count as gone after so long without a word.
func newLabOf(t testing.TB, hosts int, lease time.Duration) *lab {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("haproxy is not installed (apt install haproxy)")
	}
	l := &lab{Lab: netlab.ForTest(t), t: t, st: storetest.Open(t, t.TempDir()), lease: lease}
	l.objects = replica.New(l.st, replica.Options{Watch: schema.Root}, schema.All()...)
	l.db = records.NewDB(l.st, l.objects)
	scheduler := NewScheduler(SchedulerOptions{DB: l.db, Store: l.st, Objects: l.objects, TTL: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.objects.Run(ctx) })
	running.Go(func() { _ = scheduler.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	wire := l.MustNamespace(t, "wire")
	wire.MustIP(t, "link add br0 type bridge", "link set br0 up")
	for i := range hosts {
		l.addHost(wire, i)
	}
	l.addNetwork()
	return l
}

func (l *lab) addHost(wire *netlab.Namespace, i int) {
	t := l.t
	h := &testHost{lab: l, name: fmt.Sprintf("h%d", i+1), id: uuid.NewString(), log: &netlab.Log{}, dir: t.TempDir()}
	h.ns = l.MustNamespace(t, h.name)
	l.MustVeth(t, h.ns, "eth0", wire, h.name)
	wire.MustIP(t, "link set "+h.name+" master br0")
	h.ns.MustIP(t, fmt.Sprintf("addr add 198.51.100.%d/24 dev eth0", i+1))
	var err error
	if h.inner, err = hostnet.OpenNamespace(h.ns.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if h.stop != nil {
			h.stop()
		}
		if err := Cleanup(h.inner, filepath.Join(h.dir, "services")); err != nil {
			t.Errorf("clean up the containers of %s: %v", h.name, err)
		}
		if err := overlay.Cleanup(overlay.Options{Datapath: h.ns.Name, Namespace: h.inner}); err != nil {
			t.Errorf("clean up %s: %v", h.name, err)
		}
		h.inner.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", h.name, h.log)
		}
	})
	l.hosts = append(l.hosts, h)
	h.start()
}

// start runs the host's agents until stop, and waits until they are ready.
func (h *testHost) start() {
	t := h.lab.t
	t.Helper()
	log := slog.New(slog.NewTextHandler(h.log, nil))
	ip := netip.MustParseAddr("198.51.100." + strings.TrimPrefix(h.name, "h"))
	agent := overlay.New(overlay.Options{
		HostID: h.id, HostName: h.name, Version: "test", TunnelIP: ip, Store: h.lab.st, StateDir: h.dir, Namespace: h.inner,
		Datapath: h.ns.Name, MaxFlows: 4096, LeaseTTL: h.lab.lease, Log: log,
		Companion: func(s overlay.Shared) overlay.Companion {
			h.agent = New(Options{HostID: h.id, Store: h.lab.st, Objects: s.Objects, Reports: s.Reports, Deciding: s.Deciding, StateDir: filepath.Join(h.dir, "services"),
				Namespace: h.inner, Weight: 1, Log: log})
			return h.agent
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent of %s: %v", h.name, err)
		}
	})
	select {
	case <-agent.Ready():
	case <-time.After(waitLimit):
		t.Fatalf("the agent of %s is not ready; its log:\n%s", h.name, h.log)
	}
}

func (l *lab) put(kind, id string, b *topology.Bundle) {
	l.t.Helper()
	owner := topology.Owner{Kind: kind, ID: id}
	op := store.Op{Key: schema.Bundles.Key(schema.BundleID(owner)), Delete: b == nil}
	if b != nil {
		value, err := json.Marshal(&schema.Bundle{Owner: owner, Bundle: *b})
		if err != nil {
			l.t.Fatal(err)
		}
		op.Value = value
	}
	if _, err := l.st.Commit(l.t.Context(), nil, []store.Op{op}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) addNetwork() {
	l.net = neutron.Network{Standard: neutron.Standard{ID: uuid.NewString(), Name: "net"}, AdminStateUp: true, MTU: 1450, NetworkType: "vxlan"}
	l.subnet = neutron.Subnet{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: l.net.ID, IPVersion: 4, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	n := translate.Network(&l.net)
	l.put("network", l.net.ID, &n)
	s := translate.Subnet(&l.subnet, &l.net, nil, "")
	l.put("subnet", l.subnet.ID, &s)
}

// machine makes a machine on the network, at a host.
func (l *lab) machine(h *testHost) (at netip.Addr, ns *netlab.Namespace) {
	l.t.Helper()
	l.ports++
	at = netip.AddrFrom4([4]byte{10, 0, 0, 10 + l.ports})
	p := neutron.Port{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: l.net.ID, AdminStateUp: true, DeviceOwner: "compute:nova",
		MACAddress: packet.MAC{0xfa, 0x16, 0x3e, 0, 1, l.ports}, FixedIPs: []neutron.FixedIP{{SubnetID: l.subnet.ID, IPAddress: at}},
		BoundHostID: h.id, TunnelKey: uint32(l.ports)}
	p.InterfaceName = translate.InterfaceName(&p)
	ns = l.MustNamespace(l.t, fmt.Sprintf("m%d", l.ports))
	l.MustVeth(l.t, h.ns, p.InterfaceName, ns, "eth0")
	ns.MustIP(l.t, "link set eth0 address "+p.MACAddress.String(), fmt.Sprintf("addr add %s/24 dev eth0", at), "link set lo up", "link set eth0 up")
	b := translate.Port(&p, &l.net, nil)
	l.put("port", p.ID, &b)
	l.wait("port "+p.ID+" to be served", func() bool {
		return schema.PortStates.CountBy(l.now(), "port", p.ID) == 1
	})
	return at, ns
}

// now returns the newest state of the store that the lab's replica has.
func (l *lab) now() records.Reader { return records.Over(l.objects.Snapshot()) }

// wait polls until a condition is met that no event reports.
func (l *lab) wait(what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), waitLimit)
	defer cancel()
	if err := netlab.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		l.t.Fatal(err)
	}
}

// balancer is the load balancer of a lab: a router on the network with the address of a VIP, and a
// container.
type balancer struct {
	lab               *lab
	id, container     string
	pool              topology.Pool
	monitor           topology.HealthMonitor
	members           []topology.PoolMember
	router, port, vip string
}

// vipAddress is the address of each balancer, and containerAddress that of its container.
const vipAddress, containerAddress = "10.0.0.5", "169.254.0.2"

// balancerMAC is the MAC address of a balancer's router on the network.
var balancerMAC = packet.MAC{0xfa, 0x16, 0x3e, 0, 2, 1}

func (l *lab) balancer(monitor topology.HealthMonitor) *balancer {
	l.t.Helper()
	b := &balancer{lab: l, id: uuid.NewString(), container: uuid.NewString(), router: uuid.NewString(), port: uuid.NewString(), vip: uuid.NewString()}
	monitor.ID, monitor.AdminStateUp = uuid.NewString(), true
	b.monitor = monitor
	b.pool = topology.Pool{ID: uuid.NewString(), LoadBalancerID: b.id, AdminStateUp: true, Protocol: topology.BalanceTCP, HealthMonitorID: monitor.ID}
	l.put("load-balancer", b.id, b.devices())
	c := &topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{ID: b.container, ServiceType: topology.ContainerHAProxy, PortID: b.port, ConfigurationID: b.id}},
		Ports: []topology.Port{{ID: b.port, RouterID: b.router, AdminStateUp: true, TunnelKey: 3<<20 + 1, PortMAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 2, 2},
			PortAddress: netip.MustParseAddr("169.254.0.1"), PortSubnet: []netip.Prefix{netip.MustParsePrefix("169.254.0.1/30")}}},
		Routes: []topology.Route{{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: netip.MustParsePrefix("169.254.0.0/30"), NextHop: topology.HopPort, NextHopPortID: b.port, Weight: 100}},
	}
	schema.BindContainer(c, nil, nil)
	l.put(topology.ContainerOwner, b.container, c)
	return b
}

var anywhere = netip.MustParsePrefix("0.0.0.0/0")

// devices returns the balancer's router: what leaves it has the address of the VIP.
func (b *balancer) devices() *topology.Bundle {
	vip, container := netip.MustParsePrefix(vipAddress+"/32"), netip.MustParsePrefix(containerAddress+"/32")
	in, out, q := uuid.NewString(), uuid.NewString(), uuid.NewString()
	return &topology.Bundle{
		Routers: []topology.Router{{ID: b.router, AdminStateUp: true, InboundFilterID: in, OutboundFilterID: out}},
		Ports: []topology.Port{{ID: b.vip, NetworkID: b.lab.net.ID, AdminStateUp: true},
			{ID: q, RouterID: b.router, AdminStateUp: true, PeerID: b.vip, PortMAC: balancerMAC,
				PortAddress: vip.Addr(), PortSubnet: []netip.Prefix{netip.MustParsePrefix(vipAddress + "/24")}}},
		Chains: []topology.Chain{
			{ID: in, Rules: []topology.Rule{{ID: uuid.NewString(), Type: topology.NAT, Action: topology.Accept, Reverse: true, Condition: &topology.Condition{FragmentPolicy: topology.FragUnfragmented}}}},
			{ID: out, Rules: []topology.Rule{{ID: uuid.NewString(), Type: topology.NAT, Action: topology.Accept,
				Condition:  &topology.Condition{FragmentPolicy: topology.FragUnfragmented, NwSrcIP: &vip, NwSrcInv: true, NwDstIP: &container, NwDstInv: true},
				NatTargets: []topology.NatTarget{{NwStart: vip.Addr(), NwEnd: vip.Addr(), TpStart: 1024, TpEnd: 65535}}}}},
		},
		Routes: []topology.Route{{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: b.lab.subnet.CIDR, NextHop: topology.HopPort, NextHopPortID: q, Weight: 100}},
	}
}

// add adds a member, and returns its id.
func (b *balancer) add(at netip.Addr, port uint16) string {
	b.lab.t.Helper()
	m := topology.PoolMember{ID: uuid.NewString(), PoolID: b.pool.ID, AdminStateUp: true, Status: topology.MemberMonitored, Address: at, ProtocolPort: port, Weight: 1}
	b.members = append(b.members, m)
	b.write()
	return m.ID
}

// write stores the pool, its monitor and its members.
func (b *balancer) write() {
	b.lab.t.Helper()
	b.lab.put("pool", b.pool.ID, &topology.Bundle{
		LoadBalancers: []topology.LoadBalancer{{ID: b.id, RouterID: b.router, AdminStateUp: true, ServiceContainerID: b.container}},
		Pools:         []topology.Pool{b.pool}, HealthMonitors: []topology.HealthMonitor{b.monitor}, PoolMembers: b.members,
	})
}

// health returns the newest verdict about a member, "" for none.
func (l *lab) health(member string) string {
	var newest *topology.MemberHealth
	for h := range schema.MemberHealths.By(l.now(), "member", member) {
		if newest == nil || h.Since.After(newest.Since) {
			newest = h
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Status
}

// waitHealth waits for a verdict about a member.
func (l *lab) waitHealth(member, status string) {
	l.t.Helper()
	l.wait(fmt.Sprintf("member %s to be %q", member, status), func() bool { return l.health(member) == status })
}

// place returns the host of a container, nil for none.
func (b *balancer) place() *testHost {
	c, ok := schema.ContainerBindings.Peek(b.lab.now(), b.container)
	for _, h := range b.lab.hosts {
		if ok && h.id == c.HostID {
			return h
		}
	}
	return nil
}

// state returns the state of the container on a host.
func (b *balancer) state(h *testHost) topology.ContainerState {
	s, ok := schema.ContainerStates.Peek(b.lab.now(), h.id+"/"+b.container)
	if !ok {
		return topology.ContainerState{}
	}
	return *s
}

// haproxyPID returns the process id of a container's haproxy, or 0.
func (h *testHost) haproxyPID(b *balancer) (pid int) {
	dirs, _ := filepath.Glob(filepath.Join(h.dir, "services", "*", pidFile))
	if len(dirs) != 1 {
		return 0
	}
	raw, _ := os.ReadFile(dirs[0])
	_, _ = fmt.Sscan(string(raw), &pid)
	if syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// askHAProxy asks the only haproxy of the host, and returns "" if it does not answer.
func (h *testHost) askHAProxy(question string) string {
	sockets, _ := filepath.Glob(filepath.Join(h.dir, "services", "*", plan.AdminSocket))
	if len(sockets) != 1 {
		return ""
	}
	at, err := os.Open(filepath.Dir(sockets[0])) // the path is too long for a socket
	if err != nil {
		return ""
	}
	defer at.Close()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), plan.AdminSocket))
	if err != nil {
		return ""
	}
	defer c.Close()
	_, _ = fmt.Fprintln(c, question) // without it there is no answer
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// serve accepts connections in a namespace until stop.
func serve(t testing.TB, ns *netlab.Namespace, port int) (stop func()) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	stop = sync.OnceFunc(func() { l.Close() })
	t.Cleanup(stop)
	return stop
}
