package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestLBaaSv2: a balancer is made, shown and deleted at Neutron's API, whose deletes refuse what
// has children.
func TestLBaaSv2(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	sub := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, n))["id"].(string)
	lb := s.create(t, "member", "lbaas/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+sub+`","vip_address":"10.0.0.10"}}`)
	id := lb["id"].(string)
	if lb["vip_address"] != "10.0.0.10" || lb["provisioning_status"] != "ACTIVE" || lb["operating_status"] != "ONLINE" || lb["provider"] != "heddle" {
		t.Errorf("load balancer: %v", lb)
	}
	port := s.must(t, http.StatusOK, "member", http.MethodGet, "/ports/"+lb["vip_port_id"].(string), nil).doc()["port"].(map[string]any)
	if port["device_owner"] != "neutron:LOADBALANCERV2" || port["device_id"] != id || port["name"] != "loadbalancer-"+id || port["port_security_enabled"] != true {
		t.Errorf("port: %v", port)
	}
	l := s.create(t, "member", "lbaas/listeners", `{"listener":{"loadbalancer_id":"`+id+`","protocol":"TCP","protocol_port":80}}`)["id"].(string)
	p := s.create(t, "member", "lbaas/pools", `{"pool":{"listener_id":"`+l+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN","session_persistence":{"type":"SOURCE_IP"}}}`)["id"].(string)
	m := s.create(t, "member", "lbaas/pools/"+p+"/members", `{"member":{"address":"10.0.0.11","protocol_port":80,"subnet_id":"`+sub+`"}}`)["id"].(string)
	h := s.create(t, "member", "lbaas/healthmonitors", `{"healthmonitor":{"pool_id":"`+p+`","type":"HTTP","delay":5,"timeout":3,"max_retries":2}}`)["id"].(string)
	for _, x := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{http.MethodPost, "/lbaas/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"HTTP","protocol_port":80}}`, 409, "LoadBalancerListenerProtocolPortExists"},
		{http.MethodPost, "/lbaas/pools", `{"pool":{"listener_id":"LISTENER","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}}`, 409, "OnePoolPerListener"},
		{http.MethodPost, "/lbaas/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"TCP","delay":5,"timeout":3,"max_retries":2}}`, 409, "OneHealthMonitorPerPool"},
		{http.MethodPost, "/lbaas/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"TCP","delay":2,"timeout":3,"max_retries":2}}`, 409, "OneHealthMonitorPerPool"},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"delay":2}}`, 400, "Delay must be greater than or equal to timeout"},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"delay":86401}}`, 400, "Invalid input for delay. Reason: '86401' is too large - must be no larger than '86400'."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"timeout":2147483647}}`, 400, "Invalid input for timeout. Reason: '2147483647' is too large - must be no larger than '86400'."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"expected_codes":"299-200"}}`, 400, "Invalid input for expected_codes. Reason: the range '299-200' ends below its first code."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"http_method":"GET x"}}`, 400, "Invalid input for http_method. Reason: GET x is not in valid_values."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"http_method":"GET\r\nX-A: b"}}`, 400, "Invalid input for http_method."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"http_method":"\u0000"}}`, 400, "Invalid input for http_method."},
		{http.MethodPut, "/lbaas/healthmonitors/MONITOR", `{"healthmonitor":{"http_method":"HEAD","expected_codes":"200-299"}}`, 200, `"http_method":"HEAD"`},
		{http.MethodPost, "/lbaas/pools/POOL/members", `{"member":{"address":"10.0.0.11","protocol_port":80,"subnet_id":"SUBNET"}}`, 409, "MemberExists"},
		{http.MethodPost, "/lbaas/pools/POOL/members", `{"member":{"address":"10.0.0.10","protocol_port":80,"subnet_id":"SUBNET"}}`, 400, "member address"},
		{http.MethodPost, "/lbaas/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"SUBNET","provider":"haproxy"}}`, 404, "ProviderNotFound"},
		{http.MethodDelete, "/lbaas/loadbalancers/LB", "", 409, "EntityInUse"},
		{http.MethodDelete, "/lbaas/pools/POOL", "", 409, "EntityInUse"},
		{http.MethodGet, "/lbaas/loadbalancers/nosuch", "", 404, "EntityNotFound"},
		{http.MethodGet, "/lbaas/loadbalancers/LB/statuses", "", 200, `"health_monitor"`},
		{http.MethodGet, "/lbaas/loadbalancers/LB/stats", "", 200, `"total_connections":0`},
		{http.MethodGet, "/lbaas/pools/POOL/members?address=10.0.0.11", "", 200, `"operating_status"`},
	} {
		fill := strings.NewReplacer("LISTENER", l, "LB", id, "POOL", p, "MONITOR", h, "SUBNET", sub)
		var body any
		if x.body != "" {
			body = fill.Replace(x.body)
		}
		a := s.must(t, x.status, "member", x.method, fill.Replace(x.path), body)
		if x.text == `"operating_status"` {
			continue // a member of LBaaS v2 has no status: the tree of statuses has
		}
		if !strings.Contains(string(a.body), x.text) {
			t.Errorf("%s %s %s: %s, want %q", x.method, x.path, x.body, a.body, x.text)
		}
	}
	for _, path := range []string{"/lbaas/healthmonitors/" + h, "/lbaas/pools/" + p + "/members/" + m, "/lbaas/listeners/" + l, "/lbaas/pools/" + p, "/lbaas/loadbalancers/" + id} {
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, path, nil)
	}
	s.must(t, http.StatusNotFound, "member", http.MethodGet, "/ports/"+lb["vip_port_id"].(string), nil)
}

// TestLBaaSv1: pools of a router at Neutron's API, and the association of health monitors.
func TestLBaaSv1(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	sub := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, n))["id"].(string)
	pool := `{"pool":{"subnet_id":"` + sub + `","protocol":"TCP","lb_method":"ROUND_ROBIN"}}`
	if a := s.must(t, http.StatusNotFound, "member", http.MethodPost, "/lb/pools", pool); !strings.Contains(string(a.body), "NoEligibleBackend") {
		t.Errorf("a pool without a router: %s", a.body)
	}
	router := s.create(t, "member", "routers", `{"router":{}}`)["id"].(string)
	s.must(t, http.StatusOK, "member", http.MethodPut, "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+sub+`"}`)
	p := s.create(t, "member", "lb/pools", pool)["id"].(string)
	vip := s.create(t, "member", "lb/vips", `{"vip":{"subnet_id":"`+sub+`","protocol":"TCP","protocol_port":80,"pool_id":"`+p+`","address":"10.0.0.40"}}`)
	m := s.create(t, "member", "lb/members", `{"member":{"pool_id":"`+p+`","address":"10.0.0.11","protocol_port":80}}`)
	h := s.create(t, "member", "lb/health_monitors", `{"health_monitor":{"type":"TCP","delay":5,"timeout":3,"max_retries":2}}`)["id"].(string)
	if vip["status"] != "ACTIVE" || m["status"] != "ACTIVE" || m["weight"] != float64(1) {
		t.Errorf("vip %v, member %v", vip, m)
	}
	a := s.must(t, http.StatusCreated, "member", http.MethodPost, "/lb/pools/"+p+"/health_monitors", `{"health_monitor":{"id":"`+h+`"}}`)
	if !strings.Contains(string(a.body), h) {
		t.Errorf("association: %s", a.body)
	}
	shown := s.must(t, http.StatusOK, "member", http.MethodGet, "/lb/pools/"+p, nil).doc()["pool"].(map[string]any)
	if shown["vip_id"] != vip["id"] || len(shown["members"].([]any)) != 1 || len(shown["health_monitors"].([]any)) != 1 {
		t.Errorf("pool: %v", shown)
	}
	s.must(t, http.StatusOK, "member", http.MethodGet, "/lb/pools/"+p+"/stats.json", nil)
	s.must(t, http.StatusBadRequest, "member", http.MethodPut, "/lb/pools/"+p, `{"pool":{"health_monitors":[]}}`)
	s.must(t, http.StatusBadRequest, "member", http.MethodPut, "/lb/vips/"+vip["id"].(string), `{"vip":{"session_persistence":{"type":"HTTP_COOKIE"}}}`)
	for field, value := range map[string]string{"http_method": `"GET x"`, "expected_codes": `"299-200"`, "delay": "86401", "timeout": "86401"} {
		monitor := `{"health_monitor":{"type":"HTTP","delay":5,"timeout":3,"max_retries":2}}`
		made := s.create(t, "member", "lb/health_monitors", monitor)["id"].(string)
		a := s.must(t, http.StatusBadRequest, "member", http.MethodPut, "/lb/health_monitors/"+made, `{"health_monitor":{"`+field+`":`+value+`}}`)
		if !strings.Contains(string(a.body), "Invalid input for "+field) {
			t.Errorf("%s %s: %s", field, value, a.body)
		}
	}
	s.must(t, http.StatusNotFound, "other", http.MethodGet, "/lb/pools/"+p, nil)
	s.must(t, http.StatusNotFound, "member", http.MethodGet, "/lbaas/pools/"+p, nil)
	for path, want := range map[string]string{"/lb/pools/" + p: "PoolInUse", "/lb/health_monitors/" + h: "HealthMonitorInUse", "/lb/vips/nosuch": "VipNotFound"} {
		if a := s.do(t, "member", http.MethodDelete, path, nil, nil); !strings.Contains(string(a.body), want) {
			t.Errorf("DELETE %s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
	for _, path := range []string{"/lb/pools/" + p + "/health_monitors/" + h, "/lb/health_monitors/" + h, "/lb/vips/" + vip["id"].(string), "/lb/pools/" + p, "/lb/members/" + m["id"].(string)} {
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, path, nil)
	}
}
