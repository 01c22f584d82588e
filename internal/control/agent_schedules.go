package control

import (
	"context"
	"maps"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Every host answers DHCP for its machines and routes what they send, so that a network with DHCP
// and a router with ports are on all hosts. Others are where operators have scheduled them, which
// is in effect once there is something to serve. A router that is taken from a host has no port at
// home there on a physical network: what comes from outside, and what leaves by its gateways, goes
// by other hosts, as when a router is taken from an agent of mode dvr_snat.

// maxScheduled bounds the hosts that operators give one network or router, which is to be deleted
// at once, and those that they take a router from.
const maxScheduled = 100

// hasDHCP reports whether hosts answer DHCP on a network.
func hasDHCP(r records.Reader, networkID string) bool {
	for sub := range schema.Subnets.By(r, "network", networkID) {
		if sub.EnableDHCP {
			return true
		}
	}
	return false
}

// routes reports whether a router is on any network.
func routes(r records.Reader, routerID string) bool {
	return schema.RouterPorts.CountBy(r, "router", routerID) > 0
}

// schedule is the way in which objects T, shown as V, are given to agents.
type schedule[T, V any] struct {
	*resource[T, V]
	function   schema.AgentFunction
	table      *records.Table[schema.Scheduled]
	field      string                                                // of the table: the object
	everywhere func(r records.Reader, id string) bool                // whether all hosts serve it
	served     func(r records.Reader) map[string]bool                // ids of those that all hosts serve
	invalid    func(agentID string) error                            // of another agent
	twice      func(agentID, id string) error                        // it is there; nil is no error
	remove     func(everywhere bool, agentID, id, host string) error // it cannot be taken away, or is not there
	excluded   func(object *T) []string                              // ids of hosts from which it was taken
	exclude    func(o *operation, object *T, hosts []string) error   // changes these; nil: it cannot be taken from hosts that all serve it
	listRule   string                                                // policies, as refusals name them
	addRule    string
	removeRule string
	agentsRule string
}

// AgentSchedule are the operations on what agents serve.
type AgentSchedule[V any] struct {
	// List lists the objects on an agent.
	List func(ctx context.Context, c neutron.Caller, agentID string) ([]V, error)
	// Add gives an object to an agent, Remove takes it away.
	Add, Remove func(ctx context.Context, c neutron.Caller, agentID, id string) error
	// Agents lists the agents that have an object.
	Agents func(ctx context.Context, c neutron.Caller, id string) ([]*neutron.AgentView, error)
}

// DHCPSchedule returns the operations on the networks of DHCP agents.
func (s *Service) DHCPSchedule() AgentSchedule[*neutron.NetworkView] {
	return schedule[neutron.Network, neutron.NetworkView]{
		resource: s.networks.resource, function: schema.DHCPAgent, table: schema.ScheduledNetworks, field: "network",
		everywhere: hasDHCP, served: networksWithDHCP,
		invalid: func(id string) error {
			return neutron.Errorf(neutron.NotFound, "InvalidDHCPAgent", "Agent %s is not a valid DHCP Agent or has been disabled.", id)
		},
		twice: func(agentID, id string) error {
			return conflict("NetworkHostedByDHCPAgent", "The network %s has been already hosted by the DHCP Agent %s.", id, agentID)
		},
		remove: func(everywhere bool, agentID, id, host string) error {
			if everywhere {
				return conflict("NetworkInUse", "Unable to complete operation on network %s. Each host answers DHCP for its own machines, "+
					"so that the network cannot be removed from %s.", id, host)
			}
			return conflict("NetworkNotHostedByDhcpAgent", "The network %s is not hosted by the DHCP agent %s.", id, agentID)
		},
		excluded: func(*neutron.Network) []string { return nil },
		listRule: "get_dhcp-networks", addRule: "create_dhcp-network", removeRule: "delete_dhcp-network", agentsRule: "get_dhcp-agents",
	}.operations()
}

func networksWithDHCP(r records.Reader) map[string]bool {
	ids := map[string]bool{}
	for sub := range schema.Subnets.All(r) {
		if sub.EnableDHCP {
			ids[sub.NetworkID] = true
		}
	}
	return ids
}

// L3Schedule returns the operations on the routers of L3 agents.
func (s *Service) L3Schedule() AgentSchedule[*neutron.RouterView] {
	return schedule[neutron.Router, neutron.RouterView]{
		resource: s.routers.resource, function: schema.L3Agent, table: schema.ScheduledRouters, field: "router",
		everywhere: routes, served: routersWithPorts,
		invalid: func(id string) error {
			return neutron.Errorf(neutron.NotFound, "InvalidL3Agent", "Agent %s is not a L3 Agent or has been disabled", id)
		},
		twice:    func(string, string) error { return nil },
		remove:   func(bool, string, string, string) error { return nil },
		excluded: func(r *neutron.Router) []string { return r.ExcludedHostIDs },
		exclude: func(o *operation, old *neutron.Router, hosts []string) error {
			r := *old
			r.ExcludedHostIDs = hosts
			if err := schema.Routers.Put(o.tx, &r); err != nil {
				return err
			}
			return o.deriveRouter(&r)
		},
		listRule: "get_l3-routers", addRule: "create_l3-router", removeRule: "delete_l3-router", agentsRule: "get_l3-agents",
	}.operations()
}

func routersWithPorts(r records.Reader) map[string]bool {
	ids := map[string]bool{}
	for p := range schema.RouterPorts.All(r) {
		ids[p.RouterID] = true
	}
	return ids
}

func (s schedule[T, V]) operations() AgentSchedule[*V] {
	return AgentSchedule[*V]{List: s.list, Add: s.add, Remove: s.removeFrom, Agents: s.agents}
}

// list lists what an agent serves, in order of ids.
func (s schedule[T, V]) list(ctx context.Context, c neutron.Caller, agentID string) ([]*V, error) {
	if err := neutron.AuthorizeAdmin(c, s.listRule); err != nil {
		return nil, err
	}
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	a, err := agents{s.service}.find(snap, c, agentID)
	if err != nil || a.function != s.function {
		return nil, err
	}
	ids := s.served(snap)
	for one := range s.table.By(snap, "host", a.host.ID) {
		ids[one.ObjectID] = true
	}
	var views []*V
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if o, ok := s.resource.table.Peek(snap, id); ok && !slices.Contains(s.excluded(o), a.host.ID) {
			views = append(views, s.answerTo(snap, c, o, neutron.Query{}))
		}
	}
	return views, nil
}

// agents lists the agents that serve an object, in order of ids.
func (s schedule[T, V]) agents(ctx context.Context, c neutron.Caller, id string) ([]*neutron.AgentView, error) {
	if err := neutron.AuthorizeAdmin(c, s.agentsRule); err != nil {
		return nil, err
	}
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	object, ok := s.resource.table.Peek(snap, id)
	if !ok {
		return nil, s.name.NotFound(id)
	}
	all, found := s.everywhere(snap, id), []agent{}
	for h := range schema.Hosts.All(snap) {
		_, scheduled := s.table.Peek(snap, schema.ScheduledID(id, h.ID))
		if (all || scheduled) && !slices.Contains(s.excluded(object), h.ID) {
			found = append(found, agent{id: schema.AgentID(h.ID, s.function), host: h, function: s.function})
		}
	}
	return slices.Collect(agents{s.service}.answers(snap, found)), nil
}

// add gives an object to an agent.
func (s schedule[T, V]) add(ctx context.Context, c neutron.Caller, agentID, id string) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		a, object, err := s.inTransaction(o, s.addRule, agentID, id)
		if err != nil {
			return err
		}
		if a.function != s.function || !agentUp(o.tx, a.host.ID, a.function) {
			return s.invalid(agentID)
		}
		if hosts := s.excluded(object); slices.Contains(hosts, a.host.ID) {
			return s.exclude(o, object, slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == a.host.ID }))
		}
		one := &schema.Scheduled{HostID: a.host.ID, ObjectID: id}
		if _, scheduled := s.table.Peek(o.tx, s.table.ID(one)); scheduled || s.everywhere(o.tx, id) {
			return s.twice(agentID, id)
		}
		if s.table.CountBy(o.tx, s.field, id) >= maxScheduled {
			return conflict("OverQuota", "A %s may be given to at most %d agents.", s.name.Name(), maxScheduled)
		}
		return s.table.Put(o.tx, one)
	})
}

// removeFrom takes an object away from an agent.
func (s schedule[T, V]) removeFrom(ctx context.Context, c neutron.Caller, agentID, id string) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		a, object, err := s.inTransaction(o, s.removeRule, agentID, id)
		if err != nil {
			return err
		}
		one := schema.ScheduledID(id, a.host.ID)
		_, scheduled := s.table.Peek(o.tx, one)
		everywhere := s.everywhere(o.tx, id)
		switch {
		case a.function == s.function && everywhere && s.exclude != nil:
			return s.takeFrom(o, object, id, a.host.ID)
		case a.function != s.function || everywhere || !scheduled:
			return s.remove(everywhere, agentID, id, a.host.Name)
		}
		return s.table.Delete(o.tx, one)
	})
}

// takeFrom excludes a host from those that serve an object, and forgets hosts that have gone.
func (s schedule[T, V]) takeFrom(o *operation, object *T, id, hostID string) error {
	var hosts []string
	for _, h := range s.excluded(object) {
		if _, there := schema.Hosts.Peek(o.tx, h); there && h != hostID {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) >= maxScheduled {
		return conflict("OverQuota", "%s %s may be taken from at most %d agents.", s.name.Name(), id, maxScheduled)
	}
	hosts = append(hosts, hostID)
	slices.Sort(hosts)
	return s.exclude(o, object, hosts)
}

// inTransaction finds the agent and the object of a change.
func (s schedule[T, V]) inTransaction(o *operation, rule, agentID, id string) (agent, *T, error) {
	if err := neutron.AuthorizeAdmin(o.caller, rule); err != nil {
		return agent{}, nil, err
	}
	object, err := s.resource.table.Get(o.tx, id)
	if err != nil {
		return agent{}, nil, s.name.NotFound(id)
	}
	a, err := agents{s.service}.find(o.tx, o.caller, agentID)
	return a, object, err
}
