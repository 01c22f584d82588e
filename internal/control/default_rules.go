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

// defaultRules are the operations on the templates of the rules that new security groups get.
// Everyone sees them; admins make and delete them. Groups that are there stay as they are.
type defaultRules struct{ *Service }

// keyDefaultRules serializes changes of default rules. Transactions that make groups heed it.
const keyDefaultRules = "default-security-group-rules"

// presentDefaultRules returns the default rules: the initial ones that were not deleted, then those
// that admins have made, in order of ids.
func presentDefaultRules(r records.Reader) []*neutron.DefaultSecurityGroupRule {
	var present []*neutron.DefaultSecurityGroupRule
	for _, rule := range neutron.InitialDefaultRules() {
		if _, removed := schema.DefaultRules.Peek(r, rule.ID); !removed {
			present = append(present, &rule)
		}
	}
	for rule := range schema.DefaultRules.All(r) {
		if !rule.Removed {
			present = append(present, rule)
		}
	}
	return present
}

// presentDefaultRule returns the default rule with this id.
func presentDefaultRule(r records.Reader, id string) (*neutron.DefaultSecurityGroupRule, error) {
	present := presentDefaultRules(r)
	i := slices.IndexFunc(present, func(rule *neutron.DefaultSecurityGroupRule) bool { return rule.ID == id })
	if i < 0 {
		return nil, neutron.DefaultRules.NotFound(id)
	}
	return present[i], nil
}

// initialRules returns the rules that a new group gets from the default rules. It leaves out those
// with an address group that a server of an earlier version has deleted, not knowing default rules.
func (o *operation) initialRules(g *neutron.SecurityGroup, defaultGroup bool) []neutron.SecurityGroupRule {
	o.tx.Heed(keyDefaultRules)
	var rules []neutron.SecurityGroupRule
	for _, d := range presentDefaultRules(o.tx) {
		_, exists := schema.AddressGroups.Peek(o.tx, d.RemoteAddressGroupID)
		if !d.UsedIn(defaultGroup) || d.RemoteAddressGroupID != "" && !exists {
			continue
		}
		v := neutron.Values{"project_id": g.ProjectID, "description": d.Description}
		rules = append(rules, d.RuleOf(g.ID, o.standard(v, 0)))
	}
	return rules
}

// create makes default rules, all or none.
func (s defaultRules) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.DefaultSecurityGroupRule, error) {
	id := func(r *neutron.DefaultSecurityGroupRule) string { return r.ID }
	return createAll(ctx, s.Service, c, id, func(o *operation) ([]*neutron.DefaultSecurityGroupRule, error) {
		if err := o.authorizeEach(neutron.DefaultRules, vs); err != nil {
			return nil, err
		}
		o.tx.Touch(keyDefaultRules)
		before := presentDefaultRules(o.tx)
		if err := neutron.CheckList(neutron.DefaultRules.Collection(), len(before)+len(vs)); err != nil {
			return nil, err
		}
		var made []*neutron.DefaultSecurityGroupRule
		for _, v := range vs {
			rule, err := neutron.NewDefaultSecurityGroupRule(v)
			if err != nil {
				return nil, err
			}
			if err := o.checkRemoteAddresses(rule.RemoteAddressGroupID); err != nil {
				return nil, err
			}
			rule.Standard = o.standard(v, 0)
			if err := checkRepeated(&rule, before, made); err != nil {
				return nil, err
			}
			if err := schema.DefaultRules.Put(o.tx, &rule); err != nil {
				return nil, err
			}
			made = append(made, &rule)
		}
		return made, nil
	})
}

// checkRepeated refuses a default rule that repeats one from before the request, or one of it.
func checkRepeated(rule *neutron.DefaultSecurityGroupRule, before, made []*neutron.DefaultSecurityGroupRule) error {
	if slices.ContainsFunc(made, rule.Repeats) {
		return conflict("DuplicateDefaultSgRuleInPost", "Duplicate Default Security Group Rule in POST.")
	}
	if i := slices.IndexFunc(before, rule.Repeats); i >= 0 {
		return conflict("DefaultSecurityGroupRuleExists", "Default Security group rule already exists. Rule id is %s.", before[i].ID)
	}
	return nil
}

// delete deletes a default rule. Of an initial one, a record of its deletion remains.
func (s defaultRules) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		o.tx.Touch(keyDefaultRules)
		rule, err := presentDefaultRule(o.tx, id)
		if err != nil {
			return err
		}
		if err := neutron.Authorize(c, neutron.DefaultRules, neutron.Delete, nil, neutron.Owner{}); err != nil {
			return err
		}
		if err := checkRevision(ifMatch, rule.RevisionNumber); err != nil {
			return err
		}
		if _, stored := schema.DefaultRules.Peek(o.tx, id); stored {
			return schema.DefaultRules.Delete(o.tx, id)
		}
		removed := &neutron.DefaultSecurityGroupRule{Removed: true}
		removed.ID = id
		return schema.DefaultRules.Put(o.tx, removed)
	})
}

func (s defaultRules) show(ctx context.Context, _ neutron.Caller, id string) (*neutron.DefaultSecurityGroupRule, error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return presentDefaultRule(snap, id)
}

func (s defaultRules) list(ctx context.Context, _ neutron.Caller, q neutron.Query) (iter.Seq[*neutron.DefaultSecurityGroupRule], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(presentDefaultRules(snap), func(r *neutron.DefaultSecurityGroupRule) bool {
		return !q.InRange(r.ID) || !among(q.IDs, r.ID)
	})
	slices.SortFunc(found, func(a, b *neutron.DefaultSecurityGroupRule) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Values(found), nil
}
