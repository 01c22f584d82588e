package control

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// The operations on BGP speakers and their peers. They are for admins.
type (
	bgpSpeakers struct {
		*resource[neutron.BGPSpeaker, neutron.BGPSpeaker]
	}
	bgpPeers struct {
		*resource[neutron.BGPPeer, neutron.BGPPeer]
	}
)

func newBGPSpeakers(s *Service) *resource[neutron.BGPSpeaker, neutron.BGPSpeaker] {
	t := schema.BGPSpeakers
	return asStored(s, neutron.BGPSpeakers, forAdmins(t, byName(t), byProject(t)),
		func(b *neutron.BGPSpeaker) *neutron.Standard { return &b.Standard }, (*operation).createBGPSpeaker)
}

func newBGPPeers(s *Service) *resource[neutron.BGPPeer, neutron.BGPPeer] {
	t := schema.BGPPeers
	return asStored(s, neutron.BGPPeers, forAdmins(t, byName(t), byProject(t)),
		func(p *neutron.BGPPeer) *neutron.Standard { return &p.Standard }, (*operation).createBGPPeer)
}

// BGPSpeakerOperations are the operations on BGP speakers (neutron-api §9).
type BGPSpeakerOperations struct {
	Operations[*neutron.BGPSpeaker]
	// AddPeer gives a speaker a peer, RemovePeer takes it away.
	AddPeer, RemovePeer func(ctx context.Context, c neutron.Caller, id, peer string) error
	// AddNetwork makes a network a gateway network of a speaker, RemoveNetwork no longer.
	AddNetwork, RemoveNetwork func(ctx context.Context, c neutron.Caller, id, network string) error
	// AdvertisedRoutes returns what a speaker announces to its peers, in order of destinations.
	AdvertisedRoutes func(ctx context.Context, c neutron.Caller, id string) ([]neutron.BGPRoute, error)
}

// BGPSpeakers returns the operations on BGP speakers.
func (s *Service) BGPSpeakers() BGPSpeakerOperations {
	b := s.bgpSpeakers
	o := b.untagged()
	o.Update, o.Delete = b.update, b.delete
	return BGPSpeakerOperations{
		Operations: o,
		AddPeer:    b.addPeer, RemovePeer: b.removePeer, AddNetwork: b.addNetwork, RemoveNetwork: b.removeNetwork,
		AdvertisedRoutes: b.advertisedRoutes,
	}
}

// BGPPeers returns the operations on the peers of BGP speakers.
func (s *Service) BGPPeers() Operations[*neutron.BGPPeer] {
	o := s.bgpPeers.untagged()
	o.Update, o.Delete = s.bgpPeers.update, s.bgpPeers.delete
	return o
}

// createBGPSpeaker makes a speaker without peers and networks. It is of the caller's project
// whatever the request says, as in the reference.
func (o *operation) createBGPSpeaker(_ context.Context, v neutron.Values) (*neutron.BGPSpeaker, error) {
	b := &neutron.BGPSpeaker{
		Standard: o.standard(v, 0), LocalAS: uint32(number(v, "local_as")), IPVersion: number(v, "ip_version"),
		AdvertisesFloatingIPs: v.Flag("advertise_floating_ip_host_routes"), AdvertisesNetworks: v.Flag("advertise_tenant_networks"),
	}
	b.ProjectID = o.caller.ProjectID
	if err := neutron.CheckBGPSpeaker(b); err != nil {
		return nil, err
	}
	router, other := v.Text("logical_router"), v.Text("router_id")
	if router != "" && other != "" && router != other {
		return nil, invalid("logical_router %s and router_id %s of a BGP speaker are different routers: give one of them", router, other)
	}
	if router = cmp.Or(router, other); router != "" {
		if err := o.giveRouter(b, router); err != nil {
			return nil, err
		}
	}
	return b, schema.BGPSpeakers.Put(o.tx, b)
}

// giveRouter makes a router that of a speaker. It has no other.
func (o *operation) giveRouter(b *neutron.BGPSpeaker, router string) error {
	if _, err := schema.Routers.Need(o.tx, router); err != nil {
		return neutron.Routers.NotFound(router)
	}
	other, err := o.speakerOf(router)
	if err != nil {
		return err
	}
	if other != nil {
		return conflict("RouterInUse", "Router %s is already associated with bgp speaker %s.", router, other.ID)
	}
	b.RouterID = router
	return nil
}

func (s bgpSpeakers) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.BGPSpeaker, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, b, _ *neutron.BGPSpeaker) error {
		setFlag(&b.AdvertisesFloatingIPs, v, "advertise_floating_ip_host_routes")
		setFlag(&b.AdvertisesNetworks, v, "advertise_tenant_networks")
		return nil
	}, (*operation).putSpeaker)
}

// putSpeaker stores a speaker with what is derived from it.
func (o *operation) putSpeaker(b *neutron.BGPSpeaker) error {
	if err := schema.BGPSpeakers.Put(o.tx, b); err != nil {
		return err
	}
	return o.deriveBGP(b)
}

// delete deletes a speaker. Its sessions end, and its peers stay.
func (s bgpSpeakers) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, old *neutron.BGPSpeaker) error {
		b := *old
		b.PeerIDs = nil
		if err := o.deriveBGP(&b); err != nil {
			return err
		}
		return schema.BGPSpeakers.Delete(o.tx, id)
	})
}

// change changes a speaker by a function, which gets a copy of it.
func (s bgpSpeakers) change(ctx context.Context, c neutron.Caller, id string, f func(o *operation, b *neutron.BGPSpeaker) error) error {
	_, err := s.modify(ctx, c, id, nil, nil, func(o *operation, b, _ *neutron.BGPSpeaker) error { return f(o, b) }, (*operation).putSpeaker)
	return err
}

func (s bgpSpeakers) addPeer(ctx context.Context, c neutron.Caller, id, peerID string) error {
	return s.change(ctx, c, id, func(o *operation, b *neutron.BGPSpeaker) error { return o.addPeer(b, peerID) })
}

// addPeer gives a speaker a peer, which no other speaker has.
func (o *operation) addPeer(b *neutron.BGPSpeaker, peerID string) error {
	peer, err := schema.BGPPeers.Need(o.tx, peerID)
	if err != nil {
		return neutron.BGPPeers.NotFound(peerID)
	}
	for _, one := range b.PeerIDs {
		if other, ok := schema.BGPPeers.Peek(o.tx, one); ok && other.PeerIP == peer.PeerIP {
			return conflict("DuplicateBgpPeerIpException", "BGP Speaker %s is already configured to peer with a BGP Peer at %s, "+
				"it cannot peer with BGP Peer %s.", b.ID, peer.PeerIP, peerID)
		}
	}
	for _, other := range schema.BGPSpeakers.Referrers(o.tx, "peer", peerID) {
		return conflict("MidonetBgpPeerInUse", "BGP peer %s is already associated with BGP speaker %s.", peerID, other)
	}
	if err := neutron.CheckBGPSession(peer); err != nil {
		return err
	}
	b.PeerIDs = append(slices.Clone(b.PeerIDs), peerID)
	return neutron.CheckList("peers", len(b.PeerIDs))
}

func (s bgpSpeakers) removePeer(ctx context.Context, c neutron.Caller, id, peerID string) error {
	return s.change(ctx, c, id, func(_ *operation, b *neutron.BGPSpeaker) error {
		i := slices.Index(b.PeerIDs, peerID)
		if i < 0 {
			return neutron.Errorf(neutron.NotFound, "BgpSpeakerPeerNotAssociated", "BGP peer %s is not associated with BGP speaker %s.", peerID, id)
		}
		b.PeerIDs = slices.Delete(slices.Clone(b.PeerIDs), i, i+1)
		return nil
	})
}

// addNetwork gives a speaker a gateway network, and with it the router that leads there. If there
// is none the speaker waits for it.
func (s bgpSpeakers) addNetwork(ctx context.Context, c neutron.Caller, id, network string) error {
	return s.change(ctx, c, id, func(o *operation, b *neutron.BGPSpeaker) error {
		n, err := o.networkFor(network)
		switch {
		case err != nil:
			return err
		case slices.Contains(b.NetworkIDs, network):
			return conflict("BgpSpeakerNetworkBindingError", "Network %s is already bound to BgpSpeaker %s.", network, id)
		case b.RouterID != "":
			return conflict("BgpSpeakerInUse", "BGP Speaker %s is already associated with router.", id)
		case !n.External:
			return neutron.Errorf(neutron.Invalid, "NetworkTypeInvalid", "Only external network can be specified.")
		}
		b.NetworkIDs = append(slices.Clone(b.NetworkIDs), network)
		if err := neutron.CheckList("networks", len(b.NetworkIDs)); err != nil {
			return err
		}
		router, err := o.routerToward(network)
		if router == "" || err != nil {
			return err
		}
		return o.giveRouter(b, router)
	})
}

// routerToward returns the router that leads to an external network: the one that has the gateway
// address of its first subnet or, if no port has that, the only one with a gateway on the network;
// "" if there is no such router.
func (o *operation) routerToward(network string) (string, error) {
	schema.Subnets.Referrers(o.tx, "network", network)
	subnets := slices.Collect(schema.Subnets.By(o.tx, "network", network))
	if len(subnets) == 0 {
		return "", neutron.Errorf(neutron.Invalid, "NoSubnetInNetwork", "No subnets in the network: %s.", network)
	}
	first := slices.MinFunc(subnets, func(a, b *neutron.Subnet) int {
		return cmp.Or(cmp.Compare(a.IPVersion, b.IPVersion), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	if first.GatewayIP == nil {
		return "", neutron.Errorf(neutron.Invalid, "NoGatewayIpOnSubnet", "No gateway IP on subnet: %s.", first.ID)
	}
	var routers []string
	for _, s := range subnets {
		for _, id := range schema.RouterPorts.Referrers(o.tx, "subnet", s.ID) {
			x, err := schema.RouterPorts.Get(o.tx, id)
			if err != nil {
				return "", err
			}
			if p, ok := schema.Ports.Peek(o.tx, id); ok && hasAddress(p, first.ID, *first.GatewayIP) {
				return x.RouterID, nil
			}
			if x.Gateway && !slices.Contains(routers, x.RouterID) {
				routers = append(routers, x.RouterID)
			}
		}
	}
	if len(routers) != 1 || schema.Ports.CountBy(o.tx, "ip", schema.PortIP(first.ID, *first.GatewayIP)) > 0 {
		return "", nil
	}
	return routers[0], nil
}

// availableRouterToward is routerToward for a speaker that waits for a router: a network without a
// subnet or without a gateway address is no error, but has no router yet.
func (o *operation) availableRouterToward(network string) (string, error) {
	router, err := o.routerToward(network)
	if errors.As(err, new(*neutron.Error)) {
		return "", nil
	}
	return router, err
}

func hasAddress(p *neutron.Port, subnet string, a netip.Addr) bool {
	return slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.SubnetID == subnet && f.IPAddress == a })
}

// removeNetwork takes a gateway network from a speaker, which then has the router that another of
// its networks leads to, if any. With peers, a speaker keeps its network and its router.
func (s bgpSpeakers) removeNetwork(ctx context.Context, c neutron.Caller, id, network string) error {
	return s.change(ctx, c, id, func(o *operation, b *neutron.BGPSpeaker) error {
		i := slices.Index(b.NetworkIDs, network)
		switch {
		case i < 0:
			return neutron.Errorf(neutron.NotFound, "BgpSpeakerNetworkNotAssociated", "Network %s is not associated with BGP speaker %s.", network, id)
		case len(b.PeerIDs) > 0 && b.RouterID != "":
			return conflict("BgpSpeakerInUse", "BGP Speaker %s is still associated with bgp peers.", id)
		}
		b.NetworkIDs = slices.Delete(slices.Clone(b.NetworkIDs), i, i+1)
		return o.seekRouter(b)
	})
}

// leaveSpeakers takes a network that is deleted from speakers. One with peers keeps its router.
func (o *operation) leaveSpeakers(network string) error {
	for _, id := range schema.BGPSpeakers.Referrers(o.tx, "network", network) {
		old, err := schema.BGPSpeakers.Get(o.tx, id)
		if err != nil {
			return err
		}
		b := *old
		b.NetworkIDs = slices.DeleteFunc(slices.Clone(b.NetworkIDs), func(n string) bool { return n == network })
		if len(b.PeerIDs) == 0 {
			if err := o.seekRouter(&b); err != nil {
				return err
			}
		}
		if err := o.putSpeaker(&b); err != nil {
			return err
		}
	}
	return nil
}

// seekRouter gives a speaker the router without another speaker that one of its gateway networks
// leads to, or none.
func (o *operation) seekRouter(b *neutron.BGPSpeaker) error {
	b.RouterID = ""
	for _, network := range b.NetworkIDs {
		router, err := o.availableRouterToward(network)
		if err != nil {
			return err
		}
		if router == "" {
			continue // it waits
		}
		other, err := o.speakerOf(router)
		if err != nil {
			return err
		}
		if other == nil || other.ID == b.ID {
			b.RouterID = router
			return nil
		}
	}
	return nil
}

func (o *operation) createBGPPeer(_ context.Context, v neutron.Values) (*neutron.BGPPeer, error) {
	p, err := neutron.NewBGPPeer(v)
	if err != nil {
		return nil, err
	}
	p.Standard = o.standard(v, 0)
	return p, schema.BGPPeers.Put(o.tx, p)
}

// update changes the name and the password of a peer.
func (s bgpPeers) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.BGPPeer, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, p, _ *neutron.BGPPeer) error {
		if !v.Has("password") {
			return nil
		}
		return p.SetPassword(v)
	}, func(o *operation, p *neutron.BGPPeer) error {
		if err := schema.BGPPeers.Put(o.tx, p); err != nil {
			return err
		}
		return o.changeSpeakerOf(id, (*operation).deriveBGP)
	})
}

// delete deletes a peer, and takes it from its speaker.
func (s bgpPeers) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.BGPPeer) error {
		err := o.changeSpeakerOf(id, func(o *operation, old *neutron.BGPSpeaker) error {
			b := *old
			b.PeerIDs = slices.DeleteFunc(slices.Clone(b.PeerIDs), func(one string) bool { return one == id })
			return o.putSpeaker(&b)
		})
		if err != nil {
			return err
		}
		return schema.BGPPeers.Delete(o.tx, id)
	})
}

// changeSpeakerOf calls f with the speaker that has a peer, if there is one.
func (o *operation) changeSpeakerOf(peer string, f func(o *operation, b *neutron.BGPSpeaker) error) error {
	ids := schema.BGPSpeakers.Referrers(o.tx, "peer", peer)
	if len(ids) == 0 {
		return nil
	}
	b, err := schema.BGPSpeakers.Get(o.tx, ids[0])
	if err != nil {
		return err
	}
	return f(o, b)
}
