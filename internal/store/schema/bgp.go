package schema

import (
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// BGPPeers have passwords, which are in the store as they are.
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

// without removes an id from a list, in place.
func without(ids []string, id string) []string {
	return slices.DeleteFunc(ids, func(one string) bool { return one == id })
}
