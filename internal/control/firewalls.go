package control

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// createFirewall makes a firewall, on all routers of its project unless the request names some.
//
// Callers in this process may give it rules in place of an existing policy: firewall_rule_list, a
// []neutron.Values with ids, makes the policy with the id firewall_policy_id (see setRuleList).
func (o *operation) createFirewall(ctx context.Context, v neutron.Values) (*neutron.Firewall, error) {
	f := &neutron.Firewall{Standard: o.standard(v, 0), AdminStateUp: v.Flag("admin_state_up"), RouterIDs: []string{}}
	routers := list[string](v, "router_ids")
	if !v.Has("router_ids") {
		for r := range schema.Routers.By(o.tx, "project", f.ProjectID) {
			routers = append(routers, r.ID)
		}
	}
	if err := errors.Join(o.setRuleList(ctx, v, f.ProjectID), o.setPolicy(f, v.Text("firewall_policy_id")), o.setRouters(f, routers)); err != nil {
		return nil, err
	}
	return f, o.putFirewall(f)
}

// update changes a firewall. Callers in this process may set last_router, whether its last router
// leaves, instead of leaving that to router_ids.
func (s firewalls) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.FirewallView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		f := *old
		f.RoutersGone = false
		applyStandard(&f.Standard, v)
		setFlag(&f.AdminStateUp, v, "admin_state_up")
		if err := o.setRuleList(ctx, v, f.ProjectID); err != nil {
			return nil, err
		}
		if policy := v.Text("firewall_policy_id"); policy != "" && policy != f.PolicyID {
			if err := o.setPolicy(&f, policy); err != nil {
				return nil, err
			}
		}
		if v.Has("router_ids") {
			if err := o.setRouters(&f, list[string](v, "router_ids")); err != nil {
				return nil, err
			}
			f.RoutersGone = len(f.RouterIDs) == 0
		}
		setFlag(&f.RoutersGone, v, "last_router")
		if reflect.DeepEqual(&f, old) {
			return &neutron.FirewallView{Firewall: old}, nil
		}
		o.bump(&f.Standard)
		return &neutron.FirewallView{Firewall: &f}, o.putFirewall(&f)
	})
}

// delete deletes a firewall.
func (s firewalls) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.Firewall) error {
		return errors.Join(o.dropFirewallLogs(id), o.dropLoggers("firewall", id), o.dropBundle(kindFirewall, id), schema.Firewalls.Delete(o.tx, id))
	})
}

// setPolicy gives a firewall a policy, which has to be shared or the project's own.
func (o *operation) setPolicy(f *neutron.Firewall, id string) error {
	p, _, err := o.firewallPolicies.inTransaction(o, id)
	if err != nil {
		return err
	}
	if !p.Shared && p.ProjectID != f.ProjectID {
		return conflict("FirewallPolicyConflict",
			"Operation cannot be performed since Firewall Policy %s is not shared and does not belong to your tenant.", id)
	}
	f.PolicyID, f.SharesPolicy = id, false
	for other := range schema.Firewalls.By(o.tx, "rule_ids", id) {
		f.SharesPolicy = f.SharesPolicy || other.ID != f.ID
	}
	return nil
}

// setRouters puts a firewall on routers that have no other one.
func (o *operation) setRouters(f *neutron.Firewall, ids []string) error {
	var taken []string
	for _, id := range ids {
		r, err := schema.Routers.Need(o.tx, id)
		if err != nil || !o.caller.Owns(r.ProjectID) {
			return neutron.Routers.NotFound(id)
		}
		for other := range schema.Firewalls.By(o.tx, "router", id) {
			if other.ID != f.ID {
				taken = append(taken, id)
			}
		}
	}
	if taken != nil {
		return routersInFirewalls(taken...)
	}
	f.RouterIDs = ids
	return nil
}

// putFirewall stores a firewall with what is derived from it.
func (o *operation) putFirewall(f *neutron.Firewall) error {
	err := schema.Firewalls.Put(o.tx, f)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "one_firewall" {
		return routersInFirewalls(taken.Value)
	}
	if err != nil {
		return err
	}
	return o.deriveFirewall(f)
}

// deriveFirewall stores what a firewall means to packets now. Once its last router has left, that
// is nothing until the next update (midonet-translations §16).
func (o *operation) deriveFirewall(f *neutron.Firewall) error {
	if f.RoutersGone {
		return o.putBundle(kindFirewall, f.ID, topology.Bundle{})
	}
	p, err := schema.FirewallPolicies.Get(o.tx, f.PolicyID)
	if err != nil {
		return err
	}
	rules := make([]neutron.FirewallRule, 0, len(p.Rules))
	for _, id := range p.Rules {
		r, err := schema.FirewallRules.Get(o.tx, id)
		if err != nil {
			return err
		}
		rules = append(rules, *r)
	}
	return o.putBundle(kindFirewall, f.ID, translate.Firewall(f, rules))
}

// deriveFirewallsOf stores what the firewalls with a policy mean to packets now. With many of them
// it makes pending work of the rest, and reports that.
func (o *operation) deriveFirewallsOf(policy string) (pending bool, err error) {
	done, _, err := steps{o}.deriveFirewalls(policy, "")
	if err != nil || done {
		return false, err
	}
	return true, o.begin(workDeriveFirewalls, policy)
}

// deriveFirewalls rewrites what some firewalls with a policy mean to packets, after a firewall's
// id.
func (o steps) deriveFirewalls(policy, after string) (done bool, next string, err error) {
	p, err := schema.FirewallPolicies.Get(o.tx, policy)
	if err != nil {
		return true, "", nil // gone
	}
	count := 0
	for f := range schema.Firewalls.By(o.tx, "policy", policy) {
		if f.ID <= after {
			continue
		}
		if count == stepObjects || count > 0 && count*len(p.Rules) > stepRules {
			return false, next, nil
		}
		f, err := schema.Firewalls.Get(o.tx, f.ID)
		if err != nil {
			return false, "", err
		}
		if err := o.deriveFirewall(f); err != nil {
			return false, "", err
		}
		count, next = count+1, f.ID
	}
	return true, "", nil
}

// leaveFirewall takes a router that is going out of its firewall.
func (o *operation) leaveFirewall(router string) error {
	for _, id := range schema.Firewalls.Referrers(o.tx, "router", router) {
		old, err := schema.Firewalls.Get(o.tx, id)
		if err != nil {
			return err
		}
		f := *old
		f.RouterIDs = slices.DeleteFunc(slices.Clone(f.RouterIDs), func(r string) bool { return r == router })
		f.RoutersGone = len(f.RouterIDs) == 0
		o.bump(&f.Standard)
		if err := o.putFirewall(&f); err != nil {
			return err
		}
	}
	return nil
}

func firewallOwner(f *neutron.Firewall) neutron.Owner { return neutron.Owner{ProjectID: f.ProjectID} }

func routersInFirewalls(ids ...string) error {
	return conflict("FirewallRouterInUse", "Router(s) ['%s'] provided already associated with other Firewall(s). ", strings.Join(ids, "', '"))
}

// setRuleList makes or changes the policy that firewall_rule_list describes, if a request has that:
// it then has these rules and no others.
func (o *operation) setRuleList(ctx context.Context, v neutron.Values, project string) error {
	wanted, given := v["firewall_rule_list"].([]neutron.Values)
	if !given {
		return nil
	}
	id := v.Text("firewall_policy_id")
	policy := neutron.FirewallPolicy{Standard: o.standard(neutron.Values{"id": id, "project_id": project}, 0), Rules: []string{}}
	if old, err := schema.FirewallPolicies.Get(o.tx, id); err == nil {
		policy = *old
	}
	had := policy.Rules
	var ids []string
	for _, w := range wanted {
		rule, err := o.createFirewallRule(ctx, w) // or replaces it
		if err != nil {
			return err
		}
		ids = append(ids, rule.ID)
	}
	err := o.setPolicyRules(&policy, append([]string{}, ids...))
	if err != nil {
		return err
	}
	if err := putFirewallPolicy(o, &policy); err != nil {
		return err
	}
	for _, rule := range had {
		if slices.Contains(ids, rule) {
			continue
		}
		if err := schema.FirewallRules.Delete(o.tx, rule); err != nil {
			return err
		}
	}
	for done, after := false, ""; !done; { // in one commit, which a file has to itself
		if done, after, err = (steps{o}).deriveFirewalls(id, after); err != nil {
			return err
		}
	}
	return nil
}
