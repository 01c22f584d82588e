package neutron

import (
	"reflect"
	"slices"
	"strings"
)

// Owner holds the facts about an object and its network that policy decisions need.
type Owner struct {
	ProjectID        string
	NetworkProjectID string // subnets and ports: the project of the network; else ""
	Shared           bool   // the caller may see it, or for subnets and ports the network, because it is shared
}

// CanSee reports whether the caller may see an object: an admin and its project's users, the
// network's owner for what is on the network, everyone for a shared or external network, its
// subnets, and a shared group; the role advsvc for networks and ports. Others get
// Resource.NotFound.
func CanSee(c Caller, r Resource, o Owner) bool {
	switch {
	case r.ForAdmins():
		return c.Admin()
	case c.Owns(o.ProjectID):
		return true
	case r == Networks:
		return o.Shared || c.AdvancedService()
	case r == Ports:
		return c.Owns(o.NetworkProjectID) || c.AdvancedService()
	case r == Subnets:
		return o.Shared || c.Owns(o.NetworkProjectID)
	}
	return o.Shared
}

// ForAdmins reports whether only admins see the objects, whichever project owns them.
func (r Resource) ForAdmins() bool {
	switch r {
	case Agents, IPAvailabilities, ServiceProfiles, SegmentRanges, Segments, Logs, LoggableResources, BGPSpeakers, BGPPeers,
		GatewayDevices, RemoteMACEntries, L2Gateways, L2GatewayConnections:
		return true
	}
	return false
}

// Authorize returns nil if the caller may create, update or delete an object with these values (nil
// for delete), or Neutron's 403. Whether the caller can see the object was decided before. At
// create o is that of the object to be. Like Neutron, refusals name every policed attribute.
func Authorize(c Caller, r Resource, op Op, v Values, o Owner) error {
	rule := "rule:" + op.String() + "_" + r.policyName()
	allowed := mayAct(c, r, op, o)
	text := rule
	for _, a := range r.Attributes() {
		if !a.Policed || !a.explicit(op, v) {
			continue
		}
		value := v[a.Name]
		allowed = allowed && a.maySet(c, op, value, o)
		text = "(" + text + " and " + a.ruleText(rule, value) + ")"
	}
	if allowed {
		return nil
	}
	return forbidden(text)
}

// AuthorizePortUse reports whether the caller may have a port serve an object of its own, such as a
// router or a floating IP: who sees another project's port on an own network, or by the role for
// ports, may not.
func AuthorizePortUse(c Caller, owner Owner) error {
	if c.Owns(owner.ProjectID) {
		return nil
	}
	return forbidden("rule:update_port")
}

// AuthorizeQuota reports whether the caller may get, update or delete the limits of a project ("" =
// of all): a project's users may look at their own.
func AuthorizeQuota(c Caller, action, projectID string) error {
	if c.Admin() || action == "get" && projectID != "" && c.ProjectID == projectID {
		return nil
	}
	return forbidden("rule:" + action + "_quota")
}

// AuthorizeAdmin reports whether the caller may do something that only admins may; action is its
// policy's name.
func AuthorizeAdmin(c Caller, action string) error {
	if c.Admin() {
		return nil
	}
	return forbidden("rule:" + action)
}

// AuthorizeAction reports whether the caller may do something to an object: who may update it.
func AuthorizeAction(c Caller, r Resource, action string, o Owner) error {
	if mayAct(c, r, Update, o) {
		return nil
	}
	return forbidden("rule:" + action)
}

// AuthorizeBinding reports whether the caller may create, update or delete bindings of a port, or
// see them: only admins may.
func AuthorizeBinding(c Caller, op Op) error {
	if c.Admin() {
		return nil
	}
	return forbidden("rule:" + op.String() + "_port_binding")
}

// AuthorizeForwarding reports whether the caller may create, update or delete port forwardings of a
// floating IP of a project.
func AuthorizeForwarding(c Caller, op Op, projectID string) error {
	if mayAct(c, PortForwardings, op, Owner{ProjectID: projectID}) {
		return nil
	}
	return forbidden("rule:" + op.String() + "_floatingip_port_forwarding")
}

// AuthorizeGateways reports whether the caller may add gateways to a router or update them: who may
// update it, and only admins if the request says more than the networks.
func AuthorizeGateways(c Caller, action string, o Owner, gateways []*GatewayRequest) error {
	text, allowed := "rule:"+action, mayAct(c, Routers, Update, o)
	for _, g := range gateways {
		allowed = allowed && (c.Admin() || !g.forAdmins())
		text = "(" + text + " and (" + strings.Join(g.ruleTexts("rule:"+action+":"+attrGateways), " and ") + "))"
	}
	if allowed {
		return nil
	}
	return forbidden(text)
}

// forAdmins reports whether a request for a gateway has keys that only admins may set.
func (g *GatewayRequest) forAdmins() bool {
	return g != nil && (g.EnableSNAT != nil || g.FixedIPs != nil)
}

// policyName returns what the names of the resource's rights end in.
func (r Resource) policyName() string {
	if r.isQoSRule() && !r.isQoSAlias() {
		return "policy_" + r.Name()
	}
	return r.Name()
}

// AuthorizeQoSRuleType reports whether the caller may see what enforces a type of QoS rules.
func AuthorizeQoSRuleType(c Caller) error {
	if c.Admin() {
		return nil
	}
	return Errorf(Forbidden, "NotAuthorized", "Not authorized.")
}

// AuthorizeTopology reports whether the caller may see a project's auto-allocated topology.
func AuthorizeTopology(c Caller, projectID string) error {
	if c.Owns(projectID) {
		return nil
	}
	return Errorf(Forbidden, "NotAuthorized", "Not authorized.")
}

// AuthorizeTopologyChange returns nil if a caller that may see an auto-allocated topology may have
// it created (get) or deleted, or Neutron's 403 for readers; action is the policy's name.
func AuthorizeTopologyChange(c Caller, action string) error {
	if c.ReadOnly() {
		return forbidden("rule:" + action + "_auto_allocated_topology")
	}
	return nil
}

// AuthorizeTags returns nil if the caller may change the tags of an object, or Neutron's 403:
// callers that may update the object may, and of QoS policies those that see it, readers excepted.
func AuthorizeTags(c Caller, r Resource, o Owner) error {
	if mayAct(c, r, Update, o) || r == QoSPolicies && !c.ReadOnly() {
		return nil
	}
	return forbidden("rule:update_" + r.Collection() + "_tags")
}

func forbidden(rules string) *Error {
	return Errorf(Forbidden, "PolicyNotAuthorized", "%s is disallowed by policy", rules)
}

// mayAct is the rule of the operation itself.
func mayAct(c Caller, r Resource, op Op, o Owner) bool {
	switch {
	case c.Admin(), r == Ports && c.AdvancedService():
		return true
	case c.ReadOnly(), r == Agents, r == Quotas, r == Flavors, r == ServiceProfiles, r == SegmentRanges, r == Segments,
		r == QoSPolicies, r.isQoSRule(), r == MeteringLabels, r == MeteringLabelRules, r == Logs, r == BGPSpeakers, r == BGPPeers, r == DefaultRules,
		r == GatewayDevices, r == RemoteMACEntries, r == L2Gateways, r == L2GatewayConnections:
		return false
	case r == Subnets:
		return c.Owns(o.NetworkProjectID) || op != Create && c.Owns(o.ProjectID)
	case r == Ports && op == Delete:
		return c.Owns(o.ProjectID) || c.Owns(o.NetworkProjectID)
	}
	return c.Owns(o.ProjectID)
}

// explicit reports whether the request sets the attribute: at create to other than its default.
func (a *Attribute) explicit(op Op, v Values) bool {
	value, given := v[a.Name]
	return given && (op != Create || !reflect.DeepEqual(value, a.Default))
}

// maySet is the rule of one attribute.
func (a *Attribute) maySet(c Caller, op Op, value any, o Owner) bool {
	by := a.CreateBy
	if op == Update {
		by = a.UpdateBy
	}
	if g, ok := value.(*GatewayRequest); ok && g.forAdmins() {
		by = AdminOnly
	}
	switch {
	case c.Admin() || by == Everyone:
		return true
	case (by == NetworkOwnerOrService || by == AdvancedService) && c.AdvancedService():
		return true
	case by == AdminOnly || by == AdvancedService:
		return false
	case by == DataPlaneIntegrator:
		return slices.Contains(c.Roles, "data_plane_integrator")
	case by == NotWildcard:
		return value != EveryProject
	case c.Owns(o.NetworkProjectID):
		return true
	}
	switch value := value.(type) {
	case string: // device_owner: only those of the network's own services are special
		return !strings.HasPrefix(value, "network:")
	case []FixedIPRequest: // on a shared network one may choose a subnet, not an address
		return op == Create && o.Shared && !slices.ContainsFunc(value, func(r FixedIPRequest) bool { return r.IPAddress.IsValid() })
	}
	return false
}

// ruleText names the rule of an attribute and, for a list of objects, of each of their keys.
func (a *Attribute) ruleText(rule string, value any) string {
	rule += ":" + a.Name
	var parts []string
	switch value := value.(type) {
	case []FixedIPRequest:
		for _, f := range value {
			if f.SubnetID != "" {
				parts = append(parts, rule+":subnet_id")
			}
			if f.IPAddress.IsValid() {
				parts = append(parts, rule+":ip_address")
			}
		}
	case *GatewayRequest:
		parts = value.ruleTexts(rule)
	case []AddressPair:
		for _, p := range value {
			parts = append(parts, rule+":ip_address")
			if !p.MACAddress.IsZero() {
				parts = append(parts, rule+":mac_address")
			}
		}
	}
	if parts == nil {
		return rule
	}
	return "(" + rule + " and (" + strings.Join(parts, " and ") + "))"
}

// ruleTexts names the rules of the keys that a request for a gateway has.
func (g *GatewayRequest) ruleTexts(rule string) []string {
	if g == nil {
		return nil
	}
	parts := []string{rule + ":network_id"}
	if g.EnableSNAT != nil {
		parts = append(parts, rule+":enable_snat")
	}
	if g.FixedIPs != nil {
		parts = append(parts, rule+":external_fixed_ips")
	}
	if g.QoSPolicyID != nil {
		parts = append(parts, rule+":"+attrQoSPolicy)
	}
	return parts
}
