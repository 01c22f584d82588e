package control

import (
	"context"
	"iter"

	"heddle/internal/neutron"
)

// Operations are the operations on the objects of one resource, shown as V, a pointer. Each is one
// transaction; those that the resource lacks are nil.
//
// They check what needs other objects, and rights: an object that the caller may not see is not
// found, one that the caller may not change is forbidden (neutron.CanSee, neutron.Authorize).
// Values come from neutron.Parse. Errors for the client are *neutron.Error; others are faults of
// the server. ifMatch is the revision number of If-Match, or nil. Views may be shared: do not
// modify them. Lists come in order of ids and are produced lazily.
type Operations[V any] struct {
	Create func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]V, error)
	Update func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (V, error)
	Delete func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	Show   func(ctx context.Context, c neutron.Caller, id string) (V, error)
	List   func(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[V], error)
	// ChangeTags replaces the tags of an object by what change makes of them and returns them;
	// change must not modify its argument and may be called again when another change came between.
	ChangeTags func(ctx context.Context, c neutron.Caller, id string, change func(tags []string) ([]string, error)) ([]string, error)
	// Tags returns the tags of an object.
	Tags func(o V) []string
}

// operations returns those that every resource with standard attributes has.
func (res *resource[T, V]) operations() Operations[*V] {
	return Operations[*V]{
		Create: res.create, Show: res.show, List: res.list, ChangeTags: res.changeTags,
		Tags: func(o *V) []string { return res.attributes(o).Tags },
	}
}

// Networks returns the operations on networks.
func (s *Service) Networks() Operations[*neutron.NetworkView] {
	o := s.networks.operations()
	o.Create, o.Update, o.Delete = s.networks.create, s.networks.update, s.networks.delete
	return o
}

// Subnets returns the operations on subnets.
func (s *Service) Subnets() Operations[*neutron.SubnetView] {
	o := s.subnets.operations()
	o.Update, o.Delete = s.subnets.update, s.subnets.delete
	return o
}

// Ports returns the operations on ports.
func (s *Service) Ports() Operations[*neutron.PortView] {
	o := s.ports.operations()
	o.Update, o.Delete = s.ports.update, s.ports.delete
	return o
}

// SecurityGroups returns the operations on security groups. A list brings the default group of the
// project that is asked about, or else the caller's.
func (s *Service) SecurityGroups() Operations[*neutron.SecurityGroupView] {
	o := s.groups.operations()
	o.Update, o.Delete, o.List = s.groups.update, s.groups.delete, s.groups.list
	return o
}

// SecurityGroupRules returns the operations on rules. Do not modify what they return.
func (s *Service) SecurityGroupRules() Operations[*neutron.SecurityGroupRule] {
	r := rules{s, s.rules}
	return Operations[*neutron.SecurityGroupRule]{Create: r.create, Update: r.update, Delete: r.delete, Show: r.show, List: r.list}
}

// DefaultSecurityGroupRules returns the operations on the default rules of security groups. Do not
// modify what they return.
func (s *Service) DefaultSecurityGroupRules() Operations[*neutron.DefaultSecurityGroupRule] {
	d := defaultRules{s}
	return Operations[*neutron.DefaultSecurityGroupRule]{Create: d.create, Delete: d.delete, Show: d.show, List: d.list}
}

// Agents returns the operations on agents, which are functions of hosts. Only admins see them.
func (s *Service) Agents() Operations[*neutron.AgentView] {
	a := agents{s}
	return Operations[*neutron.AgentView]{Update: a.update, Delete: a.delete, Show: a.show, List: a.list}
}
