package octaviav2_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/providers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/quotas"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// client is gophercloud with a caller's token.
func (s *server) client(who string) *gophercloud.ServiceClient {
	return &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{TokenID: who},
		Endpoint:       s.url + "/", ResourceBase: s.url + "/v2.0/",
	}
}

// must fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestGophercloud: an outside client makes a balancer step by step and in one request, changes and
// deletes it.
func TestGophercloud(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, subnet := s.subnet(t, "10.0.0.0/24")
	ctx, c, name, seven := t.Context(), s.client("member"), "renamed", 7

	lb := must[*loadbalancers.LoadBalancer](t)(loadbalancers.Create(ctx, c, loadbalancers.CreateOpts{Name: "web", VipSubnetID: subnet, Tags: []string{"a"}}).Extract())
	if lb.ProvisioningStatus != "ACTIVE" || lb.OperatingStatus != "ONLINE" || lb.Provider != "heddle" || lb.VipAddress == "" {
		t.Errorf("load balancer: %+v", lb)
	}
	l := must[*listeners.Listener](t)(listeners.Create(ctx, c, listeners.CreateOpts{
		LoadbalancerID: lb.ID, Protocol: listeners.ProtocolHTTP, ProtocolPort: 80, AllowedCIDRs: []string{"10.0.0.0/8"}}).Extract())
	p := must[*pools.Pool](t)(pools.Create(ctx, c, pools.CreateOpts{ListenerID: l.ID, Protocol: pools.ProtocolHTTP, LBMethod: pools.LBMethodRoundRobin,
		Persistence: &pools.SessionPersistence{Type: "SOURCE_IP"}}).Extract())
	m := must[*pools.Member](t)(pools.CreateMember(ctx, c, p.ID, pools.CreateMemberOpts{Address: "10.0.0.11", ProtocolPort: 8080, SubnetID: subnet, Weight: &seven}).Extract())
	h := must[*monitors.Monitor](t)(monitors.Create(ctx, c, monitors.CreateOpts{PoolID: p.ID, Type: monitors.TypeHTTP, Delay: 5, Timeout: 3, MaxRetries: 2, MaxRetriesDown: 4}).Extract())
	if m.Weight != 7 || h.URLPath != "/" || h.MaxRetriesDown != 4 || l.AllowedCIDRs[0] != "10.0.0.0/8" || p.Persistence.Type != "SOURCE_IP" {
		t.Errorf("member %+v, monitor %+v, listener %+v, pool %+v", m, h, l, p)
	}
	l = must[*listeners.Listener](t)(listeners.Update(ctx, c, l.ID, listeners.UpdateOpts{Name: &name}).Extract())
	if l.Name != name || l.DefaultPoolID != p.ID {
		t.Errorf("listener: %+v", l)
	}
	noError(t, pools.BatchUpdateMembers(ctx, c, p.ID, []pools.BatchUpdateMemberOpts{{Address: "10.0.0.11", ProtocolPort: 8080}, {Address: "10.0.0.12", ProtocolPort: 8080}}).ExtractErr())
	all := must[[]pools.Member](t)(pools.ExtractMembers(must[pagination.Page](t)(pools.ListMembers(c, p.ID, pools.ListMembersOpts{Limit: 1}).AllPages(ctx))))
	if len(all) != 2 {
		t.Errorf("%d members in pages of one, want 2", len(all))
	}
	tree := must[*loadbalancers.StatusTree](t)(loadbalancers.GetStatuses(ctx, c, lb.ID).Extract())
	if got := tree.Loadbalancer.Listeners[0].Pools[0]; len(got.Members) != 2 {
		t.Errorf("statuses: %+v", tree.Loadbalancer)
	}
	for _, host := range []string{"h1", "h2"} {
		_, err := s.db.Update(ctx, func(tx *records.Tx) error {
			return schema.VipTraffics.Put(tx, &topology.VipTraffic{VipID: l.ID, HostID: host, Active: 1, Total: 5, In: 100, Out: 200})
		})
		noError(t, err)
	}
	if got := must[*loadbalancers.Stats](t)(loadbalancers.GetStats(ctx, c, lb.ID).Extract()); got.ActiveConnections != 2 || got.TotalConnections != 10 || got.BytesIn != 200 || got.BytesOut != 400 {
		t.Errorf("stats: %+v", got)
	}
	if found := must[[]providers.Provider](t)(providers.ExtractProviders(must[pagination.Page](t)(providers.List(c, providers.ListOpts{}).AllPages(ctx)))); len(found) != 1 {
		t.Errorf("providers: %+v", found)
	}
	q := must[*quotas.Quota](t)(quotas.Update(ctx, s.client("admin"), memberProject, quotas.UpdateOpts{Loadbalancer: &seven}).Extract())
	if q.Loadbalancer != 7 {
		t.Errorf("quota: %+v", q)
	}
	noError(t, loadbalancers.Failover(ctx, s.client("admin"), lb.ID).ExtractErr())
	noError(t, loadbalancers.Delete(ctx, c, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr())

	whole := must[*loadbalancers.LoadBalancer](t)(loadbalancers.Create(ctx, c, loadbalancers.CreateOpts{VipSubnetID: subnet, Listeners: []listeners.CreateOpts{{
		Protocol: listeners.ProtocolTCP, ProtocolPort: 80, DefaultPool: &pools.CreateOpts{Name: "p", Protocol: pools.ProtocolTCP, LBMethod: pools.LBMethodSourceIp,
			Members: []pools.CreateMemberOpts{{Address: "10.0.0.11", ProtocolPort: 80}}, Monitor: &monitors.CreateOpts{Type: monitors.TypeTCP, Delay: 5, Timeout: 3, MaxRetries: 2}}}}}).Extract())
	if len(whole.Listeners) != 1 || len(whole.Pools) != 1 || len(whole.Pools[0].Members) != 1 || whole.Pools[0].Monitor.Delay != 5 {
		t.Errorf("load balancer made in one request: %+v", whole)
	}
	noError(t, loadbalancers.Delete(ctx, c, whole.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr())
	if _, err := loadbalancers.Get(ctx, c, whole.ID).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("after the delete: %v", err)
	}
}

// TestPermissions: who may do what with a project's load balancers, at Octavia's API and at
// Neutron's.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, subnet := s.subnet(t, "10.0.0.0/24")
	lb := s.must(t, http.StatusCreated, "member", http.MethodPost, "/loadbalancers", `{"loadbalancer":{"vip_address":"10.0.0.200","vip_subnet_id":"`+subnet+`"}}`).id()
	l := s.must(t, http.StatusCreated, "member", http.MethodPost, "/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"TCP","protocol_port":80}}`).id()
	p := s.must(t, http.StatusCreated, "member", http.MethodPost, "/pools", `{"pool":{"listener_id":"`+l+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}}`).id()
	m := s.must(t, http.StatusCreated, "member", http.MethodPost, "/pools/"+p+"/members", `{"member":{"address":"10.0.0.9","protocol_port":80,"subnet_id":"`+subnet+`"}}`).id()
	h := s.must(t, http.StatusCreated, "member", http.MethodPost, "/healthmonitors", `{"healthmonitor":{"pool_id":"`+p+`","type":"TCP","delay":5,"timeout":3,"max_retries":2}}`).id()
	paths := map[string]string{
		"/loadbalancers/" + lb: `{"loadbalancer":{"name":"x"}}`, "/listeners/" + l: `{"listener":{"name":"x"}}`, "/pools/" + p: `{"pool":{"name":"x"}}`,
		"/pools/" + p + "/members/" + m: `{"member":{"name":"x"}}`, "/healthmonitors/" + h: `{"healthmonitor":{"name":"x"}}`,
	}
	for _, who := range []struct {
		name                                         string
		show, change, showAtNeutron, changeAtNeutron int
	}{
		{"member", 200, 200, 200, 200}, {"admin", 200, 200, 200, 200}, {"lbmember", 200, 200, 200, 200},
		{"reader", 200, 403, 200, 403}, {"observer", 200, 403, 200, 403}, {"other", 403, 403, 404, 404},
	} {
		for path, body := range paths {
			neutron := "network:/lbaas" + path
			for _, x := range []struct {
				method, path, body string
				want               int
			}{
				{http.MethodGet, path, "", who.show}, {http.MethodPut, path, body, who.change},
				{http.MethodGet, neutron, "", who.showAtNeutron}, {http.MethodPut, neutron, body, who.changeAtNeutron},
			} {
				s.must(t, x.want, who.name, x.method, x.path, x.body)
			}
			if who.change == http.StatusForbidden {
				s.must(t, http.StatusForbidden, who.name, http.MethodDelete, path, "")
				s.must(t, who.changeAtNeutron, who.name, http.MethodDelete, neutron, "")
			}
		}
		if got := s.must(t, http.StatusOK, who.name, http.MethodGet, "/loadbalancers", "").doc().(map[string]any)["loadbalancers"].([]any); (len(got) == 1) == (who.name == "other") {
			t.Errorf("%s lists %v", who.name, got)
		}
	}
}

// TestTagFilters: a filter by tags takes them in one list or one by one, as clients send them.
func TestTagFilters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, subnet := s.subnet(t, "10.0.0.0/24")
	s.must(t, http.StatusCreated, "member", http.MethodPost, "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnet+`","tags":["a","b"]}}`)
	for query, want := range map[string]int{
		"tags=a,b": 1, "tags=a&tags=b": 1, "tags=a&tags=c": 0, "tags-any=a&tags-any=c": 1, "tags-any=c,d": 0,
		"not-tags=a&not-tags=b": 0, "not-tags=a&not-tags=c": 1, "not-tags-any=c&not-tags-any=a": 0,
	} {
		if got := s.must(t, http.StatusOK, "member", http.MethodGet, "/loadbalancers?"+query, "").doc().(map[string]any)["loadbalancers"].([]any); len(got) != want {
			t.Errorf("%s: %d load balancers, want %d", query, len(got), want)
		}
	}
}

// TestRefused: what is known and not balanced is refused by name, at each API in its way.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, subnet := s.subnet(t, "10.0.0.0/24")
	lb := s.must(t, http.StatusCreated, "member", http.MethodPost, "/loadbalancers", `{"loadbalancer":{"vip_subnet_id":"`+subnet+`"}}`).id()
	listener := s.must(t, http.StatusCreated, "member", http.MethodPost, "/listeners", `{"listener":{"loadbalancer_id":"`+lb+`","protocol":"TCP","protocol_port":2}}`).id()
	pool := s.must(t, http.StatusCreated, "member", http.MethodPost, "/pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}}`).id()
	for _, x := range []struct {
		path, body string
		status     int
		text       string
	}{
		{"/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"SCTP","protocol_port":1}}`, 501, "listeners of protocol SCTP"},
		{"/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"PROMETHEUS","protocol_port":1}}`, 501, "listeners of protocol PROMETHEUS"},
		{"/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"TERMINATED_HTTPS","protocol_port":1,"default_tls_container_ref":"http://x"}}`, 501, "TERMINATED_HTTPS"},
		{"/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"HTTP","protocol_port":1,"insert_headers":{"X-Forwarded-For":"true"}}}`, 501, "insert_headers"},
		{"/pools", `{"pool":{"loadbalancer_id":"LB","protocol":"PROXY","lb_algorithm":"ROUND_ROBIN"}}`, 501, "pools of protocol PROXY"},
		{"/pools", `{"pool":{"listener_id":"LISTENER","protocol":"PROXYV2","lb_algorithm":"ROUND_ROBIN"}}`, 501, "pools of protocol PROXYV2"},
		{"/pools", `{"pool":{"loadbalancer_id":"LB","protocol":"HTTP","lb_algorithm":"ROUND_ROBIN","session_persistence":{"type":"HTTP_COOKIE"}}}`, 501, "HTTP_COOKIE"},
		{"/pools", `{"pool":{"loadbalancer_id":"LB","protocol":"TCP","lb_algorithm":"ROUND_ROBIN","tls_enabled":true}}`, 501, "tls_enabled"},
		{"/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"HTTP","delay":5,"timeout":3,"max_retries":2,"expected_codes":"299-200"}}`, 400, "Invalid input for field/attribute expected_codes. Value: '299-200'. Value should be a range that does not end below its first code"},
		{"/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"TCP","delay":86401,"timeout":3,"max_retries":2}}`, 400, "Invalid input for field/attribute delay. Value: '86401'. Value should be lower or equal to 86400"},
		{"/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"TCP","delay":86400,"timeout":2147483647,"max_retries":2}}`, 400, "Invalid input for field/attribute timeout. Value: '2147483647'. Value should be lower or equal to 86400"},
		{"/healthmonitors", `{"healthmonitor":{"pool_id":"POOL","type":"HTTP","delay":86400,"timeout":86400,"max_retries":2,"expected_codes":"200-200"}}`, 201, `"delay":86400`},
		{"network:/lbaas/listeners", `{"listener":{"loadbalancer_id":"LB","protocol":"TERMINATED_HTTPS","protocol_port":1,"default_tls_container_ref":"http://x"}}`, 501, "NotImplemented"},
		{"network:/lbaas/pools", `{"pool":{"loadbalancer_id":"LB","protocol":"HTTP","lb_algorithm":"ROUND_ROBIN","session_persistence":{"type":"HTTP_COOKIE"}}}`, 501, "HTTP_COOKIE"},
		{"network:/lbaas/healthmonitors", `{"healthmonitor":{"pool_id":"LB","type":"TCP","delay":5,"timeout":3,"max_retries":2}}`, 404, "pool LB could not be found"},
	} {
		a := s.must(t, x.status, "member", http.MethodPost, x.path, strings.NewReplacer("LB", lb, "LISTENER", listener, "POOL", pool).Replace(x.body))
		if want := strings.ReplaceAll(x.text, "LB", lb); !strings.Contains(string(a.body), want) {
			t.Errorf("%s %s: %s, want %q", x.path, x.body, a.body, want)
		}
	}
}

// TestRefusedValues: numbers are whole, booleans unambiguous, and lists without nulls; the error
// names the field, or shows the request where Octavia's does.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const unknown = "11111111-1111-1111-1111-111111111111"
	const members = "/pools/" + unknown + "/members"
	names := map[string]string{"/loadbalancers": "loadbalancer", "/listeners": "listener", "/pools": "pool", members: "member", "/healthmonitors": "healthmonitor"}
	bodies := map[string]string{
		"/loadbalancers":  `"vip_subnet_id":"` + unknown + `"`,
		"/listeners":      `"loadbalancer_id":"` + unknown + `","protocol":"TCP","protocol_port":80`,
		"/pools":          `"loadbalancer_id":"` + unknown + `","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"`,
		members:           `"address":"10.0.0.1","protocol_port":80`,
		"/healthmonitors": `"pool_id":"` + unknown + `","type":"TCP","delay":5,"timeout":3,"max_retries":2`,
	}
	for path := range names {
		body := `{"` + names[path] + `":{` + bodies[path] + "}}"
		if a := s.do(t, "member", http.MethodPost, path, body, nil); a.status == http.StatusBadRequest && !strings.Contains(string(a.body), unknown) {
			t.Errorf("POST %s %s: %s", path, body, a.body) // all that is wrong is the reference
		}
	}
	refuse := func(path, field, value, text string) {
		t.Helper()
		body := `{"` + names[path] + `":{` + bodies[path] + `,"` + field + `":` + value + "}}" // of a field given twice the last counts
		a := s.must(t, http.StatusBadRequest, "member", http.MethodPost, path, body)
		if got, _ := a.doc().(map[string]any)["faultstring"].(string); !strings.Contains(got, text) {
			t.Errorf("POST %s %s: %s, want %q", path, body, got, text)
		}
	}
	invalid := func(field, value string) string {
		return "Invalid input for field/attribute " + field + ". Value: '" + value + "'. "
	}
	for path, fields := range map[string][]string{
		"/listeners":      {"protocol_port", "connection_limit", "timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect"},
		members:           {"protocol_port", "weight", "monitor_port"},
		"/healthmonitors": {"delay", "timeout", "max_retries", "max_retries_down"},
	} {
		for _, field := range fields {
			refuse(path, field, "1.5", invalid(field, "1.5")+"Value should be integer")
			refuse(path, field, `"1.5"`, "invalid literal for int() with base 10: '1.5'")
			refuse(path, field, "true", "invalid literal for int() with base 10: 'True'")
			refuse(path, field, "[1]", "invalid literal for int() with base 10: '[1]'")
		}
	}
	refuse("/pools", "session_persistence", `{"type":"SOURCE_IP","persistence_timeout":1.5}`, invalid("persistence_timeout", "1.5")+"Value should be integer")
	for path := range names {
		for value, shown := range map[string]string{`"maybe"`: "maybe", `""`: "", "1.5": "1.5", `["true"]`: "['true']"} {
			refuse(path, "admin_state_up", value, "Value not an unambiguous boolean: "+shown)
		}
		for value, shown := range map[string]string{"[null]": "[None]", `["a",null]`: "['a', None]", "[1]": "[1]"} {
			refuse(path, "tags", value, invalid("tags", shown)+"Value should be string")
		}
	}
	for _, field := range []string{"allowed_cidrs", "sni_container_refs", "tls_versions", "alpn_protocols"} {
		refuse("/listeners", field, "[null]", invalid(field, "[None]")+"Value should be string")
	}
	refuse("/loadbalancers", "listeners", "[null]", "Value not a valid object: None")
	refuse("/loadbalancers", "pools", "[null]", "Value not a valid object: None")
	refuse("/pools", "members", "[null]", "Value not a valid object: None")
	a := s.must(t, http.StatusBadRequest, "admin", http.MethodPut, "/quotas/"+memberProject, `{"quota":{"pool":1.5}}`)
	if !strings.Contains(string(a.body), invalid("pool", "1.5")+"Value should be integer") {
		t.Errorf("a quota of 1.5: %s", a.body)
	}
}

// FuzzBody: no body panics, and what is refused is refused as Octavia refuses it.
func FuzzBody(f *testing.F) {
	s := newServer(f)
	_, subnet := s.subnet(f, "10.0.0.0/8")
	for _, text := range []string{
		`{"loadbalancer":{"vip_subnet_id":"` + subnet + `","listeners":[{"protocol":"TCP","protocol_port":80,"default_pool":{"name":"p"}}],"pools":[{"name":"p","protocol":"TCP","lb_algorithm":"SOURCE_IP"}]}}`,
		`{"listener":{"allowed_cidrs":["10.0.0.0/33"],"insert_headers":{"a":1}}}`, `{"pool":{"session_persistence":{"type":"SOURCE_IP","persistence_granularity":"255.0.255.0"}}}`,
		`{"members":[{"address":"10.0.0.1","protocol_port":8e1}]}`, `{"healthmonitor":{"http_version":1.1,"domain_name":"a..b","expected_codes":"2"}}`, `{"quota":{"pool":null}}`, `[`, `{"loadbalancer":{"name":"\ud800"}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, path := range []string{"/loadbalancers", "/listeners", "/pools", "/healthmonitors", "/l7policies"} {
			a := s.do(t, "member", http.MethodPost, path, text, nil)
			if doc, _ := a.doc().(map[string]any); a.status >= 500 && a.status != http.StatusNotImplemented || a.status >= 400 && doc["faultstring"] == nil {
				t.Errorf("POST %s %q: %d %s", path, text, a.status, a.body)
			}
		}
		pool := "/pools/11111111-1111-1111-1111-111111111111/members"
		if a := s.do(t, "member", http.MethodPut, pool, text, nil); a.status >= 500 {
			t.Errorf("PUT %s %q: %d %s", pool, text, a.status, a.body)
		}
		if a := s.do(t, "admin", http.MethodPut, "/quotas/x", text, nil); a.status >= 500 {
			t.Errorf("PUT quota %q: %d %s", text, a.status, a.body)
		}
	})
}

// BenchmarkCreate is services §14 row 12: members one by one (the goal is 300 a second), balancers
// with a listener, a pool, two members and a monitor in one request (100 a second), and 500 members
// in one request (200 ms).
func BenchmarkCreate(b *testing.B) {
	s := newServer(b)
	_, subnet := s.subnet(b, "10.0.0.0/8")
	whole := `{"loadbalancer":{"vip_subnet_id":"` + subnet + `","listeners":[{"protocol":"TCP","protocol_port":80,"default_pool":{"name":"p","protocol":"TCP","lb_algorithm":"ROUND_ROBIN",
		"members":[{"address":"10.1.0.1","protocol_port":80},{"address":"10.1.0.2","protocol_port":80}],"healthmonitor":{"type":"TCP","delay":5,"timeout":3,"max_retries":2}}}]}}`
	lb := s.must(b, http.StatusCreated, "member", http.MethodPost, "/loadbalancers", whole).id()
	pool := s.must(b, http.StatusCreated, "member", http.MethodPost, "/pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}}`).id()
	n := 0
	b.Run("member", func(b *testing.B) {
		for b.Loop() {
			n++
			s.must(b, http.StatusCreated, "member", http.MethodPost, "/pools/"+pool+"/members", fmt.Sprintf(`{"member":{"address":"10.2.%d.%d","protocol_port":80}}`, n>>8&255, n&255))
		}
	})
	b.Run("whole balancer", func(b *testing.B) {
		for b.Loop() {
			s.must(b, http.StatusCreated, "member", http.MethodPost, "/loadbalancers", whole)
		}
	})
	b.Run("500 members", func(b *testing.B) {
		members := make([]map[string]any, 500)
		for i := range members {
			members[i] = map[string]any{"address": fmt.Sprintf("10.3.%d.%d", i>>8, i&255), "protocol_port": 80}
		}
		body, err := json.Marshal(map[string]any{"members": members})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			b.StopTimer()
			pool := s.must(b, http.StatusCreated, "member", http.MethodPost, "/pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}}`).id()
			b.StartTimer()
			s.must(b, http.StatusAccepted, "member", http.MethodPut, "/pools/"+pool+"/members", string(body))
		}
	})
}
