package control

import (
	"context"
	"iter"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Neutron's clients expect an agent per function of a host. They are views of the host: that of L2
// has its id, and all are alive while the host holds its lease (neutron-api §8). Operators'
// settings are stored beside the host.

// agents are the operations on agents.
type agents struct{ *Service }

// Seconds for which an address is leased to a machine, as agents answer it.
const dhcpLeaseSeconds = 86400

// list lists the agents of all hosts, alive or not, in order of their ids.
func (s agents) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.AgentView], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	if !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
		return func(func(*neutron.AgentView) bool) {}, nil
	}
	var found []agent
	for h := range schema.Hosts.All(snap) {
		for _, f := range schema.AgentFunctions(snap, h.ID) {
			if a := (agent{id: schema.AgentID(h.ID, f), host: h, function: f}); q.InRange(a.id) && among(q.IDs, a.id) {
				found = append(found, a)
			}
		}
	}
	for d := range schema.GatewayDevices.All(snap) {
		if d.Managed() && q.InRange(d.ID) && among(q.IDs, d.ID) {
			found = append(found, agent{id: d.ID, gateway: d})
		}
	}
	return s.answers(snap, found), nil
}

// agent is one function of a host, or the connection to the switch of a gateway device.
type agent struct {
	id       string
	host     *topology.Host
	function schema.AgentFunction
	gateway  *neutron.GatewayDevice
}

// answers returns agents in order of their ids.
func (s agents) answers(r records.Reader, found []agent) iter.Seq[*neutron.AgentView] {
	slices.SortFunc(found, func(a, b agent) int { return strings.Compare(a.id, b.id) })
	return func(yield func(*neutron.AgentView) bool) {
		for _, a := range found {
			if !yield(s.answer(r, a)) {
				return
			}
		}
	}
}

// find finds an agent that the caller may see.
func (s agents) find(r records.Reader, c neutron.Caller, id string) (agent, error) {
	if !neutron.CanSee(c, neutron.Agents, neutron.Owner{}) {
		return agent{}, neutron.Agents.NotFound(id)
	}
	if d, ok := managedDevice(r, id); ok {
		return agent{id: id, gateway: d}, nil
	}
	h, f, ok := schema.HostOfAgent(r, id)
	if !ok {
		return agent{}, neutron.Agents.NotFound(id)
	}
	return agent{id: id, host: h, function: f}, nil
}

// show returns one agent.
func (s agents) show(ctx context.Context, c neutron.Caller, id string) (*neutron.AgentView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	a, err := s.find(snap, c, id)
	if err != nil {
		return nil, err
	}
	return s.answer(snap, a), nil
}

// update sets the description and admin state of an agent, which only Neutron's schedulers and
// availability zones read.
func (s agents) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, _ *int64) (*neutron.AgentView, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.AgentView, error) {
		a, err := s.find(o.tx, c, id)
		if err != nil {
			return nil, err
		}
		if a.gateway != nil {
			return nil, invalid("agent %s is the switch of a gateway device: change the device", id)
		}
		if _, err := schema.Hosts.Need(o.tx, a.host.ID); err != nil {
			return nil, neutron.Agents.NotFound(id)
		}
		if err := neutron.Authorize(c, neutron.Agents, neutron.Update, v, neutron.Owner{}); err != nil {
			return nil, err
		}
		settings := schema.AgentSettings{HostID: a.host.ID, Function: a.function, AdminStateUp: true}
		if old, err := schema.Agents.Get(o.tx, id); err == nil {
			settings = *old
		}
		setFlag(&settings.AdminStateUp, v, "admin_state_up")
		setText(&settings.Description, v, "description")
		if err := schema.Agents.Put(o.tx, &settings); err != nil {
			return nil, err
		}
		return s.answer(o.tx, a), nil
	})
}

// delete refuses: an agent goes with its host, whose rights in the store are not Neutron's to take.
func (s agents) delete(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
	agent, err := s.show(ctx, c, id)
	if err != nil {
		return err
	}
	if agent.AgentType == gatewayAgentType {
		return conflict("AgentInUse", "Agent %s goes when its gateway device does.", id)
	}
	return conflict("AgentInUse", "Agent %s goes when its host does. Remove the host: heddle host remove %s.", id, agent.Host)
}

// agentUp reports whether operators have an agent switched on.
func agentUp(r records.Reader, hostID string, f schema.AgentFunction) bool {
	settings, ok := schema.Agents.Peek(r, schema.AgentID(hostID, f))
	return !ok || settings.AdminStateUp
}

func (s agents) answer(r records.Reader, a agent) *neutron.AgentView {
	if a.gateway != nil {
		return s.gatewayAgent(r, a.gateway)
	}
	h := a.host
	v := &neutron.AgentView{ID: a.id, Binary: "heddle-agent", Host: h.Name, AdminStateUp: true}
	switch a.function {
	case schema.L2Agent:
		v.AgentType, v.Topic, v.Configurations = "Open vSwitch agent", "N/A", l2Configuration(r, h)
	case schema.DHCPAgent:
		v.AgentType, v.Topic, v.AvailabilityZone = "DHCP agent", "dhcp_agent", schema.ZoneOf(r, h.ID)
		v.Configurations = map[string]any{"dhcp_driver": "heddle", "dhcp_lease_duration": dhcpLeaseSeconds}
	case schema.L3Agent:
		v.AgentType, v.Topic, v.AvailabilityZone = "L3 agent", "l3_agent", schema.ZoneOf(r, h.ID)
		v.Configurations = map[string]any{"agent_mode": "dvr_snat", "handle_internal_only_routers": true}
	case schema.BGPAgent:
		v.AgentType, v.Topic = "BGP dynamic routing agent", "bgp_dragent"
		v.Configurations = bgpConfiguration(r, h.ID)
	}
	if settings, ok := schema.Agents.Peek(r, a.id); ok {
		v.AdminStateUp, v.Description = settings.AdminStateUp, settings.Description
	}
	if state, alive := schema.HostStates.Peek(r, h.ID); alive {
		v.Alive = true
		v.CreatedAt, v.StartedAt, v.HeartbeatAt = state.StartedAt, state.StartedAt, s.opts.Now()
		v.Configurations["version"], v.Configurations["mtu"] = state.Version, state.MTU
	}
	return v
}

func l2Configuration(r records.Reader, h *topology.Host) map[string]any {
	c := map[string]any{"tunnel_types": []string{typeVXLAN}, "bridge_mappings": map[string]any{}}
	if h, ok := schema.HostWithTunnels(r, h.ID); ok && len(h.Tunnels) > 0 {
		c["tunneling_ip"] = h.Tunnels[0].IP.String()
	}
	if u, ok := schema.Underlays.Peek(r, h.ID); ok && len(u.PhysicalNetworks) > 0 {
		c["bridge_mappings"] = u.PhysicalNetworks
	}
	return c
}
