package neutron

// FirewallGroupRuleView is a rule of FWaaS v2 with the policies that have it. The FirewallRule is
// not to be modified.
type FirewallGroupRuleView struct {
	*FirewallRule
	PolicyIDs []string
}

// FirewallGroupView is a firewall group. The FirewallGroup is not to be modified.
type FirewallGroupView struct{ *FirewallGroup }

// Status returns INACTIVE for a group without ports or policies, DOWN for one that is switched off,
// else ACTIVE.
func (v *FirewallGroupView) Status() string {
	switch {
	case len(v.PortIDs) == 0 || len(v.Policies()) == 0:
		return "INACTIVE"
	case !v.AdminStateUp:
		return "DOWN"
	}
	return "ACTIVE"
}

// A rule of FWaaS v2 names addresses, not groups whose members have them.
const noRemoteFirewallGroups = "this server's firewall rules do not match by firewall group"

// sharedByAdmins returns the row of an attribute that makes an object visible to all projects.
func sharedByAdmins[T any](doc string, get func(o T) bool) column[T] {
	return row(Attribute{Name: "shared", Create: true, Update: true, Default: false, Filter: true, Policed: true,
		CreateBy: AdminOnly, UpdateBy: AdminOnly, Type: "boolean", Doc: doc, parse: flag}, flagValue(get))
}

func firewallGroupRuleTable() *Table[*FirewallGroupRuleView] {
	std := func(o *FirewallGroupRuleView) *Standard { return &o.Standard }
	attr := func(name, typ, doc string, def any, p parser) Attribute {
		return Attribute{Name: name, Create: true, Update: true, Default: def, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
	}
	remote := func(name string) column[*FirewallGroupRuleView] {
		return row(Attribute{Name: name, Create: true, Update: true, Later: noRemoteFirewallGroups, Type: "uuid", parse: orNull(uuid)},
			constant[*FirewallGroupRuleView]("null"))
	}
	cols := append([]column[*FirewallGroupRuleView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(FirewallGroupRules, append(cols,
		descriptionColumn(std),
		row(Attribute{Name: "firewall_policy_id", Filter: true, Computed: true, Type: "list of uuids", Doc: "the policies that have it"},
			textsValue(func(o *FirewallGroupRuleView) []string { return o.PolicyIDs })),
		sharedByAdmins("other projects' policies may have it", func(o *FirewallGroupRuleView) bool { return o.Shared }),
		row(attr("protocol", "string", "tcp, udp, icmp, ipv6-icmp, sctp or dccp; null = any", nil, groupProtocol),
			textOrNullValue(func(o *FirewallGroupRuleView) string { return o.Protocol })),
		row(attr("ip_version", "integer", "4 or 6; the rule matches no packets of the other", 4, ipVersion),
			numberValue(func(o *FirewallGroupRuleView) int64 { return int64(o.IPVersion) })),
		row(attr("source_ip_address", "cidr", "or an address; null = any", nil, groupAddress),
			textOrNullValue(func(o *FirewallGroupRuleView) string { return o.SourceIPAddress })),
		row(attr("destination_ip_address", "cidr", "or an address; null = any", nil, groupAddress),
			textOrNullValue(func(o *FirewallGroupRuleView) string { return o.DestinationIPAddress })),
		row(attr("source_port", "string", "80 or 80:90, of tcp and udp; null = any", nil, groupPorts),
			textOrNullValue(func(o *FirewallGroupRuleView) string { return o.SourcePort })),
		row(attr("destination_port", "string", "80 or 80:90, of tcp and udp; null = any", nil, groupPorts),
			textOrNullValue(func(o *FirewallGroupRuleView) string { return o.DestinationPort })),
		row(attr("action", "string", "allow, deny or reject", FirewallDeny, groupAction),
			textValue(func(o *FirewallGroupRuleView) string { return o.Action })),
		row(attr("enabled", "boolean", "false takes it out without changing the policy", true, flag),
			flagValue(func(o *FirewallGroupRuleView) bool { return o.Enabled })),
		remote("source_firewall_group_id"),
		remote("destination_firewall_group_id"),
	))
}

func firewallGroupPolicyTable() *Table[*FirewallPolicyView] {
	std := func(o *FirewallPolicyView) *Standard { return &o.Standard }
	cols := append([]column[*FirewallPolicyView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(FirewallGroupPolicies, append(cols,
		descriptionColumn(std),
		sharedByAdmins("other projects' groups may use it", func(o *FirewallPolicyView) bool { return o.Shared }),
		policyRulesColumn(),
		auditedColumn(),
	))
}

func firewallGroupTable() *Table[*FirewallGroupView] {
	std := func(o *FirewallGroupView) *Standard { return &o.Standard }
	policy := func(name, doc string, get func(o *FirewallGroupView) string) column[*FirewallGroupView] {
		return row(Attribute{Name: name, Create: true, Update: true, Filter: true, Sort: true, Type: "uuid", Doc: doc, parse: orNull(uuid)},
			textOrNullValue(get))
	}
	cols := append([]column[*FirewallGroupView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(FirewallGroups, append(cols,
		descriptionColumn(std),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false drops what passes its ports", parse: flag},
			flagValue(func(o *FirewallGroupView) bool { return o.AdminStateUp })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Type: "string",
			Doc: "ACTIVE, DOWN when switched off, INACTIVE without ports or policies"},
			textValue((*FirewallGroupView).Status)),
		sharedByAdmins("other projects see it", func(o *FirewallGroupView) bool { return o.Shared }),
		row(Attribute{Name: "ports", Create: true, Update: true, Default: []string{}, Filter: true, Type: "list of uuids",
			Doc: "at most 100; interfaces of the project's routers", parse: nullAs([]any{}, fewer(uuids))},
			textsValue(func(o *FirewallGroupView) []string { return o.PortIDs })),
		policy("ingress_firewall_policy_id", "for what leaves a router by a port; null lets only replies pass",
			func(o *FirewallGroupView) string { return o.IngressPolicyID }),
		policy("egress_firewall_policy_id", "for what enters a router by a port; null lets only replies pass",
			func(o *FirewallGroupView) string { return o.EgressPolicyID }),
	))
}
