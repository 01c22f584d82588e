package control

import (
	"context"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// create adds rules to one group, all or none. They count against the group's project's quota.
func (s rules) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.SecurityGroupRule, error) {
	id := func(r *neutron.SecurityGroupRule) string { return r.ID }
	return createAll(ctx, s.Service, c, id, func(o *operation) ([]*neutron.SecurityGroupRule, error) {
		if err := oneGroup(vs); err != nil {
			return nil, err
		}
		if err := o.authorizeEach(neutron.SecurityGroupRules, vs); err != nil {
			return nil, err
		}
		made, err := o.newRules(vs, "")
		if err != nil {
			return nil, err
		}
		g, err := o.groupFor(made[0].SecurityGroupID)
		if err != nil {
			return nil, err
		}
		// Who is shared a group with does not change it, unlike with the reference.
		if err := neutron.Authorize(c, neutron.SecurityGroupRules, neutron.Create, nil, groupOwner(g)); err != nil {
			return nil, err
		}
		if err := o.charge(g.ProjectID, quotaRule, len(made)); err != nil {
			return nil, err
		}
		if err := checkDuplicates(g, made); err != nil {
			return nil, err
		}
		return pointers(made), o.changeRules(g, append(slices.Clone(g.Rules), made...))
	})
}

// newRules makes the rules of a request. They may name newGroup, made by the same request, or "".
func (o *operation) newRules(vs []neutron.Values, newGroup string) ([]neutron.SecurityGroupRule, error) {
	made := make([]neutron.SecurityGroupRule, len(vs))
	for i, v := range vs {
		var err error
		if made[i], err = neutron.NewSecurityGroupRule(v); err != nil {
			return nil, err
		}
		made[i].Standard = o.standard(v, 0)
		if remote := made[i].RemoteGroupID; remote != "" && remote != newGroup {
			if _, err := o.groupFor(remote); err != nil {
				return nil, err
			}
		}
		if err := o.checkRemoteAddresses(made[i].RemoteAddressGroupID); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// oneGroup: the rules of one request belong to one group and one project.
func oneGroup(vs []neutron.Values) error {
	for _, v := range vs[1:] {
		if v.Text("security_group_id") != vs[0].Text("security_group_id") {
			return neutron.Errorf(neutron.Invalid, "SecurityGroupNotSingleGroupRules",
				"Only allowed to update rules for one security profile at a time")
		}
		if v.Text("project_id") != vs[0].Text("project_id") {
			return neutron.Errorf(neutron.Invalid, "SecurityGroupRulesNotSingleTenant",
				"Multiple tenant_ids in bulk security group rule create not allowed")
		}
	}
	return nil
}

// groupFor finds a group that a rule is to be in or to name.
func (o *operation) groupFor(id string) (*neutron.SecurityGroup, error) {
	g, err := schema.SecurityGroups.Get(o.tx, id)
	if err != nil || !o.groups.sees(o.tx, o.caller, g) {
		return nil, neutron.SecurityGroups.NotFound(id)
	}
	if o.pending(workDeleteGroup, id) {
		return nil, groupInUse(id)
	}
	return g, nil
}

// checkDuplicates refuses rules that allow what another one does.
func checkDuplicates(g *neutron.SecurityGroup, made []neutron.SecurityGroupRule) error {
	meanings := map[string]bool{}
	for i := range made {
		m := made[i].Meaning()
		if meanings[m] {
			return conflict("DuplicateSecurityGroupRuleInPost", "Duplicate Security Group Rule in POST.")
		}
		meanings[m] = true
	}
	for i := range g.Rules {
		if meanings[g.Rules[i].Meaning()] {
			return conflict("SecurityGroupRuleExists", "Security group rule already exists. Rule id is %s.", g.Rules[i].ID)
		}
	}
	return nil
}

// changeRules gives a group other rules.
func (o *operation) changeRules(old *neutron.SecurityGroup, rules []neutron.SecurityGroupRule) error {
	g := *old
	g.Rules = rules
	o.bump(&g.Standard)
	return o.putGroup(&g)
}

// update changes the description of a rule, which is all that can change.
func (s rules) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SecurityGroupRule, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.SecurityGroupRule, error) {
		g, i, err := o.ruleToChange(id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		r := g.Rules[i]
		applyStandard(&r.Standard, v)
		if r.Description == g.Rules[i].Description {
			return &g.Rules[i], nil
		}
		o.bump(&r.Standard)
		rules := slices.Clone(g.Rules)
		rules[i] = r
		return &r, o.changeRules(g, rules)
	})
}

// delete takes a rule out of its group.
func (s rules) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		g, i, err := o.ruleToChange(id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return err
		}
		return o.changeRules(g, slices.Delete(slices.Clone(g.Rules), i, i+1))
	})
}

// ruleToChange finds the group of a rule and its place there for an update or a delete.
func (o *operation) ruleToChange(id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*neutron.SecurityGroup, int, error) {
	found, i := findRule(o.tx, id)
	if found == nil || !neutron.CanSee(o.caller, neutron.SecurityGroupRules, groupOwner(found)) {
		return nil, 0, neutron.SecurityGroupRules.NotFound(id)
	}
	if err := neutron.Authorize(o.caller, neutron.SecurityGroupRules, op, v, groupOwner(found)); err != nil {
		return nil, 0, err
	}
	if err := checkRevision(ifMatch, found.Rules[i].RevisionNumber); err != nil {
		return nil, 0, err
	}
	g, err := schema.SecurityGroups.Get(o.tx, found.ID)
	return g, i, err
}

// findRule finds the group of a rule and the rule's place there; nil if there is none.
func findRule(r records.Reader, id string) (*neutron.SecurityGroup, int) {
	for g := range schema.SecurityGroups.By(r, "rule", id) {
		return g, slices.IndexFunc(g.Rules, func(r neutron.SecurityGroupRule) bool { return r.ID == id })
	}
	return nil, -1
}

func pointers[T any](values []T) []*T {
	ps := make([]*T, len(values))
	for i := range values {
		ps[i] = &values[i]
	}
	return ps
}
