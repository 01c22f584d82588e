package translate

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// LinkSpace is a part of the link-local range, that without what a router has of it already, from
// which the link to a service container is chosen (midonet-translations §4 H9).
type LinkSpace struct {
	Subnets []*neutron.Subnet // that the router is on
	// Own is the link that the container has, which it keeps while that is free; Others are those
	// of the router's other containers.
	Own    netip.Prefix
	Others []netip.Prefix
}

// link is a network of four addresses between a router and a container.
type link struct {
	prefix        netip.Prefix
	first, second netip.Addr // of the router and of the container
}

// choose returns the container's own link or, if that is taken, the lowest free one.
func (s LinkSpace) choose() link {
	prefix := s.Own
	if !prefix.IsValid() || s.takes(prefix) {
		prefix = s.lowest()
	}
	first := prefix.Addr().Next()
	return link{prefix, first, first.Next()}
}

// lowest returns the lowest free link. If all are taken, the first serves as well as any.
func (s LinkSpace) lowest() netip.Prefix {
	at := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, byte(n >> 8), byte(n)}), 30)
	}
	for n := 0; n < 1<<16; n += 4 {
		if !s.takes(at(n)) {
			return at(n)
		}
	}
	return at(0)
}

func (s LinkSpace) takes(p netip.Prefix) bool {
	return slices.ContainsFunc(s.Subnets, func(sub *neutron.Subnet) bool { return p.Overlaps(sub.CIDR) }) ||
		slices.ContainsFunc(s.Others, p.Overlaps)
}

// port returns the router's port to the container. Whoever stores it gives it its MAC address, its
// tunnel key and its host.
func (l link) port(id, router string) topology.Port {
	return topology.Port{
		ID: id, RouterID: router, AdminStateUp: true,
		PortAddress: l.first, PortSubnet: []netip.Prefix{netip.PrefixFrom(l.first, l.prefix.Bits())},
	}
}
