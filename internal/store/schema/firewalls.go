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

// FirewallGroupRules are in any number of policies.
var FirewallGroupRules = records.NewTable("firewall-group-rule", NeutronPrefix+"firewall-group-rules/", func(r *neutron.FirewallRule) string { return r.ID },
	records.Index("project", func(r *neutron.FirewallRule) []string { return []string{r.ProjectID} }),
	records.Index("shared", func(r *neutron.FirewallRule) []string { return []string{fmt.Sprint(r.Shared)} }),
	records.Index("name", func(r *neutron.FirewallRule) []string { return []string{r.Name} }),
)

// FirewallGroupPolicies are in any number of groups.
var FirewallGroupPolicies = records.NewTable("firewall-group-policy", NeutronPrefix+"firewall-group-policies/", func(p *neutron.FirewallPolicy) string { return p.ID },
	records.Ref("rule", FirewallGroupRules, func(p *neutron.FirewallPolicy) []string { return p.Rules }, records.Refuse()),
	records.Index("project", func(p *neutron.FirewallPolicy) []string { return []string{p.ProjectID} }),
	records.Index("shared", func(p *neutron.FirewallPolicy) []string { return []string{fmt.Sprint(p.Shared)} }),
	records.Index("name", func(p *neutron.FirewallPolicy) []string { return []string{p.Name} }),
)

// FirewallGroups apply policies to ports of routers, each of which has at most one group. A port
// that goes leaves its group. A project has one default group.
var FirewallGroups = records.NewTable("firewall-group", NeutronPrefix+"firewall-groups/", func(g *neutron.FirewallGroup) string { return g.ID },
	records.Ref("policy", FirewallGroupPolicies, (*neutron.FirewallGroup).Policies, records.Refuse()),
	records.Ref("port", RouterPorts, func(g *neutron.FirewallGroup) []string { return g.PortIDs }, records.ClearWith(leavePort)),
	records.Unique("one_group", func(g *neutron.FirewallGroup) []string { return g.PortIDs }),
	records.Unique("default", func(g *neutron.FirewallGroup) []string {
		if g.Name != neutron.DefaultFirewallGroup {
			return nil
		}
		return []string{g.ProjectID}
	}),
	records.Index("project", func(g *neutron.FirewallGroup) []string { return []string{g.ProjectID} }),
	records.Index("shared", func(g *neutron.FirewallGroup) []string { return []string{fmt.Sprint(g.Shared)} }),
	records.Index("name", func(g *neutron.FirewallGroup) []string { return []string{g.Name} }),
)

func leavePort(g *neutron.FirewallGroup, port string) {
	g.PortIDs = slices.DeleteFunc(g.PortIDs, func(id string) bool { return id == port })
}
