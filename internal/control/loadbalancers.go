package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// LoadBalancers returns the operations on load balancers. A create may hold listeners and pools
// with all that is below them; the answer then has the objects in Made. A delete refuses balancers
// with listeners or pools; see [LoadBalancing.DeleteTree].
func (s *LoadBalancing) LoadBalancers() Operations[*neutron.LoadBalancerView] {
	id := func(v *neutron.LoadBalancerView) string { return v.ID }
	return Operations[*neutron.LoadBalancerView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LoadBalancerView, error) {
			return s.balancers.create(ctx, c, vs, s.createTree, id)
		},
		Update: s.updateLoadBalancer,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.balancers.remove(ctx, c, id, ifMatch, func(o *operation, lb *neutron.LoadBalancer) error {
				if err := o.checkNoChildren(lb.ID); err != nil {
					return err
				}
				return o.removeLoadBalancer(lb)
			})
		},
		Show: s.balancers.show, List: s.balancers.list,
	}
}

// DeleteTree deletes a load balancer with all that is below it.
func (s *LoadBalancing) DeleteTree(ctx context.Context, c neutron.Caller, id string) error {
	return s.balancers.removeMuch(ctx, c, id, nil, workDeleteBalancer, (*operation).dropTree)
}

// createTree makes a load balancer with the listeners and pools that a request holds.
func (s *LoadBalancing) createTree(o *operation, v neutron.Values) (*neutron.LoadBalancerView, error) {
	project := v.Text("project_id")
	if err := s.balancers.authorize(o.caller, "create", project); err != nil {
		return nil, err
	}
	lb, err := o.createLoadBalancer(v)
	if err != nil {
		return nil, err
	}
	made, err := s.createChildren(o, lb, v)
	if err != nil {
		return nil, err
	}
	view := s.balancers.view(o.tx, lb)
	view.Made = made
	return view, nil
}

// createLoadBalancer makes a load balancer, and its port unless the request names one.
func (o *operation) createLoadBalancer(v neutron.Values) (*neutron.LoadBalancer, error) {
	lb := &neutron.LoadBalancer{Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), VIPQoSPolicyID: v.Text("vip_qos_policy_id")}
	p, n, err := o.vipPort(lb, v)
	if err != nil {
		return nil, err
	}
	if err := o.chargeLB(lb.ProjectID, lbQuotaBalancer, neutron.NameLoadBalancer, 1); err != nil {
		return nil, err
	}
	if lb.GivenPort != nil {
		if err := o.putPort(p, n); err != nil {
			return nil, err
		}
	}
	return lb, o.putLoadBalancer(lb)
}

// putLoadBalancer stores a load balancer with what is derived from it.
func (o *operation) putLoadBalancer(lb *neutron.LoadBalancer) error {
	if err := schema.LoadBalancers.Put(o.tx, lb); err != nil {
		return err
	}
	return o.deriveLoadBalancer(lb)
}

// deriveLoadBalancer stores what a load balancer means to packets now.
func (o *operation) deriveLoadBalancer(lb *neutron.LoadBalancer) error {
	p, err := schema.Ports.Get(o.tx, lb.VIPPortID)
	if err != nil {
		return err
	}
	s, err := schema.Subnets.Get(o.tx, lb.VIPSubnetID)
	if err != nil {
		return err
	}
	return errors.Join(o.putBundle(kindLoadBalancer, lb.ID, translate.LoadBalancer(lb, p, s)), o.putContainer(translate.LoadBalancerContainer(lb, s)))
}

func (s *LoadBalancing) updateLoadBalancer(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LoadBalancerView, error) {
	return s.balancers.modify(ctx, c, id, v, ifMatch, func(o *operation, lb, _ *neutron.LoadBalancer) error {
		setFlag(&lb.AdminStateUp, v, "admin_state_up")
		if !v.Has("vip_qos_policy_id") || v.Text("vip_qos_policy_id") == lb.VIPQoSPolicyID {
			return nil
		}
		lb.VIPQoSPolicyID = v.Text("vip_qos_policy_id")
		return o.setVIPPolicy(lb)
	}, (*operation).putLoadBalancer)
}

// setVIPPolicy gives the port of a load balancer the balancer's QoS policy.
func (o *operation) setVIPPolicy(lb *neutron.LoadBalancer) error {
	if err := o.checkVIPPolicy(lb.VIPQoSPolicyID); err != nil {
		return err
	}
	old, err := schema.Ports.Get(o.tx, lb.VIPPortID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(o.tx, old.NetworkID)
	if err != nil {
		return err
	}
	p := *old
	if err := o.setQoSPolicy(&p.QoSPolicyID, lb.VIPQoSPolicyID, ruleNotSupported("port", p.ID)); err != nil {
		return err
	}
	o.bump(&p.Standard)
	return o.putPort(&p, n)
}

// checkNoChildren refuses to delete a load balancer with listeners or pools.
func (o *operation) checkNoChildren(id string) error {
	if ls := schema.Listeners.Referrers(o.tx, "load_balancer", id); len(ls) > 0 {
		return neutron.LoadBalancerHasChildren(id, neutron.NameListener, ls[0])
	}
	if ps := schema.LBPools.Referrers(o.tx, "load_balancer", id); len(ps) > 0 {
		return neutron.LoadBalancerHasChildren(id, neutron.NamePool, ps[0])
	}
	return nil
}

// removeLoadBalancer deletes a load balancer without listeners and pools, and its port unless that
// was a client's.
func (o *operation) removeLoadBalancer(lb *neutron.LoadBalancer) error {
	if err := errors.Join(o.dropBundle(kindLoadBalancer, lb.ID), o.dropContainer(translate.LBContainer(translate.LBRouter(lb.ID))),
		schema.LoadBalancers.Delete(o.tx, lb.ID)); err != nil {
		return err
	}
	old, err := schema.Ports.Get(o.tx, lb.VIPPortID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(o.tx, old.NetworkID)
	if err != nil {
		return err
	}
	if lb.GivenPort == nil {
		return o.deletePort(old, n)
	}
	p := *old
	p.DeviceID, p.DeviceOwner = lb.GivenPort.DeviceID, lb.GivenPort.DeviceOwner
	o.bump(&p.Standard)
	return o.putPort(&p, n)
}

// followVIPPort rewrites the load balancer or VIP whose port has changed, and refuses changes that
// would take its address.
func (o *operation) followVIPPort(old, p *neutron.Port) error {
	if old == nil || old.DeviceOwner != ownerLoadBalancer && old.DeviceOwner != ownerVIP {
		return nil
	}
	var address netip.Addr
	var balancer *neutron.LoadBalancer
	for lb := range schema.LoadBalancers.By(o.tx, "port", p.ID) {
		address, balancer = lb.VIPAddress, lb
	}
	for v := range schema.VIPs.By(o.tx, "port", p.ID) {
		address = v.Address
	}
	if !address.IsValid() {
		return nil
	}
	if p.DeviceID != old.DeviceID || p.DeviceOwner != old.DeviceOwner ||
		!slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress == address }) {
		return portInUse(old)
	}
	if balancer == nil || p.MACAddress == old.MACAddress {
		return nil
	}
	return o.deriveLoadBalancer(balancer)
}

// servesVIP reports whether a load balancer or VIP has a port.
func (o *operation) servesVIP(p *neutron.Port) bool {
	return len(schema.LoadBalancers.Referrers(o.tx, "vip_port", p.ID)) > 0 || len(schema.VIPs.Referrers(o.tx, "port", p.ID)) > 0
}

func loadBalancerView(r records.Reader, lb *neutron.LoadBalancer) *neutron.LoadBalancerView {
	status, reason := loadBalancerStatus(r, lb)
	return &neutron.LoadBalancerView{
		LoadBalancer: lb, OperatingStatus: status, StatusReason: reason,
		Listeners: idsOf(schema.Listeners.By(r, "load_balancer", lb.ID), func(l *neutron.Listener) *neutron.Standard { return &l.Standard }),
		Pools:     idsOf(schema.LBPools.By(r, "load_balancer", lb.ID), func(p *neutron.LBPool) *neutron.Standard { return &p.Standard }),
	}
}
