package control

import (
	"context"
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Neutron's clients expect one agent per host: its id is the host's, and it is alive while the host
// holds its lease (neutron-api §8). Operators' settings are stored beside the host.

// agents are the operations on agents.
type agents struct{ *Service }

// list lists the agents of all hosts, alive or not.
func (s agents) list(ctx context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.AgentView], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.AgentView) bool) {
		if !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
			return
		}
		for h := range schema.Hosts.All(snap) {
			if !yield(s.answer(snap, h)) {
				return
			}
		}
	}, nil
}

// show returns the agent of one host.
func (s agents) show(ctx context.Context, c neutron.Caller, id string) (*neutron.AgentView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	h, ok := schema.Hosts.Peek(snap, id)
	if !ok || !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
		return nil, neutron.Agents.NotFound(id)
	}
	return s.answer(snap, h), nil
}

// update sets the description and admin state of an agent, which only Neutron's schedulers read.
func (s agents) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, _ *int64) (*neutron.AgentView, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.AgentView, error) {
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
		setFlag(&settings.AdminStateUp, v, "admin_state_up")
		setText(&settings.Description, v, "description")
		if err := schema.Agents.Put(o.tx, &settings); err != nil {
			return nil, err
		}
		return s.answer(o.tx, h), nil
	})
}

// delete refuses: an agent goes with its host, whose rights in the store are not Neutron's to take.
func (s agents) delete(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
	agent, err := s.show(ctx, c, id)
	if err != nil {
		return err
	}
	return conflict("AgentInUse", "Agent %s goes when its host does. Remove the host: heddle host remove %s.", id, agent.Host)
}

func (s agents) answer(r records.Reader, h *topology.Host) *neutron.AgentView {
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
	if u, ok := schema.Underlays.Peek(r, h.ID); ok && len(u.PhysicalNetworks) > 0 {
		v.Configurations["bridge_mappings"] = u.PhysicalNetworks
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
