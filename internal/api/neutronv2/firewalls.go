package neutronv2

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// firewalls is the part of FWaaS v1, which rests on that of routers.
func firewalls() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.FirewallRuleView]{h, h.tables.FirewallRules, h.ops.FirewallRules()})
			policies := &collection[*neutron.FirewallPolicyView]{h, h.tables.FirewallPolicies, h.ops.FirewallPolicies()}
			register(on, policies)
			register(on, &collection[*neutron.FirewallView]{h, h.tables.Firewalls, h.ops.Firewalls()})
			on("PUT /v2.0/fw/firewall_policies/{id}/insert_rule", changeRules(policies, h.ops.InsertFirewallRule))
			on("PUT /v2.0/fw/firewall_policies/{id}/remove_rule", changeRules(policies,
				func(ctx context.Context, c neutron.Caller, policy string, in neutron.RuleInsertion) (*neutron.FirewallPolicyView, error) {
					return h.ops.RemoveFirewallRule(ctx, c, policy, in.RuleID)
				}))
		},
		extensions: []extension{
			{"fwaas", "Firewall service", "2013-02-25T10:00:00-00:00", "Extension for Firewall service"},
			{"fwaasrouterinsertion", "Firewall Router insertion", "2015-01-27T10:00:00-00:00", "Firewall Router insertion on specified set of routers"},
		},
	}
}

// firewallGroups is the part of FWaaS v2, which rests on that of routers.
func firewallGroups() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.FirewallGroupRuleView]{h, h.tables.FirewallGroupRules, h.ops.FirewallGroupRules()})
			policies := &collection[*neutron.FirewallPolicyView]{h, h.tables.FirewallGroupPolicies, h.ops.FirewallGroupPolicies()}
			register(on, policies)
			register(on, &collection[*neutron.FirewallGroupView]{h, h.tables.FirewallGroups, h.ops.FirewallGroups()})
			on("PUT /v2.0/fwaas/firewall_policies/{id}/insert_rule", changeRules(policies, h.ops.InsertGroupRule))
			on("PUT /v2.0/fwaas/firewall_policies/{id}/remove_rule", changeRules(policies,
				func(ctx context.Context, c neutron.Caller, policy string, in neutron.RuleInsertion) (*neutron.FirewallPolicyView, error) {
					return h.ops.RemoveGroupRule(ctx, c, policy, in.RuleID)
				}))
		},
		extensions: []extension{
			{"fwaas_v2", "FWaaS v2", "2016-10-06T10:00:00-00:00", "Provides support for firewall-as-a-service version 2"},
		},
	}
}

// changeRules answers a request to insert a rule into a policy or to remove one: with the policy
// alone, as the reference.
func changeRules(c *collection[*neutron.FirewallPolicyView],
	change func(context.Context, neutron.Caller, string, neutron.RuleInsertion) (*neutron.FirewallPolicyView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in neutron.RuleInsertion
		err := readObject(r, func(body document) error {
			info := map[string]any{}
			for name, raw := range body {
				v, err := decodeValue(raw)
				if err != nil {
					return err
				}
				info[name] = v
			}
			var err error
			in, err = neutron.ParseRuleInsertion(info)
			return err
		})
		if err != nil {
			return err
		}
		caller := api.Caller(r.Context())
		policy, err := change(r.Context(), caller, r.PathValue("id"), in)
		if err != nil {
			return err
		}
		writeJSON(w, c.table.Encoder(caller.Admin(), nil).Append(nil, policy))
		return nil
	}
}
