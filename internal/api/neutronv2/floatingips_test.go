package neutronv2_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"

	"heddle/internal/api/neutronv2"
	"heddle/internal/control"
)

// TestRecordedAnswersOfFloatingIPs sends what was once sent to the reference about floating IPs.
func TestRecordedAnswersOfFloatingIPs(t *testing.T) {
	t.Parallel()
	newServerOf(t, control.Options{Ordered: true}, neutronv2.NewWithRouting).playRecorded(t, "testdata/recorded_floatingips.jsonl")
}

// TestRecordedAnswersOfRouting does the same with what the probes do not ask: refusals, pools, and
// combinations of gateways, interfaces and floating IPs.
func TestRecordedAnswersOfRouting(t *testing.T) {
	t.Parallel()
	newServer(t, control.Options{Ordered: true}).playRecorded(t, "testdata/recorded_routing.jsonl")
}

// TestFloatingIPPools: every IPv4 subnet of an external network is one, which anybody sees; lists
// are filtered, sorted and cut into pages.
func TestFloatingIPPools(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	external := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"].(string)
	internal := s.create(t, "admin", "networks", `{"network":{}}`)["id"].(string)
	var ids []string
	for _, body := range []string{
		`"network_id":"` + external + `","ip_version":4,"cidr":"172.24.4.0/24","name":"b"`,
		`"network_id":"` + external + `","ip_version":4,"cidr":"172.24.5.0/24","name":"a"`,
		`"network_id":"` + external + `","ip_version":6,"cidr":"2001:db8::/64"`,
		`"network_id":"` + internal + `","ip_version":4,"cidr":"10.0.0.0/24"`,
	} {
		ids = append(ids, s.create(t, "admin", "subnets", `{"subnet":{`+body+`}}`)["id"].(string))
	}
	for _, tt := range []struct {
		query string
		want  []string // names
	}{
		{"sort_key=subnet_name&sort_dir=asc", []string{"a", "b"}},
		{"subnet_name=b", []string{"b"}},
		{"network_id=" + internal, nil},
		{"limit=1&sort_key=cidr&sort_dir=asc", []string{"b"}},
		{"limit=1&sort_key=cidr&sort_dir=asc&marker=" + ids[0], []string{"a"}},
	} {
		var got []string
		for _, pool := range list(s.do(t, "member", http.MethodGet, "/floatingip_pools?"+tt.query, nil, nil).doc()["floatingip_pools"]) {
			got = append(got, pool.(map[string]any)["subnet_name"].(string))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
	for id, want := range map[string]int{ids[0]: http.StatusOK, ids[2]: http.StatusNotFound, ids[3]: http.StatusNotFound, "x": http.StatusNotFound} {
		if got := s.do(t, "member", http.MethodGet, "/floatingip_pools/"+id, nil, nil); got.status != want {
			t.Errorf("pool %s: %d, want %d: %s", id, got.status, want, got.body)
		}
	}
	if got := s.do(t, "admin", http.MethodPost, "/floatingip_pools", `{"floatingip_pool":{}}`, nil); got.status != http.StatusMethodNotAllowed {
		t.Errorf("made: %d %s", got.status, got.body)
	}
}

// TestGophercloudFloatingIPs: an outside client makes a floating IP, associates it, and takes it
// away again.
func TestGophercloudFloatingIPs(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{}, neutronv2.NewWithRouting)
	ctx, c := t.Context(), s.client("member")
	external, port, router := s.behindRouter(t)
	f := must[*floatingips.FloatingIP](t)(floatingips.Create(ctx, c, floatingips.CreateOpts{FloatingNetworkID: external, Description: "d"}).Extract())
	if f.Status != "DOWN" || f.PortID != "" || f.FixedIP != "" || f.Description != "d" || f.FloatingIP == "" {
		t.Errorf("made %+v", f)
	}
	f = must[*floatingips.FloatingIP](t)(floatingips.Update(ctx, c, f.ID, floatingips.UpdateOpts{PortID: &port}).Extract())
	if f.Status != "ACTIVE" || f.PortID != port || f.RouterID != router || f.FixedIP != "10.0.0.9" {
		t.Errorf("associated %+v", f)
	}
	for _, opts := range []floatingips.ListOpts{{PortID: port}, {RouterID: router}, {FloatingIP: f.FloatingIP}, {FloatingNetworkID: external}, {Status: "ACTIVE"},
		{FixedIP: "10.0.0.9"}} {
		if n := count(t, floatingips.List(c, opts), floatingips.ExtractFloatingIPs); n != 1 {
			t.Errorf("%+v finds %d", opts, n)
		}
	}
	if n := count(t, floatingips.List(c, floatingips.ListOpts{Status: "DOWN"}), floatingips.ExtractFloatingIPs); n != 0 {
		t.Errorf("%d are down", n)
	}
	details := s.do(t, "member", http.MethodGet, "/floatingips/"+f.ID+"?fields=port_details", nil, nil).doc()["floatingip"].(map[string]any)["port_details"].(map[string]any)
	if details["device_owner"] != "compute:nova" || details["admin_state_up"] != true || len(details) != 7 {
		t.Errorf("details %v", details)
	}
	if got := s.do(t, "member", http.MethodPut, "/floatingips/"+f.ID+"/tags/red", nil, nil); got.status != http.StatusCreated {
		t.Errorf("tag: %d %s", got.status, got.body)
	}
	nothing := ""
	f = must[*floatingips.FloatingIP](t)(floatingips.Update(ctx, c, f.ID, floatingips.UpdateOpts{PortID: &nothing}).Extract())
	if f.Status != "DOWN" || f.PortID != "" || len(f.Tags) != 1 {
		t.Errorf("disassociated %+v", f)
	}
	noError(t, floatingips.Delete(ctx, c, f.ID).ExtractErr())
}

// behindRouter makes a port 10.0.0.9 of a machine behind a router with a gateway.
func (s *server) behindRouter(t *testing.T) (external, port, router string) {
	t.Helper()
	external = s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"].(string)
	s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+external+`","ip_version":4,"cidr":"172.24.4.0/24"}}`)
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	subnet := s.create(t, "member", "subnets", `{"subnet":{"network_id":"`+network+`","ip_version":4,"cidr":"10.0.0.0/24"}}`)["id"].(string)
	port = s.create(t, "member", "ports", `{"port":{"network_id":"`+network+`","device_owner":"compute:nova","fixed_ips":[{"ip_address":"10.0.0.9"}]}}`)["id"].(string)
	router = s.create(t, "member", "routers", `{"router":{"external_gateway_info":{"network_id":"`+external+`"}}}`)["id"].(string)
	if got := s.do(t, "member", http.MethodPut, "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+subnet+`"}`, nil); got.status != http.StatusOK {
		t.Fatalf("interface: %d %s", got.status, got.body)
	}
	return external, port, router
}

// TestFirewallsOverHTTP: paths below /fw, rules that move, and what is answered of each kind.
func TestFirewallsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{}, neutronv2.NewWithRouting)
	_, _, router := s.behindRouter(t)
	first := s.create(t, "member", "fw/firewall_rules", `{"firewall_rule":{"protocol":"tcp","destination_port":80,"action":"allow"}}`)
	for name, want := range map[string]any{
		"destination_port": "80", "source_port": nil, "protocol": "tcp", "ip_version": 4.0, "action": "allow", "position": nil, "firewall_policy_id": nil,
		"enabled": true, "shared": false, "source_ip_address": nil,
	} {
		if got, there := first[name]; !there || got != want {
			t.Errorf("rule's %s is %v, want %v", name, got, want)
		}
	}
	second := s.create(t, "member", "fw/firewall_rules", `{"firewall_rule":{}}`)["id"].(string)
	id := first["id"].(string)
	policy := s.create(t, "member", "fw/firewall_policies", `{"firewall_policy":{"firewall_rules":["`+id+`"],"audited":true}}`)["id"].(string)
	firewall := s.create(t, "member", "fw/firewalls", `{"firewall":{"firewall_policy_id":"`+policy+`"}}`)
	if firewall["status"] != "ACTIVE" || len(list(firewall["router_ids"])) != 1 || list(firewall["router_ids"])[0] != router {
		t.Errorf("firewall %v", firewall)
	}
	at := "/fw/firewall_policies/" + policy
	got := s.do(t, "member", http.MethodPut, at+"/insert_rule", `{"firewall_rule_id":"`+second+`","insert_after":"`+id+`"}`, nil)
	if rules := list(got.doc()["firewall_rules"]); got.status != http.StatusOK || len(rules) != 2 || rules[1] != second {
		t.Errorf("insert: %d %s", got.status, got.body)
	}
	if r := s.do(t, "member", http.MethodGet, "/fw/firewall_rules/"+second, nil, nil).doc()["firewall_rule"].(map[string]any); r["position"] != 2.0 || r["firewall_policy_id"] != policy {
		t.Errorf("rule %v", r)
	}
	if got := s.do(t, "member", http.MethodPut, at+"/remove_rule", `{"firewall_rule_id":"`+id+`"}`, nil); got.status != http.StatusOK || len(list(got.doc()["firewall_rules"])) != 1 {
		t.Errorf("remove: %d %s", got.status, got.body)
	}
	for _, tt := range []struct {
		who, method, path, body string
		want                    int
	}{
		{"member", http.MethodPut, at + "/insert_rule", `{}`, 400},
		{"member", http.MethodDelete, "/fw/firewall_rules/" + second, "", 409},
		{"member", http.MethodDelete, at, "", 409},
		{"other", http.MethodGet, "/fw/firewalls/" + firewall["id"].(string), "", 404},
		{"other", http.MethodPut, at + "/remove_rule", `{"firewall_rule_id":"` + second + `"}`, 404},
		{"member", http.MethodPut, "/fw/firewalls/" + firewall["id"].(string), `{"firewall":{"router_ids":[]}}`, 200},
		{"member", http.MethodGet, "/firewalls", "", 404},
		{"member", http.MethodPut, "/quotas/" + memberProject, `{"quota":{"firewall":1}}`, 403},
		{"admin", http.MethodPut, "/quotas/" + memberProject, `{"quota":{"firewall":1}}`, 200},
		{"member", http.MethodPost, "/fw/firewalls", `{"firewall":{"firewall_policy_id":"` + policy + `"}}`, 409},
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
