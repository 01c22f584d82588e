package control

import (
	"context"
	"iter"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The operations on firewall groups, their policies and rules (FWaaS v2).
type (
	firewallGroups struct {
		*resource[neutron.FirewallGroup, neutron.FirewallGroupView]
	}
	groupPolicies struct {
		*resource[neutron.FirewallPolicy, neutron.FirewallPolicyView]
	}
	groupRules struct {
		*resource[neutron.FirewallRule, neutron.FirewallGroupRuleView]
	}
)

func newFirewallGroups(s *Service) *resource[neutron.FirewallGroup, neutron.FirewallGroupView] {
	return &resource[neutron.FirewallGroup, neutron.FirewallGroupView]{
		service: s, name: neutron.FirewallGroups, prepare: (*operation).makeDefaultFirewallGroups, make: (*operation).createFirewallGroup,
		finder:     ownAndShared(schema.FirewallGroups),
		standard:   func(g *neutron.FirewallGroup) *neutron.Standard { return &g.Standard },
		attributes: func(o *neutron.FirewallGroupView) *neutron.Standard { return &o.Standard },
		owner: func(_ records.Reader, g *neutron.FirewallGroup) (neutron.Owner, bool) {
			return neutron.Owner{ProjectID: g.ProjectID, Shared: g.Shared}, true
		},
		answer: func(_ records.Reader, g *neutron.FirewallGroup, _ neutron.Query) *neutron.FirewallGroupView {
			return &neutron.FirewallGroupView{FirewallGroup: g}
		},
	}
}

func newGroupPolicies(s *Service) *resource[neutron.FirewallPolicy, neutron.FirewallPolicyView] {
	res := newFirewallPolicies(s)
	res.name, res.make, res.finder = neutron.FirewallGroupPolicies, (*operation).createGroupPolicy, ownAndShared(schema.FirewallGroupPolicies)
	return res
}

func newGroupRules(s *Service) *resource[neutron.FirewallRule, neutron.FirewallGroupRuleView] {
	return &resource[neutron.FirewallRule, neutron.FirewallGroupRuleView]{
		service: s, name: neutron.FirewallGroupRules, make: (*operation).createGroupRule, finder: ownAndShared(schema.FirewallGroupRules),
		standard:   func(r *neutron.FirewallRule) *neutron.Standard { return &r.Standard },
		attributes: func(o *neutron.FirewallGroupRuleView) *neutron.Standard { return &o.Standard },
		owner: func(_ records.Reader, r *neutron.FirewallRule) (neutron.Owner, bool) {
			return firewallRuleOwner(r), true
		},
		answer: func(r records.Reader, rule *neutron.FirewallRule, q neutron.Query) *neutron.FirewallGroupRuleView {
			if q.WithoutComputed {
				return &neutron.FirewallGroupRuleView{FirewallRule: rule}
			}
			return groupRuleView(r, rule)
		},
	}
}

// FirewallGroups returns the operations on firewall groups. A list brings the default group of the
// project that is asked about, or else the caller's.
func (s *Service) FirewallGroups() Operations[*neutron.FirewallGroupView] {
	o := s.firewallGroups.untagged()
	o.Update, o.Delete, o.List = s.firewallGroups.update, s.firewallGroups.delete, s.firewallGroups.list
	return o
}

// FirewallGroupPolicies returns the operations on policies of firewall groups, beside
// [Service.InsertGroupRule] and [Service.RemoveGroupRule].
func (s *Service) FirewallGroupPolicies() Operations[*neutron.FirewallPolicyView] {
	o := s.groupPolicies.untagged()
	o.Update, o.Delete = s.groupPolicies.update, s.groupPolicies.delete
	return o
}

// FirewallGroupRules returns the operations on rules of policies of firewall groups.
func (s *Service) FirewallGroupRules() Operations[*neutron.FirewallGroupRuleView] {
	o := s.groupRules.untagged()
	o.Update, o.Delete = s.groupRules.update, s.groupRules.delete
	return o
}

func (s firewallGroups) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.FirewallGroupView], error) {
	snap, err := s.service.view(ctx)
	if err != nil {
		return nil, err
	}
	project := c.ProjectID
	if len(q.ProjectIDs) > 0 {
		project = q.ProjectIDs[0]
	}
	if project == "" || !c.Owns(project) || hasDefaultFirewallGroup(snap, project) {
		return s.in(snap, c, q), nil
	}
	err = perform(ctx, s.service, c, func(o *operation) error { return o.makeDefaultFirewallGroup(project) })
	if err != nil {
		return nil, err
	}
	if snap, err = s.service.view(ctx); err != nil {
		return nil, err
	}
	return s.in(snap, c, q), nil
}
