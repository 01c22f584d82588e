package neutron

import (
	"slices"
	"strings"
)

// EveryProject is the target of policies that share an object with all projects.
const EveryProject = "*"

// Actions of RBAC policies.
const (
	AccessShared   = "access_as_shared"   // see the object and use it
	AccessExternal = "access_as_external" // see a network, for gateways and floating IPs
)

// RBACPolicy grants a project, or all, an action on an object. Its ProjectID is of who shares; of
// its other standard attributes it has only the id.
type RBACPolicy struct {
	Standard
	ObjectType string `json:"object_type"` // the name of a resource
	ObjectID   string `json:"object_id"`
	Action     string `json:"action"`
	Target     string `json:"target_tenant"` // a project or EveryProject
}

// CheckAction refuses an action that objects of the type do not have.
func (p *RBACPolicy) CheckAction() error {
	actions, text := []string{AccessShared}, "('"+AccessShared+"',)" // as Python prints a tuple
	if p.ObjectType == Networks.Name() {
		actions, text = []string{AccessShared, AccessExternal}, "('"+AccessShared+"', '"+AccessExternal+"')"
	}
	if slices.Contains(actions, p.Action) {
		return nil
	}
	return Errorf(Invalid, "InvalidActionForType", "Invalid action '%s' for object type '%s'. Valid actions: %s", p.Action, p.ObjectType, text)
}

// InvalidObjectType is the refusal of a type of objects that policies do not share.
func InvalidObjectType(name string) *Error {
	return invalidInput("'%s' is not a valid RBAC object type", name)
}

// sharedTypes are the names of the resources whose objects policies share.
func sharedTypes() []string {
	return []string{"address_group", "address_scope", "network", "qos_policy", "security_group", "subnetpool"}
}

// sharedType takes the name of a resource whose objects policies share, in any case.
func sharedType(v any) (any, error) {
	s, err := text(maxName)(v)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(strings.TrimSpace(s.(string)))
	if !slices.Contains(sharedTypes(), name) {
		return nil, InvalidObjectType(s.(string))
	}
	return name, nil
}

func rbacPolicyTable() *Table[*RBACPolicy] {
	attr := func(name, typ, doc string, p parser) Attribute {
		return Attribute{Name: name, Create: true, Default: required{}, Filter: true, Policed: true, Type: typ, Doc: doc, parse: p}
	}
	target := attr("target_tenant", "string", "a project, or * for all", text(maxProject))
	target.Update, target.CreateBy, target.UpdateBy = true, NotWildcard, NotWildcard
	std := func(o *RBACPolicy) *Standard { return &o.Standard }
	cols := []column[*RBACPolicy]{
		idColumn(std),
		row(attr("object_type", "string", strings.Join(sharedTypes(), ", "), sharedType),
			textValue(func(o *RBACPolicy) string { return o.ObjectType })),
		row(attr("object_id", "uuid", "an object of the caller's project, or of any for admins", uuid),
			textValue(func(o *RBACPolicy) string { return o.ObjectID })),
		row(target, textValue(func(o *RBACPolicy) string { return o.Target })),
	}
	cols = append(cols, projectColumns(std)...)
	return newTable(RBACPolicies, append(cols, row(attr("action", "string", AccessShared+", or of networks "+AccessExternal, text(maxName)),
		textValue(func(o *RBACPolicy) string { return o.Action }))))
}
