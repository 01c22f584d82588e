package overlay

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// balanced is a load balancer of a router with one pool.
type balanced struct {
	lab     *lab
	lb      topology.LoadBalancer
	vip     topology.Vip
	pool    topology.Pool
	monitor topology.HealthMonitor
	members []*poolMember
	base    topology.Bundle // besides: the router of a balancer of version 2
}

// poolMember is a machine behind a pool.
type poolMember struct {
	*machine
	record topology.PoolMember
	served chan netip.Addr // the clients of its connections
}

// balancer makes the records of a load balancer on a router, which are not in the store yet.
func (l *lab) balancer(router string, at netip.Addr, port uint16, machines ...*machine) *balanced {
	b := &balanced{lab: l, lb: topology.LoadBalancer{ID: uuid.NewString(), RouterID: router, AdminStateUp: true, ServiceContainerID: uuid.NewString()},
		monitor: topology.HealthMonitor{ID: uuid.NewString(), AdminStateUp: true, Type: topology.MonitorTCP, Delay: 5, Timeout: 5}}
	b.pool = topology.Pool{ID: uuid.NewString(), LoadBalancerID: b.lb.ID, AdminStateUp: true, Protocol: topology.BalanceTCP, LBMethod: topology.MethodRoundRobin, HealthMonitorID: b.monitor.ID}
	b.vip = topology.Vip{ID: uuid.NewString(), LoadBalancerID: b.lb.ID, PoolID: b.pool.ID, AdminStateUp: true, Address: at, Protocol: topology.BalanceTCP, ProtocolPort: port}
	for _, m := range machines {
		b.members = append(b.members, &poolMember{machine: m, served: m.serve(8080),
			record: topology.PoolMember{ID: uuid.NewString(), PoolID: b.pool.ID, AdminStateUp: true, Status: topology.MemberMonitored, Address: m.v4, ProtocolPort: 8080, Weight: 1}})
	}
	return b
}

// put writes the records, each under an owner of its own.
func (b *balanced) put() {
	b.lab.t.Helper()
	base := b.base
	base.LoadBalancers = []topology.LoadBalancer{b.lb}
	b.lab.put(topology.Owner{Kind: "load-balancer", ID: b.lb.ID}, &base)
	checks := topology.ServiceContainer{ID: b.lb.ServiceContainerID}
	for _, h := range b.lab.hosts { // none runs it: the reports of all count
		checks.FormerHostIDs = append(checks.FormerHostIDs, h.id)
	}
	b.lab.put(topology.Owner{Kind: topology.ContainerOwner, ID: checks.ID}, &topology.Bundle{ServiceContainers: []topology.ServiceContainer{checks}})
	b.lab.put(topology.Owner{Kind: "health-monitor", ID: b.monitor.ID}, &topology.Bundle{HealthMonitors: []topology.HealthMonitor{b.monitor}})
	b.lab.put(topology.Owner{Kind: "pool", ID: b.pool.ID}, &topology.Bundle{Pools: []topology.Pool{b.pool}})
	b.lab.put(topology.Owner{Kind: "listener", ID: b.vip.ID}, &topology.Bundle{Vips: []topology.Vip{b.vip}})
	for _, m := range b.members {
		b.lab.put(m.recordOwner(), &topology.Bundle{PoolMembers: []topology.PoolMember{m.record}})
	}
}

func (m *poolMember) recordOwner() topology.Owner {
	return topology.Owner{Kind: "member", ID: m.record.ID}
}

// write writes the member's record, unless it is to be gone.
func (m *poolMember) write(gone bool) {
	m.lab.t.Helper()
	if gone {
		m.lab.put(m.recordOwner(), nil)
		return
	}
	m.lab.put(m.recordOwner(), &topology.Bundle{PoolMembers: []topology.PoolMember{m.record}})
}

// report writes the member's health as host h reports it.
func (m *poolMember) report(h *testHost, status string) {
	t := m.lab.t
	t.Helper()
	record := topology.MemberHealth{MemberID: m.record.ID, HostID: h.id, Status: status, Since: time.Now()}
	value, err := json.Marshal(&record)
	if err != nil {
		t.Fatal(err)
	}
	m.lab.commit(store.Op{Key: schema.MemberHealths.Key(schema.MemberHealths.ID(&record)), Value: value})
}

// applied waits until the agents of all hosts have applied everything in the store.
func (l *lab) applied() {
	l.t.Helper()
	_, revision, err := l.st.List(l.t.Context(), schema.TopologyPrefix)
	if err != nil {
		l.t.Fatal(err)
	}
	l.wait("agents to apply the store's changes", func() bool {
		for _, h := range l.hosts {
			net := h.agent.engine.net
			net.mu.RLock()
			applied := h.agent.replica.Snapshot().Revision
			net.mu.RUnlock()
			if applied < revision {
				return false
			}
		}
		return true
	})
}

// dial connects a machine to the VIP and returns the member that it came to, with the address that
// this sees.
func (b *balanced) dial(from *machine, to netip.Addr) (c net.Conn, at *poolMember, client netip.Addr) {
	t := b.lab.t
	t.Helper()
	c, err := from.dial(to, int(b.vip.ProtocolPort), 10*time.Second)
	if err != nil {
		b.lab.logs()
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	came := make(chan struct{})
	go func() { // a member says who came
		defer close(came)
		for at == nil {
			for _, m := range b.members {
				select {
				case client = <-m.served:
					at = m
				case <-t.Context().Done():
					return
				default:
				}
			}
		}
	}()
	<-came
	if err := exchange(c, 20000, 10*time.Second); err != nil {
		b.lab.logs()
		t.Fatalf("connection to %s by %s: %v", at.v4, to, err)
	}
	return c, at, client
}

// spread opens connections until each of the wanted members has had one, and checks that no other
// has.
func (b *balanced) spread(from *machine, to, client netip.Addr, wanted ...*poolMember) {
	t := b.lab.t
	t.Helper()
	missing := map[*poolMember]bool{}
	for _, m := range wanted {
		missing[m] = true
	}
	for i := range 200 {
		if i >= 12 && len(missing) == 0 {
			return
		}
		c, at, seen := b.dial(from, to)
		c.Close()
		if delete(missing, at); !slices.Contains(wanted, at) {
			t.Fatalf("a connection went to %s, not to one of the %d wanted", at.v4, len(wanted))
		}
		if seen != client {
			t.Fatalf("%s sees the client at %s, want %s", at.v4, seen, client)
		}
	}
	t.Fatalf("%d members have had none of 200 connections", len(missing))
}

// balancer2 makes a balancer of version 2 on a network: a router of its own behind the port of its
// VIP (midonet-translations §13).
func (n *network) balancer2(vip string, machines ...*machine) *balanced {
	l := n.lab
	l.t.Helper()
	l.ports++
	at, router, port, q := netip.MustParseAddr(vip), uuid.NewString(), uuid.NewString(), uuid.NewString()
	mac := packet.MAC{0xfa, 0x16, 0x3e, 2, byte(l.ports >> 8), byte(l.ports)}
	l.put(topology.Owner{Kind: "port", ID: port}, &topology.Bundle{
		Ports:      []topology.Port{{ID: port, NetworkID: n.net.ID, AdminStateUp: true, TunnelKey: l.ports}},
		MACs:       []topology.MACEntry{{NetworkID: n.net.ID, MAC: mac, PortID: port}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: n.net.ID, IP: at, MAC: mac}},
	})
	b := l.balancer(router, at, 80, machines...)
	in, out := uuid.NewString(), uuid.NewString()
	all, only := netip.MustParsePrefix("0.0.0.0/0"), netip.PrefixFrom(at, 32)
	unfragmented := func(c topology.Condition) *topology.Condition {
		c.FragmentPolicy = topology.FragUnfragmented
		return &c
	}
	route := func(dst netip.Prefix, hop string, via netip.Addr) topology.Route {
		return topology.Route{ID: uuid.NewString(), SrcSubnet: all, DstSubnet: dst, NextHop: hop, NextHopPortID: q, NextHopGateway: via, Weight: 100}
	}
	b.base = topology.Bundle{
		Routers: []topology.Router{{ID: router, AdminStateUp: true, InboundFilterID: in, OutboundFilterID: out}},
		Ports: []topology.Port{{ID: q, RouterID: router, AdminStateUp: true, PeerID: port, PortAddress: at,
			PortSubnet: []netip.Prefix{netip.PrefixFrom(at, n.v4.CIDR.Bits())}, PortMAC: mac}},
		Chains: []topology.Chain{
			{ID: in, Rules: []topology.Rule{{ID: uuid.NewString(), Type: topology.NAT, Action: topology.Accept, Reverse: true, Condition: unfragmented(topology.Condition{})}}},
			{ID: out, Rules: []topology.Rule{{ID: uuid.NewString(), Type: topology.NAT, Action: topology.Accept, Condition: unfragmented(topology.Condition{NwSrcIP: &only, NwSrcInv: true}),
				NatTargets: []topology.NatTarget{{NwStart: at, NwEnd: at, TpStart: 1024, TpEnd: 65535}}}}},
		},
		Routes: []topology.Route{route(only, topology.HopLocal, netip.Addr{}), route(n.v4.CIDR.Masked(), topology.HopPort, netip.Addr{}), route(all, topology.HopPort, *n.v4.GatewayIP)},
	}
	return b
}

// TestBalancer2: a balancer of version 2 with members on three hosts. Connections spread, and stay
// where they are while members drain; they end when their member leaves, and new ones avoid members
// that are down. A member may call its own VIP.
func TestBalancer2(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.network("blue")
	l.start()
	client := n.machine(l.hosts[0])
	var machines []*machine
	for _, h := range l.hosts {
		machines = append(machines, n.machine(h))
	}
	b := n.balancer2("10.0.0.100", machines...)
	b.put()
	l.applied()
	vip, m := b.vip.Address, b.members
	b.spread(client, vip, vip, m...)
	long := map[*poolMember]net.Conn{}
	for len(long) < 3 {
		c, at, _ := b.dial(client, vip)
		long[at] = c
	}
	lasts := func(want map[*poolMember]bool) {
		t.Helper()
		for x, lives := range want {
			if err := exchange(long[x], 5000, map[bool]time.Duration{true: 10 * time.Second, false: short}[lives]); (err == nil) != lives {
				t.Errorf("the connection to %s: %v, want it to live: %v", x.host.name, err, lives)
			}
		}
	}

	m[1].record.Weight = 0
	m[1].write(false)
	l.applied()
	b.spread(client, vip, vip, m[0], m[2])
	lasts(map[*poolMember]bool{m[0]: true, m[1]: true, m[2]: true})

	m[2].report(l.hosts[1], topology.MemberInactive)
	l.applied()
	b.spread(client, vip, vip, m[0])
	lasts(map[*poolMember]bool{m[0]: true, m[1]: true, m[2]: false})
	m[2].report(l.hosts[1], topology.MemberActive)
	l.applied()
	b.spread(client, vip, vip, m[0], m[2])

	m[1].write(true)
	l.applied()
	lasts(map[*poolMember]bool{m[0]: true, m[1]: false})

	// Each member reaches the VIP, itself included, and the agent of its host may be restarted.
	b.spread(m[0].machine, vip, vip, m[0], m[2])
	b.spread(m[2].machine, vip, vip, m[0], m[2])
	h := l.hosts[0]
	h.stop()
	lasts(map[*poolMember]bool{m[0]: true})
	h.start()
	lasts(map[*poolMember]bool{m[0]: true})
	b.spread(client, vip, vip, m[0], m[2])
	b.wantFigures()
}

// wantFigures checks that connections by the VIP, and bytes each way, are counted.
func (b *balanced) wantFigures() {
	t := b.lab.t
	t.Helper()
	got := map[string]float64{}
	for _, h := range b.lab.hosts {
		for _, v := range h.agent.figures() {
			if strings.HasPrefix(v.Name, "heddle_balancer_") && v.Label("vip") == b.vip.ID {
				got[v.Name+v.Label("direction")] += float64(v.Value)
			}
		}
	}
	if got["heddle_balancer_connections_total"] < 12 || got["heddle_balancer_bytes_totalin"] < 12*20000 || got["heddle_balancer_bytes_totalout"] < 12*20000 {
		t.Errorf("counted %v", got)
	}
	b.lab.wait("a report of connections by the VIP", func() bool {
		kvs, _, err := b.lab.st.List(t.Context(), schema.StatePrefix)
		var sum topology.VipTraffic
		for _, kv := range kvs {
			var v topology.VipTraffic
			if strings.Contains(kv.Key, "/vips/") && json.Unmarshal(kv.Value, &v) == nil && v.VipID == b.vip.ID {
				sum.Active, sum.Total, sum.In, sum.Out = sum.Active+v.Active, sum.Total+v.Total, sum.In+v.In, sum.Out+v.Out
			}
		}
		return err == nil && sum.Active > 0 && sum.Total >= 12 && sum.In >= 12*20000 && sum.Out >= 12*20000
	})
}

// TestBalancerLimit: a host opens as many connections by a VIP as its limit says, and no more until
// that is raised. Those that are open go on.
func TestBalancerLimit(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	client, other := n.machine(l.hosts[0]), n.machine(l.hosts[1])
	b := n.balancer2("10.0.0.100", n.machine(l.hosts[0]), n.machine(l.hosts[1]))
	b.vip.ConnectionLimit = 2
	b.put()
	l.applied()
	vip := b.vip.Address
	first, _, _ := b.dial(client, vip)
	second, _, _ := b.dial(client, vip)
	if c, err := client.dial(vip, int(b.vip.ProtocolPort), short); err == nil {
		c.Close()
		t.Error("a third connection is open with a limit of 2")
	}
	b.dial(other, vip) // by another host, which has a limit of its own
	b.vip.ConnectionLimit = 3
	b.put()
	l.applied()
	b.dial(client, vip)
	for _, c := range []net.Conn{first, second} {
		if err := exchange(c, 5000, 10*time.Second); err != nil {
			t.Errorf("a connection that was open before: %v", err)
		}
	}
}

// TestBalancerSticky: all connections of a client go to one member, until it is down.
func TestBalancerSticky(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	client := n.machine(l.hosts[0])
	b := n.balancer2("10.0.0.100", n.machine(l.hosts[0]), n.machine(l.hosts[1]), n.machine(l.hosts[1]))
	b.vip.SessionPersistence = topology.PersistSourceIP
	b.put()
	l.applied()
	c, first, _ := b.dial(client, b.vip.Address)
	c.Close()
	b.spread(client, b.vip.Address, b.vip.Address, first)
	first.report(l.hosts[1], topology.MemberInactive)
	l.applied()
	c, second, _ := b.dial(client, b.vip.Address)
	c.Close()
	if second == first {
		t.Fatal("the client is still sent to a member that is down")
	}
	b.spread(client, b.vip.Address, b.vip.Address, second)
}

// TestBalancerByFloatingIP: machines outside reach a VIP of version 2 by a floating IP of its port.
func TestBalancerByFloatingIP(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	r := l.routed()
	l.start()
	outside := r.external.machine(l.hosts[0])
	b := r.private.balancer2("10.0.0.100", r.machine(l.hosts[0]), r.machine(l.hosts[1]))
	b.put()
	vipPort := &machine{lab: l, v4: b.vip.Address}
	vipPort.port.ID = uuid.NewString()
	fip := r.float(vipPort, "192.0.2.77")
	l.applied()
	b.spread(outside, fip, b.vip.Address, b.members...)
	b.spread(b.members[0].machine, fip, b.vip.Address, b.members...)
}

// TestBalancer1: a balancer of version 1 on a router: clients outside reach its VIP there, whose
// members see their addresses; those inside come by the gateway's.
func TestBalancer1(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	r := l.routed()
	l.start()
	outside := r.external.machine(l.hosts[1])
	outside.MustIP(t, "route add 10.0.0.0/24 via 192.0.2.5")
	b := l.balancer(r.router.ID, netip.MustParseAddr("192.0.2.80"), 80, r.machine(l.hosts[0]), r.machine(l.hosts[1]))
	b.base.Neighbours = []topology.NeighbourEntry{{NetworkID: r.external.net.ID, IP: b.vip.Address, MAC: r.gateway.Port.MACAddress}}
	b.put()
	l.applied()
	b.spread(outside, b.vip.Address, outside.v4, b.members...)
	inside := r.machine(l.hosts[0])
	b.spread(inside, b.vip.Address, r.gatewayIP, b.members...)
	b.spread(b.members[0].machine, b.vip.Address, r.gatewayIP, b.members...)
	_, err := outside.dial(b.vip.Address, 81, short)
	if err == nil {
		t.Error("the VIP has another port")
	}
}

// TestBalancerUDP: datagrams of one client port go to one member.
func TestBalancerUDP(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	client := n.machine(l.hosts[0])
	b := n.balancer2("10.0.0.100", n.machine(l.hosts[0]), n.machine(l.hosts[1]))
	b.pool.Protocol, b.vip.Protocol = topology.BalanceUDP, topology.BalanceUDP
	for _, m := range b.members {
		m.echoUDP(8080)
	}
	b.put()
	l.applied()
	for range 6 {
		u := client.dialUDP(b.vip.Address, 80) // takes answers from there alone
		exchangeDatagrams(t, u, make([]byte, 700), 20)
	}
}
