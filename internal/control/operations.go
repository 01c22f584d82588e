package control

import (
	"context"
	"iter"

	"heddle/internal/neutron"
)

// Operations are those on the objects of one resource, which are answered as V. Each is one transaction, all or nothing; an
// operation that the resource does not have is nil.
//
// They decide what needs other objects, and who may: an object that the caller may not see is not found, one that he sees
// but may not change is forbidden (neutron.CanSee, neutron.Authorize). Values come from neutron.Parse. Errors for the
// client are *neutron.Error; any other error is a fault of the server. ifMatch is the revision number that the client
// insists on, or nil. Views are read-only: they may be shared with other requests. Lists come in order of ids, and each
// object is made when it is asked for.
type Operations[V any] struct {
	Create func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*V, error)
	Update func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*V, error)
	Delete func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	Show   func(ctx context.Context, c neutron.Caller, id string) (*V, error)
	List   func(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*V], error)
	// ChangeTags replaces the tags of an object by what change makes of them and returns them; change must not modify its
	// argument and may be called again when another change came between.
	ChangeTags func(ctx context.Context, c neutron.Caller, id string, change func(tags []string) ([]string, error)) ([]string, error)
	// Tags returns the tags of an object.
	Tags func(o *V) []string
}

// operations are those that every resource with standard attributes has.
func (res *resource[T, V]) operations() Operations[V] {
	return Operations[V]{
		Create: res.create, Show: res.show, List: res.list, ChangeTags: res.changeTags,
		Tags: func(o *V) []string { return res.attributes(o).Tags },
	}
}

// Networks returns the operations on networks.
func (s *Service) Networks() Operations[neutron.NetworkView] {
	o := s.networks.operations()
	o.Create, o.Update, o.Delete = s.createNetworks, s.updateNetwork, s.deleteNetwork
	return o
}

// Subnets returns the operations on subnets.
func (s *Service) Subnets() Operations[neutron.SubnetView] {
	o := s.subnets.operations()
	o.Update, o.Delete = s.updateSubnet, s.deleteSubnet
	return o
}

// Ports returns the operations on ports.
func (s *Service) Ports() Operations[neutron.PortView] {
	o := s.ports.operations()
	o.Update, o.Delete = s.updatePort, s.deletePort
	return o
}

// SecurityGroups returns the operations on security groups. A list brings the default group of the project that is asked
// about, or else the caller's.
func (s *Service) SecurityGroups() Operations[neutron.SecurityGroupView] {
	o := s.groups.operations()
	o.Update, o.Delete, o.List = s.updateSecurityGroup, s.deleteSecurityGroup, s.listSecurityGroups
	return o
}

// SecurityGroupRules returns the operations on security group rules, which are shown as they are stored: do not modify them.
func (s *Service) SecurityGroupRules() Operations[neutron.SecurityGroupRule] {
	return Operations[neutron.SecurityGroupRule]{
		Create: s.createRules, Update: s.updateRule, Delete: s.deleteRule, Show: s.showRule, List: s.listRules,
	}
}

// Agents returns the operations on agents, which come and go with their hosts. Nobody but an admin sees any.
func (s *Service) Agents() Operations[neutron.AgentView] {
	return Operations[neutron.AgentView]{Update: s.updateAgent, Delete: s.deleteAgent, Show: s.showAgent, List: s.listAgents}
}
