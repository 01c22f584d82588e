package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestRoutedNetworkAnswers: what clients see of a routed network, and that only an administrator
// makes one.
func TestRoutedNetworkAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "id-h1", "h1")
	const ask = `{"network":{"provider:network_type":"routed","shared":true}}`
	s.must(t, http.StatusForbidden, "member", http.MethodPost, "/networks", ask)
	n := s.create(t, "admin", "networks", ask)
	if n["l2_adjacency"] != false || n["provider:network_type"] != "routed" || n["provider:segmentation_id"] != nil || n["provider:physical_network"] != nil {
		t.Errorf("network: %v", n)
	}
	if other := s.create(t, "member", "networks", `{"network":{}}`); other["l2_adjacency"] != true {
		t.Errorf("another network: %v", other)
	}
	id := n["id"].(string)
	s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+id+`","ip_version":4,"cidr":"10.65.0.0/24"}}`)
	p := s.create(t, "admin", "ports", `{"port":{"network_id":"`+id+`","device_id":"vm","binding:host_id":"h1"}}`)
	if details := fmt.Sprint(p["binding:vif_details"]); p["binding:vif_type"] != "tap" || p["status"] != "DOWN" || details != "map[connectivity:l3 port_filter:true]" {
		t.Errorf("port: %v", p)
	}
	// A member sees neither where the port is nor how it is bound, and is told what cannot be done.
	m := s.create(t, "member", "ports", `{"port":{"network_id":"`+id+`"}}`)
	if _, shown := m["binding:vif_type"]; shown {
		t.Errorf("a member's port: %v", m)
	}
	for _, body := range []string{
		`{"port":{"allowed_address_pairs":[{"ip_address":"10.65.0.0/28"}]}}`,
		`{"port":{"port_security_enabled":false,"security_groups":[]}}`,
	} {
		a := s.must(t, http.StatusBadRequest, "admin", http.MethodPut, "/ports/"+m["id"].(string), body)
		if !strings.Contains(string(a.body), "routed network") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	if kv, err := s.st.Get(t.Context(), "/calico/v1/host/h1/workload/openstack/vm/endpoint/"+p["id"].(string)); err != nil ||
		!strings.Contains(string(kv.Value), `"fqdn":"host-10-65-0-`) {
		t.Errorf("endpoint: %s, %v", kv.Value, err)
	}
	for _, port := range []map[string]any{p, m} {
		s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/ports/"+port["id"].(string), nil)
	}
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/networks/"+id, nil)
	if kvs, _, err := s.st.List(t.Context(), "/calico/v1/host/"); err != nil || len(kvs) > 0 {
		t.Errorf("left behind: %v, %v", kvs, err)
	}
}
