package control

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// qosRules are the operations on the rules of one type: of one policy, or of all for an alias.
type qosRules struct {
	*Service
	policy   string // "" of an alias
	resource neutron.Resource
	typ      neutron.QoSRuleType
}

// create adds rules to the policy, all or none.
func (s qosRules) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.QoSRuleView, error) {
	id := func(r *neutron.QoSRuleView) string { return r.ID }
	return createAll(ctx, s.Service, c, id, func(o *operation) ([]*neutron.QoSRuleView, error) {
		if err := neutron.Authorize(c, s.resource, neutron.Create, nil, neutron.Owner{}); err != nil {
			return nil, err
		}
		old, _, err := s.qosPolicies.inTransaction(o, s.policy)
		if err != nil {
			return nil, err
		}
		p := *old
		var made []*neutron.QoSRuleView
		for _, v := range vs {
			r := neutron.QoSRule{ID: o.standard(v, 0).ID}
			s.typ.Apply(&r, v)
			if p.Rules, err = p.WithRule(r, v); err != nil {
				return nil, err
			}
			made = append(made, &neutron.QoSRuleView{QoSRule: r, PolicyID: p.ID})
		}
		return made, o.changeQoSRules(old, &p)
	})
}

// update changes a rule.
func (s qosRules) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, _ *int64) (*neutron.QoSRuleView, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.QoSRuleView, error) {
		old, r, err := s.toChange(o, id, neutron.Update)
		if err != nil {
			return nil, err
		}
		p, had := *old, r
		s.typ.Apply(&r, v)
		if p.Rules, err = p.WithRule(r, v); err != nil {
			return nil, err
		}
		view := &neutron.QoSRuleView{QoSRule: r, PolicyID: p.ID}
		if r == had {
			return view, nil
		}
		return view, o.changeQoSRules(old, &p)
	})
}

// delete takes a rule out of its policy.
func (s qosRules) delete(ctx context.Context, c neutron.Caller, id string, _ *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		old, _, err := s.toChange(o, id, neutron.Delete)
		if err != nil {
			return err
		}
		p := *old
		p.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r neutron.QoSRule) bool { return r.ID == id })
		return o.changeQoSRules(old, &p)
	})
}

// show returns a rule of a policy that the caller may see.
func (s qosRules) show(ctx context.Context, c neutron.Caller, id string) (*neutron.QoSRuleView, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.visiblePolicy(snap, c, id)
	if err != nil {
		return nil, err
	}
	if r := p.Rule(s.typ.Name, id); r != nil {
		return &neutron.QoSRuleView{QoSRule: *r, PolicyID: p.ID}, nil
	}
	return nil, neutron.QoSRuleNotFound(s.policy, id)
}

// list returns the rules of a policy that the caller may see.
func (s qosRules) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.QoSRuleView], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.visiblePolicy(snap, c, "")
	if err != nil {
		return nil, err
	}
	var found []*neutron.QoSRuleView
	for _, r := range p.Rules {
		if r.Type == s.typ.Name && among(q.IDs, r.ID) {
			found = append(found, &neutron.QoSRuleView{QoSRule: r, PolicyID: p.ID})
		}
	}
	slices.SortFunc(found, func(a, b *neutron.QoSRuleView) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Values(found), nil
}

// visiblePolicy finds the policy of a request about a rule.
func (s qosRules) visiblePolicy(r records.Reader, c neutron.Caller, rule string) (*neutron.QoSPolicy, error) {
	if s.policy == "" {
		p := qosPolicyWith(r, rule)
		if p == nil || !s.qosPolicies.sees(r, c, p) {
			return nil, neutron.QoSRuleNotFound("", rule)
		}
		return p, nil
	}
	p, ok := schema.QoSPolicies.Peek(r, s.policy)
	if !ok || !s.qosPolicies.sees(r, c, p) {
		return nil, neutron.QoSPolicies.NotFound(s.policy)
	}
	return p, nil
}

// qosPolicyWith returns the policy that has a rule; nil if there is none.
func qosPolicyWith(r records.Reader, rule string) *neutron.QoSPolicy {
	for p := range schema.QoSPolicies.By(r, "rule", rule) {
		return p
	}
	return nil
}

// toChange finds a rule and its policy for an update or a delete.
func (s qosRules) toChange(o *operation, id string, op neutron.Op) (*neutron.QoSPolicy, neutron.QoSRule, error) {
	none := neutron.QoSRule{}
	found, err := s.visiblePolicy(o.tx, o.caller, id)
	if err != nil {
		return nil, none, err
	}
	p, err := schema.QoSPolicies.Get(o.tx, found.ID)
	if err != nil {
		return nil, none, err
	}
	r := p.Rule(s.typ.Name, id)
	if r == nil {
		return nil, none, neutron.QoSRuleNotFound(s.policy, id)
	}
	return p, *r, neutron.Authorize(o.caller, s.resource, op, nil, neutron.Owner{})
}

// changeQoSRules stores a policy whose rules have changed. One that reserves something has no
// users.
func (o *operation) changeQoSRules(old, p *neutron.QoSPolicy) error {
	if r := p.Reserving(); r != nil && old.Reserving() == nil {
		if err := o.checkReserved(p.ID, r.Type); err != nil {
			return err
		}
	}
	o.bump(&p.Standard)
	return o.putQoSPolicy(p)
}
