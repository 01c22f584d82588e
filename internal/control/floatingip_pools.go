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
// external networks, and who sees one sees its pools.
func (s *Service) FloatingIPPools() Operations[*neutron.FloatingIPPool] {
	return Operations[*neutron.FloatingIPPool]{List: s.listFloatingIPPools, Show: s.showFloatingIPPool}
}

// listFloatingIPPools lists the pools in order of their subnets' ids.
func (s *Service) listFloatingIPPools(ctx context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.FloatingIPPool], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	var pools []*neutron.FloatingIPPool
	for n := range onlyExternal().find(snap, c, nil) {
		for sub := range schema.Subnets.By(snap, "network", n.ID) {
			if n.External && sub.IPVersion == 4 {
				pools = append(pools, &neutron.FloatingIPPool{Subnet: sub})
			}
		}
	}
	slices.SortFunc(pools, func(a, b *neutron.FloatingIPPool) int { return strings.Compare(a.ID, b.ID) })
	return slices.Values(pools), nil
}

// showFloatingIPPool returns the pool of a subnet.
func (s *Service) showFloatingIPPool(ctx context.Context, c neutron.Caller, id string) (*neutron.FloatingIPPool, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	sub, ok := schema.Subnets.Peek(snap, id)
	if !ok || !s.hasPool(snap, c, sub) {
		return nil, neutron.FloatingIPPools.NotFound(id)
	}
	return &neutron.FloatingIPPool{Subnet: sub}, nil
}

// hasPool reports whether the caller may have floating IPs of a subnet.
func (s *Service) hasPool(r records.Reader, c neutron.Caller, sub *neutron.Subnet) bool {
	n, ok := schema.Networks.Peek(r, sub.NetworkID)
	return ok && n.External && sub.IPVersion == 4 && s.networks.sees(r, c, n)
}
