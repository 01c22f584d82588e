package control

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// advertisedRoutes returns what a speaker announces: the networks and the extra routes of its
// router, and with a gateway network the router's floating IPs too, each by each of the addresses
// by which peers see the router. A destination that contains the next hop is left out.
//
// A speaker without a router or without peers announces nothing yet. Its routes are those that a
// speaker of its gateway networks has in the reference.
func (s bgpSpeakers) advertisedRoutes(ctx context.Context, c neutron.Caller, id string) ([]neutron.BGPRoute, error) {
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := schema.BGPSpeakers.Peek(snap, id)
	if !ok || !s.sees(snap, c, b) {
		return nil, s.name.NotFound(id)
	}
	var routes []neutron.BGPRoute
	if b.RouterID == "" || len(b.PeerIDs) == 0 {
		routes = networkRoutes(snap, b)
	} else if routes, err = routerRoutes(snap, b); err != nil {
		return nil, err
	}
	slices.SortFunc(routes, func(a, b neutron.BGPRoute) int {
		return cmp.Or(neutron.ComparePrefixes(a.Destination, b.Destination), a.NextHop.Compare(b.NextHop))
	})
	return slices.Compact(routes), nil
}

// routerRoutes returns what the speaker of a router announces, some of it more than once.
func routerRoutes(r records.Reader, b *neutron.BGPSpeaker) ([]neutron.BGPRoute, error) {
	x, err := routerBGP(r, b)
	if err != nil {
		return nil, err
	}
	var routes []neutron.BGPRoute
	destinations := bgpDestinations(r, x)
	for _, hop := range x.BGPNextHops() {
		for _, d := range destinations {
			if !d.Contains(hop) {
				routes = append(routes, neutron.BGPRoute{Destination: d, NextHop: hop})
			}
		}
	}
	return routes, nil
}

// bgpDestinations returns what is announced of a router, some of it more than once.
func bgpDestinations(r records.Reader, x *translate.RouterBGP) []netip.Prefix {
	speaker := x.Bundle().BgpSpeakers[0]
	all := slices.Clone(speaker.Announced)
	if !speaker.AnnouncesFloating {
		return all
	}
	for i := range x.Links {
		for f := range schema.FloatingIPs.By(r, "served_by", x.Links[i].Port.ID) {
			all = append(all, netip.PrefixFrom(f.FloatingIPAddress, f.FloatingIPAddress.BitLen()))
		}
	}
	return all
}

// networkRoutes returns what is behind routers with a gateway on a gateway network of a speaker, by
// the gateway's addresses of the speaker's IP version, some of it more than once:
//
//	floating IP ──served by──▶ gateway port ──on──▶ subnet ──of──▶ gateway network ◀── speaker
//	subnet ◀── interface ── router ──┘                 └── pool ──▶ address scope
func networkRoutes(r records.Reader, b *neutron.BGPSpeaker) []neutron.BGPRoute {
	var routes []neutron.BGPRoute
	for gateway := range gatewaysOf(r, b) {
		for destination := range gateway.destinations(r, b) {
			routes = append(routes, neutron.BGPRoute{Destination: destination, NextHop: gateway.address})
		}
	}
	return routes
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

// destinations returns what a speaker would announce by a gateway: the floating IPs that it serves,
// and the subnets behind its router in the address scope of the gateway's own.
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
