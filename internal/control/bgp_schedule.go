package control

import (
	"context"

	"heddle/internal/neutron"
)

// BGPSchedule returns the operations on the speakers of dynamic-routing agents (neutron-api §9). No
// host runs such an agent: none has a speaker, and each is refused one as an agent of another kind.
func (s *Service) BGPSchedule() AgentSchedule[neutron.BGPSpeaker] {
	refuse := func(rule string) func(ctx context.Context, c neutron.Caller, agentID, id string) error {
		return func(ctx context.Context, c neutron.Caller, agentID, _ string) error {
			if err := s.findAgent(ctx, c, rule, agentID); err != nil {
				return err
			}
			return neutron.Errorf(neutron.NotFound, "DrAgentInvalid", "BgpDrAgent %s is invalid or has been disabled.", agentID)
		}
	}
	return AgentSchedule[neutron.BGPSpeaker]{
		List: func(ctx context.Context, c neutron.Caller, agentID string) ([]*neutron.BGPSpeaker, error) {
			return nil, s.findAgent(ctx, c, "list_bgp_speaker_on_dragent", agentID)
		},
		Add: refuse("add_bgp_speaker_to_dragent"), Remove: refuse("remove_bgp_speaker_from_dragent"),
		Agents: func(_ context.Context, c neutron.Caller, _ string) ([]*neutron.AgentView, error) {
			return nil, neutron.AuthorizeAdmin(c, "list_dragent_hosting_bgp_speaker")
		},
	}
}

// findAgent reports whether the caller may do something with an agent that is there; rule is the
// name of its policy.
func (s *Service) findAgent(ctx context.Context, c neutron.Caller, rule, id string) error {
	if err := neutron.AuthorizeAdmin(c, rule); err != nil {
		return err
	}
	_, err := agents{s}.show(ctx, c, id)
	return err
}
