package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

func (w *world) firewallRule(text string) string {
	w.t.Helper()
	return must[*neutron.FirewallRuleView](w, w.member, neutron.FirewallRules, text).ID
}

// firewallPolicy makes a policy with these rules.
func (w *world) firewallPolicy(rules ...string) string {
	w.t.Helper()
	return must[*neutron.FirewallPolicyView](w, w.member, neutron.FirewallPolicies, `{"firewall_rules":`+quoted(rules)+`}`).ID
}

// quoted returns a JSON list of texts.
func quoted(texts []string) string {
	if len(texts) == 0 {
		return "[]"
	}
	return `["` + strings.Join(texts, `","`) + `"]`
}

// firewallRules returns the ids of the policy's rules that a firewall applies, and the routers.
func (w *world) applied(id string) (rules, chains []string) {
	w.t.Helper()
	b := w.bundle("firewall", id)
	for _, c := range b.Chains {
		for _, r := range c.Rules[1 : len(c.Rules)-1] {
			rules = append(rules, r.ID)
		}
	}
	for _, r := range b.Rules {
		chains = append(chains, r.ChainID)
	}
	return rules, chains
}

func TestFirewallLife(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.network(`{}`) // brings the default group
	before := w.dump()
	one, two := w.routerTo(w.member, ""), w.routerTo(w.member, "")
	a := w.firewallRule(`{"protocol":"tcp","destination_port":"80","action":"allow"}`)
	b := w.firewallRule(`{"protocol":"UDP","source_port":53,"source_ip_address":"10.0.0.0/8"}`)
	p := w.firewallPolicy(a)
	f := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+p+`"}`)
	if f.Status() != "ACTIVE" || len(f.RouterIDs) != 2 {
		t.Errorf("without routers named: %+v", f.Firewall)
	}
	if rules, chains := w.applied(f.ID); !slices.Equal(rules, []string{a}) || len(chains) != 2 {
		t.Errorf("applies %v to %v", rules, chains)
	}

	if _, err := w.InsertFirewallRule(t.Context(), w.member, p, neutron.RuleInsertion{RuleID: b}); err != nil {
		t.Fatal(err)
	}
	if rules, _ := w.applied(f.ID); !slices.Equal(rules, []string{b, a}) {
		t.Errorf("after an insertion: %v", rules)
	}
	r := must2(w.FirewallRules().Show(t.Context(), w.member, a))
	if r.PolicyID != p || *r.Position != 2 || r.Protocol != "tcp" || r.DestinationPort != "80" {
		t.Errorf("rule %+v at %v", r, *r.Position)
	}
	if _, err := w.change(w.member, neutron.FirewallRules, b, `{"enabled":false}`); err != nil {
		t.Fatal(err)
	}
	if rules, _ := w.applied(f.ID); !slices.Equal(rules, []string{a}) {
		t.Errorf("with a rule switched off: %v", rules)
	}
	if _, err := w.RemoveFirewallRule(t.Context(), w.member, p, a); err != nil {
		t.Fatal(err)
	}
	if rules, _ := w.applied(f.ID); len(rules) > 0 {
		t.Errorf("after a removal: %v", rules)
	}

	change := func(text string) *neutron.FirewallView {
		v, err := w.change(w.member, neutron.Firewalls, f.ID, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v.(*neutron.FirewallView)
	}
	if f := change(`{"admin_state_up":false}`); f.Status() != "DOWN" || w.bundle("firewall", f.ID).Chains[0].Rules[0].Action != topology.Drop {
		t.Errorf("switched off: %+v", f.Firewall)
	}
	change(`{"admin_state_up":true,"router_ids":["` + two + `"]}`)
	if _, chains := w.applied(f.ID); len(chains) != 1 {
		t.Errorf("on one router: %v", chains)
	}
	if err := w.remove(w.member, neutron.Routers, two); err != nil {
		t.Fatal(err)
	}
	left := must2(w.Firewalls().Show(t.Context(), w.member, f.ID))
	if left.Status() != "INACTIVE" || len(w.bundle("firewall", f.ID).Chains) > 0 {
		t.Errorf("after its router was deleted: %+v", left.Firewall)
	}
	change(`{"router_ids":["` + one + `"]}`)
	if _, chains := w.applied(f.ID); len(chains) != 1 {
		t.Errorf("on another router: %v", chains)
	}
	for _, o := range []struct {
		r  neutron.Resource
		id string
	}{{neutron.Firewalls, f.ID}, {neutron.FirewallPolicies, p}, {neutron.FirewallRules, a}, {neutron.FirewallRules, b}, {neutron.Routers, one}} {
		if err := w.remove(w.member, o.r, o.id); err != nil {
			t.Fatal(err)
		}
	}
	if left := missing(w.dump(), before); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// TestAudited: a change of rules takes the mark away, unless the change sets it.
func TestAudited(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	r := w.firewallRule(`{}`)
	p := w.firewallPolicy(r)
	audited := func() bool { return must2(w.FirewallPolicies().Show(t.Context(), w.member, p)).Audited }
	for _, step := range []struct {
		r        neutron.Resource
		id, text string
		want     bool
	}{
		{neutron.FirewallPolicies, p, `{"audited":true}`, true},
		{neutron.FirewallRules, r, `{"action":"allow"}`, false},
		{neutron.FirewallPolicies, p, `{"audited":true}`, true},
		{neutron.FirewallPolicies, p, `{}`, true},
		{neutron.FirewallPolicies, p, `{"firewall_rules":[]}`, false},
		{neutron.FirewallPolicies, p, `{"firewall_rules":["` + r + `"],"audited":true}`, true},
	} {
		if _, err := w.change(w.member, step.r, step.id, step.text); err != nil {
			t.Fatal(err)
		}
		if got := audited(); got != step.want {
			t.Errorf("after %s: %v", step.text, got)
		}
	}
}

func TestFirewallRuleForms(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for _, tt := range []struct{ text, want string }{
		{`{"protocol":"icmp","destination_port":"1"}`, "FirewallRuleInvalidICMPParameter: Source, destination port are not allowed when protocol is set to ICMP."},
		{`{"destination_port":"1"}`, "FirewallRuleWithPortWithoutProtocolInvalid: Source/destination port requires a protocol"},
		{`{"protocol":"sctp"}`, "FirewallRuleInvalidProtocol: Firewall Rule protocol sctp is not supported. " +
			"Only protocol values [None, 'tcp', 'udp', 'icmp'] and their integer representation (0 to 255) are supported."},
		{`{"protocol":"tcp","source_port":"x"}`, "FirewallRuleInvalidPortValue: Invalid value for port x."},
		{`{"protocol":"tcp","source_port":"70000"}`, "FirewallRuleInvalidPortValue: Invalid value for port 70000."},
		{`{"protocol":"tcp","source_port":"90:80"}`, "HTTPBadRequest: Invalid input for source_port. Reason: '90:80' is not a valid port range: its first port is larger than its last."},
		{`{"action":"log"}`, "FirewallRuleInvalidAction: Firewall rule action log is not supported. Only action values ['allow', 'deny', 'reject'] are supported."},
		{`{"source_ip_address":"fd00::1"}`, "FirewallIpAddressConflict: Invalid input - IP addresses do not agree with IP Version"},
		{`{"ip_version":6}`, "HTTPBadRequest: Invalid input for ip_version. Reason: '6' is not supported: this server's firewalls are for IPv4."},
		{`{"source_ip_address":"ten"}`, "HTTPBadRequest: Invalid input for source_ip_address. Reason: 'ten' is not a valid IP address or a valid IP subnet."},
		{`{"protocol":6,"source_port":"80:80","destination_port":443}`, ""},
		{`{"protocol":"17","source_port":"1:65535"}`, ""},
		{`{"action":"REJECT","shared":true}`, ""},
	} {
		_, err := w.create(w.member, neutron.FirewallRules, tt.text)
		w.expect(err, tt.want)
	}
}

func TestFirewallRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	router := w.routerTo(w.member, "")
	theirs := w.routerTo(w.other, "")
	r, free := w.firewallRule(`{}`), w.firewallRule(`{}`)
	foreign := must[*neutron.FirewallRuleView](w, w.other, neutron.FirewallRules, `{}`).ID
	p := w.firewallPolicy(r)
	otherPolicy := must[*neutron.FirewallPolicyView](w, w.other, neutron.FirewallPolicies, `{}`).ID
	f := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+p+`","router_ids":["`+router+`"]}`).ID
	unknown := "11111111-1111-1111-1111-111111111111"
	for _, tt := range []struct {
		c          neutron.Caller
		r          neutron.Resource
		text, want string
	}{
		{w.member, neutron.FirewallPolicies, `{"firewall_rules":["` + unknown + `"]}`, "FirewallRuleNotFound: Firewall Rule " + unknown + " could not be found."},
		{w.member, neutron.FirewallPolicies, `{"firewall_rules":["` + foreign + `"]}`, "FirewallRuleNotFound: Firewall Rule " + foreign + " could not be found."},
		{w.member, neutron.FirewallPolicies, `{"firewall_rules":["` + r + `"]}`, "FirewallRuleInUse: Firewall Rule " + r + " is being used."},
		{w.member, neutron.FirewallPolicies, `{"shared":true,"firewall_rules":["` + free + `"]}`,
			"FirewallRuleSharingConflict: Operation cannot be performed since Firewall Policy POLICY is shared but Firewall Rule " + free + " is not shared"},
		{w.admin, neutron.FirewallPolicies, `{"firewall_rules":["` + free + `"]}`,
			"FirewallRuleConflict: Operation cannot be performed since Firewall Rule " + free + " is not shared and belongs to another tenant mine"},
		{w.member, neutron.Firewalls, `{}`, "HTTPBadRequest: Failed to parse request. Required attribute 'firewall_policy_id' not specified"},
		{w.member, neutron.Firewalls, `{"firewall_policy_id":"` + otherPolicy + `"}`, "FirewallPolicyNotFound: Firewall Policy " + otherPolicy + " could not be found."},
		{w.admin, neutron.Firewalls, `{"firewall_policy_id":"` + otherPolicy + `","router_ids":[]}`,
			"FirewallPolicyConflict: Operation cannot be performed since Firewall Policy " + otherPolicy + " is not shared and does not belong to your tenant."},
		{w.member, neutron.Firewalls, `{"firewall_policy_id":"` + p + `"}`,
			"FirewallRouterInUse: Router(s) ['" + router + "'] provided already associated with other Firewall(s). "},
		{w.member, neutron.Firewalls, `{"firewall_policy_id":"` + p + `","router_ids":["` + theirs + `"]}`, "RouterNotFound: Router " + theirs + " could not be found"},
	} {
		_, err := w.create(tt.c, tt.r, tt.text)
		got := problem(err)
		if before, after, found := strings.Cut(tt.want, "POLICY"); found && strings.HasPrefix(got, before) && strings.HasSuffix(got, after) {
			continue
		}
		w.expect(err, tt.want)
	}
	w.expect(w.remove(w.member, neutron.FirewallRules, r), "FirewallRuleInUse: Firewall Rule "+r+" is being used.")
	w.expect(w.remove(w.member, neutron.FirewallPolicies, p), "FirewallPolicyInUse: Firewall Policy "+p+" is being used.")
	w.expect(w.remove(w.other, neutron.Firewalls, f), "FirewallNotFound: Firewall "+f+" could not be found.")
	_, err := w.change(w.member, neutron.FirewallPolicies, p, `{"shared":true}`)
	w.expect(err, "FirewallPolicySharingConflict: Operation cannot be performed. Before sharing Firewall Policy "+p+", share associated Firewall Rule "+r)

	for _, tt := range []struct {
		in   neutron.RuleInsertion
		want string
	}{
		{neutron.RuleInsertion{RuleID: unknown}, "FirewallRuleNotFound: Firewall Rule " + unknown + " could not be found."},
		{neutron.RuleInsertion{RuleID: r}, "FirewallRuleInUse: Firewall Rule " + r + " is being used."},
		{neutron.RuleInsertion{RuleID: free, Before: unknown}, "FirewallRuleNotFound: Firewall Rule " + unknown + " could not be found."},
		{neutron.RuleInsertion{RuleID: free, After: free}, "FirewallRuleNotAssociatedWithPolicy: Firewall Rule " + free + " is not associated with  Firewall Policy " + p + "."},
	} {
		_, err := w.InsertFirewallRule(t.Context(), w.member, p, tt.in)
		w.expect(err, tt.want)
	}
	_, err = w.RemoveFirewallRule(t.Context(), w.member, p, free)
	w.expect(err, "FirewallRuleNotAssociatedWithPolicy: Firewall Rule "+free+" is not associated with  Firewall Policy "+p+".")
	_, err = neutron.ParseRuleInsertion(map[string]any{})
	w.expect(err, "FirewallRuleInfoMissing: Missing rule info argument for insert/remove rule operation.")
}

// TestInsertionOrder: before a rule, after one, before both named, and first.
func TestInsertionOrder(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	a, b, c, d := w.firewallRule(`{}`), w.firewallRule(`{}`), w.firewallRule(`{}`), w.firewallRule(`{}`)
	p := w.firewallPolicy(a, b)
	for _, step := range []struct {
		in   neutron.RuleInsertion
		want []string
	}{
		{neutron.RuleInsertion{RuleID: c, After: a}, []string{a, c, b}},
		{neutron.RuleInsertion{RuleID: d, Before: b, After: a}, []string{a, c, d, b}},
	} {
		v, err := w.InsertFirewallRule(t.Context(), w.member, p, step.in)
		if err != nil || !slices.Equal(v.Rules, step.want) {
			t.Errorf("%+v: %v, %v; want %v", step.in, v, err, step.want)
		}
	}
}

// TestSharedPolicy: projects use another's shared policy, whose rules have ids of their own in all
// firewalls but one, and it stays shared meanwhile.
func TestSharedPolicy(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	r := w.firewallRule(`{"shared":true}`)
	p := must[*neutron.FirewallPolicyView](w, w.member, neutron.FirewallPolicies, `{"shared":true,"firewall_rules":["`+r+`"]}`).ID
	first := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+p+`"}`).ID
	second := must[*neutron.FirewallView](w, w.other, neutron.Firewalls, `{"firewall_policy_id":"`+p+`"}`).ID
	ids := func(f string) string {
		rules, _ := w.applied(f)
		return strings.Join(rules, " ")
	}
	if ids(first) != r || ids(second) == r || ids(second) == "" {
		t.Errorf("rules %q and %q of %s", ids(first), ids(second), r)
	}
	if got := must2(all(w.FirewallPolicies().List(t.Context(), w.other, neutron.Query{}))); len(got) != 1 {
		t.Errorf("another project sees %d shared policies", len(got))
	}
	_, err := w.change(w.member, neutron.FirewallPolicies, p, `{"shared":false}`)
	w.expect(err, "FirewallPolicyInUse: Firewall Policy "+p+" is being used.")
	_, err = w.change(w.other, neutron.FirewallPolicies, p, `{"name":"mine"}`)
	w.expect(err, "PolicyNotAuthorized: rule:update_firewall_policy is disallowed by policy")
	before := w.bundle("firewall", second)
	if _, err := w.change(w.member, neutron.FirewallRules, r, `{"action":"allow"}`); err != nil {
		t.Fatal(err)
	}
	if text(before) == text(w.bundle("firewall", second)) {
		t.Error("a change of a rule did not reach the other project's firewall")
	}
	if err := w.remove(w.member, neutron.Firewalls, first); err != nil {
		t.Fatal(err)
	}
	third := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+p+`"}`).ID
	if ids(third) != r || ids(second) == r {
		t.Errorf("rules %q and %q of %s, after the first was deleted", ids(third), ids(second), r)
	}
}

// TestFirewallsAtOnce: rules, policies and firewalls that change at once at two servers end as one
// of them after the other.
func TestFirewallsAtOnce(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	w := ws[0]
	router := w.routerTo(w.member, "")
	a, b := w.firewallRule(`{}`), w.firewallRule(`{}`)
	p := w.firewallPolicy(a, b)
	got := together(6, func(i int) error {
		_, err := ws[i%2].create(w.member, neutron.Firewalls, `{"firewall_policy_id":"`+p+`","router_ids":["`+router+`"]}`)
		return err
	})
	if got[""] != 1 || got["FirewallRouterInUse"] != 5 {
		t.Errorf("firewalls of one router: %v", got)
	}
	f := must2(all(w.Firewalls().List(t.Context(), w.member, neutron.Query{})))[0]
	for round := range 5 {
		got := together(4, func(i int) error {
			action := []string{"allow", "deny"}[round%2]
			switch i {
			case 0:
				_, err := ws[0].change(w.member, neutron.FirewallRules, a, `{"action":"`+action+`"}`)
				return err
			case 1:
				_, err := ws[1].change(w.member, neutron.FirewallRules, b, `{"action":"`+action+`"}`)
				return err
			case 2:
				_, err := ws[0].change(w.member, neutron.Firewalls, f.ID, `{"description":"`+fmt.Sprint(round)+`"}`)
				return err
			}
			_, err := ws[1].change(w.member, neutron.FirewallPolicies, p, `{"firewall_rules":`+quoted([]string{b, a})+`}`)
			return err
		})
		if got[""] != 4 {
			t.Fatalf("outcomes %v", got)
		}
		want := map[string]string{"allow": topology.Accept, "deny": topology.Drop}[[]string{"allow", "deny"}[round%2]]
		for _, r := range ws[round%2].bundle("firewall", f.ID).Chains[0].Rules[1:3] {
			if r.Action != want {
				t.Errorf("round %d: %s %s", round, r.ID, r.Action)
			}
		}
	}
}
