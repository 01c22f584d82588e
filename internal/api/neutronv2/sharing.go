package neutronv2

import "heddle/internal/neutron"

// sharing is the part of RBAC policies. Each type of objects that they share has an alias of its
// own, except networks.
func sharing() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.RBACPolicy]{h, h.tables.RBACPolicies, h.ops.RBACPolicies()})
		},
		extensions: []extension{
			{"rbac-policies", "RBAC Policies", "2015-06-17T12:15:12-00:00",
				"Allows creation and modification of policies that control tenant access to resources."},
			{"rbac-address-scope", "Add address_scope type to RBAC", "2020-02-12T00:00:00-00:00", "Add address_scope type to RBAC"},
			{"rbac-security-groups", "Add security_group type to network RBAC", "2019-02-14T00:00:00-00:00",
				"Add security_group type to network RBAC"},
			{"rbac-address-group", "Add address_group type to RBAC", "2021-01-20T00:00:00-00:00",
				"Add address_group type to network RBAC"},
			{"rbac-subnetpool", "Add subnetpool type to RBAC", "2020-02-05T00:00:00-00:00", "Add subnetpool type to RBAC"},
		},
	}
}
