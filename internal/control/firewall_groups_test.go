package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

func (w *world) groupRule(text string) string {
	w.t.Helper()
	return must[*neutron.FirewallGroupRuleView](w, w.member, neutron.FirewallGroupRules, text).ID
}

func (w *world) groupPolicy(rules ...string) string {
	w.t.Helper()
	return must[*neutron.FirewallPolicyView](w, w.member, neutron.FirewallGroupPolicies, `{"firewall_rules":`+quoted(rules)+`}`).ID
}

func (w *world) firewallGroup(text string) *neutron.FirewallGroupView {
	w.t.Helper()
	return must[*neutron.FirewallGroupView](w, w.member, neutron.FirewallGroups, text)
}

// interfaceOf makes a router of the caller's with an interface, and returns the interface's port.
func (w *world) interfaceOf(c neutron.Caller) (router, port string) {
	w.t.Helper()
	n := must[*neutron.NetworkView](w, c, neutron.Networks, `{}`).ID
	s := must[*neutron.SubnetView](w, c, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.0.0.0/24"}`).ID
	router = w.routerTo(c, "")
	return router, w.addInterface(router, s)
}

// jumps returns what a group's entries in the forward chains do, by direction and port.
func (w *world) jumps(group string) string {
	w.t.Helper()
	var out []string
	for _, e := range w.bundle("firewall-group", group).Rules {
		direction := "egress"
		if len(e.Rule.Condition.OutPortIDs) > 0 {
			direction = "ingress"
		}
		out = append(out, direction+" "+strings.ToLower(e.Rule.Action+" "+e.Rule.JumpChainName))
	}
	return strings.Join(out, ", ")
}

// policyActions returns the actions of a policy's chain in order.
func (w *world) policyActions(policy string) string {
	w.t.Helper()
	var out []string
	for _, r := range w.bundle("firewall-group-policy", policy).Chains[0].Rules {
		out = append(out, r.Action)
	}
	return strings.ToLower(strings.Join(out, " "))
}

func TestFirewallGroupLife(t *testing.T) {
	t.Parallel()
	w := open(t, inMemory(t).st, control.Options{NoDefaultGroups: true})
	router, port := w.interfaceOf(w.member)
	before := w.dump()
	web := w.groupRule(`{"protocol":"tcp","destination_port":"80:90","action":"allow"}`)
	no := w.groupRule(`{"action":"reject","ip_version":6}`)
	in, out := w.groupPolicy(web, no), w.groupPolicy(web)
	rule := must2(w.FirewallGroupRules().Show(t.Context(), w.member, web))
	if !slices.Equal(rule.PolicyIDs, slices.Sorted(slices.Values([]string{in, out}))) || rule.Protocol != "tcp" || rule.DestinationPort != "80:90" || rule.IPVersion != 4 {
		t.Errorf("rule %+v in %v", rule.FirewallRule, rule.PolicyIDs)
	}
	if got := w.policyActions(in); got != "return return reject drop" {
		t.Errorf("policy's chain: %s", got)
	}

	g := w.firewallGroup(`{"name":"g"}`)
	if g.Status() != "INACTIVE" || !g.AdminStateUp || g.Shared || len(g.PortIDs) > 0 || w.jumps(g.ID) != "" {
		t.Errorf("made %+v: %s", g.FirewallGroup, w.jumps(g.ID))
	}
	for _, step := range []struct{ change, status, jumps string }{
		{`{"ports":["` + port + `"]}`, "INACTIVE", ""},
		{`{"ingress_firewall_policy_id":"` + in + `"}`, "ACTIVE", "egress jump os_fwg_deny_" + g.ID + ", ingress jump os_fwg_policy_" + in},
		{`{"egress_firewall_policy_id":"` + out + `"}`, "ACTIVE", "egress jump os_fwg_policy_" + out + ", ingress jump os_fwg_policy_" + in},
		{`{"admin_state_up":false}`, "DOWN", "egress drop , ingress drop "},
		{`{"admin_state_up":true,"ingress_firewall_policy_id":null}`, "ACTIVE", "egress jump os_fwg_policy_" + out + ", ingress jump os_fwg_deny_" + g.ID},
		{`{"description":"d"}`, "ACTIVE", "egress jump os_fwg_policy_" + out + ", ingress jump os_fwg_deny_" + g.ID},
	} {
		v, err := w.change(w.member, neutron.FirewallGroups, g.ID, step.change)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.(*neutron.FirewallGroupView).Status(); got != step.status || w.jumps(g.ID) != step.jumps {
			t.Errorf("after %s: %s, %s", step.change, got, w.jumps(g.ID))
		}
	}
	w.expect(w.remove(w.member, neutron.FirewallGroups, g.ID), "FirewallGroupInUse: Firewall group "+g.ID+" is still active.")
	if e := w.bundle("firewall-group", g.ID).Rules[0]; e.ChainID != translate.Derive("chain.fwd", router) {
		t.Errorf("the rule is in chain %s", e.ChainID)
	}
	group := text(w.bundle("firewall-group", g.ID))
	if _, err := w.change(w.member, neutron.FirewallGroupRules, web, `{"action":"deny"}`); err != nil {
		t.Fatal(err)
	}
	if w.policyActions(in) != "return drop reject drop" || w.policyActions(out) != "return drop drop" || text(w.bundle("firewall-group", g.ID)) != group {
		t.Errorf("after a change of a rule: %s; %s; or the group was written", w.policyActions(in), w.policyActions(out))
	}

	// The interface goes, and leaves its group.
	if _, err := w.Routers().RemoveInterface(t.Context(), w.member, router, neutron.InterfaceRequest{PortID: port}); err != nil {
		t.Fatal(err)
	}
	left := must2(w.FirewallGroups().Show(t.Context(), w.member, g.ID))
	if left.Status() != "INACTIVE" || len(left.PortIDs) > 0 || w.jumps(g.ID) != "" {
		t.Errorf("after its port has gone: %+v: %s", left.FirewallGroup, w.jumps(g.ID))
	}
	for _, o := range []struct {
		r  neutron.Resource
		id string
	}{{neutron.FirewallGroups, g.ID}, {neutron.FirewallGroupPolicies, in}, {neutron.FirewallGroupPolicies, out},
		{neutron.FirewallGroupRules, web}, {neutron.FirewallGroupRules, no}} {
		if err := w.remove(w.member, o.r, o.id); err != nil {
			t.Fatal(err)
		}
	}
	if left := missing(w.dump("/heddle/neutron/routers/"), before); len(left) > 0 { // its revision has risen
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	w.verifyStore()
}

// TestDefaultFirewallGroup: a project has one from its first list or group on, made once, which
// members put on ports and do not change otherwise.
func TestDefaultFirewallGroup(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	w := ws[0]
	_, port := w.interfaceOf(w.member)
	got := together(6, func(i int) error {
		_, err := all(ws[i%2].FirewallGroups().List(t.Context(), w.member, neutron.Query{}))
		return err
	})
	if got[""] != 6 {
		t.Errorf("lists at once: %v", got)
	}
	groups := must2(all(w.FirewallGroups().List(t.Context(), w.member, neutron.Query{})))
	if len(groups) != 1 || groups[0].Name != "default" || groups[0].Description != "Default firewall group" || groups[0].Status() != "INACTIVE" {
		t.Fatalf("groups %+v", groups)
	}
	d := groups[0]
	if in, out := w.policyActions(d.IngressPolicyID), w.policyActions(d.EgressPolicyID); in != "return drop drop drop" || out != "return return return drop" {
		t.Errorf("ingress %s, egress %s", in, out)
	}
	names := map[string]bool{}
	for _, r := range must2(all(w.FirewallGroupRules().List(t.Context(), w.member, neutron.Query{}))) {
		names[fmt.Sprint(r.Name, "/", r.Description, "/", r.IPVersion, r.Action)] = true
	}
	for _, want := range []string{"default ingress ipv4/default ingress rule for IPv4/4deny", "default ingress ipv6/default ingress rule for IPv6/6deny",
		"default egress ipv4/default egress rule for IPv4/4allow", "default egress ipv6/default egress rule for IPv6/6allow"} {
		if !names[want] || len(names) != 4 {
			t.Errorf("rules %v lack %s, or are not four", names, want)
		}
	}
	cannot := "FirewallGroupCannotUpdateDefault: Updating default firewall group not allowed."
	for _, tt := range []struct {
		c          neutron.Caller
		text, want string
	}{
		{w.member, `{"name":"x"}`, cannot},
		{w.member, `{"admin_state_up":false}`, cannot},
		{w.member, `{"ingress_firewall_policy_id":null}`, cannot},
		{w.admin, `{"name":"x"}`, cannot},
		{w.admin, `{"description":"d"}`, ""},
		{w.member, `{"ports":["` + port + `"]}`, ""},
	} {
		_, err := w.change(tt.c, neutron.FirewallGroups, d.ID, tt.text)
		w.expect(err, tt.want)
	}
	reserved := "FirewallGroupDefaultAlreadyExists: Default firewall group already exists. 'default' is the reserved name for firewall group."
	_, err := w.create(w.other, neutron.FirewallGroups, `{"name":"default"}`)
	w.expect(err, reserved)
	other := must[*neutron.FirewallGroupView](w, w.other, neutron.FirewallGroups, `{}`)
	_, err = w.change(w.other, neutron.FirewallGroups, other.ID, `{"name":"default"}`)
	w.expect(err, reserved)
	if n := len(must2(all(w.FirewallGroups().List(t.Context(), w.other, neutron.Query{})))); n != 2 {
		t.Errorf("another project that made a group has %d", n)
	}
	w.expect(w.remove(w.member, neutron.FirewallGroups, d.ID), "FirewallGroupCannotRemoveDefault: Deleting default firewall group not allowed.")
	w.expect(w.remove(w.admin, neutron.FirewallGroups, d.ID), "FirewallGroupInUse: Firewall group "+d.ID+" is still active.")
	if _, err := w.change(w.admin, neutron.FirewallGroups, d.ID, `{"ports":[]}`); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.admin, neutron.FirewallGroups, d.ID), "")
	w.verifyStore()
}

func TestFirewallGroupRuleForms(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for _, tt := range []struct{ text, want string }{
		{`{"protocol":"icmp","destination_port":"1"}`, "FirewallRuleInvalidICMPParameter: Source, destination port are not allowed when protocol is set to ICMP."},
		{`{"destination_port":"1"}`, "FirewallRuleWithPortWithoutProtocolInvalid: Source/destination port requires a protocol."},
		{`{"protocol":"gre"}`, "InvalidInput: Invalid input for operation: IP protocol 'gre' is not supported. Only protocol names and their integer representation (0 to 255) are supported."},
		{`{"protocol":"6"}`, "HTTPBadRequest: Invalid input for protocol. Reason: 6 is not in valid_values."},
		{`{"protocol":6}`, "InvalidInput: Invalid input for operation: Input value 6 must be string type."},
		{`{"protocol":"tcp","source_port":"70000"}`, "HTTPBadRequest: Invalid input for source_port. Reason: Invalid port: 70000."},
		{`{"protocol":"tcp","source_port":"1:2:3"}`, "HTTPBadRequest: Invalid input for source_port. Reason: Port range must be two integers separated by a colon."},
		{`{"protocol":"tcp","source_port":"1:"}`, "HTTPBadRequest: Invalid input for source_port. Reason: Port range must be two integers separated by a colon."},
		{`{"protocol":"tcp","source_port":"90:80"}`, "HTTPBadRequest: Invalid input for source_port. Reason: First port in a port range must be lower than the second port."},
		{`{"action":"log"}`, "HTTPBadRequest: Invalid input for action. Reason: log is not in valid_values."},
		{`{"source_ip_address":"fd00::1"}`, "FirewallIpAddressConflict: Invalid input - IP addresses do not agree with IP Version."},
		{`{"ip_version":6,"destination_ip_address":"10.0.0.0/8"}`, "FirewallIpAddressConflict: Invalid input - IP addresses do not agree with IP Version."},
		{`{"ip_version":5}`, "HTTPBadRequest: Invalid input for ip_version. Reason: 5 is not in valid_values."},
		{`{"source_ip_address":"ten"}`, "HTTPBadRequest: Invalid input for source_ip_address. Reason: 'ten' is neither a valid IP address, nor is it a valid IP subnet."},
		{`{"source_firewall_group_id":"11111111-1111-1111-1111-111111111111"}`, "HTTPBadRequest: Invalid input for source_firewall_group_id. Reason: " +
			"'11111111-1111-1111-1111-111111111111' is not supported: this server's firewall rules do not match by firewall group."},
		{`{"shared":true}`, "PolicyNotAuthorized: (rule:create_firewall_rule and rule:create_firewall_rule:shared) is disallowed by policy"},
		{`{"protocol":"udp","source_port":"80:80","destination_port":443}`, ""},
		{`{"protocol":"ipv6-icmp","ip_version":6,"source_ip_address":"2001:db8::/32"}`, ""},
		{`{"action":"REJECT","source_ip_address":"10.0.0.7"}`, ""},
	} {
		_, err := w.create(w.member, neutron.FirewallGroupRules, tt.text)
		w.expect(err, tt.want)
	}
}

func TestFirewallGroupRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	external := w.externalNetwork("203.0.113.0/24")
	router, port := w.interfaceOf(w.member)
	if _, err := w.change(w.admin, neutron.Routers, router, `{"external_gateway_info":{"network_id":"`+external+`"}}`); err != nil {
		t.Fatal(err)
	}
	gateway := must2(w.Routers().Show(t.Context(), w.admin, router)).Gateways[0].PortID
	_, theirs := w.interfaceOf(w.other)
	machine := w.port(w.network(`{}`).ID, "").ID
	r, free := w.groupRule(`{}`), w.groupRule(`{}`)
	foreign := must[*neutron.FirewallGroupRuleView](w, w.other, neutron.FirewallGroupRules, `{}`).ID
	p := w.groupPolicy(r)
	otherPolicy := must[*neutron.FirewallPolicyView](w, w.other, neutron.FirewallGroupPolicies, `{}`).ID
	g := w.firewallGroup(`{"ingress_firewall_policy_id":"` + p + `","ports":["` + port + `"]}`).ID
	unknown := "11111111-1111-1111-1111-111111111111"
	for _, tt := range []struct {
		c          neutron.Caller
		r          neutron.Resource
		text, want string
	}{
		{w.member, neutron.FirewallGroupPolicies, `{"firewall_rules":["` + unknown + `"]}`, "FirewallRuleNotFound: Firewall rule " + unknown + " could not be found."},
		{w.member, neutron.FirewallGroupPolicies, `{"firewall_rules":["` + foreign + `"]}`, "FirewallRuleNotFound: Firewall rule " + foreign + " could not be found."},
		{w.member, neutron.FirewallGroupPolicies, `{"firewall_rules":["` + r + `"]}`, ""},
		{w.admin, neutron.FirewallGroupPolicies, `{"firewall_rules":["` + free + `"]}`,
			"FirewallRuleConflict: Operation cannot be performed since firewall rule " + free + " is not shared and belongs to another project mine."},
		{w.admin, neutron.FirewallGroupPolicies, `{"shared":true,"firewall_rules":["` + free + `"]}`,
			"FirewallRuleSharingConflict: Operation cannot be performed since firewall policy POLICY could not find the firewall rule " + free +
				". Please confirm if the firewall rule exists and is shared."},
		{w.member, neutron.FirewallGroups, `{"shared":true}`, "PolicyNotAuthorized: (rule:create_firewall_group and rule:create_firewall_group:shared) is disallowed by policy"},
		{w.member, neutron.FirewallGroups, `{"egress_firewall_policy_id":"` + otherPolicy + `"}`, "FirewallPolicyNotFound: Firewall policy " + otherPolicy + " could not be found."},
		{w.admin, neutron.FirewallGroups, `{"egress_firewall_policy_id":"` + otherPolicy + `"}`, "FirewallPolicyConflict: Operation cannot be performed since firewall policy " +
			otherPolicy + " for your project could not be found. Please confirm if the firewall policy exists and is shared."},
		{w.member, neutron.FirewallGroups, `{"ports":["` + port + `"]}`, "FirewallGroupPortInUse: Port(s) " + port + " provided already associated with other firewall group(s)."},
		{w.member, neutron.FirewallGroups, `{"ports":["` + machine + `"]}`, "FirewallGroupPortInvalid: Port " + machine + " of firewall group is invalid."},
		{w.admin, neutron.FirewallGroups, `{"ports":["` + gateway + `"]}`, "FirewallGroupPortInvalid: Port " + gateway + " of firewall group is invalid."},
		{w.member, neutron.FirewallGroups, `{"ports":["` + theirs + `"]}`, "PortNotFound: Port " + theirs + " could not be found."},
		{w.admin, neutron.FirewallGroups, `{"ports":["` + theirs + `"]}`, "FirewallGroupPortInvalidProject: Operation cannot be performed as port " + theirs + " is in an invalid project other."},
	} {
		_, err := w.create(tt.c, tt.r, tt.text)
		got := problem(err)
		if before, after, found := strings.Cut(tt.want, "POLICY"); found && strings.HasPrefix(got, before) && strings.HasSuffix(got, after) {
			continue
		}
		w.expect(err, tt.want)
	}
	w.expect(w.remove(w.member, neutron.FirewallGroupRules, r), "FirewallRuleInUse: Firewall rule "+r+" is being used.")
	w.expect(w.remove(w.member, neutron.FirewallGroupPolicies, p), "FirewallPolicyInUse: Firewall policy "+p+" is being used.")
	w.expect(w.remove(w.other, neutron.FirewallGroups, g), "FirewallGroupNotFound: Firewall group "+g+" could not be found.")
	_, err := w.change(w.admin, neutron.FirewallGroupPolicies, p, `{"shared":true}`)
	w.expect(err, "FirewallPolicySharingConflict: Operation cannot be performed. Before sharing firewall policy "+p+", share associated firewall rule "+r+".")

	for _, tt := range []struct {
		in   neutron.RuleInsertion
		want string
	}{
		{neutron.RuleInsertion{RuleID: unknown}, "FirewallRuleNotFound: Firewall rule " + unknown + " could not be found."},
		{neutron.RuleInsertion{RuleID: r}, "FirewallRuleAlreadyAssociated: Operation cannot be performed since firewall rule " + r + " is already associated with firewall policy " + p + "."},
		{neutron.RuleInsertion{RuleID: free, Before: unknown}, "FirewallRuleNotFound: Firewall rule " + unknown + " could not be found."},
		{neutron.RuleInsertion{RuleID: free, After: free}, "FirewallRuleNotAssociatedWithPolicy: Firewall rule " + free + " is not associated with firewall policy " + p + "."},
		{neutron.RuleInsertion{RuleID: free, After: r}, ""},
	} {
		_, err := w.InsertGroupRule(t.Context(), w.member, p, tt.in)
		w.expect(err, tt.want)
	}
	if got := must2(w.FirewallGroupPolicies().Show(t.Context(), w.member, p)).Rules; !slices.Equal(got, []string{r, free}) {
		t.Errorf("after an insertion: %v", got)
	}
	if _, err := w.RemoveGroupRule(t.Context(), w.member, p, free); err != nil {
		t.Fatal(err)
	}
	_, err = w.RemoveGroupRule(t.Context(), w.member, p, free)
	w.expect(err, "FirewallRuleNotAssociatedWithPolicy: Firewall rule "+free+" is not associated with firewall policy "+p+".")
}

// TestSharedGroupPolicy: projects use another's shared policy by one chain, and it stays shared
// meanwhile, with its rules.
func TestSharedGroupPolicy(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	_, mine := w.interfaceOf(w.admin)
	_, theirs := w.interfaceOf(w.other)
	r := must[*neutron.FirewallGroupRuleView](w, w.admin, neutron.FirewallGroupRules, `{"shared":true,"action":"allow"}`).ID
	p := must[*neutron.FirewallPolicyView](w, w.admin, neutron.FirewallGroupPolicies, `{"shared":true,"firewall_rules":["`+r+`"],"audited":true}`).ID
	text := func(port string) string { return `{"ingress_firewall_policy_id":"` + p + `","ports":["` + port + `"]}` }
	must[*neutron.FirewallGroupView](w, w.admin, neutron.FirewallGroups, text(mine))
	g := must[*neutron.FirewallGroupView](w, w.other, neutron.FirewallGroups, text(theirs)).ID
	if got := w.bundle("firewall-group", g).Rules[1].Rule.JumpChainID; got != w.bundle("firewall-group-policy", p).Chains[0].ID {
		t.Errorf("the group jumps to %s", got)
	}
	_, err := w.change(w.admin, neutron.FirewallGroupPolicies, p, `{"shared":false}`)
	w.expect(err, "FirewallPolicyInUse: Firewall policy "+p+" is being used.")
	_, err = w.change(w.admin, neutron.FirewallGroupRules, r, `{"shared":false}`)
	w.expect(err, "FirewallRuleInUse: Firewall rule "+r+" is being used.")
	_, err = w.change(w.other, neutron.FirewallGroupPolicies, p, `{"name":"mine"}`)
	w.expect(err, "PolicyNotAuthorized: rule:update_firewall_policy is disallowed by policy")
	if _, err := w.change(w.admin, neutron.FirewallGroupRules, r, `{"enabled":false}`); err != nil {
		t.Fatal(err)
	}
	if w.policyActions(p) != "return drop" || must2(w.FirewallGroupPolicies().Show(t.Context(), w.other, p)).Audited {
		t.Errorf("after a change of a rule: %s, or it is audited", w.policyActions(p))
	}
}

// TestFirewallGroupsAtOnce: groups, policies and interfaces that change at once at two servers end
// as one of them after the other.
func TestFirewallGroupsAtOnce(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{NoDefaultGroups: true})
	w := ws[0]
	router, port := w.interfaceOf(w.member)
	a, b := w.groupRule(`{}`), w.groupRule(`{}`)
	p := w.groupPolicy(a)
	text := `{"egress_firewall_policy_id":"` + p + `","ports":["` + port + `"]}`
	got := together(6, func(i int) error {
		_, err := ws[i%2].create(w.member, neutron.FirewallGroups, text)
		return err
	})
	if got[""] != 1 || got["FirewallGroupPortInUse"] != 5 {
		t.Errorf("groups of one port: %v", got)
	}
	g := must2(all(w.FirewallGroups().List(t.Context(), w.member, neutron.Query{})))[0].ID
	together(4, func(i int) error {
		switch i {
		case 0:
			_, err := ws[0].change(w.member, neutron.FirewallGroupRules, a, `{"action":"allow"}`)
			return err
		case 1:
			_, err := ws[1].InsertGroupRule(t.Context(), w.member, p, neutron.RuleInsertion{RuleID: b})
			return err
		case 2:
			_, err := ws[0].Routers().RemoveInterface(t.Context(), w.member, router, neutron.InterfaceRequest{PortID: port})
			return err
		}
		_, err := ws[1].change(w.member, neutron.FirewallGroups, g, `{"admin_state_up":false}`)
		return err
	})
	if got := w.policyActions(p); got != "return drop return drop" {
		t.Errorf("the policy's chain: %s", got)
	}
	if left := must2(w.FirewallGroups().Show(t.Context(), w.member, g)); len(left.PortIDs) > 0 || left.AdminStateUp || w.jumps(g) != "" {
		t.Errorf("the group without its port: %+v, %s", left.FirewallGroup, w.jumps(g))
	}
	if got := w.bundle("firewall-group-policy", p).Chains[0].Rules[2].Action; got != topology.Return {
		t.Errorf("the changed rule is %s", got)
	}
	w.verifyStore()
}
