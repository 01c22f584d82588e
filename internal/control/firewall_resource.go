package control

import (
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The operations on firewalls (FWaaS v1).
type (
	firewallRules struct {
		*resource[neutron.FirewallRule, neutron.FirewallRuleView]
	}
	firewallPolicies struct {
		*resource[neutron.FirewallPolicy, neutron.FirewallPolicyView]
	}
	firewalls struct {
		*resource[neutron.Firewall, neutron.FirewallView]
	}
)

// ownAndShared returns a finder of objects that have an index by project, name and shared.
func ownAndShared[T any](t *records.Table[T]) finder[T] {
	return finder[T]{t, []criterion[T]{
		byOwnID(t),
		byName(t),
		byProject(t),
	}, func(r records.Reader, c neutron.Caller) []iter.Seq[*T] {
		return []iter.Seq[*T]{t.By(r, "project", c.ProjectID), t.By(r, "shared", "true")}
	}}
}

func newFirewallRules(s *Service) *resource[neutron.FirewallRule, neutron.FirewallRuleView] {
	return &resource[neutron.FirewallRule, neutron.FirewallRuleView]{
		service: s, name: neutron.FirewallRules, make: (*operation).createFirewallRule, finder: ownAndShared(schema.FirewallRules),
		standard:   func(r *neutron.FirewallRule) *neutron.Standard { return &r.Standard },
		attributes: func(o *neutron.FirewallRuleView) *neutron.Standard { return &o.Standard },
		owner: func(_ records.Reader, r *neutron.FirewallRule) (neutron.Owner, bool) {
			return firewallRuleOwner(r), true
		},
		answer: func(r records.Reader, rule *neutron.FirewallRule, q neutron.Query) *neutron.FirewallRuleView {
			if q.WithoutComputed {
				return &neutron.FirewallRuleView{FirewallRule: rule}
			}
			return firewallRuleView(r, rule)
		},
	}
}

func newFirewallPolicies(s *Service) *resource[neutron.FirewallPolicy, neutron.FirewallPolicyView] {
	return &resource[neutron.FirewallPolicy, neutron.FirewallPolicyView]{
		service: s, name: neutron.FirewallPolicies, make: (*operation).createFirewallPolicy, finder: ownAndShared(schema.FirewallPolicies),
		standard:   func(p *neutron.FirewallPolicy) *neutron.Standard { return &p.Standard },
		attributes: func(o *neutron.FirewallPolicyView) *neutron.Standard { return &o.Standard },
		owner: func(_ records.Reader, p *neutron.FirewallPolicy) (neutron.Owner, bool) {
			return firewallPolicyOwner(p), true
		},
		answer: func(_ records.Reader, p *neutron.FirewallPolicy, _ neutron.Query) *neutron.FirewallPolicyView {
			return &neutron.FirewallPolicyView{FirewallPolicy: p}
		},
	}
}

func newFirewalls(s *Service) *resource[neutron.Firewall, neutron.FirewallView] {
	t := schema.Firewalls
	return &resource[neutron.Firewall, neutron.FirewallView]{
		service: s, name: neutron.Firewalls, make: (*operation).createFirewall,
		finder: ofProject(t,
			byName(t),
			byProject(t)),
		standard:   func(f *neutron.Firewall) *neutron.Standard { return &f.Standard },
		attributes: func(o *neutron.FirewallView) *neutron.Standard { return &o.Standard },
		owner:      func(_ records.Reader, f *neutron.Firewall) (neutron.Owner, bool) { return firewallOwner(f), true },
		answer: func(_ records.Reader, f *neutron.Firewall, _ neutron.Query) *neutron.FirewallView {
			return &neutron.FirewallView{Firewall: f}
		},
	}
}

// untagged returns the operations that resources without tags share.
func (res *resource[T, V]) untagged() Operations[*V] {
	o := res.operations()
	o.ChangeTags, o.Tags = nil, nil
	return o
}

// FirewallRules returns the operations on firewall rules.
func (s *Service) FirewallRules() Operations[*neutron.FirewallRuleView] {
	o := s.firewallRules.untagged()
	o.Update, o.Delete = s.firewallRules.update, s.firewallRules.delete
	return o
}

// FirewallPolicies returns the operations on firewall policies, beside [Service.InsertFirewallRule]
// and [Service.RemoveFirewallRule].
func (s *Service) FirewallPolicies() Operations[*neutron.FirewallPolicyView] {
	o := s.firewallPolicies.untagged()
	o.Update, o.Delete = s.firewallPolicies.update, s.firewallPolicies.delete
	return o
}

// Firewalls returns the operations on firewalls.
func (s *Service) Firewalls() Operations[*neutron.FirewallView] {
	o := s.firewalls.untagged()
	o.Update, o.Delete = s.firewalls.update, s.firewalls.delete
	return o
}
