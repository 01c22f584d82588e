package control

import (
	"context"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createGroupRule(_ context.Context, v neutron.Values) (*neutron.FirewallRule, error) {
	r, err := neutron.NewFirewallGroupRule(v)
	if err != nil {
		return nil, err
	}
	r.Standard = o.standard(v, 0)
	return r, schema.FirewallGroupRules.Put(o.tx, r)
}

// update changes a rule, and the chains of the policies that have it: with many of them in steps.
func (s groupRules) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallGroupRuleView, error) {
	var pending bool
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.FirewallGroupRuleView, error) {
		pending = false
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		r := *old
		applyStandard(&r.Standard, v)
		if err := r.ApplyToGroups(v); err != nil {
			return nil, err
		}
		policies := schema.FirewallGroupPolicies.Referrers(o.tx, "rule", id)
		if old.Shared && !r.Shared {
			if err := o.checkRuleUnshared(&r, policies); err != nil {
				return nil, err
			}
		}
		if reflect.DeepEqual(&r, old) {
			return groupRuleView(o.tx, old), nil
		}
		o.bump(&r.Standard)
		if err := schema.FirewallGroupRules.Put(o.tx, &r); err != nil {
			return nil, err
		}
		done, _, err := steps{o}.deriveGroupRule(id, "")
		if pending = err == nil && !done; pending {
			err = o.begin(workDeriveGroupRule, id)
		}
		return groupRuleView(o.tx, &r), err
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeriveGroupRule, id)
	}
	return view, err
}

// checkRuleUnshared refuses to hide a rule that other projects' policies have, or a shared one.
func (o *operation) checkRuleUnshared(r *neutron.FirewallRule, policies []string) error {
	for _, id := range policies {
		p, err := schema.FirewallGroupPolicies.Get(o.tx, id)
		if err != nil {
			return err
		}
		if p.ProjectID != r.ProjectID || p.Shared {
			return groupRuleInUse(r.ID)
		}
	}
	return nil
}

// delete deletes a rule that is in no policy.
func (s groupRules) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		if len(schema.FirewallGroupPolicies.Referrers(o.tx, "rule", id)) > 0 {
			return groupRuleInUse(id)
		}
		return schema.FirewallGroupRules.Delete(o.tx, id)
	})
}

// groupRuleView returns a rule with the policies that have it.
func groupRuleView(r records.Reader, rule *neutron.FirewallRule) *neutron.FirewallGroupRuleView {
	v := &neutron.FirewallGroupRuleView{FirewallRule: rule, PolicyIDs: []string{}}
	for p := range schema.FirewallGroupPolicies.By(r, "rule", rule.ID) {
		v.PolicyIDs = append(v.PolicyIDs, p.ID)
	}
	return v
}

func groupRuleInUse(id string) error {
	return conflict("FirewallRuleInUse", "Firewall rule %s is being used.", id)
}

// deriveGroupRule rewrites the chains of some policies that have a rule, after a policy's id. They
// are not audited so.
func (o steps) deriveGroupRule(rule, after string) (done bool, next string, err error) {
	count, rules := 0, 0
	for p := range schema.FirewallGroupPolicies.By(o.tx, "rule", rule) {
		if p.ID <= after {
			continue
		}
		if rules += len(p.Rules); count == stepObjects || count > 0 && rules > stepRules {
			return false, next, nil
		}
		old, err := schema.FirewallGroupPolicies.Get(o.tx, p.ID)
		if err != nil {
			return false, "", err
		}
		changed := *old
		if changed.Audited {
			changed.Audited = false
			o.bump(&changed.Standard)
		}
		if err := o.putGroupPolicy(&changed); err != nil {
			return false, "", err
		}
		count, next = count+1, p.ID
	}
	return true, "", nil
}

var groupPolicyRules = policyRules{
	visible: func(o *operation, rule string) error { _, _, err := o.groupRules.inTransaction(o, rule); return err },
	set:     (*operation).setGroupRules,
	notIn:   "Firewall rule %s is not associated with firewall policy %s.",
}

func (o *operation) createGroupPolicy(_ context.Context, v neutron.Values) (*neutron.FirewallPolicy, error) {
	p := &neutron.FirewallPolicy{Standard: o.standard(v, 0), Shared: v.Flag("shared"), Audited: v.Flag("audited"), Rules: []string{}}
	if err := o.setGroupRules(p, list[string](v, "firewall_rules")); err != nil {
		return nil, err
	}
	return p, o.putGroupPolicy(p)
}

// update changes a policy. It is audited if the update says so.
func (s groupPolicies) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallPolicyView, error) {
	return s.change(ctx, c, id, v, ifMatch, func(o *operation, p *neutron.FirewallPolicy) error {
		applyPolicy(p, v)
		if err := o.checkPolicyUnshared(p); err != nil {
			return err
		}
		switch {
		case v.Has("firewall_rules"):
			return o.setGroupRules(p, list[string](v, "firewall_rules"))
		case v.Has("shared"):
			return o.setGroupRules(p, p.Rules)
		}
		return nil
	})
}

// InsertGroupRule puts a rule into a policy of firewall groups that does not have it.
func (s *Service) InsertGroupRule(ctx context.Context, c neutron.Caller, policy string, in neutron.RuleInsertion) (*neutron.FirewallPolicyView, error) {
	return s.groupPolicies.change(ctx, c, policy, neutron.Values{}, nil, func(o *operation, p *neutron.FirewallPolicy) error {
		if slices.Contains(p.Rules, in.RuleID) {
			return conflict("FirewallRuleAlreadyAssociated",
				"Operation cannot be performed since firewall rule %s is already associated with firewall policy %s.", in.RuleID, p.ID)
		}
		return groupPolicyRules.insert(o, p, in)
	})
}

// RemoveGroupRule takes a rule out of a policy of firewall groups.
func (s *Service) RemoveGroupRule(ctx context.Context, c neutron.Caller, policy, rule string) (*neutron.FirewallPolicyView, error) {
	return s.groupPolicies.change(ctx, c, policy, neutron.Values{}, nil, func(o *operation, p *neutron.FirewallPolicy) error {
		return groupPolicyRules.remove(o, p, rule)
	})
}

// change lets f change a policy as a request with values v wants, and stores it.
func (s groupPolicies) change(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64,
	f func(*operation, *neutron.FirewallPolicy) error) (*neutron.FirewallPolicyView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.FirewallPolicyView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		return o.changed(old, v, f, o.putGroupPolicy)
	})
}

// delete deletes a policy that no group has. Its rules stay.
func (s groupPolicies) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		if len(schema.FirewallGroups.Referrers(o.tx, "policy", id)) > 0 {
			return groupPolicyInUse(id)
		}
		if err := o.dropBundle(kindFirewallGroupPolicy, id); err != nil {
			return err
		}
		return schema.FirewallGroupPolicies.Delete(o.tx, id)
	})
}

// setGroupRules gives a policy its rules. Those of other projects must be shared, as all rules of a
// shared policy.
func (o *operation) setGroupRules(p *neutron.FirewallPolicy, ids []string) error {
	for _, id := range ids {
		r, _, err := o.groupRules.inTransaction(o, id)
		switch {
		case err != nil:
			return err
		case p.Shared && !r.Shared && slices.Contains(p.Rules, id):
			return conflict("FirewallPolicySharingConflict",
				"Operation cannot be performed. Before sharing firewall policy %s, share associated firewall rule %s.", p.ID, id)
		case p.Shared && !r.Shared:
			return neutron.Errorf(neutron.NotFound, "FirewallRuleSharingConflict", "Operation cannot be performed since firewall policy %s could not "+
				"find the firewall rule %s. Please confirm if the firewall rule exists and is shared.", p.ID, id)
		case !r.Shared && r.ProjectID != p.ProjectID:
			return conflict("FirewallRuleConflict",
				"Operation cannot be performed since firewall rule %s is not shared and belongs to another project %s.", id, r.ProjectID)
		}
	}
	p.Rules = ids
	return nil
}

// checkPolicyUnshared refuses a policy that is not shared while other projects' groups have it.
func (o *operation) checkPolicyUnshared(p *neutron.FirewallPolicy) error {
	if p.Shared {
		return nil
	}
	for g := range schema.FirewallGroups.By(o.tx, "policy", p.ID) {
		if g.ProjectID != p.ProjectID {
			return groupPolicyInUse(p.ID)
		}
	}
	return nil
}

// putGroupPolicy stores a policy with its chain, whatever the number of its groups.
func (o *operation) putGroupPolicy(p *neutron.FirewallPolicy) error {
	if err := schema.FirewallGroupPolicies.Put(o.tx, p); err != nil {
		return err
	}
	rules := make([]neutron.FirewallRule, len(p.Rules))
	for i, id := range p.Rules {
		r, err := schema.FirewallGroupRules.Get(o.tx, id)
		if err != nil {
			return err
		}
		rules[i] = *r
	}
	return o.putBundle(kindFirewallGroupPolicy, p.ID, translate.FirewallGroupPolicy(p, rules))
}

func groupPolicyInUse(id string) error {
	return conflict("FirewallPolicyInUse", "Firewall policy %s is being used.", id)
}
