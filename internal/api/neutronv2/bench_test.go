package neutronv2_test

import (
	"fmt"
	"net/http"
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
