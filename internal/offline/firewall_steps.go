package offline

import (
	"cmp"
	"errors"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

// A firewall of a file is in the form in which Neutron's plugin gives it to a driver: it has its
// rules instead of a policy, and the routers that come and go (midonet-translations §16).

// The fields of a firewall that are not attributes of the API's.
const (
	firewallRuleList = "firewall_rule_list"
	addRouterIDs     = "add-router-ids"
	delRouterIDs     = "del-router-ids"
	lastRouter       = "last-router"
)

// checkFirewall refuses unknown fields of a firewall.
func checkFirewall(data object) error {
	known := []string{firewallRuleList, addRouterIDs, delRouterIDs, lastRouter}
	for _, a := range neutron.Firewalls.Attributes() {
		known = append(known, a.Name)
	}
	if _, err := data.object(known...); err != nil {
		return err
	}
	rules, err := data.get(firewallRuleList).list()
	if err != nil {
		return nil // refused when the step is applied
	}
	for _, n := range rules {
		o, err := n.anyObject()
		if err != nil {
			continue // likewise
		}
		if err := checkAttributes(neutron.FirewallRules, o); err != nil {
			return err
		}
	}
	return nil
}

// applyFirewall carries out a step of type firewall.
func (w *world) applyFirewall(s *step) error {
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	switch s.op {
	case "create":
		return w.createFirewall(id, s.data)
	case "update":
		return w.updateFirewall(id, s.data)
	}
	return w.deleteFirewall(id)
}

func (w *world) createFirewall(id string, data object) error {
	rules, err := w.firewallRules(data.get(firewallRuleList))
	if err != nil {
		return err
	}
	routers, err := each(data.get(addRouterIDs), idOf)
	if err != nil {
		return err
	}
	k := w.kinds[neutron.Firewalls.Name()]
	policy := cmp.Or(w.policyWith(rules), translate.Derive("file.firewall-policy", id))
	v, err := w.newValues(k, id, withFields(data, map[string]any{"firewall_policy_id": policy}))
	if err != nil {
		return err
	}
	v[firewallRuleList], v["router_ids"] = rules, routers
	return k.create(v)
}

// updateFirewall changes what the data names. Routers go before others come.
func (w *world) updateFirewall(id string, data object) error {
	k := w.kinds[neutron.Firewalls.Name()]
	f, err := w.service.Firewalls().Show(w.ctx, administrator(), id)
	if err != nil {
		return err
	}
	add, err := each(data.get(addRouterIDs), idOf)
	if err != nil {
		return err
	}
	del, err := each(data.get(delRouterIDs), idOf)
	if err != nil {
		return err
	}
	last, err := data.get(lastRouter).flag(false)
	if err != nil {
		return err
	}
	routers := slices.DeleteFunc(slices.Clone(f.RouterIDs), func(r string) bool { return slices.Contains(del, r) || slices.Contains(add, r) })
	v, err := neutron.Parse(administrator(), k.Resource, neutron.Update, request(k, neutron.Update, withoutExpansion(data), nil))
	if err != nil {
		return err
	}
	v["router_ids"], v["last_router"] = append(routers, add...), last
	if last {
		v["router_ids"] = []string{}
	}
	if data.has(firewallRuleList) {
		rules, err := w.firewallRules(data.get(firewallRuleList))
		if err != nil {
			return err
		}
		v[firewallRuleList], v["firewall_policy_id"] = rules, cmp.Or(w.policyWith(rules), f.PolicyID)
	}
	return k.update(id, v)
}

// deleteFirewall deletes a firewall, and its rules unless another firewall has them too.
func (w *world) deleteFirewall(id string) error {
	f, err := w.service.Firewalls().Show(w.ctx, administrator(), id)
	if err != nil {
		return ignoreMissing(err)
	}
	if err := w.service.Firewalls().Delete(w.ctx, administrator(), id, nil); err != nil {
		return err
	}
	p, err := w.service.FirewallPolicies().Show(w.ctx, administrator(), f.PolicyID)
	if err != nil {
		return err
	}
	var inUse *neutron.Error
	if err := w.service.FirewallPolicies().Delete(w.ctx, administrator(), p.ID, nil); errors.As(err, &inUse) && inUse.Kind == neutron.Conflict {
		return nil
	} else if err != nil {
		return err
	}
	for _, rule := range p.Rules {
		if err := w.service.FirewallRules().Delete(w.ctx, administrator(), rule, nil); err != nil {
			return err
		}
	}
	return nil
}

// firewallRules reads the rules of a firewall, by their positions if they have any.
func (w *world) firewallRules(n node) ([]neutron.Values, error) {
	type placed struct {
		neutron.Values
		position int
	}
	rules, err := each(n, func(n node) (placed, error) {
		o, err := n.anyObject()
		if err != nil {
			return placed{}, err
		}
		id, err := idOf(o.get("id"))
		if err != nil {
			return placed{}, err
		}
		position, _, err := o.get("position").number(0, neutron.MaxList)
		if err != nil {
			return placed{}, err
		}
		k := &kind{Resource: neutron.FirewallRules}
		body := request(k, neutron.Create, o.fields, nil)
		if err := w.complete(k, id, body); err != nil {
			return placed{}, err
		}
		v, err := neutron.Parse(administrator(), k.Resource, neutron.Create, body)
		if err == nil {
			v["id"] = id
		}
		return placed{v, position}, err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rules, func(a, b placed) int { return cmp.Compare(a.position, b.position) })
	values := make([]neutron.Values, len(rules))
	for i, r := range rules {
		if values[i] = r.Values; slices.ContainsFunc(rules[:i], func(o placed) bool { return o.Text("id") == r.Text("id") }) {
			return nil, refuse(neutron.Conflict, "%s has rule %s twice", n.place, r.Text("id"))
		}
	}
	return values, nil
}

// policyWith returns the policy that has the first of these rules already, or "": it is that of
// another firewall with the same rules.
func (w *world) policyWith(rules []neutron.Values) string {
	for _, r := range rules {
		if rule, err := w.service.FirewallRules().Show(w.ctx, administrator(), r.Text("id")); err == nil && rule.PolicyID != "" {
			return rule.PolicyID
		}
	}
	return ""
}

// withoutExpansion returns the fields of a firewall that are attributes of the API's.
func withoutExpansion(data object) map[string]any {
	fields := map[string]any{}
	for name, value := range data.fields {
		if !slices.Contains([]string{firewallRuleList, addRouterIDs, delRouterIDs, lastRouter, "firewall_policy_id", "router_ids"}, name) {
			fields[name] = value
		}
	}
	return fields
}

// withFields returns a firewall as a request has it, with some more attributes.
func withFields(data object, more map[string]any) object {
	fields := withoutExpansion(data)
	for name, value := range more {
		fields[name] = value
	}
	return object{data.node, fields}
}
