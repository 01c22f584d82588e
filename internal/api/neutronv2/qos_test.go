package neutronv2_test

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/policies"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/qos/ruletypes"

	"heddle/internal/control"
)

// TestGophercloudQoS: an outside client makes a policy with rules, changes them and takes them
// away.
func TestGophercloudQoS(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	ctx, c := t.Context(), s.client("admin")
	p := must[*policies.Policy](t)(policies.Create(ctx, c, policies.CreateOpts{Name: "gold", Shared: true, Description: "d"}).Extract())
	if p.Name != "gold" || !p.Shared || p.IsDefault || p.RevisionNumber != 0 || len(p.Rules) != 0 {
		t.Errorf("made %+v", p)
	}
	bw := must[*rules.BandwidthLimitRule](t)(rules.CreateBandwidthLimitRule(ctx, c, p.ID, rules.CreateBandwidthLimitRuleOpts{MaxKBps: 1000}).ExtractBandwidthLimitRule())
	mark := must[*rules.DSCPMarkingRule](t)(rules.CreateDSCPMarkingRule(ctx, c, p.ID, rules.CreateDSCPMarkingRuleOpts{DSCPMark: 26}).ExtractDSCPMarkingRule())
	least := must[*rules.MinimumBandwidthRule](t)(rules.CreateMinimumBandwidthRule(ctx, c, p.ID, rules.CreateMinimumBandwidthRuleOpts{MinKBps: 9}).ExtractMinimumBandwidthRule())
	if bw.MaxKBps != 1000 || bw.MaxBurstKBps != 0 || bw.Direction != "egress" || mark.DSCPMark != 26 || least.MinKBps != 9 || least.Direction != "egress" {
		t.Errorf("rules %+v, %+v, %+v", bw, mark, least)
	}
	kbps := 2000
	bw = must[*rules.BandwidthLimitRule](t)(rules.UpdateBandwidthLimitRule(ctx, c, p.ID, bw.ID, rules.UpdateBandwidthLimitRuleOpts{MaxKBps: &kbps}).ExtractBandwidthLimitRule())
	if bw.MaxKBps != 2000 {
		t.Errorf("after the update: %+v", bw)
	}
	if n := count(t, rules.ListBandwidthLimitRules(c, p.ID, rules.BandwidthLimitRulesListOpts{MaxKBps: 2000}), rules.ExtractBandwidthLimitRules); n != 1 {
		t.Errorf("%d rules of 2000 kbit/s", n)
	}
	if n := count(t, ruletypes.ListRuleTypes(c), ruletypes.ExtractRuleTypes); n != 5 {
		t.Errorf("%d types of rules", n)
	}
	if p = must[*policies.Policy](t)(policies.Get(ctx, c, p.ID).Extract()); len(p.Rules) != 3 || p.Rules[0]["type"] != "bandwidth_limit" || p.Rules[0]["qos_policy_id"] != p.ID {
		t.Errorf("rules of the policy: %+v", p.Rules)
	}
	if err := rules.DeleteDSCPMarkingRule(ctx, c, p.ID, mark.ID).ExtractErr(); err != nil {
		t.Error(err)
	}
	if err := policies.Delete(ctx, c, p.ID).ExtractErr(); err != nil {
		t.Error(err)
	}
	if n := count(t, policies.List(c, policies.ListOpts{}), policies.ExtractPolicies); n != 0 {
		t.Errorf("%d policies are left", n)
	}
}

// TestQoSAnswers holds answers against those recorded of the reference.
func TestQoSAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	policy := s.create(t, "admin", "qos/policies", `{"policy":{"name":"q"}}`)["id"].(string)
	path := "/qos/policies/" + policy
	rule := s.create(t, "admin", path[1:]+"/bandwidth_limit_rules", `{"bandwidth_limit_rule":{"max_kbps":1000}}`)
	id := rule["id"].(string)
	if want := map[string]any{"id": id, "max_kbps": 1000.0, "max_burst_kbps": 0.0, "direction": "egress"}; !reflect.DeepEqual(rule, want) {
		t.Errorf("rule %v: want %v", rule, want)
	}
	for _, tt := range []struct {
		status                  int
		who, method, path, body string
		want                    string // JSON, or type and text of an error
	}{
		{409, "admin", http.MethodPost, path + "/bandwidth_limit_rules", `{"bandwidth_limit_rule":{"max_kbps":2000}}`,
			"QoSRulesConflict: Rule bandwidth_limit conflicts with rule " + id + " which already exists in QoS Policy " + policy + "."},
		{400, "admin", http.MethodPost, path + "/dscp_marking_rules", `{"dscp_marking_rule":{"dscp_mark":5}}`,
			"HTTPBadRequest: Invalid input for dscp_mark. Reason: 5 is not in valid_values."},
		{403, "member", http.MethodPost, "/qos/policies", `{"policy":{"name":"q"}}`, "PolicyNotAuthorized: rule:create_policy is disallowed by policy"},
		{404, "member", http.MethodGet, path, "", "QosPolicyNotFound: QoS policy " + policy + " could not be found."},
		{404, "admin", http.MethodGet, "/qos/policies/x/bandwidth_limit_rules", "", "QosPolicyNotFound: QoS policy x could not be found."},
		{404, "admin", http.MethodGet, path + "/dscp_marking_rules/" + id, "", "QosRuleNotFound: QoS rule " + id + " for policy " + policy + " could not be found."},
		{200, "admin", http.MethodGet, "/qos/alias_bandwidth_limit_rules/" + id, "",
			`{"alias_bandwidth_limit_rule":{"id":"` + id + `","max_kbps":1000,"max_burst_kbps":0,"direction":"egress"}}`},
		{200, "admin", http.MethodPut, "/qos/alias_bandwidth_limit_rules/" + id, `{"alias_bandwidth_limit_rule":{"max_kbps":7}}`,
			`{"alias_bandwidth_limit_rule":{"id":"` + id + `","max_kbps":7,"max_burst_kbps":0,"direction":"egress"}}`},
		{403, "member", http.MethodGet, "/qos/rule-types/bandwidth_limit", "", "NotAuthorized: Not authorized."},
		{200, "admin", http.MethodGet, "/qos/rule-types/minimum_bandwidth", "", `{"rule_type":{"type":"minimum_bandwidth","drivers":[]}}`},
		{200, "admin", http.MethodGet, "/qos/rule-types/packet_rate_limit", "", `{"rule_type":{"type":"packet_rate_limit","drivers":[{"name":"heddle","supported_parameters":[` +
			`{"parameter_name":"max_kpps","parameter_type":"range","parameter_values":{"start":0,"end":2147483647}},` +
			`{"parameter_name":"max_burst_kpps","parameter_type":"range","parameter_values":{"start":0,"end":2147483647}},` +
			`{"parameter_name":"direction","parameter_type":"choices","parameter_values":["egress","ingress"]}]}]}}`},
		{200, "member", http.MethodGet, "/qos/rule-types?all_supported=true", "",
			`{"rule_types":[{"type":"bandwidth_limit"},{"type":"dscp_marking"},{"type":"packet_rate_limit"}]}`},
		{400, "member", http.MethodGet, "/qos/rule-types?all_rules=some", "", "InvalidInput: Invalid input for operation: 'some' cannot be converted to boolean."},
		{404, "admin", http.MethodGet, "/qos/rule-types/none", "", "QosRuleTypeNotFound: QosRuleType none could not be found."},
		{200, "admin", http.MethodPut, "/policies/" + policy + "/tags", `{"tags":["red"]}`, `{"tags":["red"]}`},
		{204, "admin", http.MethodGet, "/policies/" + policy + "/tags/red", "", ""},
		{204, "admin", http.MethodDelete, "/qos/alias_bandwidth_limit_rules/" + id, "", ""},
		{404, "admin", http.MethodDelete, "/qos/alias_bandwidth_limit_rules/" + id, "", "QosRuleNotFound: QoS rule " + id + " for policy  could not be found."},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		a := s.must(t, tt.status, tt.who, tt.method, tt.path, body)
		got := string(a.body)
		if e, isError := a.errorText(); isError {
			got = e
		}
		if got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.method, tt.path, got, tt.want)
		}
	}
	// A marker that the caller does not see is none: the reference's own test walks pages so.
	page := s.must(t, http.StatusOK, "member", http.MethodGet, "/qos/policies?limit=1&marker="+policy, nil)
	if found := list(page.doc()["policies"]); len(found) != 0 {
		t.Errorf("a member sees %v", found)
	}
}

// TestGatewayQoSPolicy: a router's gateway has the policy that a request names. Null takes it off,
// requests that do not name it leave it, on another network too, and it goes with the gateway.
func TestGatewayQoSPolicy(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	policy := s.create(t, "admin", "qos/policies", `{"policy":{"name":"q","shared":true}}`)["id"].(string)
	external := func(attributes string) string {
		id := s.create(t, "admin", "networks", `{"network":{"router:external":true`+attributes+`}}`)["id"].(string)
		s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+id+`","ip_version":4,"cidr":"203.0.113.0/24"}}`)
		return id
	}
	plain, limited := external(""), external(`,"qos_policy_id":"`+policy+`"`)
	gateway := func(network, more string) string {
		return `"external_gateway_info":{"network_id":"` + network + `"` + more + `}`
	}
	const absent = "absent"
	named, null := `,"qos_policy_id":"`+policy+`"`, `,"qos_policy_id":null`
	id := s.create(t, "member", "routers", `{"router":{`+gateway(plain, null)+`}}`)["id"].(string)
	for i, step := range []struct {
		attributes string
		want       any // absent, nil for null, or the policy
	}{
		{gateway(plain, ""), absent},
		{gateway(plain, named), policy},
		{`"name":"r"`, policy},
		{gateway(plain, ""), policy},
		{gateway(limited, ""), policy},
		{gateway(limited, null), nil},
		{gateway(limited, null), nil},
		{gateway(plain, ""), absent},
		{gateway(plain, named), policy},
		{`"external_gateway_info":null`, absent},
		{gateway(plain, ""), absent},
		{gateway(limited, named), policy},
		{gateway(plain, null), absent},
	} {
		s.must(t, http.StatusOK, "member", http.MethodPut, "/routers/"+id, `{"router":{`+step.attributes+`}}`)
		router := s.must(t, http.StatusOK, "member", http.MethodGet, "/routers/"+id, nil).doc()["router"].(map[string]any)
		info, _ := router["external_gateway_info"].(map[string]any)
		got, there := info["qos_policy_id"]
		if !there {
			got = absent
		}
		if got != step.want {
			t.Errorf("step %d, %s: qos_policy_id is %v, want %v", i, step.attributes, got, step.want)
		}
	}
}

// errorText returns the type and the text of an error.
func (a answer) errorText() (string, bool) {
	if a.status < 400 {
		return "", false
	}
	e := a.doc()["NeutronError"].(map[string]any)
	return e["type"].(string) + ": " + e["message"].(string), true
}
