package neutronv2_test

import (
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestLocalIPs: local IPs and their associations, by both spellings of their path, for their
// project, its readers and others.
func TestLocalIPs(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	s.create(t, "member", "subnets", `{"subnet":{"network_id":"`+network+`","ip_version":4,"cidr":"10.0.0.0/24"}}`)
	port := s.create(t, "member", "ports", `{"port":{"network_id":"`+network+`","fixed_ips":[{"ip_address":"10.0.0.7"}]}}`)["id"].(string)
	made := s.must(t, http.StatusCreated, "member", http.MethodPost, "/local-ips", `{"local_ip":{"network_id":"`+network+`","local_ip_address":"10.0.0.99"}}`).doc()
	l := made["local_ip"].(map[string]any)
	for name, want := range map[string]any{"network_id": network, "local_ip_address": "10.0.0.99", "ip_mode": "translate", "name": "", "description": "", "project_id": memberProject} {
		if l[name] != want {
			t.Errorf("%s is %v, want %v", name, l[name], want)
		}
	}
	for _, name := range []string{"id", "local_port_id", "tenant_id", "revision_number", "created_at", "updated_at"} {
		if l[name] == nil {
			t.Errorf("the answer has no %s: %v", name, l)
		}
	}
	item := "/local_ips/" + l["id"].(string)
	below := item + "/port_associations"
	body := `{"port_association":{"fixed_port_id":"` + port + `"}}`
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		want                    string
	}{
		{"member", http.MethodPut, item, `{"local_ip":{"name":"cache"}}`, http.StatusOK, `"name":"cache"`},
		{"member", http.MethodPut, item, `{"local_ip":{"ip_mode":"passthrough"}}`, http.StatusBadRequest, "Cannot update read-only attribute ip_mode"},
		{"reader", http.MethodPut, item, `{"local_ip":{"name":"x"}}`, http.StatusForbidden, "rule:update_local_ip is disallowed by policy"},
		{"reader", http.MethodGet, "/local-ips?name=cache&ip_mode=translate", "", http.StatusOK, `"local_ip_address":"10.0.0.99"`},
		{"other", http.MethodGet, "/local-ips", "", http.StatusOK, `"local_ips":[]`},
		{"other", http.MethodGet, item, "", http.StatusNotFound, "LocalIPNotFound"},
		{"member", http.MethodPost, below, `{"port_association":{}}`, http.StatusBadRequest, "Required attribute 'fixed_port_id' not specified"},
		{"reader", http.MethodPost, below, body, http.StatusForbidden, "rule:create_local_ip_port_association is disallowed by policy"},
		{"other", http.MethodPost, below, body, http.StatusNotFound, "LocalIPNotFound"},
		{"member", http.MethodPost, below, body, http.StatusCreated, `"fixed_ip":"10.0.0.7","host":""`},
		{"reader", http.MethodGet, below + "?fixed_ip=10.0.0.7", "", http.StatusOK, `"fixed_port_id":"` + port + `"`},
		{"reader", http.MethodGet, below + "?fixed_ip=10.0.0.8", "", http.StatusOK, `"port_associations":[]`},
		{"reader", http.MethodGet, strings.Replace(below, "_", "-", 1) + "/" + port, "", http.StatusOK, `"local_ip_address":"10.0.0.99"`},
		{"other", http.MethodGet, below, "", http.StatusNotFound, "LocalIPNotFound"},
		{"member", http.MethodGet, below + "/x", "", http.StatusNotFound, "LocalIPAssociationNotFound"},
		{"member", http.MethodDelete, item, "", http.StatusConflict, "LocalIPInUse"},
		{"reader", http.MethodDelete, below + "/" + port, "", http.StatusForbidden, "rule:delete_local_ip_port_association is disallowed by policy"},
		{"member", http.MethodDelete, below + "/" + port, "", http.StatusNoContent, ""},
		{"member", http.MethodDelete, "/ports/" + l["local_port_id"].(string), "", http.StatusConflict, "ServicePortInUse"},
		{"member", http.MethodDelete, item, "", http.StatusNoContent, ""},
		{"member", http.MethodGet, "/ports/" + l["local_port_id"].(string), "", http.StatusNotFound, "PortNotFound"},
	} {
		var sent any
		if tt.body != "" {
			sent = tt.body
		}
		if got := s.do(t, tt.who, tt.method, tt.path, sent, nil); got.status != tt.status || !strings.Contains(string(got.body), tt.want) {
			t.Errorf("%s %s %s as %s: %d %s, want %d with %s", tt.method, tt.path, tt.body, tt.who, got.status, got.body, tt.status, tt.want)
		}
	}
}
