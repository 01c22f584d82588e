package neutronv2_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
)

// TestPortDevices: what ports say to those who make their devices is kept and answered, and only
// admins see and set hints and trust.
func TestPortDevices(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	p := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"propagate_uplink_status":false,"device_profile":"fpga",
		"numa_affinity_policy":"legacy","trusted":true,"hints":{"openvswitch":{"other_config":{"tx-steering":"hash"}}}}}`, n))
	shown := func(p map[string]any) []any {
		return []any{p["propagate_uplink_status"], p["device_profile"], p["numa_affinity_policy"], p["trusted"], p["hints"], p["binding:profile"]}
	}
	hints := map[string]any{"openvswitch": map[string]any{"other_config": map[string]any{"tx-steering": "hash"}}}
	if d := cmp.Diff([]any{false, "fpga", "legacy", true, hints, map[string]any{"trusted": "true"}}, shown(p)); d != "" {
		t.Errorf("created: %s", d)
	}
	path := fmt.Sprintf("/ports/%s", p["id"])
	update := func(body string) map[string]any {
		return first(s.must(t, http.StatusOK, "admin", http.MethodPut, path, body).doc()["port"])
	}
	p = update(`{"port":{"numa_affinity_policy":null,"trusted":false,"hints":null,"binding:profile":{"a":"b"}}}`)
	if d := cmp.Diff([]any{false, "fpga", nil, false, nil, map[string]any{"a": "b", "trusted": "false"}}, shown(p)); d != "" {
		t.Errorf("updated: %s", d)
	}
	if p = update(`{"port":{"trusted":null}}`); !cmp.Equal(p["binding:profile"], any(map[string]any{"a": "b"})) || p["trusted"] != nil {
		t.Errorf("trust not said: %v", p)
	}
	for _, body := range []string{`{"trusted":"maybe"}`, `{"hints":5}`, `{"hints":{}}`, `{"hints":{"zzz":{}}}`, `{"hints":{"openvswitch":{"other_config":{"tx-steering":"zzz"}}}}`,
		`{"numa_affinity_policy":"zzz"}`, `{"device_profile":"x"}`, `{"propagate_uplink_status":true}`} {
		s.must(t, http.StatusBadRequest, "admin", http.MethodPut, path, `{"port":`+body+`}`)
	}
	own := s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, n))
	for _, attribute := range []string{"trusted", "hints"} {
		if v, seen := own[attribute]; seen {
			t.Errorf("a member sees %s: %v", attribute, v)
		}
	}
	if own["propagate_uplink_status"] != true || own["device_profile"] != nil {
		t.Errorf("a port without any: %v", own)
	}
	s.refused(t, http.StatusForbidden, "member", http.MethodPut, fmt.Sprintf("/ports/%s", own["id"]), `{"port":{"trusted":true}}`, "rule:update_port:trusted")
}

// TestMACLearning: mac_learning_enabled follows from port security, and is refused where it would
// not be true.
func TestMACLearning(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	for body, learns := range map[string]any{
		``:                               nil,
		`,"mac_learning_enabled":false`:  false,
		`,"port_security_enabled":false`: nil,
		`,"port_security_enabled":false,"mac_learning_enabled":true`: true,
	} {
		if p := s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q%s}}`, n, body)); p["mac_learning_enabled"] != learns {
			t.Errorf("port of %s: learns %v", body, p["mac_learning_enabled"])
		}
	}
	for body, text := range map[string]string{
		fmt.Sprintf(`{"network_id":%q,"mac_learning_enabled":true}`, n):                                "needs port_security_enabled to be false",
		fmt.Sprintf(`{"network_id":%q,"port_security_enabled":false,"mac_learning_enabled":false}`, n): "a port without port security learns",
	} {
		s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, "/ports", `{"port":`+body+`}`, text)
	}
	path := fmt.Sprintf("/ports/%s", s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, n))["id"])
	s.refused(t, http.StatusBadRequest, "member", http.MethodPut, path, `{"port":{"mac_learning_enabled":true}}`, "InvalidInput")
	s.refused(t, http.StatusOK, "member", http.MethodPut, path,
		`{"port":{"security_groups":[],"port_security_enabled":false,"mac_learning_enabled":true}}`, `"mac_learning_enabled":true`)
}

// TestPortIPAllocation: a port that asks for no addresses says so, until it asks for some.
func TestPortIPAllocation(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	sub := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, n))["id"]
	p := s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"fixed_ips":[]}}`, n))
	if p["ip_allocation"] != "none" {
		t.Errorf("without addresses: %v", p)
	}
	path := fmt.Sprintf("/ports/%s", p["id"])
	if ids := s.must(t, http.StatusOK, "member", http.MethodGet, "/ports?ip_allocation=none", nil).ids("ports"); len(ids) != 1 {
		t.Errorf("found %v", ids)
	}
	for body, want := range map[string]string{fmt.Sprintf(`[{"subnet_id":%q}]`, sub): "immediate", `[]`: "none"} {
		if got := first(s.must(t, http.StatusOK, "member", http.MethodPut, path, `{"port":{"fixed_ips":`+body+`}}`).doc()["port"]); got["ip_allocation"] != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if p = s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, n)); p["ip_allocation"] != "immediate" {
		t.Errorf("with addresses: %v", p)
	}
}

// TestPortDeviceMAC: a port that stands for a physical device has the device's MAC address, and
// another one afterwards.
func TestPortDeviceMAC(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "11111111-0000-4000-8000-000000000000", "host-1")
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	const one, second = "02:00:00:00:00:01", "02:00:00:00:00:02"
	p := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"binding:vnic_type":"direct-physical"}}`, n))
	path := fmt.Sprintf("/ports/%s", p["id"])
	update := func(body string) any {
		t.Helper()
		return first(s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"port":`+body+`}`).doc()["port"])["mac_address"]
	}
	if got := update(`{"binding:host_id":"host-1","binding:profile":{"device_mac_address":"` + one + `"}}`); got != one {
		t.Errorf("bound: %v", got)
	}
	if got := update(`{"binding:profile":{"device_mac_address":"` + second + `"}}`); got != second {
		t.Errorf("on another device: %v", got)
	}
	if got := update(`{"name":"x"}`); got != second {
		t.Errorf("after another change: %v", got)
	}
	if got := update(`{"binding:host_id":"","binding:profile":{}}`); got == second || got == one {
		t.Errorf("off the device: %v", got)
	}
	s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"mac_address":%q}}`, n, one))
	s.refused(t, http.StatusConflict, "admin", http.MethodPut, path, `{"port":{"binding:profile":{"device_mac_address":"`+one+`"}}}`, "MacAddressInUse")
	if got := update(`{"binding:vnic_type":"normal","binding:profile":{"device_mac_address":"` + second + `"}}`); got == second {
		t.Error("a port that is no physical device has a device's address")
	}
}
