package control

import (
	"context"
	"errors"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Pools returns the operations on pools. A create may hold members and a healthmonitor. A delete is
// LBaaS v2's, which refuses pools that listeners, members or a health monitor use; see
// [LoadBalancing.DeletePool].
func (s *LoadBalancing) Pools() Operations[*neutron.LBPoolView] {
	id := func(v *neutron.LBPoolView) string { return v.ID }
	return Operations[*neutron.LBPoolView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LBPoolView, error) {
			return s.pools.create(ctx, c, vs, s.createPool, id)
		},
		Update: s.updatePool,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.pools.remove(ctx, c, id, ifMatch, func(o *operation, p *neutron.LBPool) error {
				if err := o.checkPoolUnused(p); err != nil {
					return err
				}
				return o.removeLBPool(p)
			})
		},
		Show: s.pools.show, List: s.pools.list,
	}
}

// DeletePool deletes a pool with its members and its health monitor. The listeners that it was the
// default pool of have none then.
func (s *LoadBalancing) DeletePool(ctx context.Context, c neutron.Caller, id string) error {
	return s.pools.removeMuch(ctx, c, id, nil, workDeletePool, (*operation).dropPool)
}

// createPool makes a pool of a load balancer, and the default pool of a listener if the request
// names one. The values of a file may name a health monitor that no pool has, by healthmonitor_id.
func (s *LoadBalancing) createPool(o *operation, v neutron.Values) (*neutron.LBPoolView, error) {
	var listener *neutron.Listener
	balancer := v.Text("loadbalancer_id")
	if id := v.Text("listener_id"); id != "" {
		l, err := s.listeners.toChange(o, id, "update")
		if err != nil {
			return nil, err
		}
		if balancer != "" && balancer != l.LoadBalancerID {
			return nil, neutron.LBInvalid("Listener %s is not one of load balancer %s.", id, balancer)
		}
		listener, balancer = l, l.LoadBalancerID
	}
	if balancer == "" {
		return nil, neutron.LBInvalid("Must provide at least one of: loadbalancer_id, listener_id")
	}
	lb, err := s.balancerToFill(o, balancer)
	if err != nil {
		return nil, err
	}
	if listener != nil {
		if listener.DefaultPoolID != "" {
			return nil, neutron.ListenerHasPool(listener.ID, listener.DefaultPoolID)
		}
		if err := neutron.CheckLBProtocols(listener.Protocol, v.Text("protocol")); err != nil {
			return nil, err
		}
	}
	p, err := s.newPool(o, lb, v)
	if err != nil {
		return nil, err
	}
	if listener != nil {
		l := *listener
		l.DefaultPoolID = p.ID
		o.bump(&l.Standard)
		if err := o.putListener(&l, lb); err != nil {
			return nil, err
		}
	}
	return s.pools.view(o.tx, p), nil
}

// newPool makes a pool of a load balancer, whose project has it, with what the request holds below
// it.
func (s *LoadBalancing) newPool(o *operation, lb *neutron.LoadBalancer, v neutron.Values) (*neutron.LBPool, error) {
	p := &neutron.LBPool{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), LoadBalancerID: lb.ID,
		Protocol: v.Text("protocol"), Algorithm: v.Text("lb_algorithm"),
	}
	p.ProjectID = lb.ProjectID
	p.Persistence, _ = v["session_persistence"].(*neutron.SessionPersistence)
	if err := neutron.CheckLBPoolExtras(v); err != nil {
		return nil, err
	}
	if err := neutron.CheckLBPool(p.Protocol, p.Persistence); err != nil {
		return nil, err
	}
	if err := o.chargeLB(p.ProjectID, lbQuotaPool, neutron.NamePool, 1); err != nil {
		return nil, err
	}
	monitor, monitored := v["healthmonitor"].(neutron.Values)
	if monitored {
		m, err := s.newMonitor(o, p, monitor)
		if err != nil {
			return nil, err
		}
		p.HealthMonitorID = m.ID
	} else if id := v.Text("healthmonitor_id"); id != "" {
		if err := s.takeMonitor(o, p, id); err != nil {
			return nil, err
		}
	}
	if err := o.putLBPool(p); err != nil {
		return nil, err
	}
	members, _ := v["members"].([]neutron.Values)
	if err := o.chargeLB(p.ProjectID, lbQuotaMember, neutron.NameMember, len(members)); err != nil {
		return nil, err
	}
	for _, m := range members {
		if _, err := s.newMember(o, p, lb, m); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// takeMonitor gives a new pool a health monitor that no other has.
func (s *LoadBalancing) takeMonitor(o *operation, p *neutron.LBPool, id string) error {
	m, err := s.monitors.toChange(o, id, "update")
	if err != nil {
		return err
	}
	if pools := schema.LBPools.Referrers(o.tx, "health_monitor", id); len(pools) > 0 {
		return neutron.PoolHasMonitor(pools[0], id)
	}
	p.HealthMonitorID = m.ID
	return nil
}

func (s *LoadBalancing) updatePool(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LBPoolView, error) {
	return s.pools.modify(ctx, c, id, v, ifMatch, func(_ *operation, p, _ *neutron.LBPool) error {
		setFlag(&p.AdminStateUp, v, "admin_state_up")
		setText(&p.Algorithm, v, "lb_algorithm")
		if v.Has("session_persistence") {
			p.Persistence, _ = v["session_persistence"].(*neutron.SessionPersistence)
		}
		if err := neutron.CheckLBPoolExtras(v); err != nil {
			return err
		}
		return neutron.CheckLBPool(p.Protocol, p.Persistence)
	}, (*operation).putLBPool)
}

// putLBPool stores a pool with what is derived from it.
func (o *operation) putLBPool(p *neutron.LBPool) error {
	if err := schema.LBPools.Put(o.tx, p); err != nil {
		return err
	}
	return o.putBundle(kindLBPool, p.ID, translate.LBPool(p))
}

// checkPoolUnused refuses to delete a pool of LBaaS v2 that something uses.
func (o *operation) checkPoolUnused(p *neutron.LBPool) error {
	if ls := schema.Listeners.Referrers(o.tx, "default_pool", p.ID); len(ls) > 0 {
		return neutron.LBInUse(neutron.NameListener, ls[0], neutron.NamePool, p.ID)
	}
	if p.HealthMonitorID != "" {
		return neutron.LBInUse(neutron.NameHealthMonitor, p.HealthMonitorID, neutron.NamePool, p.ID)
	}
	if ms := schema.LBMembers.Referrers(o.tx, "pool", p.ID); len(ms) > 0 {
		return neutron.LBInUse(neutron.NameMember, ms[0], neutron.NamePool, p.ID)
	}
	return nil
}

// removeLBPool deletes a pool of a load balancer with its members and its health monitor.
func (o *operation) removeLBPool(p *neutron.LBPool) error {
	for _, id := range schema.Listeners.Referrers(o.tx, "default_pool", p.ID) {
		if err := o.clearDefaultPool(id); err != nil {
			return err
		}
	}
	for _, id := range schema.LBMembers.Referrers(o.tx, "pool", p.ID) {
		if err := o.removeMember(id); err != nil {
			return err
		}
	}
	if err := errors.Join(o.dropBundle(kindLBPool, p.ID), schema.LBPools.Delete(o.tx, p.ID)); err != nil || p.HealthMonitorID == "" {
		return err
	}
	return o.dropMonitor(p.HealthMonitorID)
}

// clearDefaultPool leaves a listener without a pool.
func (o *operation) clearDefaultPool(listener string) error {
	old, err := schema.Listeners.Get(o.tx, listener)
	if err != nil {
		return err
	}
	lb, err := schema.LoadBalancers.Need(o.tx, old.LoadBalancerID)
	if err != nil {
		return err
	}
	l := *old
	l.DefaultPoolID = ""
	o.bump(&l.Standard)
	return o.putListener(&l, lb)
}

func lbPoolView(r records.Reader, p *neutron.LBPool) *neutron.LBPoolView {
	v := &neutron.LBPoolView{
		LBPool: p, OperatingStatus: poolStatus(r, p),
		Listeners: idsOf(schema.Listeners.By(r, "default_pool", p.ID), func(l *neutron.Listener) *neutron.Standard { return &l.Standard }),
		Members:   idsOf(schema.LBMembers.By(r, "pool", p.ID), func(m *neutron.LBMember) *neutron.Standard { return &m.Standard }),
	}
	for vip := range schema.VIPs.By(r, "pool", p.ID) {
		v.VIPID = vip.ID
	}
	if p.V1() && p.HealthMonitorID != "" {
		v.ChecksFail = checksFail(r, p)
	}
	return v
}
