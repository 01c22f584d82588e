package control

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// LoadBalancingV1 has the operations of LBaaS v1, in which the routers of tenants balance
// (midonet-translations §12).
type LoadBalancingV1 struct{ *LoadBalancing }

// Pools returns the operations on pools. A pool is balanced by the router with an interface on its
// subnet.
func (s *LoadBalancingV1) Pools() Operations[*neutron.LBPoolView] {
	id := func(v *neutron.LBPoolView) string { return v.ID }
	return Operations[*neutron.LBPoolView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LBPoolView, error) {
			return s.pools.create(ctx, c, vs, s.createPool, id)
		},
		Update: func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LBPoolView, error) {
			return s.pools.modify(ctx, c, id, v, ifMatch, func(_ *operation, p, _ *neutron.LBPool) error {
				setFlag(&p.AdminStateUp, v, "admin_state_up")
				setText(&p.Algorithm, v, "lb_method")
				had := slices.DeleteFunc([]string{p.HealthMonitorID}, func(id string) bool { return id == "" })
				if v.Has("health_monitors") && !slices.Equal(list[string](v, "health_monitors"), had) {
					return invalid("health_monitors of a pool are changed by /lb/pools/%s/health_monitors", p.ID)
				}
				return nil
			}, (*operation).putLBPool)
		},
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.pools.removeMuch(ctx, c, id, ifMatch, workDeletePool, (*operation).dropPool)
		},
		Show: s.pools.show, List: s.pools.list,
	}
}

func (s *LoadBalancingV1) createPool(o *operation, v neutron.Values) (*neutron.LBPoolView, error) {
	p := &neutron.LBPool{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), Protocol: v.Text("protocol"), Algorithm: v.Text("lb_method"), SubnetID: v.Text("subnet_id"),
	}
	if err := s.pools.authorize(o.caller, "create", p.ProjectID); err != nil {
		return nil, err
	}
	if err := o.routePool(p, v.Text("router_id")); err != nil {
		return nil, err
	}
	if err := o.chargeLB(p.ProjectID, lbQuotaPool, neutron.NamePool, 1); err != nil {
		return nil, err
	}
	monitors := list[string](v, "health_monitors")
	if len(monitors) > 1 {
		return nil, invalid("a pool has one health monitor at most, and %d are given", len(monitors))
	}
	for _, id := range monitors {
		m, err := s.monitors.use(o, id)
		if err != nil {
			return nil, err
		}
		p.HealthMonitorID = m.ID
	}
	if err := o.putLBPool(p); err != nil {
		return nil, err
	}
	return s.pools.view(o.tx, p), o.deriveRouterLB(p.RouterID)
}

// routePool settles the router of a new pool: the one with an interface on the pool's subnet. A
// file may name the router, and leave the subnet out.
func (o *operation) routePool(p *neutron.LBPool, router string) error {
	if p.SubnetID != "" {
		if _, _, err := o.subnets.inTransaction(o, p.SubnetID); err != nil {
			return err
		}
	}
	if router != "" {
		if _, _, err := o.routers.inTransaction(o, router); err != nil {
			return err
		}
		p.RouterID = router
		return nil
	}
	if p.RouterID = o.routerOn(p.SubnetID); p.RouterID == "" {
		return neutron.NoRouterForPool(p.ID)
	}
	return nil
}

// routerOn returns the router with an interface on a subnet, the oldest of several, or "".
func (o *operation) routerOn(subnet string) string {
	var oldest *neutron.Router
	for x := range schema.RouterPorts.By(o.tx, "subnet", subnet) {
		r, err := schema.Routers.Need(o.tx, x.RouterID)
		if x.Gateway || err != nil {
			continue
		}
		if oldest == nil || cmp.Or(r.CreatedAt.Compare(oldest.CreatedAt), cmp.Compare(r.ID, oldest.ID)) < 0 {
			oldest = r
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.ID
}

// removeV1Pool deletes a pool without a VIP. Its members stay, without a pool.
func (o *operation) removeV1Pool(p *neutron.LBPool) error {
	if len(schema.VIPs.Referrers(o.tx, "pool", p.ID)) > 0 {
		return neutron.PoolInUse(p.ID)
	}
	for _, id := range schema.LBMembers.Referrers(o.tx, "pool", p.ID) {
		if err := o.detachMember(id); err != nil {
			return err
		}
	}
	if err := errors.Join(o.dropBundle(kindLBPool, p.ID), schema.LBPools.Delete(o.tx, p.ID)); err != nil {
		return err
	}
	return o.deriveRouterLB(p.RouterID)
}

// detachMember leaves a member without a pool.
func (o *operation) detachMember(id string) error {
	old, err := schema.LBMembers.Get(o.tx, id)
	if err != nil {
		return err
	}
	m := *old
	m.PoolID = ""
	o.bump(&m.Standard)
	return o.putMember(&m)
}

// usePool finds a pool that gets a member or a VIP.
func (s *LoadBalancingV1) usePool(o *operation, id string) (*neutron.LBPool, error) {
	p, err := s.pools.use(o, id)
	if err == nil && o.pending(workDeletePool, id) {
		return nil, neutron.PoolInUse(id)
	}
	return p, err
}

// deriveRouterLB stores what the pools of a router mean to its packets: a load balancer while there
// are any, and a health container while one is monitored.
func (o *operation) deriveRouterLB(router string) error {
	pools := schema.LBPools.Referrers(o.tx, "router", router)
	container := translate.LBContainer(router)
	if len(pools) == 0 {
		return errors.Join(o.dropBundle(kindRouterLB, router), o.dropContainer(container))
	}
	monitored := false
	var vips []netip.Addr
	for _, id := range pools {
		p, err := schema.LBPools.Get(o.tx, id)
		if err != nil {
			return err
		}
		if p.HealthMonitorID == "" {
			continue
		}
		monitored = true
		for _, id := range schema.VIPs.Referrers(o.tx, "pool", p.ID) {
			v, err := schema.VIPs.Get(o.tx, id)
			if err != nil {
				return err
			}
			vips = append(vips, v.Address)
		}
	}
	if err := o.putBundle(kindRouterLB, router, translate.RouterLoadBalancer(router, monitored)); err != nil {
		return err
	}
	if !monitored {
		return o.dropContainer(container)
	}
	subnets, err := o.subnetsOfRouter(router)
	if err != nil {
		return err
	}
	space, err := o.linkSpace(subnets, container, translate.BGPContainer(router))
	if err != nil {
		return err
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	return o.putContainer(translate.RouterLoadBalancerContainer(router, space, slices.Compact(vips)))
}

// subnetsOfRouter returns the subnets that a router is on.
func (o *operation) subnetsOfRouter(router string) ([]*neutron.Subnet, error) {
	var subnets []*neutron.Subnet
	for x := range schema.RouterPorts.By(o.tx, "router", router) {
		for _, id := range x.SubnetIDs {
			s, err := schema.Subnets.Need(o.tx, id)
			if err != nil {
				return nil, err
			}
			subnets = append(subnets, s)
		}
	}
	return subnets, nil
}

// deriveV1 rewrites what LBaaS v1 has of a router whose ports or gateways have changed.
func (o *operation) deriveV1(r *neutron.Router) error {
	pools := schema.LBPools.Referrers(o.tx, "router", r.ID)
	if len(pools) == 0 {
		return nil
	}
	for _, pool := range pools {
		for _, id := range schema.VIPs.Referrers(o.tx, "pool", pool) {
			v, err := schema.VIPs.Get(o.tx, id)
			if err != nil {
				return err
			}
			if err := o.deriveVIP(v); err != nil {
				return err
			}
		}
	}
	return o.deriveRouterLB(r.ID)
}

// checkNoV1Pools refuses to take a router, or its interface on some subnets, from pools.
func (o *operation) checkNoV1Pools(router string, subnets []string) error {
	for _, id := range schema.LBPools.Referrers(o.tx, "router", router) {
		p, err := schema.LBPools.Get(o.tx, id)
		if err != nil {
			return err
		}
		if subnets == nil || slices.Contains(subnets, p.SubnetID) {
			return conflict("RouterInUse", "Router %s is still in use: by load balancer pool %s.", router, p.ID)
		}
	}
	return nil
}

// Associate gives a pool a health monitor, and returns those that it has.
func (s *LoadBalancingV1) Associate(ctx context.Context, c neutron.Caller, pool, monitor string) ([]string, error) {
	return transact(ctx, s.Service, c, func(o *operation) ([]string, error) {
		old, err := s.pools.toChange(o, pool, "update")
		if err != nil {
			return nil, err
		}
		if _, err := s.monitors.use(o, monitor); err != nil {
			return nil, err
		}
		if old.HealthMonitorID != "" {
			return nil, neutron.MonitorAssociated(pool, old.HealthMonitorID)
		}
		return []string{monitor}, o.setMonitor(old, monitor)
	})
}

// Dissociate takes a health monitor from a pool.
func (s *LoadBalancingV1) Dissociate(ctx context.Context, c neutron.Caller, pool, monitor string) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		old, err := s.pools.toChange(o, pool, "update")
		if err != nil {
			return err
		}
		if old.HealthMonitorID != monitor {
			return neutron.MonitorNotAssociated(pool, monitor)
		}
		return o.setMonitor(old, "")
	})
}

// setMonitor gives a pool of LBaaS v1 a health monitor, "" for none.
func (o *operation) setMonitor(old *neutron.LBPool, monitor string) error {
	p := *old
	p.HealthMonitorID = monitor
	o.bump(&p.Standard)
	if err := o.putLBPool(&p); err != nil {
		return err
	}
	return o.deriveRouterLB(p.RouterID)
}

// PoolStats returns what a pool has balanced.
func (s *LoadBalancingV1) PoolStats(ctx context.Context, c neutron.Caller, id string) (neutron.LBStats, error) {
	v, err := s.pools.show(ctx, c, id)
	if err != nil {
		return neutron.LBStats{}, err
	}
	return s.statsOf(ctx, slices.DeleteFunc([]string{v.VIPID}, func(id string) bool { return id == "" }))
}

// Members returns the operations on members.
func (s *LoadBalancingV1) Members() Operations[*neutron.LBMemberView] {
	id := func(v *neutron.LBMemberView) string { return v.ID }
	return Operations[*neutron.LBMemberView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LBMemberView, error) {
			return s.members.create(ctx, c, vs, s.createMember, id)
		},
		Update: func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LBMemberView, error) {
			return s.members.modify(ctx, c, id, v, ifMatch, func(o *operation, m, _ *neutron.LBMember) error {
				setFlag(&m.AdminStateUp, v, "admin_state_up")
				setNumber(&m.Weight, v, "weight")
				if err := s.moveMember(o, m, v); err != nil || !v.Has("pool_id") {
					return err
				}
				if m.PoolID = v.Text("pool_id"); m.PoolID == "" {
					return nil
				}
				_, err := s.usePool(o, m.PoolID)
				return err
			}, (*operation).putMember)
		},
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.members.remove(ctx, c, id, ifMatch, func(o *operation, m *neutron.LBMember) error { return o.removeMember(m.ID) })
		},
		Show: s.members.show, List: s.members.list,
	}
}

// moveMember gives a member another address or port, which only a file can: the API takes neither.
func (s *LoadBalancingV1) moveMember(o *operation, m *neutron.LBMember, v neutron.Values) error {
	setNumber(&m.ProtocolPort, v, "protocol_port")
	if !v.Has("address") {
		return nil
	}
	m.Address = requestedAddress(v, "address")
	return o.checkV1Member(m)
}

// checkV1Member refuses addresses that a member of LBaaS v1 cannot have.
func (o *operation) checkV1Member(m *neutron.LBMember) error {
	var vip netip.Addr
	for v := range schema.VIPs.By(o.tx, "pool", m.PoolID) {
		vip = v.Address
	}
	return neutron.AsInvalid(neutron.CheckMemberAddress(m.Address, vip))
}

// createMember makes a member. Only one of a file may be without a pool.
func (s *LoadBalancingV1) createMember(o *operation, v neutron.Values) (*neutron.LBMemberView, error) {
	m := &neutron.LBMember{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), V1: true, Weight: number(v, "weight"),
		Address: requestedAddress(v, "address"), ProtocolPort: number(v, "protocol_port"),
	}
	if err := s.members.authorize(o.caller, "create", m.ProjectID); err != nil {
		return nil, err
	}
	if m.PoolID = v.Text("pool_id"); m.PoolID != "" {
		if _, err := s.usePool(o, m.PoolID); err != nil {
			return nil, err
		}
	}
	if err := o.checkV1Member(m); err != nil {
		return nil, err
	}
	if err := o.chargeLB(m.ProjectID, lbQuotaMember, neutron.NameMember, 1); err != nil {
		return nil, err
	}
	if err := o.putMember(m); err != nil {
		return nil, err
	}
	return s.members.view(o.tx, m), nil
}

// HealthMonitors returns the operations on health monitors, which [LoadBalancingV1.Associate] gives
// to pools.
func (s *LoadBalancingV1) HealthMonitors() Operations[*neutron.HealthMonitorView] {
	id := func(v *neutron.HealthMonitorView) string { return v.ID }
	return Operations[*neutron.HealthMonitorView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.HealthMonitorView, error) {
			return s.monitors.create(ctx, c, vs, s.createMonitor, id)
		},
		Update: s.updateMonitor,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.monitors.remove(ctx, c, id, ifMatch, func(o *operation, m *neutron.HealthMonitor) error {
				if len(schema.LBPools.Referrers(o.tx, "health_monitor", m.ID)) > 0 {
					return neutron.MonitorInUse(m.ID)
				}
				return o.dropMonitor(m.ID)
			})
		},
		Show: s.monitors.show, List: s.monitors.list,
	}
}

func (s *LoadBalancingV1) createMonitor(o *operation, v neutron.Values) (*neutron.HealthMonitorView, error) {
	m := &neutron.HealthMonitor{Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), Type: v.Text("type"), V1: true, ByFailures: true, MaxRetriesDown: defaultRetriesDown}
	if err := s.monitors.authorize(o.caller, "create", m.ProjectID); err != nil {
		return nil, err
	}
	if err := applyMonitor(m, v, ""); err != nil {
		return nil, err
	}
	if err := o.chargeLB(m.ProjectID, lbQuotaMonitor, neutron.NameHealthMonitor, 1); err != nil {
		return nil, err
	}
	if err := o.putMonitor(m); err != nil {
		return nil, err
	}
	return s.monitors.view(o.tx, m), nil
}

// VIPs returns the operations on VIPs.
func (s *LoadBalancingV1) VIPs() Operations[*neutron.VIPView] {
	id := func(v *neutron.VIPView) string { return v.ID }
	return Operations[*neutron.VIPView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.VIPView, error) {
			return s.vips.create(ctx, c, vs, s.createVIP, id)
		},
		Update: s.updateVIP,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.vips.remove(ctx, c, id, ifMatch, s.removeVIP)
		},
		Show: s.vips.show, List: s.vips.list,
	}
}

func (s *LoadBalancingV1) createVIP(o *operation, v neutron.Values) (*neutron.VIPView, error) {
	vip := &neutron.VIP{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), SubnetID: v.Text("subnet_id"), Protocol: v.Text("protocol"),
		ProtocolPort: number(v, "protocol_port"), ConnLimit: number(v, "connection_limit"),
	}
	vip.Persistence, _ = v["session_persistence"].(*neutron.SessionPersistence)
	if err := s.vips.authorize(o.caller, "create", vip.ProjectID); err != nil {
		return nil, err
	}
	if err := s.setPoolOfVIP(o, vip, v.Text("pool_id")); err != nil {
		return nil, err
	}
	subnet, _, err := o.subnets.inTransaction(o, vip.SubnetID)
	if err != nil {
		return nil, err
	}
	n, err := o.networkFor(subnet.NetworkID)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkBalanced(n, subnet.CIDR.Addr()), neutron.CheckLBPool(vip.Protocol, vip.Persistence)); err != nil {
		return nil, neutron.AsInvalid(err)
	}
	if err := o.portOfVIP(vip, v, subnet); err != nil {
		return nil, err
	}
	if err := o.putVIP(vip); err != nil {
		return nil, err
	}
	return s.vips.view(o.tx, vip), o.deriveLBOfPool(vip.PoolID)
}

// portOfVIP makes the port of a new VIP, with its address. A file names the port that it has made,
// or "" for none, since its steps make ports by themselves.
func (o *operation) portOfVIP(vip *neutron.VIP, v neutron.Values, subnet *neutron.Subnet) error {
	if v.Has("port_id") {
		vip.Address, vip.PortID, vip.GivenPort = requestedAddress(v, "address"), v.Text("port_id"), true
		if vip.PortID == "" {
			return nil
		}
		p, _, err := o.ports.inTransaction(o, vip.PortID)
		if err != nil {
			return err
		}
		_, err = vipOf(p, vip.Address, "")
		return err
	}
	port, _, err := o.portOnOne(neutron.Values{
		"network_id": subnet.NetworkID, "project_id": vip.ProjectID, "name": "vip-" + vip.ID, "admin_state_up": true,
		"device_id": vip.ID, "device_owner": ownerVIP, "binding:vnic_type": "normal",
	}, requestedAddress(v, "address"), []*neutron.Subnet{subnet})
	if err == nil {
		vip.PortID, vip.Address = port.ID, port.FixedIPs[0].IPAddress
	}
	return err
}

// setPoolOfVIP makes a pool that of a VIP. Only a VIP of a file may have none.
func (s *LoadBalancingV1) setPoolOfVIP(o *operation, vip *neutron.VIP, pool string) error {
	if vip.PoolID = pool; pool == "" {
		return nil
	}
	p, err := s.usePool(o, pool)
	if err == nil && p.Protocol != vip.Protocol {
		err = neutron.V1Protocols(vip.Protocol, p.Protocol)
	}
	return err
}

// deriveLBOfPool stores what the pools of a pool's router mean to its packets. "" is no pool.
func (o *operation) deriveLBOfPool(pool string) error {
	if pool == "" {
		return nil
	}
	p, err := schema.LBPools.Need(o.tx, pool)
	if err != nil {
		return err
	}
	return o.deriveRouterLB(p.RouterID)
}

// putVIP stores a VIP with what is derived from it.
func (o *operation) putVIP(v *neutron.VIP) error {
	err := schema.VIPs.Put(o.tx, v)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "one_pool" {
		return neutron.VIPExists(v.PoolID)
	}
	if err != nil {
		return err
	}
	return o.deriveVIP(v)
}

// deriveVIP stores what a VIP means to packets now: on an external network, its router's gateway
// answers for it.
func (o *operation) deriveVIP(v *neutron.VIP) error {
	s, err := schema.Subnets.Need(o.tx, v.SubnetID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(o.tx, s.NetworkID)
	if err != nil {
		return err
	}
	if v.PoolID == "" {
		return o.putBundle(kindVIP, v.ID, translate.VIP(v, n.ID, nil))
	}
	p, err := schema.LBPools.Need(o.tx, v.PoolID)
	if err != nil {
		return err
	}
	var gateway *neutron.Port
	for x := range schema.RouterPorts.By(o.tx, "router", p.RouterID) {
		if gw, ok := schema.Ports.Peek(o.tx, x.PortID); ok && x.Gateway && n.External && gw.NetworkID == n.ID {
			gateway = gw
		}
	}
	return o.putBundle(kindVIP, v.ID, translate.VIP(v, n.ID, gateway))
}

func (s *LoadBalancingV1) updateVIP(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.VIPView, error) {
	var pools []string // that the VIP leaves and comes to
	return s.vips.modify(ctx, c, id, v, ifMatch, func(o *operation, vip, old *neutron.VIP) error {
		pools = nil
		setFlag(&vip.AdminStateUp, v, "admin_state_up")
		setNumber(&vip.ConnLimit, v, "connection_limit")
		if v.Has("session_persistence") {
			vip.Persistence, _ = v["session_persistence"].(*neutron.SessionPersistence)
			if err := neutron.CheckLBPool(vip.Protocol, vip.Persistence); err != nil {
				return neutron.AsInvalid(err)
			}
		}
		if !v.Has("pool_id") || v.Text("pool_id") == old.PoolID {
			return nil
		}
		pools = []string{old.PoolID, v.Text("pool_id")}
		return s.setPoolOfVIP(o, vip, v.Text("pool_id"))
	}, func(o *operation, vip *neutron.VIP) error {
		if err := o.putVIP(vip); err != nil {
			return err
		}
		for _, p := range pools {
			if err := o.deriveLBOfPool(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *LoadBalancingV1) removeVIP(o *operation, v *neutron.VIP) error {
	if err := errors.Join(o.dropBundle(kindVIP, v.ID), schema.VIPs.Delete(o.tx, v.ID)); err != nil {
		return err
	}
	if v.GivenPort {
		return o.deriveLBOfPool(v.PoolID)
	}
	port, err := schema.Ports.Get(o.tx, v.PortID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(o.tx, port.NetworkID)
	if err != nil {
		return err
	}
	if err := o.deletePort(port, n); err != nil {
		return err
	}
	return o.deriveLBOfPool(v.PoolID)
}

func vipView(_ records.Reader, v *neutron.VIP) *neutron.VIPView {
	return &neutron.VIPView{VIP: v, Serves: v.PoolID != ""}
}
