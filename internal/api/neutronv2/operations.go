// Package neutronv2 is the Neutron v2.0 HTTP API: routes, bodies, filters, fields, sorting and pages. It decodes a
// request through the attribute tables of package neutron, calls one operation, and renders the answer for the caller's
// role. What needs other objects is decided by the operations.
package neutronv2

import (
	"context"
	"iter"

	"heddle/internal/neutron"
)

// Operations are what the API calls: each is one transaction, all or nothing (control.Service is the real one).
//
// They decide what needs other objects, and who may: an object the caller may not see is not found, one he sees but may
// not change is forbidden (neutron.CanSee, neutron.Authorize). Values come from neutron.Parse. Errors for the client are
// *neutron.Error; any other error is answered 500 and logged. ifMatch is the revision number the client insists on, or nil.
// Views are read-only: they may be shared with other requests. Lists come in order of ids, and each object is made when
// it is asked for.
type Operations interface {
	CreateNetworks(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.NetworkView, error)
	UpdateNetwork(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.NetworkView, error)
	DeleteNetwork(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	Network(ctx context.Context, c neutron.Caller, id string) (*neutron.NetworkView, error)
	Networks(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.NetworkView], error)

	CreateSubnets(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.SubnetView, error)
	UpdateSubnet(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SubnetView, error)
	DeleteSubnet(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	Subnet(ctx context.Context, c neutron.Caller, id string) (*neutron.SubnetView, error)
	Subnets(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SubnetView], error)

	CreatePorts(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.PortView, error)
	UpdatePort(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.PortView, error)
	DeletePort(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	Port(ctx context.Context, c neutron.Caller, id string) (*neutron.PortView, error)
	Ports(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.PortView], error)

	CreateSecurityGroups(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.SecurityGroupView, error)
	UpdateSecurityGroup(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SecurityGroupView, error)
	DeleteSecurityGroup(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	SecurityGroup(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupView, error)
	SecurityGroups(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupView], error)

	CreateSecurityGroupRules(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.SecurityGroupRule, error)
	UpdateSecurityGroupRule(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SecurityGroupRule, error)
	DeleteSecurityGroupRule(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error
	SecurityGroupRule(ctx context.Context, c neutron.Caller, id string) (*neutron.SecurityGroupRule, error)
	SecurityGroupRules(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.SecurityGroupRule], error)

	// ChangeTags replaces the tags of an object by what change makes of them and returns them; change must not modify its
	// argument and may be called again when another change came between.
	ChangeTags(ctx context.Context, c neutron.Caller, r neutron.Resource, id string, change func(tags []string) ([]string, error)) ([]string, error)

	// Room returns how many more objects of a resource the caller may make for the own project now; -1 is without limit.
	Room(ctx context.Context, c neutron.Caller, r neutron.Resource) (int, error)
	// Quotas lists the projects with limits of their own (admin only).
	Quotas(ctx context.Context, c neutron.Caller) ([]neutron.QuotaView, error)
	// Quota returns a project's limits, own or default.
	Quota(ctx context.Context, c neutron.Caller, projectID string) (neutron.QuotaView, error)
	DefaultQuota(ctx context.Context, c neutron.Caller, projectID string) (neutron.QuotaView, error)
	QuotaDetails(ctx context.Context, c neutron.Caller, projectID string) (map[string]neutron.QuotaUse, error)
	// SetQuota changes the limits named in v (int values); checkLimit refuses a limit below what is used.
	SetQuota(ctx context.Context, c neutron.Caller, projectID string, v neutron.Values, checkLimit bool) (neutron.QuotaView, error)
	// ResetQuota makes the default limits a project's again.
	ResetQuota(ctx context.Context, c neutron.Caller, projectID string) error

	// Agents lists the agents of all hosts; nobody but an admin sees any.
	Agents(ctx context.Context, c neutron.Caller) ([]*neutron.AgentView, error)
	Agent(ctx context.Context, c neutron.Caller, id string) (*neutron.AgentView, error)
	UpdateAgent(ctx context.Context, c neutron.Caller, id string, v neutron.Values) (*neutron.AgentView, error)
	DeleteAgent(ctx context.Context, c neutron.Caller, id string) error
}
