package control

import (
	"context"
	"reflect"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createFirewallRule(_ context.Context, v neutron.Values) (*neutron.FirewallRule, error) {
	r, err := neutron.NewFirewallRule(v)
	if err != nil {
		return nil, err
	}
	r.Standard = o.standard(v, 0)
	return r, schema.FirewallRules.Put(o.tx, r)
}

// update changes a rule, and the firewalls that apply it: with many of them in steps.
func (s firewallRules) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallRuleView, error) {
	var pending string
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.FirewallRuleView, error) {
		pending = ""
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		r := *old
		applyStandard(&r.Standard, v)
		if err := r.Apply(v); err != nil {
			return nil, err
		}
		policy, err := o.policyWith(id)
		if err != nil {
			return nil, err
		}
		if policy != nil && !r.Shared && v.Has("shared") && r.ProjectID != policy.ProjectID {
			return nil, firewallRuleInUse(id)
		}
		if reflect.DeepEqual(&r, old) {
			return firewallRuleView(o.tx, old), nil
		}
		o.bump(&r.Standard)
		if err := schema.FirewallRules.Put(o.tx, &r); err != nil {
			return nil, err
		}
		if policy == nil {
			return firewallRuleView(o.tx, &r), nil
		}
		later, err := o.changedRules(policy)
		if later {
			pending = policy.ID
		}
		return firewallRuleView(o.tx, &r), err
	})
	if pending != "" && err == nil {
		s.service.carryOut(ctx, workDeriveFirewalls, pending)
	}
	return view, err
}

// delete deletes a rule that is in no policy.
func (s firewallRules) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.FirewallRule) error {
		if len(schema.FirewallPolicies.Referrers(o.tx, "rule", id)) > 0 {
			return firewallRuleInUse(id)
		}
		return schema.FirewallRules.Delete(o.tx, id)
	})
}

// policyWith returns the policy that has a rule, or nil. A change of either fails the commit.
func (o *operation) policyWith(rule string) (*neutron.FirewallPolicy, error) {
	for _, id := range schema.FirewallPolicies.Referrers(o.tx, "rule", rule) {
		return schema.FirewallPolicies.Get(o.tx, id)
	}
	return nil, nil
}

// changedRules notes that rules of a policy have changed: it is not audited any more. It reports
// whether firewalls are pending work.
func (o *operation) changedRules(old *neutron.FirewallPolicy) (pending bool, err error) {
	if old.Audited {
		p := *old
		p.Audited = false
		o.bump(&p.Standard)
		if err := schema.FirewallPolicies.Put(o.tx, &p); err != nil {
			return false, err
		}
	}
	return o.deriveFirewallsOf(old.ID)
}

// firewallRuleView returns a rule with its policy and its place there.
func firewallRuleView(r records.Reader, rule *neutron.FirewallRule) *neutron.FirewallRuleView {
	v := &neutron.FirewallRuleView{FirewallRule: rule}
	for p := range schema.FirewallPolicies.By(r, "rule", rule.ID) {
		v.PolicyID = p.ID
		for i, id := range p.Rules {
			if id == rule.ID {
				position := i + 1
				v.Position = &position
			}
		}
	}
	return v
}

func firewallRuleOwner(r *neutron.FirewallRule) neutron.Owner {
	return neutron.Owner{ProjectID: r.ProjectID, Shared: r.Shared}
}

func firewallRuleInUse(id string) error {
	return conflict("FirewallRuleInUse", "Firewall Rule %s is being used.", id)
}
