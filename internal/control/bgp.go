package control

import (
	"context"
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
	Operations[neutron.BGPSpeaker]
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
func (s *Service) BGPPeers() Operations[neutron.BGPPeer] {
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
	return b, schema.BGPSpeakers.Put(o.tx, b)
}

func (s bgpSpeakers) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.BGPSpeaker, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, b, _ *neutron.BGPSpeaker) error {
		setFlag(&b.AdvertisesFloatingIPs, v, "advertise_floating_ip_host_routes")
		setFlag(&b.AdvertisesNetworks, v, "advertise_tenant_networks")
		return nil
	}, put(schema.BGPSpeakers))
}

// delete deletes a speaker. Its peers stay.
func (s bgpSpeakers) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, drop(schema.BGPSpeakers))
}

// change changes a speaker by a function, which gets a copy of it.
func (s bgpSpeakers) change(ctx context.Context, c neutron.Caller, id string, f func(o *operation, b *neutron.BGPSpeaker) error) error {
	_, err := s.modify(ctx, c, id, nil, nil, func(o *operation, b, _ *neutron.BGPSpeaker) error { return f(o, b) }, put(schema.BGPSpeakers))
	return err
}

func (s bgpSpeakers) addPeer(ctx context.Context, c neutron.Caller, id, peerID string) error {
	return s.change(ctx, c, id, func(o *operation, b *neutron.BGPSpeaker) error {
		peer, err := schema.BGPPeers.Need(o.tx, peerID)
		if err != nil {
			return neutron.BGPPeers.NotFound(peerID)
		}
		for _, one := range b.PeerIDs {
			if other, ok := schema.BGPPeers.Peek(o.tx, one); ok && other.PeerIP == peer.PeerIP {
				return conflict("DuplicateBgpPeerIpException", "BGP Speaker %s is already configured to peer with a BGP Peer at %s, "+
					"it cannot peer with BGP Peer %s.", id, peer.PeerIP, peerID)
			}
		}
		b.PeerIDs = append(slices.Clone(b.PeerIDs), peerID)
		return neutron.CheckList("peers", len(b.PeerIDs))
	})
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

func (s bgpSpeakers) addNetwork(ctx context.Context, c neutron.Caller, id, network string) error {
	return s.change(ctx, c, id, func(o *operation, b *neutron.BGPSpeaker) error {
		if _, err := o.networkFor(network); err != nil {
			return err
		}
		if slices.Contains(b.NetworkIDs, network) {
			return conflict("BgpSpeakerNetworkBindingError", "Network %s is already bound to BgpSpeaker %s.", network, id)
		}
		b.NetworkIDs = append(slices.Clone(b.NetworkIDs), network)
		return neutron.CheckList("networks", len(b.NetworkIDs))
	})
}

func (s bgpSpeakers) removeNetwork(ctx context.Context, c neutron.Caller, id, network string) error {
	return s.change(ctx, c, id, func(_ *operation, b *neutron.BGPSpeaker) error {
		i := slices.Index(b.NetworkIDs, network)
		if i < 0 {
			return neutron.Errorf(neutron.NotFound, "BgpSpeakerNetworkNotAssociated", "Network %s is not associated with BGP speaker %s.", network, id)
		}
		b.NetworkIDs = slices.Delete(slices.Clone(b.NetworkIDs), i, i+1)
		return nil
	})
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
	}, put(schema.BGPPeers))
}

// delete deletes a peer, and takes it from its speakers.
func (s bgpPeers) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, drop(schema.BGPPeers))
}
