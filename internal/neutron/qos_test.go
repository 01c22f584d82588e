package neutron_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/neutron"
)

// TestQoSRules adds rules to a policy one after the other, as the reference takes or refuses them.
func TestQoSRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules []string // "<type> <body>"; all but the last are taken
		want  string   // type of the refusal of the last
	}{
		{"both directions", []string{`bandwidth_limit {"max_kbps":1}`, `bandwidth_limit {"max_kbps":1,"direction":"ingress"}`}, ""},
		{"the same direction", []string{`bandwidth_limit {"max_kbps":1}`, `bandwidth_limit {"max_kbps":2}`}, "QoSRulesConflict"},
		{"two marks", []string{`dscp_marking {"dscp_mark":8}`, `dscp_marking {"dscp_mark":10}`}, "QoSRulesConflict"},
		{"limit below a minimum", []string{`minimum_bandwidth {"min_kbps":9}`, `bandwidth_limit {"max_kbps":8}`}, "QoSRuleParameterConflict"},
		{"limit below a minimum of the other direction", []string{`minimum_bandwidth {"min_kbps":9}`, `bandwidth_limit {"max_kbps":8,"direction":"ingress"}`}, "QoSRuleParameterConflict"},
		{"limit at a minimum", []string{`minimum_bandwidth {"min_kbps":9}`, `bandwidth_limit {"max_kbps":9}`}, ""},
		{"minimum above a limit", []string{`bandwidth_limit {"max_kbps":8}`, `minimum_bandwidth {"min_kbps":9}`}, "QoSRuleParameterConflict"},
		{"any beside a direction", []string{`minimum_packet_rate {"min_kpps":1}`, `minimum_packet_rate {"min_kpps":1,"direction":"any"}`}, "QoSRuleParameterConflict"},
		{"a direction beside any", []string{`minimum_packet_rate {"min_kpps":1,"direction":"any"}`, `minimum_packet_rate {"min_kpps":1,"direction":"ingress"}`}, "QoSRuleParameterConflict"},
		{"packet rates", []string{`packet_rate_limit {"max_kpps":1}`, `packet_rate_limit {"max_kpps":1,"direction":"ingress"}`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &neutron.QoSPolicy{}
			for i, text := range tt.rules {
				r, v := qosRule(t, text)
				r.ID = fmt.Sprint(i)
				rules, err := p.WithRule(r, v)
				last := i == len(tt.rules)-1
				var refused *neutron.Error
				switch {
				case last && tt.want != "":
					if !errors.As(err, &refused) || refused.Type != tt.want {
						t.Fatalf("%s: %v: want %s", text, err, tt.want)
					}
				case err != nil:
					t.Fatalf("%s: %v", text, err)
				default:
					p.Rules = rules
				}
			}
		})
	}
}

// qosRule returns the rule of "<type> <body>" and its values.
func qosRule(t *testing.T, text string) (neutron.QoSRule, neutron.Values) {
	t.Helper()
	name, body, _ := strings.Cut(text, " ")
	typ := neutron.QoSRuleTypeNamed(name)
	v, err := neutron.Parse(admin, typ.Resource, neutron.Create, decode(t, body))
	if err != nil {
		t.Fatal(err)
	}
	var r neutron.QoSRule
	typ.Apply(&r, v)
	return r, v
}

// TestQoSRuleChange changes a rule in its place, which does not conflict with itself.
func TestQoSRuleChange(t *testing.T) {
	t.Parallel()
	p := &neutron.QoSPolicy{Rules: []neutron.QoSRule{
		{ID: "a", Type: neutron.QoSBandwidthLimit, Direction: "egress", Value: 1},
		{ID: "b", Type: neutron.QoSDSCPMarking, Value: 8},
	}}
	rules, err := p.WithRule(neutron.QoSRule{ID: "a", Type: neutron.QoSBandwidthLimit, Direction: "ingress", Value: 2}, neutron.Values{"max_kbps": 2})
	if err != nil || len(rules) != 2 || rules[0].Value != 2 || rules[0].Direction != "ingress" {
		t.Errorf("%+v, %v: want rule a with 2 kbit/s ingress", rules, err)
	}
	if p.Rules[0].Value != 1 {
		t.Error("the policy's own rules have changed")
	}
	rules, err = p.WithRule(neutron.QoSRule{ID: "c", Type: neutron.QoSBandwidthLimit, Direction: "ingress", Value: 2}, neutron.Values{"max_kbps": 2})
	ids := func(r neutron.QoSRule) string { return r.ID }
	if got := mapped(rules, ids); err != nil || !slices.Equal(got, []string{"a", "c", "b"}) {
		t.Errorf("rules %v, %v: want them by type: a, c, b", got, err)
	}
}

// TestUnknownQoSRule: a rule of a later version is answered by id and type, and reserves nothing.
func TestUnknownQoSRule(t *testing.T) {
	t.Parallel()
	p := &neutron.QoSPolicy{Rules: []neutron.QoSRule{{ID: "a", Type: "later", Value: 1}}}
	if r := p.Reserving(); r != nil {
		t.Errorf("rule %+v reserves something", r)
	}
	got := string(neutron.NewTables("").QoSPolicies.Encoder(true, []string{"rules"}).Append(nil, &neutron.QoSPolicyView{QoSPolicy: p}))
	if want := `{"rules":[{"id":"a","qos_policy_id":"","type":"later"}]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func mapped[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

func TestQoSRuleValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		res        neutron.Resource
		op         neutron.Op
		body, want string
	}{
		{neutron.QoSBandwidthLimitRules, neutron.Create, `{}`, "Failed to parse request. Required attribute 'max_kbps' not specified"},
		{neutron.QoSBandwidthLimitRules, neutron.Create, `{"max_kbps":-1}`, "Invalid input for max_kbps. Reason: '-1' is too small - must be at least '0'."},
		{neutron.QoSBandwidthLimitRules, neutron.Create, `{"max_kbps":2147483648}`, "Invalid input for max_kbps. Reason: '2147483648' is too large - must be no larger than '2147483647'."},
		{neutron.QoSBandwidthLimitRules, neutron.Create, `{"max_kbps":1,"direction":"any"}`, "Invalid input for direction. Reason: any is not in valid_values."},
		{neutron.QoSDSCPMarkingRules, neutron.Create, `{"dscp_mark":5}`, "Invalid input for dscp_mark. Reason: 5 is not in valid_values."},
		{neutron.QoSDSCPMarkingRules, neutron.Update, `{"dscp_mark":42}`, "Invalid input for dscp_mark. Reason: 42 is not in valid_values."},
		{neutron.QoSDSCPMarkingRules, neutron.Create, `{"dscp_mark":8,"direction":"egress"}`, "Unrecognized attribute(s) 'direction'"},
		{neutron.QoSBandwidthLimitAliases, neutron.Update, `{"id":"x"}`, "Cannot update read-only attribute id"},
	} {
		_, err := neutron.Parse(admin, tt.res, tt.op, decode(t, tt.body))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v %s: %v: want %s", tt.res, tt.body, err, tt.want)
		}
	}
}
