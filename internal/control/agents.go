package control

import (
	"context"
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Every host is one agent of the type that Neutron's clients expect on a host with machines: its id is the host's, and it
// is alive while the host holds its lease (neutron-api §8). What operators say about it is kept beside the host.

// listAgents lists the agents of all hosts, alive or not.
func (s *Service) listAgents(ctx context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.AgentView], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.AgentView) bool) {
		if !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
			return
		}
		for h := range schema.Hosts.All(snap) {
			if !yield(s.agentView(snap, h)) {
				return
			}
		}
	}, nil
}

// showAgent returns the agent of one host.
func (s *Service) showAgent(ctx context.Context, c neutron.Caller, id string) (*neutron.AgentView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	h, ok := schema.Hosts.Peek(snap, id)
	if !ok || !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
		return nil, neutron.Agents.NotFound(id)
	}
	return s.agentView(snap, h), nil
}

// updateAgent sets the description of an agent and whether operators want it up, which only Neutron's schedulers look at.
func (s *Service) updateAgent(ctx context.Context, c neutron.Caller, id string, v neutron.Values, _ *int64) (*neutron.AgentView, error) {
	return transact(ctx, s, c, func(o *operation) (*neutron.AgentView, error) {
		h, err := schema.Hosts.Need(o.tx, id)
		if err != nil || !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
			return nil, neutron.Agents.NotFound(id)
		}
		if err := neutron.Authorize(c, neutron.Agents, neutron.Update, v, neutron.Owner{}); err != nil {
			return nil, err
		}
		settings := schema.AgentSettings{HostID: id, AdminStateUp: true}
		if old, err := schema.Agents.Get(o.tx, id); err == nil {
			settings = *old
		}
		if v.Has("admin_state_up") {
			settings.AdminStateUp = v.Flag("admin_state_up")
		}
		if v.Has("description") {
			settings.Description = v.Text("description")
		}
		if err := schema.Agents.Put(o.tx, &settings); err != nil {
			return nil, err
		}
		return s.agentView(o.tx, h), nil
	})
}

// deleteAgent refuses: an agent goes with its host, whose rights in the store are not Neutron's to take.
func (s *Service) deleteAgent(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
	agent, err := s.showAgent(ctx, c, id)
	if err != nil {
		return err
	}
	return conflict("AgentInUse", "Agent %s goes when its host does. Remove the host: heddle host remove %s.", id, agent.Host)
}

func (s *Service) agentView(r records.Reader, h *topology.Host) *neutron.AgentView {
	v := &neutron.AgentView{
		ID:             h.ID,
		AgentType:      "Open vSwitch agent",
		Binary:         "heddle-agent",
		Host:           h.Name,
		Topic:          "N/A",
		AdminStateUp:   true,
		Configurations: map[string]any{"tunnel_types": []string{typeVXLAN}, "bridge_mappings": map[string]any{}},
	}
	if h, ok := schema.HostWithTunnels(r, h.ID); ok && len(h.Tunnels) > 0 {
		v.Configurations["tunneling_ip"] = h.Tunnels[0].IP.String()
	}
	if settings, ok := schema.Agents.Peek(r, h.ID); ok {
		v.AdminStateUp, v.Description = settings.AdminStateUp, settings.Description
	}
	if state, alive := schema.HostStates.Peek(r, h.ID); alive {
		v.Alive = true
		v.CreatedAt, v.StartedAt, v.HeartbeatAt = state.StartedAt, state.StartedAt, s.opts.Now()
		v.Configurations["version"], v.Configurations["mtu"] = state.Version, state.MTU
	}
	return v
}
