package schema

import (
	"errors"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// BGPPeers have passwords, which are in the store as they are. No host may read them here.
var BGPPeers = records.NewTable("bgp-peer", NeutronPrefix+"bgp-peers/", func(p *neutron.BGPPeer) string { return p.ID },
	records.Index("name", func(p *neutron.BGPPeer) []string { return []string{p.Name} }),
	records.Index("project", func(p *neutron.BGPPeer) []string { return []string{p.ProjectID} }),
)

// BGPSpeakers lose peers and networks that are deleted, and keep their router from being deleted.
// No two have a router or a peer in common.
var BGPSpeakers = records.NewTable("bgp-speaker", NeutronPrefix+"bgp-speakers/", func(s *neutron.BGPSpeaker) string { return s.ID },
	records.Ref("router", Routers, func(s *neutron.BGPSpeaker) []string { return []string{s.RouterID} }, records.Refuse()),
	records.Unique("one_speaker", func(s *neutron.BGPSpeaker) []string {
		if s.RouterID == "" {
			return nil
		}
		return []string{s.RouterID}
	}),
	records.Unique("one_speaker_of_peer", func(s *neutron.BGPSpeaker) []string { return s.PeerIDs }),
	records.Ref("peer", BGPPeers, func(s *neutron.BGPSpeaker) []string { return s.PeerIDs },
		records.ClearWith(func(s *neutron.BGPSpeaker, peer string) { s.PeerIDs = without(s.PeerIDs, peer) })),
	records.Ref("network", Networks, func(s *neutron.BGPSpeaker) []string { return s.NetworkIDs },
		records.ClearWith(func(s *neutron.BGPSpeaker, network string) { s.NetworkIDs = without(s.NetworkIDs, network) })),
	records.Index("name", func(s *neutron.BGPSpeaker) []string { return []string{s.Name} }),
	records.Index("project", func(s *neutron.BGPSpeaker) []string { return []string{s.ProjectID} }),
)

// BGPPasswords are "<host>/<router>": each is for the host to which the container of the router's
// speaker is bound, which reads those of its own alone.
var BGPPasswords = records.NewDerivedTable("bgp-passwords", SecretsPrefix+"*/bgp/",
	func(p *topology.BgpPasswords) string { return p.HostID + "/" + p.RouterID })

// GiveBGPPasswords lets a host read the passwords of the peers of a router's speaker, if there are
// any.
func GiveBGPPasswords(tx *records.Tx, routerID, hostID string) error {
	given := &topology.BgpPasswords{HostID: hostID, RouterID: routerID, Passwords: map[string]string{}}
	for _, id := range BGPSpeakers.Referrers(tx, "router", routerID) {
		speaker, err := BGPSpeakers.Get(tx, id)
		if err != nil {
			return err
		}
		for _, id := range speaker.PeerIDs {
			peer, err := BGPPeers.Get(tx, id)
			if err != nil {
				return err
			}
			if peer.Password != "" {
				given.Passwords[id] = peer.Password
			}
		}
	}
	if len(given.Passwords) == 0 {
		return TakeBGPPasswords(tx, routerID, hostID)
	}
	return BGPPasswords.Put(tx, given)
}

// TakeBGPPasswords takes away what GiveBGPPasswords has given to a host.
func TakeBGPPasswords(tx *records.Tx, routerID, hostID string) error {
	id := hostID + "/" + routerID
	_, err := BGPPasswords.Get(tx, id)
	switch {
	case errors.As(err, new(*records.NotFoundError)):
		return nil
	case err != nil:
		return err
	}
	return BGPPasswords.Delete(tx, id)
}

// without removes an id from a list, in place.
func without(ids []string, id string) []string {
	return slices.DeleteFunc(ids, func(one string) bool { return one == id })
}
