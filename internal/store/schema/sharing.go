package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// RBACPolicies have ids made of what they grant ([Grant]). So no two grant the same, one look-up
// tells whether an object is shared, and those of one target come in order of their objects. The
// API's ids are the index "api_id".
//
// They are deleted with their object, to which each type has a reference of its own.
var RBACPolicies = records.NewTable("rbac-policy", NeutronPrefix+"rbac-policies/",
	func(p *neutron.RBACPolicy) string { return Grant(p.ObjectType, p.ObjectID, p.Action, p.Target) },
	records.Ref("network", Networks, sharedObject(neutron.Networks), records.Cascade()),
	records.Ref("security_group", SecurityGroups, sharedObject(neutron.SecurityGroups), records.Cascade()),
	records.Ref("qos_policy", QoSPolicies, sharedObject(neutron.QoSPolicies), records.Cascade()),
	records.Ref("address_group", AddressGroups, sharedObject(neutron.AddressGroups), records.Cascade()),
	records.Ref("subnetpool", SubnetPools, sharedObject(neutron.SubnetPools), records.Cascade()),
	records.Ref("address_scope", AddressScopes, sharedObject(neutron.AddressScopes), records.Cascade()),
	records.Index("api_id", func(p *neutron.RBACPolicy) []string { return []string{p.ID} }),
	records.Index("project", func(p *neutron.RBACPolicy) []string { return []string{p.ProjectID} }),
	records.Index("object_id", func(p *neutron.RBACPolicy) []string { return []string{p.ObjectID} }),
	records.Index("granted", func(p *neutron.RBACPolicy) []string {
		return []string{GrantedAction(p.ObjectType, p.ObjectID, p.Action)}
	}),
	records.Index("grantee", func(p *neutron.RBACPolicy) []string { return []string{Grantee(p.ObjectType, p.Action, p.Target)} }),
)

// sharedObject returns the reference of policies to objects of a type.
func sharedObject(typ neutron.Resource) func(p *neutron.RBACPolicy) []string {
	return func(p *neutron.RBACPolicy) []string {
		if p.ObjectType != typ.ObjectType() {
			return nil
		}
		return []string{p.ObjectID}
	}
}

// Grant returns the id of the policy that lets a target do something with an object.
func Grant(objectType, objectID, action, target string) string {
	return GrantedAction(objectType, objectID, action) + "/" + target
}

// GrantedAction returns the value of the index "granted" of policies by what they grant on which
// object, to whomever.
func GrantedAction(objectType, objectID, action string) string {
	return objectType + "/" + objectID + "/" + action
}

// Grantee returns the value of the index "grantee" of policies by what they grant to whom, on
// objects of a type.
func Grantee(objectType, action, target string) string {
	return objectType + "/" + action + "/" + target
}
