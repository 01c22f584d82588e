package control

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// qosPolicies are the operations on QoS policies. Their rules lie in them.
type qosPolicies struct {
	*resource[neutron.QoSPolicy, neutron.QoSPolicyView]
}

func newQoSPolicies(s *Service) *resource[neutron.QoSPolicy, neutron.QoSPolicyView] {
	return shareable(&resource[neutron.QoSPolicy, neutron.QoSPolicyView]{
		service: s, name: neutron.QoSPolicies, make: (*operation).createQoSPolicy,
		finder:     ownAndGranted(schema.QoSPolicies, neutron.QoSPolicies),
		standard:   func(p *neutron.QoSPolicy) *neutron.Standard { return &p.Standard },
		attributes: func(o *neutron.QoSPolicyView) *neutron.Standard { return &o.Standard },
		answer: func(_ records.Reader, p *neutron.QoSPolicy, _ neutron.Query) *neutron.QoSPolicyView {
			return &neutron.QoSPolicyView{QoSPolicy: p}
		},
	}, func(o *neutron.QoSPolicyView) *bool { return &o.Shared })
}

// sharedQoSPolicies returns how policies are shared: with the projects of what has them.
func sharedQoSPolicies() sharedType {
	t := sharedTable(neutron.QoSPolicies, schema.QoSPolicies, func(p *neutron.QoSPolicy) string { return p.ProjectID },
		usersIn(schema.Ports, "qos_policy", func(p *neutron.Port) string { return p.ProjectID }),
		usersIn(schema.Networks, "qos_policy", func(n *neutron.Network) string { return n.ProjectID }),
		usersIn(schema.FloatingIPs, "qos_policy", func(f *neutron.FloatingIP) string { return f.ProjectID }),
		usersIn(schema.Routers, "qos_policy", func(r *neutron.Router) string { return r.ProjectID }))
	t.strict = true
	return t
}

// QoSPolicies returns the operations on QoS policies.
func (s *Service) QoSPolicies() Operations[*neutron.QoSPolicyView] {
	o := s.qosPolicies.operations()
	o.Update, o.Delete = s.qosPolicies.update, s.qosPolicies.delete
	return o
}

// QoSRules returns the operations on a policy's rules of one type, or of one alias if policy is "".
func (s *Service) QoSRules(policy string, r neutron.Resource) Operations[*neutron.QoSRuleView] {
	rules := qosRules{s, policy, r, qosRuleTypeOf(r)}
	return Operations[*neutron.QoSRuleView]{Create: rules.create, Update: rules.update, Delete: rules.delete, Show: rules.show, List: rules.list}
}

// qosRuleTypeOf returns the type of a resource's rules.
func qosRuleTypeOf(r neutron.Resource) neutron.QoSRuleType {
	for _, t := range neutron.QoSRuleTypes() {
		if r == t.Resource || r == t.Alias {
			return t
		}
	}
	panic("control: " + r.Name() + " is no resource of QoS rules")
}

// QoSRuleTypes returns the types of rules that policies may have, with enforced only those that are
// more than stored.
func (s *Service) QoSRuleTypes(enforced bool) []*neutron.QoSRuleTypeView {
	var views []*neutron.QoSRuleTypeView
	for _, t := range neutron.QoSRuleTypes() {
		if !enforced || !t.Reserves {
			views = append(views, &neutron.QoSRuleTypeView{QoSRuleType: t})
		}
	}
	return views
}

// QoSRuleType returns a type with what enforces it.
func (s *Service) QoSRuleType(c neutron.Caller, name string) (*neutron.QoSRuleTypeView, error) {
	if err := neutron.AuthorizeQoSRuleType(c); err != nil {
		return nil, err
	}
	t := neutron.QoSRuleTypeNamed(name)
	if t == nil {
		return nil, neutron.QoSRuleTypeNames.NotFound(name)
	}
	return &neutron.QoSRuleTypeView{QoSRuleType: *t, Detailed: true}, nil
}
