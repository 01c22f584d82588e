package control_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// balanced is a world with a subnet behind a router, and a load balancer on it.
type balanced struct {
	*routedWorld
	lb *neutron.LoadBalancerView
}

func balancing(t testing.TB) *balanced {
	t.Helper()
	return balancingIn(inMemory(t))
}

// balancingIn is balancing in a world that is there.
func balancingIn(in *world) *balanced {
	in.t.Helper()
	w := behindRouter(in)
	return &balanced{w, must[*neutron.LoadBalancerView](w.world, w.member, neutron.LoadBalancers, `{"vip_subnet_id":"`+w.subnetID+`","vip_address":"10.0.0.200"}`)}
}

func (w *balanced) make(r neutron.Resource, text string) any {
	w.t.Helper()
	made, err := w.create(w.member, r, text)
	if err != nil {
		w.t.Fatalf("create %s %s: %v", r, text, err)
	}
	return made[0]
}

// memberOf makes a member of a pool.
func (w *balanced) memberOf(pool, address string, port int) *neutron.LBMemberView {
	w.t.Helper()
	v, err := parse(w.member, neutron.LBMembers, neutron.Create, fmt.Sprintf(`{"address":%q,"protocol_port":%d,"subnet_id":%q}`, address, port, w.subnetID))
	if err != nil {
		w.t.Fatal(err)
	}
	made, err := w.LoadBalancing().Members(pool).Create(w.t.Context(), w.member, []neutron.Values{v})
	if err != nil {
		w.t.Fatal(err)
	}
	return made[0]
}

// TestLoadBalancerBundles: a load balancer is a router with one arm and a container, and follows
// its port and its subnet.
func TestLoadBalancerBundles(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	b := w.bundle("load-balancer", w.lb.ID)
	if len(b.Routers) != 1 || len(b.LoadBalancers) != 1 || len(b.Ports) != 1 || b.Ports[0].PeerID != w.lb.VIPPortID || b.LoadBalancers[0].RouterID != b.Routers[0].ID {
		t.Errorf("bundle: %+v", b)
	}
	c := w.bundle(topology.ContainerOwner, translate.LBContainer(b.Routers[0].ID))
	if len(c.ServiceContainers) != 1 || c.ServiceContainers[0].ConfigurationID != w.lb.ID || c.Ports[0].TunnelKey == 0 || c.Ports[0].PortMAC.IsZero() {
		t.Errorf("container: %+v", c)
	}
	if _, err := w.change(w.member, neutron.Subnets, w.subnetID, `{"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.0.0.9"}]}`); err != nil {
		t.Fatal(err)
	}
	routed := slices.ContainsFunc(w.bundle("load-balancer", w.lb.ID).Routes, func(r topology.Route) bool { return r.DstSubnet.String() == "10.9.0.0/16" })
	if !routed {
		t.Error("the balancer has no route that its subnet has")
	}
	if _, err := w.change(w.admin, neutron.Ports, w.lb.VIPPortID, `{"mac_address":"fa:16:3e:00:00:77"}`); err != nil {
		t.Fatal(err)
	}
	if got := w.bundle("load-balancer", w.lb.ID).Ports[0].PortMAC.String(); got != "fa:16:3e:00:00:77" {
		t.Errorf("the router's port has %s", got)
	}
	w.expect(w.remove(w.member, neutron.Ports, w.lb.VIPPortID), "ServicePortInUse: Port "+w.lb.VIPPortID+" cannot be deleted directly via the port API: has device owner neutron:LOADBALANCERV2.")
	_, err := w.change(w.member, neutron.Ports, w.lb.VIPPortID, `{"device_id":"other"}`)
	w.expect(err, "PortInUse: Unable to complete operation on port "+w.lb.VIPPortID+" for network "+w.tenant+". Port already has an attached device "+w.lb.ID+".")
}

// TestOperatingStatus: what the host that checks reports of members counts up to the balancer,
// while a monitor asks for it; until there is one, what its former hosts have reported. What other
// hosts report counts for nothing.
func TestOperatingStatus(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	l := w.make(neutron.Listeners, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","protocol_port":80}`).(*neutron.ListenerView)
	p := w.make(neutron.LBPools, `{"listener_id":"`+l.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
	m1, m2 := w.memberOf(p.ID, "10.0.0.11", 80), w.memberOf(p.ID, "10.0.0.12", 80)
	reportOf := func(host, member, status string, since int64) {
		w.edit(func(tx *records.Tx) error {
			return schema.MemberHealths.Put(tx, &topology.MemberHealth{HostID: host, MemberID: member, Status: status, Since: time.Unix(since, 0)})
		})
	}
	report := func(member, status string) { reportOf("h1", member, status, 1) }
	check := func(when string, want ...string) {
		t.Helper()
		lb, err := w.LoadBalancing().Tree(t.Context(), w.member, w.lb.ID)
		if err != nil {
			t.Fatal(err)
		}
		tree := lb.Made
		got := []string{lb.OperatingStatus, tree.Listeners[0].OperatingStatus, tree.Pools[0].OperatingStatus}
		for _, id := range []string{m1.ID, m2.ID} {
			i := slices.IndexFunc(tree.Pools[0].Members, func(m *neutron.LBMemberView) bool { return m.ID == id })
			got = append(got, tree.Pools[0].Members[i].OperatingStatus)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: balancer, listener, pool, members: -want +got\n%s", when, d)
		}
	}
	container := translate.LBContainer(translate.LBRouter(w.lb.ID))
	bind := func(host string) { // as the scheduler does
		w.edit(func(tx *records.Tx) error {
			old, err := schema.Bundles.Get(tx, schema.ContainerBundleID(container))
			if err != nil {
				return err
			}
			b, to := *old, &topology.ContainerBinding{ContainerID: container, HostID: host}
			b.Bundle.Ports = slices.Clone(b.Bundle.Ports)
			schema.BindContainer(&b.Bundle, &old.Bundle, to)
			return errors.Join(schema.Bundles.Put(tx, &b), schema.ContainerBindings.Put(tx, to))
		})
	}
	unbind := func() {
		if err := w.LoadBalancing().Failover(t.Context(), w.admin, w.lb.ID); err != nil {
			t.Fatal(err)
		}
	}
	why := func(when, want string) {
		t.Helper()
		lb, err := w.LoadBalancing().Tree(t.Context(), w.member, w.lb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "the members of pool " + p.ID + " are not checked: " + want
		}
		if got := lb.Made.Listeners[0].StatusReason; got != want || lb.StatusReason != want {
			t.Errorf("%s: the reason is %q of the listener, %q of the balancer, want %q", when, got, lb.StatusReason, want)
		}
	}
	report(m1.ID, topology.MemberInactive)
	check("without a monitor", "ONLINE", "ONLINE", "ONLINE", "NO_MONITOR", "NO_MONITOR")
	monitor := w.make(neutron.HealthMonitors, `{"pool_id":"`+p.ID+`","type":"TCP","delay":3,"timeout":2,"max_retries":2}`).(*neutron.HealthMonitorView)
	check("by a host that never ran the container", "DEGRADED", "DEGRADED", "ONLINE", "NO_MONITOR", "NO_MONITOR")
	bind("h2")
	check("checked by another host", "ONLINE", "ONLINE", "ONLINE", "NO_MONITOR", "NO_MONITOR")
	bind("h1")
	reportOf("h2", m1.ID, topology.MemberActive, 2)
	check("a former host says otherwise later", "ERROR", "ERROR", "ERROR", "ERROR", "NO_MONITOR")
	bind("h3")
	check("of two former hosts the newest", "ONLINE", "ONLINE", "ONLINE", "ONLINE", "NO_MONITOR")
	w.edit(func(tx *records.Tx) error { return schema.MemberHealths.Delete(tx, "h2/"+m1.ID) })
	unbind()
	check("with one verdict", "ERROR", "ERROR", "ERROR", "ERROR", "NO_MONITOR")
	report(m2.ID, topology.MemberActive)
	check("with two", "DEGRADED", "DEGRADED", "DEGRADED", "ERROR", "ONLINE")
	report(m1.ID, topology.MemberActive)
	check("checked nowhere", "DEGRADED", "DEGRADED", "ONLINE", "ONLINE", "ONLINE")
	why("checked nowhere", "no live host runs health checks")
	bind("h1")
	check("all up", "ONLINE", "ONLINE", "ONLINE", "ONLINE", "ONLINE")
	why("all up", "")
	w.putHost("h1", "one")
	fails := func(host string) {
		w.edit(func(tx *records.Tx) error {
			return schema.ContainerStates.Put(tx, &topology.ContainerState{HostID: host, ContainerID: container, Status: topology.ContainerError,
				Message: "haproxy is not installed (apt install haproxy)"})
		})
	}
	fails("h2")
	check("another host says that checks fail", "ONLINE", "ONLINE", "ONLINE", "ONLINE", "ONLINE")
	fails("h1")
	check("checks that fail", "DEGRADED", "DEGRADED", "ONLINE", "ONLINE", "ONLINE")
	why("checks that fail", "haproxy is not installed (apt install haproxy), on host one")
	w.edit(func(tx *records.Tx) error {
		return schema.ContainerStates.Put(tx, &topology.ContainerState{HostID: "h1", ContainerID: container, Status: topology.ContainerRunning,
			Unchecked: map[string]string{"another": "as well", p.ID: "haproxy refuses its configuration: x"}})
	})
	check("one pool is not checked", "DEGRADED", "DEGRADED", "ONLINE", "ONLINE", "ONLINE")
	why("one pool is not checked", "haproxy refuses its configuration: x, on host one")
	for _, zero := range []string{"timeout", "delay"} {
		if _, err := w.change(w.member, neutron.HealthMonitors, monitor.ID, `{"`+zero+`":0}`); err != nil {
			t.Fatal(err)
		}
		check("no "+zero, "DEGRADED", "DEGRADED", "ONLINE", "NO_MONITOR", "NO_MONITOR")
		why("no "+zero, "health monitor "+monitor.ID+" has "+zero+" 0")
	}
	if _, err := w.change(w.member, neutron.HealthMonitors, monitor.ID, `{"admin_state_up":false}`); err != nil {
		t.Fatal(err)
	}
	why("monitor down", "")
	check("monitor down", "ONLINE", "ONLINE", "ONLINE", "NO_MONITOR", "NO_MONITOR")
	if _, err := w.change(w.member, neutron.LoadBalancers, w.lb.ID, `{"admin_state_up":false}`); err != nil {
		t.Fatal(err)
	}
	check("balancer down", "OFFLINE", "ONLINE", "ONLINE", "NO_MONITOR", "NO_MONITOR")
}

// TestV1Balancing: pools of LBaaS v1 make their router balance, with a container while one is
// monitored; a VIP on an external network is answered for by the router's gateway.
func TestV1Balancing(t *testing.T) {
	t.Parallel()
	w := behindRouter(inMemory(t))
	before := w.dump()
	b := &balanced{w, nil}
	p := b.make(neutron.V1Pools, `{"subnet_id":"`+w.subnetID+`","protocol":"TCP","lb_method":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
	if got := w.bundle("router-lb", w.routerID).LoadBalancers; len(got) != 1 || got[0].RouterID != w.routerID || got[0].ServiceContainerID != "" {
		t.Errorf("load balancers of the router: %+v", got)
	}
	externalSubnet := slices.Collect(schema.Subnets.By(must2(w.db.View(t.Context())), "network", w.external))[0].ID
	vip := must[*neutron.VIPView](w.world, w.admin, neutron.VIPs, `{"tenant_id":"mine","subnet_id":"`+externalSubnet+`","protocol":"TCP","protocol_port":80,"pool_id":"`+p.ID+`"}`)
	m := b.make(neutron.V1Members, `{"pool_id":"`+p.ID+`","address":"10.0.0.20","protocol_port":80}`).(*neutron.LBMemberView)
	if got := w.bundle("vip", vip.ID); len(got.Neighbours) != 1 || got.Vips[0].GatewayPortID == "" || got.Vips[0].LoadBalancerID != "" {
		t.Errorf("VIP: %+v", got)
	}
	h := b.make(neutron.V1HealthMonitors, `{"type":"TCP","delay":3,"timeout":2,"max_retries":2}`).(*neutron.HealthMonitorView)
	v1 := w.LoadBalancingV1()
	if ids, err := v1.Associate(t.Context(), w.member, p.ID, h.ID); err != nil || len(ids) != 1 {
		t.Fatalf("associate: %v, %v", ids, err)
	}
	c := w.bundle(topology.ContainerOwner, translate.LBContainer(w.routerID))
	if !slices.ContainsFunc(c.Routes, func(r topology.Route) bool { return r.DstSubnet.Addr() == vip.Address }) {
		t.Errorf("the container has no route for the VIP: %+v", c.Routes)
	}
	_, err := v1.Associate(t.Context(), w.member, p.ID, h.ID)
	w.expect(err, "PoolMonitorAssociationExists: health_monitor "+h.ID+" is already associated with pool "+p.ID)
	w.expect(w.remove(w.member, neutron.V1HealthMonitors, h.ID), "HealthMonitorInUse: Health monitor "+h.ID+" still has associations with pools")
	w.expect(w.remove(w.member, neutron.V1Pools, p.ID), "PoolInUse: Pool "+p.ID+" is still in use")
	_, err = w.create(w.member, neutron.VIPs, `{"subnet_id":"`+w.subnetID+`","protocol":"TCP","protocol_port":81,"pool_id":"`+p.ID+`"}`)
	w.expect(err, "VipExists: Another Vip already exists for pool "+p.ID)
	_, err = w.Routers().RemoveInterface(t.Context(), w.member, w.routerID, neutron.InterfaceRequest{SubnetID: w.subnetID})
	w.expect(err, "RouterInUse: Router "+w.routerID+" is still in use: by load balancer pool "+p.ID+".")
	for _, err := range []error{
		v1.Dissociate(t.Context(), w.member, p.ID, h.ID), w.remove(w.member, neutron.V1HealthMonitors, h.ID), w.remove(w.member, neutron.VIPs, vip.ID), w.remove(w.member, neutron.V1Pools, p.ID),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if v, err := w.LoadBalancingV1().Members().Show(t.Context(), w.member, m.ID); err != nil || v.PoolID != "" {
		t.Errorf("the member of a deleted pool: %+v, %v", v, err)
	}
	if err := w.remove(w.member, neutron.V1Members, m.ID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left in the store (+) or lost (-):\n%s", d)
	}
}

// TestVIPKeepsItsMAC: a VIP that is made again at the same address has the MAC address that clients
// have in their caches; others have others, and a MAC address that a port has is not given twice.
func TestVIPKeepsItsMAC(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	balance := func(address string) (lb *neutron.LoadBalancerView, mac packet.MAC) {
		lb = w.make(neutron.LoadBalancers, `{"vip_subnet_id":"`+w.lb.VIPSubnetID+`","vip_address":"`+address+`"}`).(*neutron.LoadBalancerView)
		p, _ := schema.Ports.Peek(must2(w.db.View(t.Context())), lb.VIPPortID)
		return lb, p.MACAddress
	}
	remove := func(lb *neutron.LoadBalancerView) {
		t.Helper()
		if err := w.remove(w.member, neutron.LoadBalancers, lb.ID); err != nil {
			t.Fatal(err)
		}
	}
	first, mac := balance("10.0.0.77")
	if q := w.bundle("load-balancer", first.ID).Ports[0]; q.PortMAC != mac {
		t.Errorf("the router of the balancer answers with %v, its port has %v", q.PortMAC, mac)
	}
	remove(first)
	again, same := balance("10.0.0.77")
	other, another := balance("10.0.0.78")
	if same != mac || another == mac {
		t.Errorf("made again: %v, before %v; at another address: %v", same, mac, another)
	}
	remove(again)
	remove(other)
	w.make(neutron.Ports, `{"network_id":"`+w.lb.VIPNetworkID+`","mac_address":"`+mac.String()+`"}`)
	if _, got := balance("10.0.0.77"); got == mac {
		t.Errorf("a port and a VIP have the MAC address %v", mac)
	}
}

// TestLoadBalancersLeaveNothing makes and deletes load balancers and what is below them in any
// order, of both versions. A refused request changes nothing, and when all is deleted, the store is
// as it was.
func TestLoadBalancersLeaveNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := behindRouter(inMemory(t))
		w.port(w.tenant, ``)
		before := w.dump()
		g := &lbGame{world: w.world, subnet: w.subnetID}
		rt.Repeat(map[string]func(*rapid.T){
			"balancer": g.step(`{"vip_subnet_id":"SUBNET"}`, neutron.LoadBalancers), "listener": g.step(`{"loadbalancer_id":"LB","protocol":"TCP","protocol_port":PORT}`, neutron.Listeners),
			"pool":           g.step(`{"loadbalancer_id":"LB","protocol":"TCP","lb_algorithm":"SOURCE_IP"}`, neutron.LBPools),
			"pool of one":    g.step(`{"listener_id":"LISTENER","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`, neutron.LBPools),
			"monitor":        g.step(`{"pool_id":"POOL","type":"HTTP","delay":5,"timeout":3,"max_retries":3}`, neutron.HealthMonitors),
			"v1 pool":        g.step(`{"subnet_id":"SUBNET","protocol":"TCP","lb_method":"ROUND_ROBIN"}`, neutron.V1Pools),
			"v1 vip":         g.step(`{"subnet_id":"SUBNET","protocol":"TCP","protocol_port":PORT,"pool_id":"V1POOL"}`, neutron.VIPs),
			"v1 member":      g.step(`{"pool_id":"V1POOL","address":"10.0.0.2PORT","protocol_port":80}`, neutron.V1Members),
			"v1 monitor":     g.step(`{"type":"TCP","delay":5,"timeout":3,"max_retries":3}`, neutron.V1HealthMonitors),
			"members":        g.replaceMembers,
			"associate":      g.associate,
			"delete":         g.deleteAny,
			"delete tree":    g.deleteTree,
			"delete pool":    g.deletePool,
			"delete another": g.deleteAny,
		})
		g.deleteAll(rt)
		if d := cmp.Diff(before, w.dump()); d != "" {
			rt.Fatalf("left in the store (+) or lost (-):\n%s", d)
		}
	})
}
