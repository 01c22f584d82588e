package simulate

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// backend is a member of a pool, at a port 8080 unless it says otherwise.
type backend struct {
	id     string
	addr   netip.Addr
	port   uint16
	weight int // 0 = 1, -1 = 0
	status string
	down   bool
	backup bool
}

func (b backend) record(pool string) topology.PoolMember {
	m := topology.PoolMember{ID: b.id, PoolID: pool, AdminStateUp: !b.down, Address: b.addr, ProtocolPort: b.port, Weight: max(b.weight, 0), Backup: b.backup, Status: b.status}
	if m.ProtocolPort == 0 {
		m.ProtocolPort = 8080
	}
	if b.weight == 0 {
		m.Weight = 1
	}
	if m.Status == "" {
		m.Status = topology.MemberMonitored
	}
	return m
}

// service is a VIP "v-ID" with a pool "pool-ID" and members on a load balancer "lb-ROUTER", each of
// an owner of its own, as translated.
type service struct {
	id, router string
	at         netip.AddrPort
	udp        bool
	vip        topology.Vip // more of it
	pool       topology.Pool
	monitored  bool
	members    []backend
}

func (l *lab) service(s service) (affected []string) {
	lb := "lb-" + s.router
	proto := topology.BalanceTCP
	if s.udp {
		proto = topology.BalanceUDP
	}
	affected = l.Apply(owner("load-balancer", lb), &topology.Bundle{LoadBalancers: []topology.LoadBalancer{{ID: lb, RouterID: s.router, AdminStateUp: true, ServiceContainerID: "c"}}})
	l.checkedAt("h1")
	p := s.pool
	p.ID, p.LoadBalancerID, p.AdminStateUp, p.Protocol = "pool-"+s.id, lb, true, proto
	if s.monitored {
		p.HealthMonitorID = "m-" + s.id
		l.Apply(owner("health-monitor", p.HealthMonitorID), &topology.Bundle{HealthMonitors: []topology.HealthMonitor{{ID: p.HealthMonitorID, AdminStateUp: true, Delay: 5, Timeout: 5}}})
	}
	affected = append(affected, l.pool(p)...)
	v := s.vip
	v.ID, v.LoadBalancerID, v.PoolID, v.AdminStateUp, v.Protocol, v.Address, v.ProtocolPort = "v-"+s.id, lb, p.ID, true, proto, s.at.Addr(), s.at.Port()
	affected = append(affected, l.vip(v)...)
	for _, m := range s.members {
		affected = append(affected, l.member(s.id, m)...)
	}
	return affected
}

func (l *lab) pool(p topology.Pool) []string {
	return l.Apply(owner("pool", p.ID), &topology.Bundle{Pools: []topology.Pool{p}})
}

func (l *lab) vip(v topology.Vip) []string {
	return l.Apply(owner("listener", v.ID), &topology.Bundle{Vips: []topology.Vip{v}})
}

func (l *lab) member(service string, b backend) []string {
	m := b.record("pool-" + service)
	return l.Apply(owner("member", m.ID), &topology.Bundle{PoolMembers: []topology.PoolMember{m}})
}

func (l *lab) remove(kind, id string) []string { return l.Apply(owner(kind, id), nil) }

// checkedAt gives the container "c", which checks all members, a host.
func (l *lab) checkedAt(host string, former ...string) []string {
	return l.Apply(owner(topology.ContainerOwner, "c"), &topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{ID: "c", PortID: "hc", FormerHostIDs: former}},
		Ports:             []topology.Port{{ID: "hc", RouterID: "r", HostID: host, ServiceContainerID: "c"}}})
}

// health reports a member's status.
func (l *lab) health(id, status string) []string {
	if status == "" {
		return l.ApplyMemberHealth("h1", id, nil)
	}
	return l.ApplyMemberHealth("h1", id, &topology.MemberHealth{MemberID: id, HostID: "h1", Status: status})
}

var (
	vipInside  = netip.MustParseAddrPort("10.3.0.200:80")
	vipOutside = netip.MustParseAddrPort("172.16.0.99:80")
	ipW        = ip("10.1.0.6")
	memberX    = backend{id: "x", addr: ipW}
	memberY    = backend{id: "y", addr: ipY}
)

// members is the example with a machine in net1 that has no floating IP.
func members() *lab {
	l := example()
	l.station("w", "net1", 6, ipW)
	return l
}

// balanced1 is the example with a balancer of version 1: W and Y behind a VIP of net3's subnet.
func balanced1(s service) *lab {
	l := members()
	s.id, s.router = "s", "r"
	if !s.at.IsValid() {
		s.at = vipInside
	}
	if s.members == nil {
		s.members = []backend{memberX, memberY}
	}
	l.service(s)
	return l
}

// balancer2 adds a balancer of version 2: a router of its own behind the port of its VIP
// (midonet-translations §13). Its MAC address is that of router port n.
func (l *lab) balancer2(id, network string, n int, at, gateway netip.Addr, subnet netip.Prefix) {
	r, q := "lbr-"+id, "q-"+id
	vip := only(at)
	l.Apply(owner("port", "b-"+id), &topology.Bundle{
		Ports:      []topology.Port{{ID: "b-" + id, NetworkID: network, AdminStateUp: true, TunnelKey: 9}},
		MACs:       []topology.MACEntry{{NetworkID: network, MAC: routerMAC(n), PortID: "b-" + id}},
		Neighbours: []topology.NeighbourEntry{{NetworkID: network, IP: at, MAC: routerMAC(n)}},
	})
	l.Apply(owner("load-balancer", "lb-"+r), &topology.Bundle{
		LoadBalancers: []topology.LoadBalancer{{ID: "lb-" + r, RouterID: r, AdminStateUp: true, ServiceContainerID: "c"}},
		Routers:       []topology.Router{{ID: r, AdminStateUp: true, InboundFilterID: r + "/in", OutboundFilterID: r + "/out"}},
		Ports: []topology.Port{{ID: q, RouterID: r, AdminStateUp: true, PeerID: "b-" + id, PortAddress: at,
			PortSubnet: []netip.Prefix{netip.PrefixFrom(at, subnet.Bits())}, PortMAC: routerMAC(n)}},
		Chains: []topology.Chain{
			{ID: r + "/in", Rules: []topology.Rule{nat(topology.Rule{ID: r + "/rev", Reverse: true, Condition: &topology.Condition{}})}},
			{ID: r + "/out", Rules: []topology.Rule{nat(topology.Rule{ID: r + "/snat", NatTargets: natTo(at, true), Condition: &topology.Condition{NwSrcIP: vip, NwSrcInv: true}})}},
		},
		Routes: []topology.Route{
			{ID: q + "/local", SrcSubnet: anywhere(at), DstSubnet: *vip, NextHop: topology.HopLocal, NextHopPortID: q, Weight: 100},
			{ID: q + "/net", SrcSubnet: anywhere(at), DstSubnet: subnet.Masked(), NextHop: topology.HopPort, NextHopPortID: q, Weight: 100},
			{ID: q + "/default", SrcSubnet: anywhere(at), DstSubnet: anywhere(at), NextHop: topology.HopPort, NextHopPortID: q, NextHopGateway: gateway, Weight: 100},
		},
	})
}

// service2 adds a listener with a pool to a balancer of version 2.
func (l *lab) service2(balancer string, s service) (affected []string) {
	s.router = "lbr-" + balancer
	lb := "lb-" + s.router
	had := l.owners[owner("load-balancer", lb)]
	affected = l.service(s)
	l.Apply(owner("load-balancer", lb), had)
	return affected
}

var vip2 = netip.MustParseAddrPort("10.3.0.210:80")

// balanced2 is the example with a balancer of version 2 in net3: W and Y behind it.
func balanced2(s service) *lab {
	l := members()
	l.balancer2("a", "net3", 20, vip2.Addr(), ip("10.3.0.1"), prefix("10.3.0.0/24"))
	s.id = "s"
	if !s.at.IsValid() {
		s.at = vip2
	}
	if s.members == nil {
		s.members = []backend{memberX, memberY}
	}
	l.service2("a", s)
	return l
}

// fromUp is a packet from outside by the gateway.
func fromUp(dst netip.Addr) frameSpec { return frameSpec{n: 4, to: 4, src: ipOut, dst: dst} }

// fromZ is a packet of Z in net3: to the router, or to the router of a version 2 balancer.
func fromZ(dst netip.Addr) frameSpec {
	s := frameSpec{n: 3, to: 3, src: ipZ, dst: dst}
	if dst == vip2.Addr() {
		s.to = 20
	}
	return s
}

// chosen returns the member that a decision sends a packet to, "" for none, with the drop's reason.
func chosen(d *flow.Decision) string {
	for _, m := range d.Meters {
		if m.Member != "" {
			return m.Member
		}
	}
	return ""
}

// connect opens a connection from outside to the example's VIP and returns its member.
func (l *lab) connect(at netip.AddrPort, sport uint16) (string, *flow.Decision) {
	d := l.send("p-z", fromZ(at.Addr()).tcp(sport, at.Port()))
	return chosen(d), d
}

func wantReason(t *testing.T, d *flow.Decision, v flow.Verdict, reason string) {
	t.Helper()
	if d.Verdict != v || !strings.HasPrefix(d.Reason, reason) || !strings.Contains(walk(d), reason) {
		t.Errorf("got %v %q, want %v %q\n%s", d.Verdict, d.Reason, v, reason, walk(d))
	}
}
