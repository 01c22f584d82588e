package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestTapRefusals holds what is refused of taps against the reference's words.
func TestTapRefusals(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	const nowhere = "99999999-1111-1111-1111-111111111111"
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	port := func(who string) string {
		return s.create(t, who, "ports", `{"port":{"network_id":"`+network+`","project_id":"`+map[string]string{"member": memberProject, "admin": otherProject}[who]+`"}}`)["id"].(string)
	}
	monitor, source, others := port("member"), port("member"), port("admin")
	service := s.create(t, "member", "taas/tap_services", `{"tap_service":{"port_id":"`+monitor+`"}}`)["id"].(string)
	foreign := s.create(t, "admin", "taas/tap_services", `{"tap_service":{"port_id":"`+others+`","project_id":"`+otherProject+`"}}`)["id"].(string)
	const services, flows = "/taas/tap_services", "/taas/tap_flows"
	flow := func(service, source, more string) string {
		return fmt.Sprintf(`{"tap_flow":{"tap_service_id":%q,"source_port":%q%s}}`, service, source, more)
	}
	made := s.create(t, "member", "taas/tap_flows", flow(service, source, `,"direction":"BOTH","vlan_filter":"189,279,999-1008"`))
	if made["vlan_filter"] != "189,279,999-1008" || made["status"] != "DOWN" {
		t.Errorf("made flow %v", made)
	}
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		want                    string
	}{
		{"member", "POST", services, `{"tap_service":{}}`, 400, "Required attribute 'port_id' not specified"},
		{"member", "POST", services, `{"tap_service":{"port_id":"x"}}`, 400, "Invalid input for port_id. Reason: 'x' is not a valid UUID."},
		{"member", "POST", services, `{"tap_service":{"port_id":"` + nowhere + `"}}`, 404, "Port " + nowhere + " could not be found."},
		{"member", "POST", services, `{"tap_service":{"port_id":"` + others + `"}}`, 403, `"type":"PortDoesNotBelongToTenant","message":"The specified port does not belong to the tenant"`},
		{"admin", "POST", services, `{"tap_service":{"port_id":"` + monitor + `"}}`, 403, "PortDoesNotBelongToTenant"},
		{"reader", "POST", services, `{"tap_service":{"port_id":"` + monitor + `"}}`, 403, "rule:create_tap_service is disallowed by policy"},
		{"member", "PUT", services + "/" + service, `{"tap_service":{"port_id":"` + source + `"}}`, 400, "Cannot update read-only attribute port_id"},
		{"member", "PUT", services + "/" + service, `{"tap_service":{"description":"d"}}`, 200, `"description":"d"`},
		{"member", "GET", services + "/" + nowhere, "", 404, `"type":"TapServiceNotFound","message":"Tap Service  ` + nowhere + ` does not exist"`},
		{"other", "GET", services, "", 200, `"id":"` + foreign + `"`},
		{"member", "GET", services + "?port_id=" + monitor + "&fields=port_id", "", 200, `{"tap_services":[{"port_id":"` + monitor + `"}]}`},

		{"member", "POST", flows, flow(service, source, ``), 400, "Required attribute 'direction' not specified"},
		{"member", "POST", flows, flow(service, source, `,"direction":"UP"`), 400, "Invalid input for direction. Reason: UP is not in valid_values."},
		{"member", "POST", flows, flow(nowhere, source, `,"direction":"IN"`), 404, "Tap Service  " + nowhere + " does not exist"},
		{"member", "POST", flows, flow(service, nowhere, `,"direction":"IN"`), 404, "Port " + nowhere + " could not be found."},
		{"member", "POST", flows, flow(service, monitor, `,"direction":"IN"`), 400, "Bad tap_flow request: Port " + monitor + " is that of tap service " + service + " itself."},
		{"member", "POST", flows, flow(service, others, `,"direction":"IN"`), 403, "PortDoesNotBelongToTenant"},
		{"admin", "POST", flows, flow(service, source, `,"direction":"IN"`), 403, `"type":"TapServiceNotBelongToTenant","message":"Specified Tap Service does not belong to the tenant"`},
		{"admin", "POST", flows, flow(service, others, `,"direction":"IN","project_id":"`+memberProject+`"`), 201, `"source_port":"` + others + `"`},
		{"reader", "POST", flows, flow(service, source, `,"direction":"IN"`), 403, "rule:create_tap_flow is disallowed by policy"},
		{"member", "POST", flows, flow(service, source, `,"direction":"IN","vlan_filter":"1;2"`), 400, "Invalid input for vlan_filter. Reason: '1;2' is not a valid input."},
		{"member", "POST", flows, flow(service, source, `,"direction":"IN","vlan_filter":"4096"`), 400, "'4096' is not a valid input."},
		{"member", "POST", flows, flow(service, source, `,"direction":"IN","vlan_filter":"7-3"`), 400, "'7-3' is not a valid input."},
		{"member", "POST", flows, flow(service, source, `,"direction":"IN","vlan_filter":null`), 201, `"vlan_filter":null`},
		{"member", "PUT", fmt.Sprint(flows, "/", made["id"]), `{"tap_flow":{"direction":"IN"}}`, 400, "Cannot update read-only attribute direction"},
		{"member", "PUT", fmt.Sprint(flows, "/", made["id"]), `{"tap_flow":{"name":"n"}}`, 200, `"name":"n"`},
		{"member", "DELETE", flows + "/" + nowhere, "", 404, `"type":"TapFlowNotFound","message":"Tap Flow  ` + nowhere + ` does not exist"`},

		{"member", "GET", "/taas/tap-services/" + service, "", 200, `"id":"` + service + `"`},
		{"member", "GET", "/taas/tap-flows?name=n&fields=name", "", 200, `{"tap_flows":[{"name":"n"}]}`},
		{"member", "POST", "/taas/tap_mirrors", `{"tap_mirror":{}}`, 501, "TapMirrorNotSupported"},
		{"member", "GET", "/taas/tap_mirrors/" + nowhere, "", 501, "TapMirrorNotSupported"},
		{"member", "GET", "/extensions/taas-vlan-filter", "", 200, `"alias":"taas-vlan-filter"`},
	} {
		s.refused(t, tt.status, tt.who, tt.method, tt.path, tt.body, tt.want)
	}
}

// TestTapsOfRouters: copies are not sent into routers, nor is what passes no bridge copied.
func TestTapsOfRouters(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	subnet := s.create(t, "member", "subnets", `{"subnet":{"network_id":"`+network+`","ip_version":4,"cidr":"10.0.0.0/24"}}`)["id"].(string)
	router := s.create(t, "member", "routers", `{"router":{}}`)["id"].(string)
	s.must(t, http.StatusOK, "member", "PUT", "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+subnet+`"}`)
	list := s.must(t, http.StatusOK, "member", "GET", "/ports?device_id="+router+"&fields=id", nil)
	id := strings.Split(string(list.body), `"`)[5]
	monitor := s.create(t, "member", "ports", `{"port":{"network_id":"`+network+`"}}`)["id"].(string)
	service := s.create(t, "member", "taas/tap_services", `{"tap_service":{"port_id":"`+monitor+`"}}`)["id"].(string)
	s.refused(t, http.StatusBadRequest, "member", "POST", "/taas/tap_services", `{"tap_service":{"port_id":"`+id+`"}}`, "is one of a router")
	s.refused(t, http.StatusCreated, "member", "POST", "/taas/tap_flows", `{"tap_flow":{"tap_service_id":"`+service+`","source_port":"`+id+`","direction":"BOTH"}}`, `"source_port":"`+id+`"`)
}
