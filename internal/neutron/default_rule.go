package neutron

// ParentGroup is the remote group of a default rule whose peers are the ports of the same group.
const ParentGroup = "PARENT"

// NewDefaultSecurityGroupRule makes a default rule from the values of a create, with the checks of
// [NewSecurityGroupRule].
func NewDefaultSecurityGroupRule(v Values) (DefaultSecurityGroupRule, error) {
	rule, err := NewSecurityGroupRule(v)
	return DefaultSecurityGroupRule{SecurityGroupRule: rule,
		UsedInDefaultGroup: v.Flag("used_in_default_sg"), UsedInOtherGroups: v.Flag("used_in_non_default_sg")}, err
}

// InitialDefaultRules returns Neutron's default rules, which are there until they are deleted:
// everything may go out, and the members of a default group reach each other. Their ids never
// change.
func InitialDefaultRules() []DefaultSecurityGroupRule {
	return []DefaultSecurityGroupRule{
		initialRule("8b5ed5e0-ac82-50b5-a802-8bb344d9a2fd", "ingress", "IPv6", ParentGroup),
		initialRule("127c8b03-24e5-5214-9a06-390a81736999", "egress", "IPv6", ""),
		initialRule("8850a278-9b32-5bbe-a7da-57f8d1ab7d9f", "ingress", "IPv4", ParentGroup),
		initialRule("ad2cfc0b-e255-5bbe-987c-6d082136a1a0", "egress", "IPv4", ""),
	}
}

func initialRule(id, direction, ethertype, remoteGroup string) DefaultSecurityGroupRule {
	return DefaultSecurityGroupRule{
		SecurityGroupRule: SecurityGroupRule{
			Standard: Standard{ID: id}, Direction: direction, Ethertype: ethertype, RemoteGroupID: remoteGroup,
		},
		UsedInDefaultGroup: true, UsedInOtherGroups: direction == "egress",
	}
}

// UsedIn reports whether new groups of a kind get the rule: projects' default groups, or others.
func (r *DefaultSecurityGroupRule) UsedIn(defaultGroup bool) bool {
	if defaultGroup {
		return r.UsedInDefaultGroup
	}
	return r.UsedInOtherGroups
}

// Repeats reports whether some group would get the same rule from both, or both are used alike.
func (r *DefaultSecurityGroupRule) Repeats(o *DefaultSecurityGroupRule) bool {
	if r.Meaning() != o.Meaning() {
		return false
	}
	inDefault, inOthers := r.UsedInDefaultGroup, r.UsedInOtherGroups
	return inDefault && o.UsedInDefaultGroup || inOthers && o.UsedInOtherGroups ||
		inDefault == o.UsedInDefaultGroup && inOthers == o.UsedInOtherGroups
}

// RuleOf returns the rule that a new group with these standard attributes of the rule gets.
func (r *DefaultSecurityGroupRule) RuleOf(groupID string, s Standard) SecurityGroupRule {
	rule := r.SecurityGroupRule
	rule.Standard, rule.SecurityGroupID, rule.Implicit = s, groupID, true
	if rule.RemoteGroupID == ParentGroup {
		rule.RemoteGroupID = groupID
	}
	return rule
}

// parentGroup takes ParentGroup: other groups come and go with their projects.
func parentGroup(v any) (any, error) {
	if v != ParentGroup {
		return nil, reasonf("'%s' is not %s, the only group that a default rule can name", pyText(v), ParentGroup)
	}
	return v, nil
}

func defaultRuleTable() *Table[*DefaultSecurityGroupRule] {
	type rule = *DefaultSecurityGroupRule
	std := func(o rule) *Standard { return &o.Standard }
	template := func(o rule) *SecurityGroupRule { return &o.SecurityGroupRule }
	used := func(name, doc string, byDefault bool, get func(o rule) bool) column[rule] {
		return row(Attribute{Name: name, Create: true, Default: byDefault, Filter: true, Sort: true, Type: "boolean", Doc: doc, parse: flag},
			flagValue(get))
	}
	description := descriptionColumn(std)
	description.Update = false
	cols := []column[rule]{
		idColumn(std), description,
		row(ruleAttribute("remote_group_id", "string", "PARENT: peers are the ports of the group that gets the rule", nil, orNull(parentGroup)),
			textOrNullValue(func(o rule) string { return o.RemoteGroupID })),
	}
	cols = append(cols, trafficColumns(template)...)
	return newTable(DefaultRules, append(cols, remoteAddressesColumn(template),
		used("used_in_default_sg", "new groups named default get the rule", false, func(o rule) bool { return o.UsedInDefaultGroup }),
		used("used_in_non_default_sg", "other new groups get the rule", true, func(o rule) bool { return o.UsedInOtherGroups }),
	))
}
