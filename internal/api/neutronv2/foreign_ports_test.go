package neutronv2_test

import (
	"fmt"
	"net/http"
	"testing"

	"heddle/internal/control"
)

// TestForeignPorts: no caller makes another project's port serve an own object, neither the owner
// of its network nor one that sees it by the role for ports.
func TestForeignPorts(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	external := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"]
	s.create(t, "admin", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"203.0.113.0/24"}}`, external))
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1"}}`, network))
	second := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":6,"cidr":"2001:db8::/64"}}`, network))["id"]
	s.create(t, "member", "rbac-policies", fmt.Sprintf(`{"rbac_policy":{"object_type":"network","object_id":%q,"action":"access_as_shared","target_tenant":%q}}`, network, otherProject))
	port := s.create(t, "other", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"device_owner":"compute:me"}}`, network))
	router := s.create(t, "member", "routers", fmt.Sprintf(`{"router":{"external_gateway_info":{"network_id":%q}}}`, external))["id"]
	floating := s.create(t, "member", "floatingips", fmt.Sprintf(`{"floatingip":{"floating_network_id":%q}}`, external))["id"]
	s.must(t, http.StatusOK, "member", http.MethodPut, fmt.Sprintf("/routers/%s/add_router_interface", router), fmt.Sprintf(`{"subnet_id":%q}`, second))
	before := first(s.must(t, http.StatusOK, "other", http.MethodGet, fmt.Sprintf("/ports/%s", port["id"]), nil).doc()["port"])
	for _, who := range []string{"member", "service"} {
		s.refused(t, http.StatusForbidden, who, http.MethodPut, fmt.Sprintf("/routers/%s/add_router_interface", router), fmt.Sprintf(`{"port_id":%q}`, port["id"]), "rule:update_port")
		s.refused(t, http.StatusForbidden, who, http.MethodPost, fmt.Sprintf("/floatingips/%s/port_forwardings", floating),
			fmt.Sprintf(`{"port_forwarding":{"protocol":"tcp","internal_port_id":%q,"internal_ip_address":"10.0.0.2","internal_port":22,"external_port":80}}`, port["id"]), "rule:update_port")
		s.refused(t, http.StatusForbidden, who, http.MethodPost, "/ndp_proxies", fmt.Sprintf(`{"ndp_proxy":{"router_id":%q,"port_id":%q}}`, router, port["id"]), "rule:update_port")
	}
	after := first(s.must(t, http.StatusOK, "other", http.MethodGet, fmt.Sprintf("/ports/%s", port["id"]), nil).doc()["port"])
	if before["revision_number"] != after["revision_number"] || after["device_owner"] != "compute:me" {
		t.Errorf("the port is now %v, and was %v", after, before)
	}
}

// TestForeignPortsInTrunks: whether another project's port is in a trunk shows in no answer.
func TestForeignPortsInTrunks(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	port := func(who string) string {
		network := s.create(t, who, "networks", `{"network":{}}`)["id"].(string)
		return s.create(t, who, "ports", `{"port":{"network_id":"`+network+`"}}`)["id"].(string)
	}
	parent, child := port("other"), port("other")
	const subport = `"sub_ports":[{"port_id":%q,"segmentation_type":"vlan","segmentation_id":7}]`
	s.create(t, "other", "trunks", fmt.Sprintf(`{"trunk":{"port_id":%q,`+subport+`}}`, parent, child))
	trunk := s.create(t, "member", "trunks", fmt.Sprintf(`{"trunk":{"port_id":%q}}`, port("member")))["id"]
	for _, foreign := range []string{parent, child, missingID} {
		s.refused(t, http.StatusNotFound, "member", http.MethodPut, fmt.Sprintf("/trunks/%s/add_subports", trunk), fmt.Sprintf("{"+subport+"}", foreign), "PortNotFound")
		s.refused(t, http.StatusNotFound, "member", http.MethodPost, "/trunks", fmt.Sprintf(`{"trunk":{"port_id":%q}}`, foreign), "PortNotFound")
	}
}
