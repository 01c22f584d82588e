package control

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// advertisedRoutes returns what a speaker announces: while it has peers the networks and the extra
// routes of its router, and with a gateway network the router's floating IPs too, each by each of
// the addresses by which peers see the router. A destination that contains the next hop is left
// out.
func (s bgpSpeakers) advertisedRoutes(ctx context.Context, c neutron.Caller, id string) ([]neutron.BGPRoute, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := schema.BGPSpeakers.Peek(snap, id)
	if !ok || !s.sees(snap, c, b) {
		return nil, s.name.NotFound(id)
	}
	if b.RouterID == "" {
		return nil, nil
	}
	x, err := routerBGP(snap, b)
	if err != nil {
		return nil, err
	}
	destinations := bgpDestinations(snap, x)
	hops := x.BGPNextHops()
	if len(b.PeerIDs) == 0 {
		hops = addressesOn(x, b.NetworkIDs)
	}
	var routes []neutron.BGPRoute
	for _, hop := range hops {
		for _, d := range destinations {
			if !d.Contains(hop) {
				routes = append(routes, neutron.BGPRoute{Destination: d, NextHop: hop})
			}
		}
	}
	slices.SortFunc(routes, func(a, b neutron.BGPRoute) int {
		return cmp.Or(neutron.ComparePrefixes(a.Destination, b.Destination), a.NextHop.Compare(b.NextHop))
	})
	return slices.Compact(routes), nil
}

// bgpDestinations returns what is announced of a router, some of it more than once.
func bgpDestinations(r records.Reader, x *translate.RouterBGP) []netip.Prefix {
	var all []netip.Prefix
	speaker := x.Bundle().BgpSpeakers[0]
	if len(x.Peers) > 0 {
		all = speaker.Announced
	}
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

// addressesOn returns the IPv4 addresses that a router has on networks.
func addressesOn(x *translate.RouterBGP, networks []string) []netip.Addr {
	var all []netip.Addr
	for i := range x.Links {
		if p := x.Links[i].Port; slices.Contains(networks, p.NetworkID) {
			all = append(all, ipv4Of(p)...)
		}
	}
	return all
}
