package control

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// A speaker announces what routers serve that have a gateway on one of its gateway networks, by the
// gateway's addresses of the speaker's IP version:
//
//	floating IP ──served by──▶ gateway port ──on──▶ subnet ──of──▶ gateway network ◀── speaker
//	subnet ◀── interface ── router ──┘                 └── pool ──▶ address scope
//
// All routers here are distributed, and one's gateway has the same address on every host. So the
// reference's agent gateways, by which it announces for distributed routers, do not exist.

// advertisedRoutes returns what a speaker announces. It costs a look at each gateway on the
// networks and, if they are in an address scope, at each interface of those routers.
func (s bgpSpeakers) advertisedRoutes(ctx context.Context, c neutron.Caller, id string) ([]neutron.BGPRoute, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := schema.BGPSpeakers.Peek(snap, id)
	if !ok || !s.sees(snap, c, b) {
		return nil, s.name.NotFound(id)
	}
	routes := slices.Collect(bgpRoutes(snap, b))
	slices.SortFunc(routes, func(a, b neutron.BGPRoute) int {
		return cmp.Or(neutron.ComparePrefixes(a.Destination, b.Destination), a.NextHop.Compare(b.NextHop))
	})
	return slices.Compact(routes), nil
}

// bgpRoutes returns what a speaker announces, some of it more than once.
func bgpRoutes(r records.Reader, b *neutron.BGPSpeaker) iter.Seq[neutron.BGPRoute] {
	return func(yield func(neutron.BGPRoute) bool) {
		for gateway := range gatewaysOf(r, b) {
			for destination := range gateway.destinations(r, b) {
				if !yield(neutron.BGPRoute{Destination: destination, NextHop: gateway.address}) {
					return
				}
			}
		}
	}
}

// bgpGateway is an address of a router on a gateway network.
type bgpGateway struct {
	*neutron.RouterPort
	subnet  *neutron.Subnet
	address netip.Addr
}

// gatewaysOf returns the addresses that routers have on the gateway networks of a speaker, of its
// IP version.
func gatewaysOf(r records.Reader, b *neutron.BGPSpeaker) iter.Seq[bgpGateway] {
	return func(yield func(bgpGateway) bool) {
		for _, network := range b.NetworkIDs {
			for s := range schema.Subnets.By(r, "network", network) {
				if s.IPVersion != b.IPVersion {
					continue
				}
				for g := range gatewaysOn(r, s) {
					if !yield(g) {
						return
					}
				}
			}
		}
	}
}

// gatewaysOn returns the addresses that routers have on a subnet as their gateways.
func gatewaysOn(r records.Reader, s *neutron.Subnet) iter.Seq[bgpGateway] {
	return func(yield func(bgpGateway) bool) {
		for x := range schema.RouterPorts.By(r, "subnet", s.ID) {
			port, ok := schema.Ports.Peek(r, x.PortID)
			if !ok || !x.Gateway {
				continue
			}
			for _, a := range port.FixedIPs {
				if a.SubnetID == s.ID && !yield(bgpGateway{x, s, a.IPAddress}) {
					return
				}
			}
		}
	}
}

// destinations returns what a speaker announces by a gateway: the floating IPs that it serves, and
// the subnets behind its router in the address scope of the gateway's own.
func (g bgpGateway) destinations(r records.Reader, b *neutron.BGPSpeaker) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		if b.AdvertisesFloatingIPs && b.IPVersion == 4 {
			for f := range schema.FloatingIPs.By(r, "served_by", g.PortID) {
				if !yield(netip.PrefixFrom(f.FloatingIPAddress, f.FloatingIPAddress.BitLen())) {
					return
				}
			}
		}
		scope := scopeOf(r, g.subnet)
		if !b.AdvertisesNetworks || scope == "" {
			return
		}
		for x := range schema.RouterPorts.By(r, "router", g.RouterID) {
			if x.Gateway {
				continue
			}
			for _, id := range x.SubnetIDs {
				s, ok := schema.Subnets.Peek(r, id)
				if ok && s.IPVersion == b.IPVersion && s.NetworkID != g.subnet.NetworkID && scopeOf(r, s) == scope && !yield(s.CIDR) {
					return
				}
			}
		}
	}
}

// scopeOf returns the address scope of a subnet's pool, or "".
func scopeOf(r records.Reader, s *neutron.Subnet) string {
	if p, ok := schema.SubnetPools.Peek(r, s.SubnetPoolID); ok {
		return p.AddressScopeID
	}
	return ""
}
