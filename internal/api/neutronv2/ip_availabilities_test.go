package neutronv2_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestIPAvailabilities: admins see how many addresses networks have, and how many are in use.
func TestIPAvailabilities(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "member", "networks", `{"network":{"name":"n"}}`)["id"].(string)
	empty := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	for _, body := range []string{
		`"ip_version":4,"cidr":"10.0.0.0/24"`,
		`"ip_version":4,"cidr":"10.0.1.0/24","allocation_pools":[{"start":"10.0.1.10","end":"10.0.1.19"},{"start":"10.0.1.30","end":"10.0.1.30"}]`,
		`"ip_version":6,"cidr":"2001:db8::/64","name":"six"`,
	} {
		s.create(t, "member", "subnets", `{"subnet":{"network_id":"`+net+`",`+body+`}}`)
	}
	s.create(t, "member", "ports", `{"port":{"network_id":"`+net+`","fixed_ips":[{"ip_address":"10.0.0.5"},{"ip_address":"10.0.0.6"},{"ip_address":"2001:db8::5"}]}}`)

	const path = "/network-ip-availabilities"
	one := s.must(t, http.StatusOK, "admin", http.MethodGet, path+"/"+net, nil).body
	const total = `"total_ips":18446744073709551879,"used_ips":3,` // 253 + 11 + 2^64 - 1
	for _, want := range []string{`"network_name":"n"`, `"project_id":"` + memberProject + `"`, total,
		`"ip_version":4,"cidr":"10.0.0.0/24","subnet_name":"","used_ips":2,"total_ips":253}`,
		`"ip_version":4,"cidr":"10.0.1.0/24","subnet_name":"","used_ips":0,"total_ips":11}`,
		`"ip_version":6,"cidr":"2001:db8::/64","subnet_name":"six","used_ips":1,"total_ips":18446744073709551615}`} {
		if !strings.Contains(string(one), want) {
			t.Errorf("got %s, want %s in it", one, want)
		}
	}
	for _, tt := range []struct {
		who, query string
		ids        []string
	}{
		{"member", "", nil}, {"admin", "", []string{net, empty}}, {"admin", "?network_name=n", []string{net}},
		{"admin", "?network_id=" + empty, []string{empty}}, {"admin", "?project_id=" + otherProject, nil}, {"admin", "?ip_version=6", []string{net}},
	} {
		var got []string
		for _, o := range list(s.must(t, http.StatusOK, tt.who, http.MethodGet, path+tt.query, nil).doc()["network_ip_availabilities"]) {
			got = append(got, o.(map[string]any)["network_id"].(string))
		}
		slices.Sort(got)
		slices.Sort(tt.ids)
		if !slices.Equal(got, tt.ids) {
			t.Errorf("%s %s: %q, want %q", tt.who, tt.query, got, tt.ids)
		}
	}
	if six := s.must(t, http.StatusOK, "admin", http.MethodGet, path+"?ip_version=6", nil).body; strings.Contains(string(six), "10.0.0.0/24") {
		t.Errorf("of IPv6: %s", six)
	}
	for who, id := range map[string]string{"member": net, "admin": "nope"} {
		a := s.must(t, http.StatusNotFound, who, http.MethodGet, path+"/"+id, nil)
		if want := "Network " + id + " could not be found."; a.doc()["NeutronError"].(map[string]any)["message"] != want {
			t.Errorf("%s: %s, want %q", who, a.body, want)
		}
	}
}
