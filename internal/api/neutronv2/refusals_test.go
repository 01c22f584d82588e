package neutronv2_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestRefusedOnPurpose: the list of docs/neutron.md names the answers that clients get.
func TestRefusedOnPurpose(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "h1", "host-1")
	page, err := os.ReadFile("../../../docs/neutron.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "## What Heddle refuses on purpose")
	list, _, _ = strings.Cut(list, "\n## ")

	id := func(collection, body string) string { return s.create(t, "admin", collection, body)["id"].(string) }
	network := id("networks", `{"network":{}}`)
	id("subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, network))
	routed := id("networks", `{"network":{"provider:network_type":"routed"}}`)
	subnet := id("subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.9.0.0/24"}}`, routed))
	router, policy := id("routers", `{"router":{}}`), id("qos/policies", `{"policy":{"name":"limits"}}`)
	minimum := id("qos/policies", `{"policy":{"name":"minimum"}}`)
	s.must(t, http.StatusCreated, "admin", http.MethodPost, "/qos/policies/"+minimum+"/minimum_bandwidth_rules", `{"minimum_bandwidth_rule":{"min_kbps":1000}}`)
	agents := s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents", nil).ids("agents")
	dhcp := s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents?agent_type=DHCP%20agent", nil).ids("agents")[0]
	segment := s.must(t, http.StatusOK, "admin", http.MethodGet, "/segments?network_id="+network, nil).ids("segments")[0]
	for _, x := range []struct {
		method, path, body string
		status             int
		errorType          string
	}{
		{"POST", "/networks", `{"network":{"segments":[{"provider:network_type":"vxlan"},{"provider:network_type":"vxlan"}]}}`, 400, "HTTPBadRequest"},
		{"POST", "/segments", fmt.Sprintf(`{"segment":{"network_id":%q,"network_type":"vxlan"}}`, network), 400, "BadRequest"},
		{"DELETE", "/segments/" + segment, "", 409, "SegmentInUse"},
		{"POST", "/routers/" + router + "/conntrack_helpers", `{"conntrack_helper":{"protocol":"tcp","port":21,"helper":"ftp"}}`, 404, "HTTPNotFound"},
		{"POST", "/ports", fmt.Sprintf(`{"port":{"network_id":%q,"qos_policy_id":%q}}`, network, minimum), 409, "QosRuleNotSupported"},
		{"PUT", "/networks/" + network, fmt.Sprintf(`{"network":{"qos_policy_id":%q}}`, minimum), 409, "QosRuleNotSupportedByNetwork"},
		{"PUT", "/networks/" + routed, fmt.Sprintf(`{"network":{"qos_policy_id":%q}}`, policy), 409, "QosRuleNotSupportedByNetwork"},
		{"PUT", "/routers/" + router + "/add_router_interface", fmt.Sprintf(`{"subnet_id":%q}`, subnet), 400, "BadRequest"},
		{"POST", "/ports", fmt.Sprintf(`{"port":{"network_id":%q,"port_security_enabled":false}}`, routed), 400, "InvalidInput"},
		{"POST", "/subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":6,"subnetpool_id":"prefix_delegation"}}`, network), 400, "BadRequest"},
		{"POST", "/ports", fmt.Sprintf(`{"port":{"network_id":%q,"mac_learning_enabled":true}}`, network), 400, "InvalidInput"},
		{"POST", "/fwaas/firewall_rules", fmt.Sprintf(`{"firewall_rule":{"source_firewall_group_id":%q}}`, router), 400, "HTTPBadRequest"},
		{"DELETE", "/agents/" + dhcp + "/dhcp-networks/" + network, "", 409, "NetworkInUse"},
		{"DELETE", "/agents/" + agents[0], "", 409, "AgentInUse"},
	} {
		s.refused(t, x.status, "admin", x.method, x.path, x.body, `"type":"`+x.errorType+`"`)
		if !strings.Contains(list, fmt.Sprintf("%d", x.status)) || !strings.Contains(list, "`"+x.errorType+"`") {
			t.Errorf("docs/neutron.md does not list the answer %d %s to %s %s", x.status, x.errorType, x.method, x.path)
		}
	}
	s.refused(t, http.StatusForbidden, "reader", http.MethodPost, "/networks", `{"network":{}}`, `"type":"PolicyNotAuthorized"`)
}
