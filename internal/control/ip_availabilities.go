package control

import (
	"context"
	"iter"
	"math/big"
	"net/netip"
	"strconv"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// IPAvailabilities returns the operations on the numbers of networks' addresses, for admins.
func (s *Service) IPAvailabilities() Operations[*neutron.IPAvailability] {
	return Operations[*neutron.IPAvailability]{List: s.listIPAvailabilities, Show: s.showIPAvailability}
}

// listIPAvailabilities counts the addresses of all networks, in order of their ids. With IP
// versions in the query it counts subnets of those alone.
func (s *Service) listIPAvailabilities(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.IPAvailability], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.IPAvailability) bool) {
		if !neutron.CanSee(c, neutron.IPAvailabilities, neutron.Owner{}) {
			return
		}
		for n := range schema.Networks.All(snap) {
			if q.InRange(n.ID) && among(q.NetworkIDs, n.ID) && among(q.ProjectIDs, n.ProjectID) && !yield(ipAvailability(snap, n, q.IPVersions)) {
				return
			}
		}
	}, nil
}

// showIPAvailability counts the addresses of a network.
func (s *Service) showIPAvailability(ctx context.Context, c neutron.Caller, id string) (*neutron.IPAvailability, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := schema.Networks.Peek(snap, id)
	if !ok || !neutron.CanSee(c, neutron.IPAvailabilities, neutron.Owner{}) {
		return nil, neutron.IPAvailabilities.NotFound(id)
	}
	return ipAvailability(snap, n, nil), nil
}

// ipAvailability counts the addresses of a network's subnets of some IP versions; nil is any.
func ipAvailability(r records.Reader, n *neutron.Network, versions []string) *neutron.IPAvailability {
	a := &neutron.IPAvailability{Network: n}
	for sub := range schema.Subnets.By(r, "network", n.ID) {
		if !among(versions, strconv.Itoa(sub.IPVersion)) {
			continue
		}
		used := 0
		for p := range schema.Ports.By(r, "subnet", sub.ID) {
			for _, f := range p.FixedIPs {
				if f.SubnetID == sub.ID {
					used++
				}
			}
		}
		a.Subnets = append(a.Subnets, neutron.SubnetIPAvailability{Subnet: sub, Total: addressCount(sub), Used: used})
	}
	return a
}

// addressCount returns the number of addresses in a subnet's pools or, without pools, in its range.
func addressCount(s *neutron.Subnet) *big.Int {
	if len(s.AllocationPools) == 0 {
		return new(big.Int).Lsh(big.NewInt(1), uint(s.CIDR.Addr().BitLen()-s.CIDR.Bits()))
	}
	number := func(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }
	sum := new(big.Int)
	for _, p := range s.AllocationPools {
		sum.Add(sum, new(big.Int).Sub(number(p.End), number(p.Start)))
		sum.Add(sum, big.NewInt(1))
	}
	return sum
}
