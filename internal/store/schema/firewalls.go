package schema

import (
	"fmt"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// FirewallRules are in a policy or in none.
var FirewallRules = records.NewTable("firewall-rule", NeutronPrefix+"firewall-rules/", func(r *neutron.FirewallRule) string { return r.ID },
	records.Index("project", func(r *neutron.FirewallRule) []string { return []string{r.ProjectID} }),
	records.Index("shared", func(r *neutron.FirewallRule) []string { return []string{fmt.Sprint(r.Shared)} }),
	records.Index("name", func(r *neutron.FirewallRule) []string { return []string{r.Name} }),
)

// FirewallPolicies have rules that no other policy has.
var FirewallPolicies = records.NewTable("firewall-policy", NeutronPrefix+"firewall-policies/", func(p *neutron.FirewallPolicy) string { return p.ID },
	records.Ref("rule", FirewallRules, func(p *neutron.FirewallPolicy) []string { return p.Rules }, records.Refuse()),
	records.Unique("one_policy", func(p *neutron.FirewallPolicy) []string { return p.Rules }),
	records.Index("project", func(p *neutron.FirewallPolicy) []string { return []string{p.ProjectID} }),
	records.Index("shared", func(p *neutron.FirewallPolicy) []string { return []string{fmt.Sprint(p.Shared)} }),
	records.Index("name", func(p *neutron.FirewallPolicy) []string { return []string{p.Name} }),
)

// Firewalls apply a policy to routers, each of which has at most one. A deleted router leaves its
// firewall. Of the firewalls of a policy one has its rules' ids in the topology.
var Firewalls = records.NewTable("firewall", NeutronPrefix+"firewalls/", func(f *neutron.Firewall) string { return f.ID },
	records.Ref("policy", FirewallPolicies, func(f *neutron.Firewall) []string { return []string{f.PolicyID} }, records.Refuse()),
	records.Ref("router", Routers, func(f *neutron.Firewall) []string { return f.RouterIDs }, records.ClearWith(leaveRouter)),
	records.Unique("one_firewall", func(f *neutron.Firewall) []string { return f.RouterIDs }),
	records.Unique("rule_ids", func(f *neutron.Firewall) []string {
		if f.SharesPolicy {
			return nil
		}
		return []string{f.PolicyID}
	}),
	records.Index("project", func(f *neutron.Firewall) []string { return []string{f.ProjectID} }),
	records.Index("name", func(f *neutron.Firewall) []string { return []string{f.Name} }),
)

func leaveRouter(f *neutron.Firewall, router string) {
	f.RouterIDs = slices.DeleteFunc(f.RouterIDs, func(id string) bool { return id == router })
}
