package control

import (
	"context"
	"errors"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// LoadBalancerStats returns what a load balancer has balanced.
func (s *LoadBalancing) LoadBalancerStats(ctx context.Context, c neutron.Caller, id string) (neutron.LBStats, error) {
	v, err := s.balancers.show(ctx, c, id)
	if err != nil {
		return neutron.LBStats{}, err
	}
	return s.statsOf(ctx, v.Listeners)
}

// ListenerStats returns what a listener has balanced.
func (s *LoadBalancing) ListenerStats(ctx context.Context, c neutron.Caller, id string) (neutron.LBStats, error) {
	if _, err := s.listeners.show(ctx, c, id); err != nil {
		return neutron.LBStats{}, err
	}
	return s.statsOf(ctx, []string{id})
}

// statsOf sums what hosts report of VIPs.
func (s *LoadBalancing) statsOf(ctx context.Context, vips []string) (neutron.LBStats, error) {
	var sum neutron.LBStats
	snap, err := s.Service.view(ctx)
	if err != nil {
		return sum, err
	}
	for _, id := range vips {
		for t := range schema.VipTraffics.By(snap, "vip", id) {
			sum.ActiveConnections += int64(t.Active)
			sum.TotalConnections += int64(t.Total)
			sum.BytesIn += int64(t.In)
			sum.BytesOut += int64(t.Out)
		}
	}
	return sum, nil
}

// Failover has the host of a load balancer's health checks chosen again. Only admins may.
func (s *LoadBalancing) Failover(ctx context.Context, c neutron.Caller, id string) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		lb, err := s.balancers.toChange(o, id, "failover")
		if err != nil {
			return err
		}
		if !c.LBAdmin() {
			return neutron.LBForbidden("failover_loadbalancer")
		}
		container := translate.LBContainer(translate.LBRouter(lb.ID))
		err = schema.ContainerBindings.Delete(o.tx, container)
		if errors.As(err, new(*records.NotFoundError)) {
			return nil // no host has it yet
		}
		if err != nil {
			return err
		}
		return o.deriveLoadBalancer(lb)
	})
}
