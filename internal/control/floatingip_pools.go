package control

import (
	"context"
	"iter"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// FloatingIPPools returns the operations on the pools of floating IPs, which follow from the
// external networks. As these, everyone sees them.
func (s *Service) FloatingIPPools() Operations[neutron.FloatingIPPool] {
	return Operations[neutron.FloatingIPPool]{List: s.listFloatingIPPools, Show: s.showFloatingIPPool}
}

// listFloatingIPPools lists the pools in order of their subnets' ids.
func (s *Service) listFloatingIPPools(ctx context.Context, _ neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.FloatingIPPool], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	var pools []*neutron.FloatingIPPool
	for n := range schema.Networks.By(snap, "external", "true") {
		for sub := range schema.Subnets.By(snap, "network", n.ID) {
			if floatingIPPool(snap, sub) {
				pools = append(pools, &neutron.FloatingIPPool{Subnet: sub})
			}
		}
	}
	slices.SortFunc(pools, func(a, b *neutron.FloatingIPPool) int { return strings.Compare(a.ID, b.ID) })
	return slices.Values(pools), nil
}

// showFloatingIPPool returns the pool of a subnet.
func (s *Service) showFloatingIPPool(ctx context.Context, _ neutron.Caller, id string) (*neutron.FloatingIPPool, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	sub, ok := schema.Subnets.Peek(snap, id)
	if !ok || !floatingIPPool(snap, sub) {
		return nil, neutron.FloatingIPPools.NotFound(id)
	}
	return &neutron.FloatingIPPool{Subnet: sub}, nil
}

// floatingIPPool reports whether a subnet has floating IPs.
func floatingIPPool(r records.Reader, s *neutron.Subnet) bool {
	n, ok := schema.Networks.Peek(r, s.NetworkID)
	return ok && n.External && s.IPVersion == 4
}
