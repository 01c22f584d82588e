package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// bgpPort is the TCP port that BGP speakers listen on (RFC 4271).
const bgpPort = 179

// RouterBGP has what the BGP of a router is derived from: the router with all its links, and the
// speaker with its peers, one at least.
type RouterBGP struct {
	Router  *neutron.Router
	Links   []RouterLink
	Speaker *neutron.BGPSpeaker
	Peers   []*neutron.BGPPeer
}

// BGPContainer returns the container of a router's BGP speaker.
func BGPContainer(router string) string { return Derive(roleBGPContainer, router) }

// Bundle translates the BGP of the router (midonet-translations §14, services §6). The speaker runs
// in a container of the router, which TCP of its peers is handed to whatever address of the router
// it is for:
//
//	peer ──▶ router's port ── redirect chain ──▶ container's port ──▶ speaker
//	     ◀── router's port ◀── routes ◀────────── container's port ◀──
//
// The container is an owner of its own, since the scheduler binds it to hosts.
func (x *RouterBGP) Bundle() topology.Bundle {
	b := topology.Bundle{BgpNetworks: x.networks()}
	chain := topology.Chain{ID: routerChain(roleChainRedirect, x.Router.ID), Name: "LOCAL_REDIRECT_" + x.Router.ID, Purpose: topology.PurposeLocalRedirect, TenantID: x.Router.ProjectID}
	for _, p := range x.Peers {
		b.BgpPeers = append(b.BgpPeers, topology.BgpPeer{
			ID: p.ID, RouterID: x.Router.ID, Address: p.PeerIP, ASNumber: p.RemoteAS, Password: p.Password,
		})
		chain.Rules = append(chain.Rules, x.redirects(p)...)
		if w, ok := towards(p.PeerIP, x.Links); ok && w.link.gateway() {
			b.Routes = append(b.Routes, portRoute(Derive(roleBGPRoute, p.ID), w.port, single(p.PeerIP)))
		}
	}
	b.Chains = []topology.Chain{chain}
	b.BgpSpeakers = []topology.BgpSpeaker{x.speaker(chain.ID)}
	return b
}

// redirects returns the rules for what a peer sends, whichever side opens the connection.
func (x *RouterBGP) redirects(p *neutron.BGPPeer) []topology.Rule {
	redirect := func(role string, set func(c *topology.Condition, port *topology.Range)) topology.Rule {
		c, from := unfragmented(), single(p.PeerIP)
		c.NwSrcIP, c.NwProto = &from, protocol(protoTCP)
		set(&c, ports(bgpPort, bgpPort))
		return topology.Rule{
			ID: Derive(role, p.ID), Type: topology.L2Transform, Action: topology.Redirect,
			TargetPortID: Derive(roleBGPPort, x.Router.ID), Condition: &c,
		}
	}
	return []topology.Rule{
		redirect(roleBGPRedirect, func(c *topology.Condition, port *topology.Range) { c.TpDst = port }),
		redirect(roleBGPRedirectInv, func(c *topology.Condition, port *topology.Range) { c.TpSrc = port }),
	}
}

// networks returns the destinations of the router: the networks of machines that it has interfaces
// on, and those of its extra routes.
func (x *RouterBGP) networks() []topology.BgpNetwork {
	var all []topology.BgpNetwork
	add := func(of string, subnet netip.Prefix) {
		n := topology.BgpNetwork{ID: Derive(roleBGPNetwork, of), RouterID: x.Router.ID, Subnet: subnet.Masked()}
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	for i := range x.Links {
		l := &x.Links[i]
		if a, ok := first4(l.addresses()); ok && l.tenant() {
			add(l.Port.ID, a.subnet.CIDR)
		}
	}
	for _, route := range x.Router.Routes {
		if _, ok := towards(route.Nexthop, x.Links); ok && route.Destination.Addr().Is4() {
			add(extraRoute(x.Router, route), route.Destination)
		}
	}
	slices.SortFunc(all, func(a, b topology.BgpNetwork) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// tenant reports whether a link is to a network of machines: neither to an external one nor to an
// uplink, which routes are announced to.
func (l *RouterLink) tenant() bool {
	return !l.gateway() && !l.Network.External && !Uplink(l.Network)
}

// up reports whether a link forwards packets.
func (l *RouterLink) up() bool {
	return l.Port.AdminStateUp && (!Uplink(l.Network) || l.Network.AdminStateUp)
}

// speaker returns the work of the speaker.
func (x *RouterBGP) speaker(chain string) topology.BgpSpeaker {
	s := topology.BgpSpeaker{
		RouterID: x.Router.ID, ContainerID: BGPContainer(x.Router.ID), ASNumber: x.Speaker.LocalAS, RedirectChainID: chain,
		Announced:         x.announced(),
		AnnouncesFloating: x.Router.AdminStateUp && x.Speaker.AdvertisesFloatingIPs && len(x.Speaker.NetworkIDs) > 0,
		Links:             x.links(),
	}
	for _, p := range x.Peers {
		session := topology.BgpSession{PeerID: p.ID}
		if w, ok := x.reach(p.PeerIP); ok {
			session.LocalAddress, session.PortID = w.address.ip, w.port
			if !s.Identifier.IsValid() || w.address.ip.Less(s.Identifier) {
				s.Identifier = w.address.ip
			}
		}
		s.Sessions = append(s.Sessions, session)
	}
	slices.SortFunc(s.Sessions, func(a, b topology.BgpSession) int { return cmp.Compare(a.PeerID, b.PeerID) })
	return s
}

// announced returns the destinations that are up, each once, in order.
func (x *RouterBGP) announced() []netip.Prefix {
	if !x.Router.AdminStateUp || !x.Speaker.AdvertisesNetworks {
		return nil
	}
	var all []netip.Prefix
	for i := range x.Links {
		l := &x.Links[i]
		if a, ok := first4(l.addresses()); ok && l.tenant() && l.up() {
			all = append(all, a.subnet.CIDR.Masked())
		}
	}
	for _, route := range x.Router.Routes {
		if w, ok := towards(route.Nexthop, x.Links); ok && w.link.up() && route.Destination.Addr().Is4() {
			all = append(all, route.Destination.Masked())
		}
	}
	slices.SortFunc(all, neutron.ComparePrefixes)
	return slices.Compact(all)
}

// links returns the router's ports with their IPv4 subnets.
func (x *RouterBGP) links() []topology.BgpLink {
	var all []topology.BgpLink
	for i := range x.Links {
		l := &x.Links[i]
		link := topology.BgpLink{PortID: l.routerPort(), Tenant: l.tenant()}
		for _, a := range l.addresses() {
			if a.ip.Is4() {
				link.Subnets = append(link.Subnets, a.subnet.CIDR.Masked())
				link.Addresses = append(link.Addresses, a.ip)
			}
		}
		if len(link.Subnets) == 0 {
			continue
		}
		slices.SortFunc(link.Subnets, neutron.ComparePrefixes)
		link.Subnets = slices.Compact(link.Subnets)
		slices.SortFunc(link.Addresses, netip.Addr.Compare)
		all = append(all, link)
	}
	slices.SortFunc(all, func(a, b topology.BgpLink) int { return cmp.Compare(a.PortID, b.PortID) })
	return all
}

// reach returns the router's address that a peer sees it by: that on the peer's subnet or, for a
// peer that is further away, on the subnet of the next hop of the router's own routes.
func (x *RouterBGP) reach(peer netip.Addr) (way, bool) {
	if w, ok := towards(peer, x.Links); ok {
		return w, true
	}
	bits, found := -1, way{}
	for _, route := range x.Router.Routes {
		if !route.Destination.Contains(peer) || route.Destination.Bits() <= bits {
			continue
		}
		if w, ok := towards(route.Nexthop, x.Links); ok {
			bits, found = route.Destination.Bits(), w
		}
	}
	if bits >= 0 {
		return found, true
	}
	return x.byDefault()
}

// byDefault returns the router's address at its first gateway.
func (x *RouterBGP) byDefault() (way, bool) {
	for i := range x.Links {
		l := &x.Links[i]
		if !l.gateway() || !isFirstGateway(x.Router, l.Port.ID) {
			continue
		}
		a, ok := first4(l.addresses())
		return way{l, l.routerPort(), a}, ok
	}
	return way{}, false
}

// BGPNextHops returns the addresses of the router by which its peers reach what it announces, in
// order.
func (x *RouterBGP) BGPNextHops() []netip.Addr {
	var all []netip.Addr
	for _, p := range x.Peers {
		if w, ok := x.reach(p.PeerIP); ok {
			all = append(all, w.address.ip)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// RouterBGPContainer returns the container of a router's BGP speaker, with the port by which the
// router reaches it. It runs where the router's uplinks are, if it has any that are bound. Whoever
// stores it gives the port its MAC address, its tunnel key and its host.
func RouterBGPContainer(router string, space LinkSpace) topology.Bundle {
	c := space.choose().port(Derive(roleBGPPort, router), router)
	group := Derive(roleBGPContainerGroup, router)
	return topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{
			ID: BGPContainer(router), ServiceType: topology.ContainerBGP, PortID: c.ID, ConfigurationID: router, ServiceGroupID: group,
		}},
		ServiceContainerGroups: []topology.ServiceContainerGroup{{ID: group, PortGroupID: statefulGroup(router)}},
		Ports:                  []topology.Port{c},
	}
}
