package control

import (
	"context"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// createChildren makes the listeners and pools that a request for a load balancer holds: nil if it
// holds none. A listener's default_pool is one of its own, or has the name of one of the pools.
func (s *LoadBalancing) createChildren(o *operation, lb *neutron.LoadBalancer, v neutron.Values) (*neutron.LBTree, error) {
	listeners, _ := v["listeners"].([]neutron.Values)
	pools, _ := v["pools"].([]neutron.Values)
	if len(listeners)+len(pools) == 0 {
		return nil, nil
	}
	for _, l := range listeners {
		if p, ok := l["default_pool"].(neutron.Values); ok && p.Has("protocol") {
			pools = append(slices.Clip(pools), p)
		}
	}
	if err := checkPoolNames(pools); err != nil {
		return nil, err
	}
	made, byName := &neutron.LBTree{}, map[string]*neutron.LBPool{}
	for _, p := range pools {
		pool, err := s.newPool(o, lb, p)
		if err != nil {
			return nil, err
		}
		byName[pool.Name] = pool
		made.Pools = append(made.Pools, &neutron.LBPoolTree{LBPoolView: &neutron.LBPoolView{LBPool: pool}})
	}
	for _, l := range listeners {
		listener, err := s.newNestedListener(o, lb, l, byName)
		if err != nil {
			return nil, err
		}
		made.Listeners = append(made.Listeners, s.listeners.view(o.tx, listener))
	}
	for i, p := range made.Pools {
		made.Pools[i] = s.poolTree(o.tx, p.LBPool)
	}
	return made, nil
}

// checkPoolNames refuses names that could mean two pools.
func checkPoolNames(pools []neutron.Values) error {
	seen := map[string]bool{}
	for _, p := range pools {
		name := p.Text("name")
		if name != "" && seen[name] {
			return neutron.LBInvalid("Pool names must be unique when creating a fully populated loadbalancer.")
		}
		seen[name] = true
	}
	return nil
}

func (s *LoadBalancing) newNestedListener(o *operation, lb *neutron.LoadBalancer, v neutron.Values, pools map[string]*neutron.LBPool) (*neutron.Listener, error) {
	if ref, ok := v["default_pool"].(neutron.Values); ok {
		p := pools[ref.Text("name")]
		if p == nil {
			return nil, neutron.LBInvalid("Pool '%s' was referenced but no full definition was found.", ref.Text("name"))
		}
		v["default_pool_id"] = p.ID
	}
	return s.newListener(o, lb, v)
}

// poolTree returns a pool with all that is below it.
func (s *LoadBalancing) poolTree(r records.Reader, p *neutron.LBPool) *neutron.LBPoolTree {
	t := &neutron.LBPoolTree{LBPoolView: s.pools.view(r, p)}
	for _, id := range t.LBPoolView.Members {
		if m, ok := schema.LBMembers.Peek(r, id); ok {
			t.Members = append(t.Members, s.members.view(r, m))
		}
	}
	if m, ok := schema.HealthMonitors.Peek(r, p.HealthMonitorID); ok {
		t.Monitor = s.monitors.view(r, m)
	}
	return t
}

// Tree returns a load balancer with its listeners, and the pools that these have with all that is
// below them.
func (s *LoadBalancing) Tree(ctx context.Context, c neutron.Caller, id string) (*neutron.LoadBalancerView, error) {
	snap, err := s.Service.view(ctx)
	if err != nil {
		return nil, err
	}
	lb, err := s.balancers.find(c, id, func(id string) (*neutron.LoadBalancer, bool) { return schema.LoadBalancers.Peek(snap, id) })
	if err != nil {
		return nil, err
	}
	v := s.balancers.view(snap, lb)
	v.Made = &neutron.LBTree{}
	for _, id := range v.Listeners {
		l, ok := schema.Listeners.Peek(snap, id)
		if !ok {
			continue
		}
		v.Made.Listeners = append(v.Made.Listeners, s.listeners.view(snap, l))
		used := slices.ContainsFunc(v.Made.Pools, func(t *neutron.LBPoolTree) bool { return t.ID == l.DefaultPoolID })
		if p, ok := schema.LBPools.Peek(snap, l.DefaultPoolID); ok && !used {
			v.Made.Pools = append(v.Made.Pools, s.poolTree(snap, p))
		}
	}
	return v, nil
}
