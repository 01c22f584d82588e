package control

import (
	"iter"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// Ports, networks, floating IPs, and routers for their gateways refer to their QoS policies.
// Topology names a policy's limits by its id, so that a change of rules is one bundle. Ports
// without a policy have their network's: they are derived again when the network gets another.

// attrQoSPolicy is the attribute that names a policy.
const attrQoSPolicy = "qos_policy_id"

// setQoSPolicy gives an object a policy, "" for none. The caller has to see the one that goes as
// well as the one that comes, which is read as a whole: rules that cannot be applied come to no
// policy in use. refused returns the error about a type of rules that is not supported.
func (o *operation) setQoSPolicy(to *string, id string, refused func(rule string) error) error {
	if *to != "" {
		if _, _, err := o.qosPolicies.inTransaction(o, *to); err != nil {
			return neutron.Errorf(neutron.Forbidden, "PolicyRemoveAuthorizationError",
				"Failed to remove provided policy %s because you are not authorized.", *to)
		}
	}
	if *to = id; id == "" {
		return nil
	}
	p, _, err := o.qosPolicies.inTransaction(o, id)
	if err != nil {
		return err
	}
	if r := p.Reserving(); r != nil {
		return refused(r.Type)
	}
	return nil
}

// ruleNotSupported returns the refusal of a type of rules for an object of a kind.
func ruleNotSupported(kind, id string) func(rule string) error {
	return func(rule string) error {
		return conflict("QosRuleNotSupported", "Rule %s is not supported by %s %s", rule, kind, id)
	}
}

func ruleNotSupportedByNetwork(id string) func(rule string) error {
	return func(rule string) error {
		return conflict("QosRuleNotSupportedByNetwork", "Rule %s is not supported by network %s", rule, id)
	}
}

// applyQoSPolicy gives a port of a network the policy that a request names.
func (e portEdit) applyQoSPolicy(n *neutron.Network) error {
	if !e.v.Has(attrQoSPolicy) {
		return nil
	}
	id := e.v.Text(attrQoSPolicy)
	if id != "" && n.Routed() {
		return unlimitedNetwork("QosRuleNotSupported", n)
	}
	return e.setQoSPolicy(&e.p.QoSPolicyID, id, ruleNotSupported("port", e.p.ID))
}

// unlimitedNetwork returns the refusal of any policy on a routed network, whose packets the agents
// of Calico's data model pass.
func unlimitedNetwork(class string, n *neutron.Network) error {
	return conflict(class, "QoS policies are not supported by network %s, which is of type %s", n.ID, n.NetworkType)
}

// chooseQoSPolicy gives a new network the policy that a request names, or its project's default.
func (o *operation) chooseQoSPolicy(n *neutron.Network, v neutron.Values) error {
	id := v.Text(attrQoSPolicy)
	if id == "" && !n.Routed() {
		for p := range schema.QoSPolicies.By(o.tx, "default", n.ProjectID) {
			id = p.ID
		}
	}
	return o.setNetworkQoSPolicy(n, id)
}

// setNetworkQoSPolicy gives a network a policy, "" for none.
func (o *operation) setNetworkQoSPolicy(n *neutron.Network, id string) error {
	if id != "" && n.Routed() {
		return unlimitedNetwork("QosRuleNotSupportedByNetwork", n)
	}
	return o.setQoSPolicy(&n.QoSPolicyID, id, ruleNotSupportedByNetwork(n.ID))
}

// applyFloatingQoSPolicy gives a floating IP the policy that a request names.
func (o *operation) applyFloatingQoSPolicy(f *neutron.FloatingIP, v neutron.Values) error {
	if !v.Has(attrQoSPolicy) {
		return nil
	}
	return o.setQoSPolicy(&f.QoSPolicyID, v.Text(attrQoSPolicy), ruleNotSupported("floating IP", f.ID))
}

// applyQoSPolicy gives a gateway the policy that a request names.
func (e routerEdit) applyQoSPolicy(g *neutron.RouterGateway, want *neutron.GatewayRequest) error {
	if want.QoSPolicyID == nil || *want.QoSPolicyID == g.QoSPolicyID {
		return nil
	}
	return e.setQoSPolicy(&g.QoSPolicyID, *want.QoSPolicyID, ruleNotSupported("router", e.r.ID))
}

// qosUser is an object that has a policy.
type qosUser struct {
	kind      string // as the reference's error names it
	id        string
	supported func(rule string) error // returns the refusal of a type of rules
}

// qosUsers returns what has a policy. New users that come fail the commit.
func (o *operation) qosUsers(policy string) iter.Seq[qosUser] {
	users := func(kind string, ids []string, refused func(id string) func(rule string) error) []qosUser {
		all := make([]qosUser, len(ids))
		for i, id := range ids {
			all[i] = qosUser{kind, id, refused(id)}
		}
		return all
	}
	by := func(kind string) func(id string) func(rule string) error {
		return func(id string) func(rule string) error { return ruleNotSupported(kind, id) }
	}
	return func(yield func(qosUser) bool) {
		for _, some := range [][]qosUser{
			users("port", schema.Ports.Referrers(o.tx, "qos_policy", policy), by("port")),
			users("network", schema.Networks.Referrers(o.tx, "qos_policy", policy), ruleNotSupportedByNetwork),
			users("fip", schema.FloatingIPs.Referrers(o.tx, "qos_policy", policy), by("floating IP")),
			users("router", schema.Routers.Referrers(o.tx, "qos_policy", policy), by("router")),
		} {
			for _, u := range some {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// checkQoSPolicyUnused refuses to delete a policy that something has.
func (o *operation) checkQoSPolicyUnused(id string) error {
	for u := range o.qosUsers(id) {
		return conflict("QosPolicyInUse", "QoS Policy %s is used by %s %s.", id, u.kind, u.id)
	}
	return nil
}

// checkReserved refuses rules that are not supported in a policy that something has.
func (o *operation) checkReserved(policy, rule string) error {
	for u := range o.qosUsers(policy) {
		return u.supported(rule)
	}
	return nil
}

// qosPolicyKey is touched when a network gets another policy.
func qosPolicyKey(network string) string { return "qos-policy/" + network }

// heedQoSPolicy makes the commit fail if a network gets another policy meanwhile, unless the
// network was read as a whole: what is derived depends on it.
func (o *operation) heedQoSPolicy(n *neutron.Network) { o.tx.Heed(qosPolicyKey(n.ID)) }

// deriveQoSPolicyOf rewrites what is derived from the policy of a network: its ports, and the
// gateways on its subnets. It returns what is left to steps.
func (o *operation) deriveQoSPolicyOf(n *neutron.Network, subnets []*neutron.Subnet) (ports bool, gateways []string, err error) {
	o.tx.Touch(qosPolicyKey(n.ID))
	if ports = schema.Ports.CountBy(o.tx, "network", n.ID) > stepObjects; ports {
		err = o.begin(workDerivePorts, n.ID)
	} else {
		_, _, err = steps{o}.derivePorts(n.ID, "")
	}
	if err != nil || !n.External {
		return ports, nil, err
	}
	gateways, err = o.deriveRouterPortsOn(subnets)
	return ports, gateways, err
}

// derivePorts rewrites what is derived from some ports of a network that have its QoS policy, after
// a port's id.
func (o steps) derivePorts(networkID, after string) (done bool, next string, err error) {
	n, err := schema.Networks.Get(o.tx, networkID)
	if err != nil {
		return true, "", nil // gone
	}
	count := 0
	for p := range schema.Ports.By(o.tx, "network", networkID) {
		if p.ID <= after || !translate.TakesQoSPolicy(p) {
			continue
		}
		if count == stepObjects {
			return false, next, nil
		}
		if err := o.derivePort(p.ID, n); err != nil {
			return false, "", err
		}
		count, next = count+1, p.ID
	}
	return true, "", nil
}

// derivePort rewrites the bundle of a port.
func (o steps) derivePort(id string, n *neutron.Network) error {
	p, err := schema.Ports.Get(o.tx, id)
	if err != nil {
		return err
	}
	groups, err := o.groupsOf(p)
	if err != nil {
		return err
	}
	return o.putPortBundle(p, n, groups)
}
