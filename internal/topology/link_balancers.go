package topology

// placeBalancers copies the objects of load balancers of a bundle, without what Link fills in.
func (v *View) placeBalancers(b *Bundle) {
	for _, l := range b.LoadBalancers {
		l.PoolIDs, l.VipIDs = nil, nil
		v.LoadBalancers[l.ID] = &l
	}
	for _, p := range b.Pools {
		p.PoolMemberIDs, p.VipIDs = nil, nil
		v.Pools[p.ID] = &p
	}
	for _, m := range b.PoolMembers {
		v.PoolMembers[m.ID] = &m
	}
	for _, x := range b.Vips {
		v.Vips[x.ID] = &x
	}
	for _, m := range b.HealthMonitors {
		m.PoolIDs = nil
		v.HealthMonitors[m.ID] = &m
	}
	for _, c := range b.ServiceContainers {
		v.ServiceContainers[c.ID] = &c
	}
}

// linkBalancers adds load balancers, pools, members and VIPs to what they refer to. Of several load
// balancers of a router the lowest id counts.
func (v *View) linkBalancers() {
	for _, l := range v.LoadBalancers {
		if r := v.Routers[l.RouterID]; r != nil && (r.LoadBalancerID == "" || l.ID < r.LoadBalancerID) {
			r.LoadBalancerID = l.ID
		}
	}
	for _, p := range v.Pools {
		refer(v.LoadBalancers, p.LoadBalancerID, func(l *LoadBalancer) *[]string { return &l.PoolIDs }, p.ID)
		refer(v.HealthMonitors, p.HealthMonitorID, func(m *HealthMonitor) *[]string { return &m.PoolIDs }, p.ID)
	}
	for _, m := range v.PoolMembers {
		refer(v.Pools, m.PoolID, func(p *Pool) *[]string { return &p.PoolMemberIDs }, m.ID)
	}
	for _, x := range v.Vips {
		refer(v.Pools, x.PoolID, func(p *Pool) *[]string { return &p.VipIDs }, x.ID)
		balancer := x.LoadBalancerID
		if p := v.Pools[x.PoolID]; balancer == "" && p != nil {
			balancer = p.LoadBalancerID
		}
		refer(v.LoadBalancers, balancer, func(l *LoadBalancer) *[]string { return &l.VipIDs }, x.ID)
	}
}

// balancerLists returns the lists that linkBalancers fills.
func (v *View) balancerLists() (lists [][]string) {
	for _, l := range v.LoadBalancers {
		lists = append(lists, l.PoolIDs, l.VipIDs)
	}
	for _, p := range v.Pools {
		lists = append(lists, p.PoolMemberIDs, p.VipIDs)
	}
	for _, m := range v.HealthMonitors {
		lists = append(lists, m.PoolIDs)
	}
	return lists
}
