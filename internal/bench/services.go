package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// vipPort is the port of all VIPs and members.
const vipPort = 8080

// services measures load balancers, taps, VTEPs, BGP on routers and firewall logs: the twelve rows
// of services §14.
func (b *bench) services(ctx context.Context) error {
	if err := b.simulations(ctx); err != nil {
		return err
	}
	return b.withStand(ctx, func(s *stand) error {
		x, err := s.balancing(ctx)
		if err != nil {
			return err
		}
		for _, measure := range []func(context.Context, *balancing) error{
			b.balanced, b.bindings, b.memberFails, b.tapped, b.vtep, b.learnedRoutes, b.firewallLog, b.balancerAPI,
		} {
			if err := measure(ctx, x); err != nil {
				return err
			}
		}
		return nil
	})
}

// balancing is a stand with a router, a client of Octavia's API, and a group for all workloads.
type balancing struct {
	*stand
	api             *gophercloud.ServiceClient
	group           string
	inside, outside string // ids of subnets
	external        *networks.Network
	router, gateway string      // the router's id, and its address on the external network
	v1              netlab.Path // through a VIP of the router
}

func (s *stand) balancing(ctx context.Context) (x *balancing, err error) {
	x = &balancing{stand: s}
	if x.api, err = openstack.NewLoadBalancerV2(s.tenant.API.ProviderClient, gophercloud.EndpointOpts{}); err != nil {
		return nil, err
	}
	if x.group, err = s.openGroup(ctx); err != nil {
		return nil, err
	}
	if x.external, err = s.externalNetwork(ctx, "192.0.2.0/24"); err != nil {
		return nil, err
	}
	for id, to := range map[string]*string{s.network.ID: &x.inside, x.external.ID: &x.outside} {
		n, err := networks.Get(ctx, s.tenant.Admin, id).Extract()
		if err != nil {
			return nil, err
		}
		*to = n.Subnets[0]
	}
	r, err := routers.Create(ctx, s.tenant.API, routers.CreateOpts{Name: "bench", GatewayInfo: &routers.GatewayInfo{NetworkID: x.external.ID}}).Extract()
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	x.router, x.gateway = r.ID, r.GatewayInfo.ExternalFixedIPs[0].IPAddress
	_, err = routers.AddInterface(ctx, s.tenant.API, r.ID, routers.AddInterfaceOpts{SubnetID: x.inside}).Extract()
	return x, err
}

// member makes a workload that has two addresses, for two members, and a way out by the router.
func (x *balancing) member(ctx context.Context, name string, addresses ...string) (*lab.Workload, error) {
	p, err := x.tenant.Port(ctx, name, x.network.ID, x.h1.Name, addresses, []string{x.group})
	if err != nil {
		return nil, err
	}
	w, err := x.NewWorkload(name, x.h1, p)
	if err != nil {
		return nil, err
	}
	if err := x.furnish(w); err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if a != w.Address(false) {
			if err := w.NS.IP("addr add " + a + "/32 dev eth0"); err != nil {
				return nil, err
			}
		}
	}
	return w, w.NS.IP("route add default via 10.0.0.1")
}

// balancer makes a load balancer with members by one call, and returns it.
func (x *balancing) balancer(ctx context.Context, name string, monitor monitors.CreateOptsBuilder, addresses ...string) (*loadbalancers.LoadBalancer, error) {
	var members []pools.CreateMemberOpts
	for _, a := range addresses {
		members = append(members, pools.CreateMemberOpts{Address: a, ProtocolPort: vipPort})
	}
	pool := pools.CreateOpts{Name: name, Protocol: pools.ProtocolTCP, LBMethod: pools.LBMethodRoundRobin, Members: members}
	if monitor != nil {
		pool.Monitor = monitor
	}
	return loadbalancers.Create(ctx, x.api, loadbalancers.CreateOpts{Name: name, VipSubnetID: x.inside, Listeners: []listeners.CreateOpts{{
		Name: name, Protocol: listeners.ProtocolTCP, ProtocolPort: vipPort, DefaultPool: &pool}}}).Extract()
}

// path2 is a path through a load balancer with a VIP of its own.
func (x *balancing) path2(ctx context.Context) (p netlab.Path, err error) {
	client, err := x.workload(ctx, "client2", x.h1, x.group)
	if err != nil {
		return p, err
	}
	server, err := x.member(ctx, "server2", "10.0.2.1", "10.0.2.2")
	if err != nil {
		return p, err
	}
	lb, err := x.balancer(ctx, "paths", nil, "10.0.2.1", "10.0.2.2")
	if err != nil {
		return p, fmt.Errorf("load balancer: %w", err)
	}
	return vipPath("Heddle, v2", client, server, lb.VipAddress)
}

// path1 is a path through a router that balances, for a client outside.
func (x *balancing) path1(ctx context.Context) (p netlab.Path, err error) {
	server, err := x.member(ctx, "server1", "10.0.1.1", "10.0.1.2")
	if err != nil {
		return p, err
	}
	client, err := x.outsider(ctx, "client1", x.external.ID, "192.0.2.100", x.group)
	if err != nil {
		return p, err
	}
	post := func(resource, kind string, body map[string]any) (id, address string, err error) {
		var answer map[string]struct{ ID, Address string }
		_, err = x.tenant.API.Post(ctx, x.tenant.API.ServiceURL("lb", resource), map[string]any{kind: body}, &answer, nil)
		return answer[kind].ID, answer[kind].Address, err
	}
	pool, _, err := post("pools", "pool", map[string]any{"subnet_id": x.inside, "protocol": "TCP", "lb_method": "ROUND_ROBIN"})
	if err != nil {
		return p, fmt.Errorf("pool of LBaaS v1: %w", err)
	}
	for _, a := range []string{"10.0.1.1", "10.0.1.2"} {
		if _, _, err := post("members", "member", map[string]any{"pool_id": pool, "address": a, "protocol_port": vipPort}); err != nil {
			return p, err
		}
	}
	_, vip, err := post("vips", "vip", map[string]any{"pool_id": pool, "subnet_id": x.outside, "protocol": "TCP", "protocol_port": vipPort})
	if err != nil {
		return p, fmt.Errorf("VIP of LBaaS v1: %w", err)
	}
	return vipPath("Heddle, v1", client, server, vip)
}

// vipPath returns the path from a workload by a VIP to another.
func vipPath(name string, client, server *lab.Workload, vip string) (netlab.Path, error) {
	at, err := netip.ParseAddr(vip)
	return netlab.Path{Name: name, Client: client.NS, Server: server.NS, Address: netip.IPv4Unspecified(), Dialed: at, Port: vipPort}, err
}

// tapped compares a cached flow whose receiver has a tap with one that has none.
func (b *bench) tapped(ctx context.Context, x *balancing) error {
	var w [4]*lab.Workload
	var err error
	for i := range w {
		if w[i], err = x.workload(ctx, fmt.Sprintf("t%d", i), x.h1, x.group); err != nil {
			return err
		}
	}
	monitor, err := x.place(ctx, x.tenant, "monitor", x.h1, x.network.ID, "10.0.3.1")
	if err != nil {
		return err
	}
	service, err := x.tenant.Create(ctx, "tap_service", map[string]any{"port_id": monitor.Port.ID}, "taas", "tap_services")
	if err != nil {
		return err
	}
	if _, err := x.tenant.Create(ctx, "tap_flow", map[string]any{"tap_service_id": service, "source_port": w[1].Port.ID, "direction": "BOTH"}, "taas", "tap_flows"); err != nil {
		return err
	}
	with, err1 := path("Heddle, tapped", w[0], w[1])
	without, err2 := path("Heddle, without a tap", w[2], w[3])
	if err := errors.Join(err1, err2, warm(ctx, with, without)); err != nil {
		return err
	}
	f, err := netlab.Compare(ctx, []netlab.Path{with, without}, netlab.CompareOptions{Slices: b.slices, Slice: b.slice(), Progress: func(kind string) { b.logf("%s", kind) }})
	if err != nil {
		return err
	}
	b.add(compareRoundTrips("local tap, both directions: round trip p50 / without", f[0], f[1], atMost(1.10)))
	b.add(compareDatagrams("local tap, both directions: UDP packets/s / without", f[0], f[1], atLeast(0.85)))
	return nil
}

// answering is a service of members that can be stopped.
type answering struct{ l net.Listener }

// answer accepts connections at an address and closes them.
func answer(ns *netlab.Namespace, address string) (a *answering, err error) {
	a = &answering{}
	if err := ns.Do(func() (err error) {
		a.l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", address, vipPort))
		return err
	}); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := a.l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{address[len(address)-1]})
			c.Close()
		}
	}()
	return a, nil
}

// ask connects to a VIP, and returns the last digit of the member's address, 0 for no answer.
func ask(ns *netlab.Namespace, vip string) byte {
	var c net.Conn
	if err := ns.Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", vip, vipPort), time.Second)
		return err
	}); err != nil {
		return 0
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	var got [1]byte
	if _, err := c.Read(got[:]); err != nil {
		return 0
	}
	return got[0]
}

// Of the monitor of memberFails.
const (
	failDelay  = time.Second
	failChecks = 2
)

// memberFails measures how long connections go to a member that has failed, beyond the time that
// its checks take, and how long they go to one that the API has taken out.
func (b *bench) memberFails(ctx context.Context, x *balancing) error {
	client, err := x.workload(ctx, "asking", x.h1, x.group)
	if err != nil {
		return err
	}
	// A second client, of few connections: one that uses the port of a former connection again is
	// sent where that was, and a member that is taken out keeps connections.
	fresh, err := x.workload(ctx, "fresh", x.h1, x.group)
	if err != nil {
		return err
	}
	server, err := x.member(ctx, "failing", "10.0.4.1", "10.0.4.2")
	if err != nil {
		return err
	}
	lb, err := x.balancer(ctx, "failing", monitors.CreateOpts{Type: monitors.TypeTCP, Delay: 1, Timeout: 1, MaxRetries: 1, MaxRetriesDown: failChecks}, "10.0.4.1", "10.0.4.2")
	if err != nil {
		return err
	}
	one, err := answer(server.NS, "10.0.4.1")
	if err != nil {
		return err
	}
	defer one.l.Close()
	var over, changed []float64
	for range b.pick(b.rounds, 1) {
		late, err := x.failOnce(ctx, client, server, lb.VipAddress)
		if err != nil {
			return err
		}
		over = append(over, millis(late-failChecks*failDelay))
		if late, err = x.takeOut(ctx, fresh, server, lb); err != nil {
			return err
		}
		changed = append(changed, millis(late))
	}
	b.add(measure{Name: "member fails: connections to it, beyond its checks' time", Got: max(0, netlab.Median(over)), Unit: "ms", Goal: atMost(100),
		Beside: fmt.Sprintf("%d checks, one each %s", failChecks, failDelay)})
	b.add(measure{Name: "member taken out by the API: connections to it", Got: netlab.Median(changed), Unit: "ms", Goal: atMost(100)})
	return nil
}

// inARow is the number of connections after which a member without one is out: with two members it
// happens once in 2^60 times by chance.
const inARow = 60

// lastTo connects to a VIP until many connections in a row were answered by the first member, and
// returns when the last other one began.
func (x *balancing) lastTo(ctx context.Context, client *lab.Workload, vip string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	last, run := time.Now(), 0
	for run < inARow {
		if ctx.Err() != nil {
			return last, fmt.Errorf("connections to %s still reach a member that is out", vip)
		}
		begun := time.Now()
		if ask(client.NS, vip) == '1' {
			run++
			continue
		}
		last, run = begun, 0
	}
	return last, nil
}

// untilBoth waits until both members answer at a VIP.
func (x *balancing) untilBoth(ctx context.Context, client *lab.Workload, vip string) error {
	ctx, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	var seen [2]bool
	return netlab.Until(ctx, "both members to answer", func() (bool, error) {
		switch ask(client.NS, vip) {
		case '1':
			seen[0] = true
		case '2':
			seen[1] = true
		}
		return seen[0] && seen[1], nil
	})
}

// failOnce ends the second member, and returns for how long connections were sent to it.
func (x *balancing) failOnce(ctx context.Context, client, server *lab.Workload, vip string) (time.Duration, error) {
	two, err := answer(server.NS, "10.0.4.2")
	if err != nil {
		return 0, err
	}
	defer two.l.Close() // also when it was closed
	if err := x.untilBoth(ctx, client, vip); err != nil {
		return 0, err
	}
	ended := time.Now()
	two.l.Close()
	last, err := x.lastTo(ctx, client, vip)
	return last.Sub(ended), err
}

// takeOut takes the second member out by the API and back, and returns for how long connections
// were sent to it after the answer.
func (x *balancing) takeOut(ctx context.Context, client, server *lab.Workload, lb *loadbalancers.LoadBalancer) (time.Duration, error) {
	two, err := answer(server.NS, "10.0.4.2")
	if err != nil {
		return 0, err
	}
	defer two.l.Close()
	if err := x.untilBoth(ctx, client, lb.VipAddress); err != nil {
		return 0, err
	}
	pool := lb.Pools[0].ID
	all, err := pools.ListMembers(x.api, pool, pools.ListMembersOpts{Address: "10.0.4.2"}).AllPages(ctx)
	if err != nil {
		return 0, err
	}
	members, err := pools.ExtractMembers(all)
	if err != nil || len(members) != 1 {
		return 0, errors.Join(err, fmt.Errorf("%d members at 10.0.4.2", len(members)))
	}
	set := func(up bool) error {
		_, err := pools.UpdateMember(ctx, x.api, pool, members[0].ID, pools.UpdateMemberOpts{AdminStateUp: &up}).Extract()
		return err
	}
	if err := set(false); err != nil {
		return 0, err
	}
	answered := time.Now()
	last, err := x.lastTo(ctx, client, lb.VipAddress)
	return max(0, last.Sub(answered)), errors.Join(err, set(true))
}

// balancerAPI measures Octavia's API over durable commits, by one client.
func (b *bench) balancerAPI(ctx context.Context, x *balancing) error {
	lb, err := x.balancer(ctx, "members", nil)
	if err != nil {
		return err
	}
	pool := lb.Pools[0].ID
	var created, batches, whole []float64
	var next atomic.Int64
	address := func() string {
		n := next.Add(1)
		return fmt.Sprintf("10.0.%d.%d", 100+n/250, 1+n%250)
	}
	for range b.rounds {
		n := b.pick(500, 50)
		begun := time.Now()
		for range n {
			if _, err := pools.CreateMember(ctx, x.api, pool, pools.CreateMemberOpts{Address: address(), ProtocolPort: vipPort}).Extract(); err != nil {
				return err
			}
		}
		created = append(created, float64(n)/time.Since(begun).Seconds())
		batch := make([]pools.BatchUpdateMemberOpts, b.pick(500, 50))
		for i := range batch {
			batch[i] = pools.BatchUpdateMemberOpts{Address: fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), ProtocolPort: vipPort}
		}
		if err := pools.BatchUpdateMembers(ctx, x.api, pool, []pools.BatchUpdateMemberOpts{}).ExtractErr(); err != nil {
			return err
		}
		begun = time.Now()
		if err := pools.BatchUpdateMembers(ctx, x.api, pool, batch).ExtractErr(); err != nil {
			return err
		}
		batches = append(batches, millis(time.Since(begun)))
		rate, err := x.wholeBalancers(ctx, b.pick(40, 5))
		if err != nil {
			return err
		}
		whole = append(whole, rate)
	}
	b.add(measure{Name: "members made by one client", Got: netlab.Median(created), Unit: "/s", Goal: atLeast(300)})
	b.add(measure{Name: fmt.Sprintf("%d members of one request", b.pick(500, 50)), Got: netlab.Median(batches), Unit: "ms", Goal: atMost(200)})
	b.add(measure{Name: "load balancers with listener, pool, two members and monitor, one call", Got: netlab.Median(whole), Unit: "/s", Goal: atLeast(100)})
	return nil
}

// wholeBalancers makes n load balancers, each with all that is below it by one call, and returns
// the rate. Their monitors are down, so that no host runs a haproxy for each.
func (x *balancing) wholeBalancers(ctx context.Context, n int) (perSecond float64, err error) {
	down := false
	monitor := monitors.CreateOpts{Type: monitors.TypeTCP, Delay: 60, Timeout: 5, MaxRetries: 1, AdminStateUp: &down}
	var made []string
	begun := time.Now()
	for i := range n {
		lb, err := x.balancer(ctx, fmt.Sprintf("whole%d", i), monitor, "10.0.250.1", "10.0.250.2")
		if err != nil {
			return 0, err
		}
		made = append(made, lb.ID)
	}
	took := time.Since(begun)
	for _, id := range made {
		if err := loadbalancers.Delete(ctx, x.api, id, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr(); err != nil {
			return 0, err
		}
	}
	return float64(n) / took.Seconds(), nil
}
