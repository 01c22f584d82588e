package neutronv2_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
)

// BenchmarkListPorts is a list of 10,000 ports over HTTP, as an admin sees them; the goal is 300
// ms.
func BenchmarkListPorts(b *testing.B) {
	s := newServer(b, control.Options{Quotas: map[string]int{"port": -1}})
	net := s.create(b, "member", "networks", `{"network":{"name":"n"}}`)["id"]
	s.create(b, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/16"}}`, net))
	s.create(b, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"fixed_ips":[{"ip_address":"10.0.0.77"}]}}`, net))
	for i := range 20 {
		ports := make([]string, 500)
		for j := range ports {
			ports[j] = fmt.Sprintf(`{"network_id":%q,"name":"port-%d","tags":["t%d"]}`, net, i*500+j, j%10)
		}
		s.must(b, http.StatusCreated, "member", http.MethodPost, "/ports", `{"ports":[`+strings.Join(ports, ",")+`]}`)
	}
	ids := list(s.must(b, http.StatusOK, "admin", http.MethodGet, "/ports?fields=id", nil).doc()["ports"])
	marker := first(ids[len(ids)-200])["id"].(string)
	for _, bench := range []struct{ name, who, query string }{
		{"all", "admin", ""}, {"all of a member", "member", ""},
		{"fields", "admin", "?fields=id&fields=name"},
		{"sorted", "admin", "?sort_key=name&sort_dir=desc"},
		{"page", "admin", "?limit=100"}, {"page of a member", "member", "?limit=100"},
		{"fields of a page", "admin", "?limit=100&fields=id&fields=name"},
		{"page far back", "admin", "?limit=100&marker=" + marker},
		{"page before", "admin", "?limit=100&page_reverse=True&marker=" + marker},
		{"sorted page", "admin", "?sort_key=name&sort_dir=desc&limit=100"},
		{"one by name", "admin", "?name=port-77"},
		{"some by tag", "admin", "?tags=t7&limit=10"},
		{"one by address", "admin", "?fixed_ips=ip_address%3D10.0.0.77"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var size int
			for b.Loop() {
				size = len(s.must(b, http.StatusOK, bench.who, http.MethodGet, "/ports"+bench.query, nil).body)
			}
			b.ReportMetric(float64(size), "B/answer")
		})
	}
}

// BenchmarkListSharedNetworks lists 10,000 networks that RBAC policies share with a project, over
// HTTP; the goal is 300 ms. Of them 5 are shared with another one too.
//
//	go test ./internal/api/neutronv2 -run '^$' -bench ListSharedNetworks
func BenchmarkListSharedNetworks(b *testing.B) {
	s := newServer(b, control.Options{Quotas: map[string]int{"network": -1, "rbac_policy": -1}})
	shareNetworks(b, s, 10000, 5)
	for _, bench := range []struct{ name, who, query string }{
		{"all", "member", ""}, {"fields", "member", "?fields=id&fields=name"}, {"shared", "member", "?shared=True"},
		{"page", "member", "?limit=100"}, {"five", "other", ""}, {"five shared", "other", "?shared=True"}, {"all of an admin", "admin", ""},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var size int
			for b.Loop() {
				size = len(s.must(b, http.StatusOK, bench.who, http.MethodGet, "/networks"+bench.query, nil).body)
			}
			b.ReportMetric(float64(size), "B/answer")
		})
	}
}

// shareNetworks makes networks of the admin's project, and shares all with the member's project and
// some also with the other.
func shareNetworks(t testing.TB, s *server, all, others int) {
	t.Helper()
	const each = 500
	var ids []string
	for len(ids) < all {
		networks := make([]string, min(each, all-len(ids)))
		for i := range networks {
			networks[i] = fmt.Sprintf(`{"name":"n%d"}`, len(ids)+i)
		}
		for _, n := range list(s.must(t, http.StatusCreated, "admin", http.MethodPost, "/networks", `{"networks":[`+strings.Join(networks, ",")+`]}`).doc()["networks"]) {
			ids = append(ids, first(n)["id"].(string))
		}
	}
	share := func(ids []string, project string) {
		for part := range slices.Chunk(ids, each) {
			policies := make([]string, len(part))
			for i, id := range part {
				policies[i] = fmt.Sprintf(`{"object_type":"network","object_id":%q,"action":"access_as_shared","target_tenant":%q}`, id, project)
			}
			s.must(t, http.StatusCreated, "admin", http.MethodPost, "/rbac-policies", `{"rbac_policies":[`+strings.Join(policies, ",")+`]}`)
		}
	}
	share(ids, memberProject)
	share(ids[:others], otherProject)
}

// BenchmarkCreatePort is one port with the default group, over HTTP and a store in memory.
func BenchmarkCreatePort(b *testing.B) {
	s := newServer(b, control.Options{Quotas: map[string]int{"port": -1}})
	net := s.create(b, "member", "networks", `{"network":{"name":"n"}}`)["id"]
	s.create(b, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/12"}}`, net))
	body := fmt.Sprintf(`{"port":{"network_id":%q}}`, net)
	for b.Loop() {
		s.must(b, http.StatusCreated, "member", http.MethodPost, "/ports", body)
	}
}
