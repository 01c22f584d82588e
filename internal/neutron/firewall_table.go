package neutron

// FirewallRuleView is a rule with its place in its policy. The FirewallRule is not to be modified.
type FirewallRuleView struct {
	*FirewallRule
	PolicyID string // "" = none
	Position *int   // from 1; nil without a policy
}

// FirewallPolicyView is a policy. The FirewallPolicy is not to be modified.
type FirewallPolicyView struct{ *FirewallPolicy }

// FirewallView is a firewall. The Firewall is not to be modified.
type FirewallView struct{ *Firewall }

// Status returns DOWN for a firewall that is switched off, INACTIVE for one without routers, else
// ACTIVE.
func (v *FirewallView) Status() string {
	switch {
	case len(v.RouterIDs) == 0:
		return "INACTIVE"
	case !v.AdminStateUp:
		return "DOWN"
	}
	return "ACTIVE"
}

// No firewall is applied to IPv6 packets yet.
const noIPv6Firewalls = "this server's firewalls are for IPv4"

func firewallRuleTable() *Table[*FirewallRuleView] {
	std := func(o *FirewallRuleView) *Standard { return &o.Standard }
	attr := func(name, typ, doc string, def any, p parser) Attribute {
		return Attribute{Name: name, Create: true, Update: true, Default: def, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
	}
	version := attr("ip_version", "integer", "", 4, ipVersion)
	version.Later = noIPv6Firewalls
	cols := append([]column[*FirewallRuleView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		descriptionColumn(std),
		row(Attribute{Name: "firewall_policy_id", Filter: true, Computed: true, Type: "uuid", Doc: "the policy that it is in; null = none"},
			textOrNullValue(func(o *FirewallRuleView) string { return o.PolicyID })),
		row(attr("shared", "boolean", "other projects' policies may have it", false, flag),
			flagValue(func(o *FirewallRuleView) bool { return o.Shared })),
		row(attr("protocol", "string", "tcp, udp, icmp or a number from 0 to 255; null = any", nil, firewallProtocol),
			textOrNullValue(func(o *FirewallRuleView) string { return o.Protocol })),
		row(version, constant[*FirewallRuleView]("4")),
		row(attr("source_ip_address", "cidr", "or an address; null = any", nil, orNull(addressOrPrefix)),
			textOrNullValue(func(o *FirewallRuleView) string { return o.SourceIPAddress })),
		row(attr("destination_ip_address", "cidr", "or an address; null = any", nil, orNull(addressOrPrefix)),
			textOrNullValue(func(o *FirewallRuleView) string { return o.DestinationIPAddress })),
		row(attr("source_port", "string", "80 or 80:90, of tcp and udp; null = any", nil, portRange),
			textOrNullValue(func(o *FirewallRuleView) string { return o.SourcePort })),
		row(attr("destination_port", "string", "80 or 80:90, of tcp and udp; null = any", nil, portRange),
			textOrNullValue(func(o *FirewallRuleView) string { return o.DestinationPort })),
		row(Attribute{Name: "position", Computed: true, Type: "integer", Doc: "in its policy, from 1"},
			numberOrNullValue(func(o *FirewallRuleView) *int { return o.Position })),
		row(attr("action", "string", "allow, deny or reject", FirewallDeny, firewallAction),
			textValue(func(o *FirewallRuleView) string { return o.Action })),
		row(attr("enabled", "boolean", "false takes it out without changing the policy", true, flag),
			flagValue(func(o *FirewallRuleView) bool { return o.Enabled })),
	)
	return newTable(FirewallRules, cols)
}

func firewallPolicyTable() *Table[*FirewallPolicyView] {
	std := func(o *FirewallPolicyView) *Standard { return &o.Standard }
	cols := append([]column[*FirewallPolicyView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(FirewallPolicies, append(cols,
		descriptionColumn(std),
		row(Attribute{Name: "shared", Create: true, Update: true, Default: false, Filter: true, Type: "boolean",
			Doc: "other projects' firewalls may use it", parse: flag},
			flagValue(func(o *FirewallPolicyView) bool { return o.Shared })),
		policyRulesColumn(),
		auditedColumn(),
	))
}

func policyRulesColumn() column[*FirewallPolicyView] {
	return row(Attribute{Name: "firewall_rules", Create: true, Update: true, Default: []string{}, Filter: true, Type: "list of uuids",
		Doc: "at most 100, in their order", parse: nullAs([]any{}, fewer(uuids))},
		textsValue(func(o *FirewallPolicyView) []string { return o.Rules }))
}

func auditedColumn() column[*FirewallPolicyView] {
	return row(Attribute{Name: "audited", Create: true, Update: true, Default: false, Filter: true, Type: "boolean",
		Doc: "false after each change unless the change says true", parse: flag},
		flagValue(func(o *FirewallPolicyView) bool { return o.Audited }))
}

func firewallTable() *Table[*FirewallView] {
	std := func(o *FirewallView) *Standard { return &o.Standard }
	cols := append([]column[*FirewallView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	return newTable(Firewalls, append(cols,
		descriptionColumn(std),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false drops what its routers forward", parse: flag},
			flagValue(func(o *FirewallView) bool { return o.AdminStateUp })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Type: "string", Doc: "ACTIVE, DOWN when switched off, INACTIVE without routers"},
			textValue((*FirewallView).Status)),
		row(Attribute{Name: "firewall_policy_id", Create: true, Update: true, Default: required{}, Filter: true, Sort: true, Type: "uuid", parse: uuid},
			textValue(func(o *FirewallView) string { return o.PolicyID })),
		row(Attribute{Name: "router_ids", Create: true, Update: true, Default: unset{}, Filter: true, Type: "list of uuids",
			Doc: "at most 100; all of the project's unless given", parse: nullAs([]any{}, fewer(uuids))},
			textsValue(func(o *FirewallView) []string { return o.RouterIDs })),
	))
}
