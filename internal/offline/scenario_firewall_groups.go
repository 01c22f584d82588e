package offline

import (
	"maps"
	"slices"

	"heddle/internal/neutron"
)

// Fields of a firewall group: the rules of its two policies, which have no names in a scenario.
const (
	ingressRules = "ingress"
	egressRules  = "egress"
)

func newFirewallGroups(s *scenario, w *world, r *routing) *section {
	sec := &section{kind: w.kinds["firewall_group"], what: "firewall group", ids: map[string]string{}, fields: asTheyAre("admin_state_up")}
	maps.Copy(sec.fields, map[string]field{"up": {attribute: "admin_state_up"}, "ports": {"ports", listOf(func(n node) (any, error) {
		name, err := n.text()
		if err == nil && r.links[name] == "" {
			err = fileErrorf(n.place, "there is no interface %q; want ROUTER/SUBNET", name)
		}
		return r.links[name], err
	})}})
	return sec
}

// addFirewallGroup makes a firewall group with its policies.
func (s *scenario) addFirewallGroup(n node) error {
	o, plain, err := s.splitGroup(n, "name")
	if err != nil {
		return err
	}
	return s.add(s.routing.firewallGroups, plain, func(_ string, body map[string]any) error { return s.addPolicies(o, body) })
}

// updateFirewallGroup changes a firewall group; ports and rules that it names are all that it has
// then.
func (s *scenario) updateFirewallGroup(n node) error {
	o, plain, err := s.splitGroup(n, "firewall_group")
	if err != nil {
		return err
	}
	sec := s.routing.firewallGroups
	id, err := sec.find(o.get("firewall_group"))
	if err != nil {
		return err
	}
	group, err := plain.anyObject()
	if err != nil {
		return err
	}
	body, err := attributes(group, sec.fields)
	if err != nil {
		return err
	}
	if err := s.addPolicies(o, body); err != nil {
		return err
	}
	return s.at(n, s.world.update(sec.kind, id, object{n, body}))
}

// splitGroup reads a firewall group, and returns what of it a plain section can read.
func (s *scenario) splitGroup(n node, name string) (o object, plain node, err error) {
	known := append(slices.Sorted(maps.Keys(s.routing.firewallGroups.fields)), name, ingressRules, egressRules)
	if o, err = n.object(known...); err != nil {
		return o, n, err
	}
	fields := maps.Clone(o.fields)
	delete(fields, ingressRules)
	delete(fields, egressRules)
	return o, node{n.place, fields}, nil
}

// addPolicies makes a policy for each direction that a group names rules of, and sets the request's
// attributes for them; null takes the policy away.
func (s *scenario) addPolicies(group object, body map[string]any) error {
	for _, direction := range []string{ingressRules, egressRules} {
		if !group.has(direction) {
			continue
		}
		attribute := direction + "_firewall_policy_id"
		if body[attribute] = nil; group.get(direction).null() {
			continue
		}
		id, err := s.addPolicy(group.get(direction))
		if err != nil {
			return err
		}
		body[attribute] = id
	}
	return nil
}

// addPolicy makes a policy of these rules.
func (s *scenario) addPolicy(n node) (id string, err error) {
	fields := firewallRuleFields()
	fields["ip_version"] = field{attribute: "ip_version"}
	ids := []any{}
	_, err = each(n, func(n node) (any, error) {
		rule, err := objectOf(fields)(n)
		if err != nil {
			return nil, err
		}
		id := s.derive("firewall-group-rule", n.place)
		ids = append(ids, id)
		return nil, s.at(n, s.world.create(s.world.kinds[neutron.FirewallGroupRules.Name()], id, object{n, rule.(map[string]any)}))
	})
	if err != nil {
		return "", err
	}
	id = s.derive("firewall-group-policy", n.place)
	policy := object{n, map[string]any{"firewall_rules": ids}}
	return id, s.at(n, s.world.create(s.world.kinds[neutron.FirewallGroupPolicies.Name()], id, policy))
}
