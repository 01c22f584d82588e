package neutronv2_test

import (
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/fwaas_v2/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/fwaas_v2/policies"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/fwaas_v2/rules"

	"heddle/internal/api/neutronv2"
	"heddle/internal/control"
)

// interfaceOf returns the port of a router's interface.
func (s *server) interfaceOf(t *testing.T, router string) string {
	t.Helper()
	found := list(s.do(t, "member", http.MethodGet, "/ports?device_owner=network:router_interface&device_id="+router, nil, nil).doc()["ports"])
	return found[0].(map[string]any)["id"].(string)
}

// TestGophercloudFirewallGroups: an outside client makes rules, a policy and a group, changes them
// and takes them away again.
func TestGophercloudFirewallGroups(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{}, neutronv2.NewWithRouting)
	ctx, c := t.Context(), s.client("member")
	_, _, router := s.behindRouter(t)
	port := s.interfaceOf(t, router)
	web := must[*rules.Rule](t)(rules.Create(ctx, c, rules.CreateOpts{Protocol: rules.ProtocolTCP, DestinationPort: "80", Action: rules.ActionAllow}).Extract())
	any := must[*rules.Rule](t)(rules.Create(ctx, c, rules.CreateOpts{Protocol: rules.ProtocolAny, Action: rules.ActionDeny, IPVersion: 6}).Extract())
	if web.Protocol != "tcp" || web.DestinationPort != "80" || !web.Enabled || len(web.FirewallPolicyID) != 0 || any.IPVersion != 6 || any.Protocol != "" {
		t.Errorf("rules %+v and %+v", web, any)
	}
	p := must[*policies.Policy](t)(policies.Create(ctx, c, policies.CreateOpts{Name: "p", FirewallRules: []string{web.ID}}).Extract())
	if p = must[*policies.Policy](t)(policies.InsertRule(ctx, c, p.ID, policies.InsertRuleOpts{ID: any.ID, InsertBefore: web.ID}).Extract()); len(p.Rules) != 2 || p.Rules[0] != any.ID {
		t.Errorf("after an insertion: %+v", p)
	}
	if web = must[*rules.Rule](t)(rules.Get(ctx, c, web.ID).Extract()); len(web.FirewallPolicyID) != 1 || web.FirewallPolicyID[0] != p.ID {
		t.Errorf("the rule is in %v", web.FirewallPolicyID)
	}
	if p = must[*policies.Policy](t)(policies.RemoveRule(ctx, c, p.ID, any.ID).Extract()); len(p.Rules) != 1 {
		t.Errorf("after a removal: %+v", p)
	}
	g := must[*groups.Group](t)(groups.Create(ctx, c, groups.CreateOpts{
		Name: "g", IngressFirewallPolicyID: p.ID, EgressFirewallPolicyID: p.ID, Ports: []string{port},
	}).Extract())
	if g.Status != "ACTIVE" || g.IngressFirewallPolicyID != p.ID || g.Ports[0] != port || !g.AdminStateUp || g.Shared {
		t.Errorf("made %+v", g)
	}
	if g = must[*groups.Group](t)(groups.RemoveIngressPolicy(ctx, c, g.ID).Extract()); g.IngressFirewallPolicyID != "" || g.Status != "ACTIVE" {
		t.Errorf("without ingress policy: %+v", g)
	}
	if n := count(t, groups.List(c, groups.ListOpts{Name: "g"}), groups.ExtractGroups); n != 1 {
		t.Errorf("%d groups of the name", n)
	}
	if n := count(t, groups.List(c, groups.ListOpts{}), groups.ExtractGroups); n != 2 { // with the default group
		t.Errorf("%d groups", n)
	}
	if g = must[*groups.Group](t)(groups.Update(ctx, c, g.ID, groups.UpdateOpts{Ports: &[]string{}}).Extract()); g.Status != "INACTIVE" || len(g.Ports) != 0 {
		t.Errorf("without ports: %+v", g)
	}
	noError(t, groups.Delete(ctx, c, g.ID).ExtractErr())
	noError(t, policies.Delete(ctx, c, p.ID).ExtractErr())
	noError(t, rules.Delete(ctx, c, web.ID).ExtractErr())
}

// TestFirewallGroupsOverHTTP: paths below /fwaas, statuses of refusals, and what is answered.
func TestFirewallGroupsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{}, neutronv2.NewWithRouting)
	_, machine, router := s.behindRouter(t)
	port := s.interfaceOf(t, router)
	rule := s.create(t, "member", "fwaas/firewall_rules", `{"firewall_rule":{"protocol":"udp","source_port":53}}`)
	for name, want := range map[string]any{
		"source_port": "53", "destination_port": nil, "protocol": "udp", "ip_version": 4.0, "action": "deny", "enabled": true, "shared": false,
		"source_ip_address": nil, "source_firewall_group_id": nil, "destination_firewall_group_id": nil, "project_id": memberProject,
	} {
		if got, there := rule[name]; !there || got != want {
			t.Errorf("rule's %s is %v, want %v", name, got, want)
		}
	}
	policy := s.create(t, "member", "fwaas/firewall_policies", `{"firewall_policy":{"firewall_rules":["`+rule["id"].(string)+`"]}}`)["id"].(string)
	group := s.create(t, "member", "fwaas/firewall_groups", `{"firewall_group":{"egress_firewall_policy_id":"`+policy+`","ports":["`+port+`"]}}`)
	for name, want := range map[string]any{
		"name": "", "description": "", "admin_state_up": true, "shared": false, "status": "ACTIVE", "ingress_firewall_policy_id": nil,
		"egress_firewall_policy_id": policy, "tenant_id": memberProject,
	} {
		if got, there := group[name]; !there || got != want {
			t.Errorf("group's %s is %v, want %v", name, got, want)
		}
	}
	at, item := "/fwaas/firewall_policies/"+policy, "/fwaas/firewall_groups/"+group["id"].(string)
	for _, tt := range []struct {
		who, method, path, body string
		want                    int
	}{
		{"member", http.MethodGet, "/extensions/fwaas_v2", "", 200},
		{"member", http.MethodPut, at + "/insert_rule", `{}`, 400},
		{"member", http.MethodPut, at + "/insert_rule", `{"firewall_rule_id":"` + rule["id"].(string) + `"}`, 409},
		{"member", http.MethodDelete, "/fwaas/firewall_rules/" + rule["id"].(string), "", 409},
		{"member", http.MethodDelete, at, "", 409},
		{"member", http.MethodDelete, item, "", 409},
		{"member", http.MethodPost, "/fwaas/firewall_groups", `{"firewall_group":{"ports":["` + machine + `"]}}`, 409},
		{"member", http.MethodPut, item, `{"firewall_group":{"shared":true}}`, 403},
		{"other", http.MethodGet, item, "", 404},
		{"admin", http.MethodPut, item, `{"firewall_group":{"shared":true}}`, 200},
		{"other", http.MethodGet, item, "", 200},
		{"other", http.MethodPut, item, `{"firewall_group":{"name":"x"}}`, 403},
		{"member", http.MethodGet, "/fw/firewall_rules/" + rule["id"].(string), "", 404},
		{"member", http.MethodPut, item, `{"firewall_group":{"admin_state_up":false}}`, 200},
		{"member", http.MethodDelete, item, "", 204},
		{"admin", http.MethodPut, "/quotas/" + memberProject, `{"quota":{"firewall_group":1}}`, 200},
		{"member", http.MethodPost, "/fwaas/firewall_groups", `{"firewall_group":{}}`, 409},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		if got := s.do(t, tt.who, tt.method, tt.path, body, nil); got.status != tt.want {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, got.status, got.body)
		}
	}
}
