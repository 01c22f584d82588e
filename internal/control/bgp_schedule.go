package control

import (
	"cmp"
	"context"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// BGPSchedule returns the operations on the speakers of dynamic-routing agents (neutron-api §9,
// services §6.1). A speaker is on the host that runs its container, and clients cannot move it.
func (s *Service) BGPSchedule() AgentSchedule[*neutron.BGPSpeaker] {
	refuse := func(rule string) func(ctx context.Context, c neutron.Caller, agentID, id string) error {
		return func(ctx context.Context, c neutron.Caller, agentID, id string) error {
			if _, err := s.agentFor(ctx, c, rule, agentID); err != nil {
				return err
			}
			return conflict("BgpSpeakerScheduled", "BGP speakers are given to hosts by the server, where their routers' uplinks are: "+
				"agent %s and speaker %s cannot be joined or parted by clients.", agentID, id)
		}
	}
	return AgentSchedule[*neutron.BGPSpeaker]{
		List: func(ctx context.Context, c neutron.Caller, agentID string) ([]*neutron.BGPSpeaker, error) {
			a, err := s.agentFor(ctx, c, "list_bgp_speaker_on_dragent", agentID)
			if err != nil || a.function != schema.BGPAgent {
				return nil, err
			}
			snap, err := s.view(ctx)
			if err != nil {
				return nil, err
			}
			return speakersAt(snap, a.host.ID), nil
		},
		Add: refuse("add_bgp_speaker_to_dragent"), Remove: refuse("remove_bgp_speaker_from_dragent"),
		Agents: s.agentsOfSpeaker,
	}
}

// agentsOfSpeaker returns the agent of the host that runs a speaker, if one does.
func (s *Service) agentsOfSpeaker(ctx context.Context, c neutron.Caller, id string) ([]*neutron.AgentView, error) {
	if err := neutron.AuthorizeAdmin(c, "list_dragent_hosting_bgp_speaker"); err != nil {
		return nil, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := schema.BGPSpeakers.Peek(snap, id)
	if !ok {
		return nil, nil
	}
	host := hostOfSpeaker(snap, b)
	h, ok := schema.Hosts.Peek(snap, host)
	if !ok {
		return nil, nil
	}
	return []*neutron.AgentView{agents{s}.answer(snap, agent{id: schema.AgentID(host, schema.BGPAgent), host: h, function: schema.BGPAgent})}, nil
}

// hostOfSpeaker returns the host that runs a speaker's container, or "".
func hostOfSpeaker(r records.Reader, b *neutron.BGPSpeaker) string {
	if b.RouterID == "" {
		return ""
	}
	if c, ok := schema.ContainerBindings.Peek(r, translate.BGPContainer(b.RouterID)); ok {
		return c.HostID
	}
	return ""
}

// speakersAt returns the speakers whose containers a host runs, in order of ids. Its cost follows
// the host's containers.
func speakersAt(r records.Reader, host string) (all []*neutron.BGPSpeaker) {
	for binding := range schema.ContainerBindings.By(r, "host", host) {
		b, ok := schema.Bundles.Peek(r, schema.ContainerBundleID(binding.ContainerID))
		if !ok {
			continue
		}
		for i := range b.Bundle.ServiceContainers {
			if c := &b.Bundle.ServiceContainers[i]; c.ServiceType == topology.ContainerBGP {
				all = slices.AppendSeq(all, schema.BGPSpeakers.By(r, "router", c.ConfigurationID))
			}
		}
	}
	slices.SortFunc(all, func(a, b *neutron.BGPSpeaker) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// bgpConfiguration returns what the dynamic-routing agent of a host says of its work.
func bgpConfiguration(r records.Reader, host string) map[string]any {
	speakers, peers, routes := 0, 0, 0
	for _, b := range speakersAt(r, host) {
		speakers, peers = speakers+1, peers+len(b.PeerIDs)
		for state := range schema.BGPStates.By(r, "router", b.RouterID) {
			if state.HostID != host {
				continue
			}
			for i := range state.Peers {
				routes += state.Peers[i].Advertised
			}
		}
	}
	return map[string]any{"bgp_speakers": speakers, "bgp_peers": peers, "advertise_routes": routes}
}

// agentFor finds an agent if the caller may do something with it; rule is the name of the policy.
func (s *Service) agentFor(ctx context.Context, c neutron.Caller, rule, id string) (agent, error) {
	if err := neutron.AuthorizeAdmin(c, rule); err != nil {
		return agent{}, err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return agent{}, err
	}
	return agents{s}.find(snap, c, id)
}
