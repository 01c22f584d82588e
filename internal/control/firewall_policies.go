package control

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createFirewallPolicy(_ context.Context, v neutron.Values) (*neutron.FirewallPolicy, error) {
	p := &neutron.FirewallPolicy{Standard: o.standard(v, 0), Shared: v.Flag("shared"), Audited: v.Flag("audited"), Rules: []string{}}
	if err := o.setPolicyRules(p, list[string](v, "firewall_rules")); err != nil {
		return nil, err
	}
	return p, putFirewallPolicy(o, p)
}

// update changes a policy, and the firewalls that have it. It is audited if the update says so.
func (s firewallPolicies) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallPolicyView, error) {
	return s.change(ctx, c, id, v, ifMatch, func(o *operation, p *neutron.FirewallPolicy) error {
		applyPolicy(p, v)
		if err := o.checkUnshared(p); err != nil {
			return err
		}
		switch {
		case v.Has("firewall_rules"):
			return o.setPolicyRules(p, list[string](v, "firewall_rules"))
		case v.Has("shared"):
			return o.setPolicyRules(p, p.Rules)
		}
		return nil
	})
}

// applyPolicy sets what an update names, but for the rules.
func applyPolicy(p *neutron.FirewallPolicy, v neutron.Values) {
	applyStandard(&p.Standard, v)
	setFlag(&p.Shared, v, "shared")
	setFlag(&p.Audited, v, "audited")
}

// policyRules keeps the rules of policies of one kind: of firewalls, or of firewall groups.
type policyRules struct {
	visible func(o *operation, rule string) error // refuses rules that the caller does not see
	set     func(o *operation, p *neutron.FirewallPolicy, rules []string) error
	notIn   string // says that a rule is not in a policy
}

var firewallPolicyRules = policyRules{
	visible: func(o *operation, rule string) error { _, _, err := o.firewallRules.inTransaction(o, rule); return err },
	set:     (*operation).setPolicyRules,
	notIn:   "Firewall Rule %s is not associated with  Firewall Policy %s.",
}

// insert puts a rule into a policy: after or before another, else first.
func (k policyRules) insert(o *operation, p *neutron.FirewallPolicy, in neutron.RuleInsertion) error {
	at := 0
	if beside := in.Beside(); beside != "" {
		if at = slices.Index(p.Rules, beside); at < 0 {
			return k.missing(o, p, beside)
		}
		if in.Before == "" {
			at++
		}
	}
	rules := slices.Insert(slices.Clone(p.Rules), at, in.RuleID)
	if err := neutron.CheckList("firewall_rules", len(rules)); err != nil {
		return err
	}
	return k.set(o, p, rules)
}

// remove takes a rule out of a policy.
func (k policyRules) remove(o *operation, p *neutron.FirewallPolicy, rule string) error {
	i := slices.Index(p.Rules, rule)
	if i < 0 {
		return k.missing(o, p, rule)
	}
	return k.set(o, p, slices.Delete(slices.Clone(p.Rules), i, i+1))
}

// missing returns the error about a rule that a policy does not have.
func (k policyRules) missing(o *operation, p *neutron.FirewallPolicy, rule string) error {
	if err := k.visible(o, rule); err != nil {
		return err
	}
	return neutron.Errorf(neutron.Invalid, "FirewallRuleNotAssociatedWithPolicy", k.notIn, rule, p.ID)
}

// changed lets f change a copy of a policy as a request with values v wants, and put store what
// differs. The result is not audited unless v says so.
func (o *operation) changed(old *neutron.FirewallPolicy, v neutron.Values,
	f func(*operation, *neutron.FirewallPolicy) error, put func(*neutron.FirewallPolicy) error) (*neutron.FirewallPolicyView, error) {
	p := *old
	if err := f(o, &p); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(&p, old) {
		return &neutron.FirewallPolicyView{FirewallPolicy: old}, nil
	}
	p.Audited = v.Flag("audited")
	o.bump(&p.Standard)
	return &neutron.FirewallPolicyView{FirewallPolicy: &p}, put(&p)
}

// InsertFirewallRule puts a rule that is in no policy into one.
func (s *Service) InsertFirewallRule(ctx context.Context, c neutron.Caller, policy string, in neutron.RuleInsertion) (*neutron.FirewallPolicyView, error) {
	return s.firewallPolicies.change(ctx, c, policy, neutron.Values{}, nil, func(o *operation, p *neutron.FirewallPolicy) error {
		if _, _, err := s.firewallRules.inTransaction(o, in.RuleID); err != nil {
			return err
		}
		if with, err := o.policyWith(in.RuleID); err != nil || with != nil {
			return errors.Join(err, firewallRuleInUse(in.RuleID))
		}
		return firewallPolicyRules.insert(o, p, in)
	})
}

// RemoveFirewallRule takes a rule out of a policy.
func (s *Service) RemoveFirewallRule(ctx context.Context, c neutron.Caller, policy, rule string) (*neutron.FirewallPolicyView, error) {
	return s.firewallPolicies.change(ctx, c, policy, neutron.Values{}, nil, func(o *operation, p *neutron.FirewallPolicy) error {
		return firewallPolicyRules.remove(o, p, rule)
	})
}

// change lets f change a policy as a request with values v wants, and stores it with the firewalls
// that have it, with many of them in steps.
func (s firewallPolicies) change(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64,
	f func(*operation, *neutron.FirewallPolicy) error) (*neutron.FirewallPolicyView, error) {
	var pending bool
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.FirewallPolicyView, error) {
		pending = false
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		return o.changed(old, v, f, func(p *neutron.FirewallPolicy) error {
			if err := putFirewallPolicy(o, p); err != nil || slices.Equal(p.Rules, old.Rules) {
				return err
			}
			pending, err = o.deriveFirewallsOf(id)
			return err
		})
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeriveFirewalls, id)
	}
	return view, err
}

// delete deletes a policy that no firewall has. Its rules stay.
func (s firewallPolicies) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		if len(schema.Firewalls.Referrers(o.tx, "policy", id)) > 0 {
			return firewallPolicyInUse(id)
		}
		return schema.FirewallPolicies.Delete(o.tx, id)
	})
}

// setPolicyRules gives a policy its rules. Other projects' must be shared, as all of a shared
// policy; a rule is in one policy alone.
func (o *operation) setPolicyRules(p *neutron.FirewallPolicy, ids []string) error {
	for _, id := range ids {
		r, _, err := o.firewallRules.inTransaction(o, id)
		if err != nil {
			return err
		}
		with, err := o.policyWith(id)
		switch {
		case err != nil:
			return err
		case with != nil && with.ID != p.ID:
			return firewallRuleInUse(id)
		case p.Shared && !r.Shared && slices.Contains(p.Rules, id):
			return conflict("FirewallPolicySharingConflict",
				"Operation cannot be performed. Before sharing Firewall Policy %s, share associated Firewall Rule %s", p.ID, id)
		case p.Shared && !r.Shared:
			return conflict("FirewallRuleSharingConflict",
				"Operation cannot be performed since Firewall Policy %s is shared but Firewall Rule %s is not shared", p.ID, id)
		case !r.Shared && r.ProjectID != p.ProjectID:
			return conflict("FirewallRuleConflict",
				"Operation cannot be performed since Firewall Rule %s is not shared and belongs to another tenant %s", id, r.ProjectID)
		}
	}
	p.Rules = ids
	return nil
}

// checkUnshared refuses a policy that is not shared while other projects' firewalls have it.
func (o *operation) checkUnshared(p *neutron.FirewallPolicy) error {
	if p.Shared {
		return nil
	}
	for _, id := range schema.Firewalls.Referrers(o.tx, "policy", p.ID) {
		f, err := schema.Firewalls.Need(o.tx, id)
		if err != nil {
			return err
		}
		if f.ProjectID != p.ProjectID {
			return firewallPolicyInUse(p.ID)
		}
	}
	return nil
}

func putFirewallPolicy(o *operation, p *neutron.FirewallPolicy) error {
	err := schema.FirewallPolicies.Put(o.tx, p)
	var taken *records.TakenError
	if errors.As(err, &taken) {
		return firewallRuleInUse(taken.Value)
	}
	return err
}

func firewallPolicyOwner(p *neutron.FirewallPolicy) neutron.Owner {
	return neutron.Owner{ProjectID: p.ProjectID, Shared: p.Shared}
}

func firewallPolicyInUse(id string) error {
	return conflict("FirewallPolicyInUse", "Firewall Policy %s is being used.", id)
}
