package neutron

import "slices"

// Roles of Octavia. They count beside Neutron's.
const (
	roleLBAdmin          = "load-balancer_admin"
	roleLBMember         = "load-balancer_member"
	roleLBGlobalObserver = "load-balancer_global_observer"
	roleLBQuotaAdmin     = "load-balancer_quota_admin"
)

// LBAdmin reports whether the caller may do everything with the load balancers of all projects.
func (c Caller) LBAdmin() bool { return c.Admin() || slices.Contains(c.Roles, roleLBAdmin) }

// LBQuotaAdmin reports whether the caller may set limits on load balancers.
func (c Caller) LBQuotaAdmin() bool { return c.LBAdmin() || slices.Contains(c.Roles, roleLBQuotaAdmin) }

// SeesAllLB reports whether the caller may see the load balancers of all projects.
func (c Caller) SeesAllLB() bool {
	return c.LBAdmin() || slices.Contains(c.Roles, roleLBGlobalObserver)
}

// SeesLB reports whether the caller may see the load balancers of a project, and what is below
// them.
func (c Caller) SeesLB(projectID string) bool { return c.SeesAllLB() || c.Owns(projectID) }

// ChangesLB reports whether the caller may change the load balancers of a project.
func (c Caller) ChangesLB(projectID string) bool {
	return c.LBAdmin() || c.Owns(projectID) && (!c.ReadOnly() || slices.Contains(c.Roles, roleLBMember))
}
