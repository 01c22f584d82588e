package neutronv2_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// inZone has a host report its availability zone.
func (s *server) inZone(t testing.TB, id, zone string) {
	t.Helper()
	u := &topology.HostUnderlay{HostID: id, AvailabilityZone: zone}
	if _, err := s.db.Update(t.Context(), func(tx *records.Tx) error { return schema.Underlays.Put(tx, u) }); err != nil {
		t.Fatal(err)
	}
}

// ids returns the ids of a list in an answer, in its order.
func (a answer) ids(collection string) []string {
	ids := []string{}
	for _, o := range list(a.doc()[collection]) {
		ids = append(ids, first(o)["id"].(string))
	}
	return ids
}

// agentOf returns the id of a host's agent.
func (s *server) agentOf(t *testing.T, host, kind string) string {
	t.Helper()
	ids := s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents?host="+host+"&agent_type="+strings.ReplaceAll(kind, " ", "%20"), nil).ids("agents")
	if len(ids) != 1 {
		t.Fatalf("%s of %s: %v", kind, host, ids)
	}
	return ids[0]
}

// TestAgentFunctions: every host has an agent for each of its functions, with settings of its own.
func TestAgentFunctions(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "11111111-0000-4000-8000-000000000000", "host-1")
	s.addHost(t, "22222222-0000-4000-8000-000000000000", "host-2")
	all := s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents", nil).ids("agents")
	if len(all) != 6 || !slices.IsSorted(all) {
		t.Errorf("agents %v", all)
	}
	var paged []string
	for path := "/agents?limit=2"; len(paged) < 7; path = "/agents?limit=2&marker=" + paged[len(paged)-1] {
		ids := s.must(t, http.StatusOK, "admin", http.MethodGet, path, nil).ids("agents")
		if len(ids) == 0 {
			break
		}
		paged = append(paged, ids...)
	}
	if d := cmp.Diff(all, paged); d != "" {
		t.Errorf("in pages: %s", d)
	}
	dhcp := s.agentOf(t, "host-1", "DHCP agent")
	s.must(t, http.StatusOK, "admin", http.MethodPut, "/agents/"+dhcp, `{"agent":{"description":"d"}}`)
	for kind, want := range map[string]any{"DHCP agent": "d", "L3 agent": nil, "Open vSwitch agent": nil} {
		got := first(s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents/"+s.agentOf(t, "host-1", kind), nil).doc()["agent"])
		if got["description"] != want || got["agent_type"] != kind || got["alive"] != true || got["host"] != "host-1" {
			t.Errorf("%s: %v", kind, got)
		}
	}
	s.must(t, http.StatusConflict, "admin", http.MethodDelete, "/agents/"+dhcp, nil)
	s.must(t, http.StatusNotFound, "member", http.MethodGet, "/agents/"+dhcp, nil)
}

// TestAvailabilityZones: zones are those of hosts. Hints must name one, and are kept.
func TestAvailabilityZones(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	zones := func(query string) string {
		var text []string
		for _, z := range list(s.must(t, http.StatusOK, "member", http.MethodGet, "/availability_zones"+query, nil).doc()["availability_zones"]) {
			z := first(z)
			text = append(text, fmt.Sprintf("%s %s %s", z["name"], z["resource"], z["state"]))
		}
		return strings.Join(text, ", ")
	}
	if got := zones(""); got != "" {
		t.Errorf("without hosts: %s", got)
	}
	a := s.do(t, "member", http.MethodPost, "/networks", `{"network":{"availability_zone_hints":["nova"]}}`, nil)
	if a.status != http.StatusNotFound || !strings.Contains(string(a.body), `"AvailabilityZone nova could not be found."`) {
		t.Errorf("a hint without hosts: %d %s", a.status, a.body)
	}
	s.addHost(t, "11111111-0000-4000-8000-000000000000", "host-1")
	s.addHost(t, "22222222-0000-4000-8000-000000000000", "host-2")
	s.inZone(t, "22222222-0000-4000-8000-000000000000", "az2")
	s.must(t, http.StatusOK, "admin", http.MethodPut, "/agents/"+s.agentOf(t, "host-2", "L3 agent"), `{"agent":{"admin_state_up":false}}`)
	for query, want := range map[string]string{
		"":                    "az2 router unavailable, az2 network available, nova router available, nova network available",
		"?name=az2":           "az2 router unavailable, az2 network available",
		"?resource=router":    "az2 router unavailable, nova router available",
		"?state=unavailable":  "az2 router unavailable",
		"?limit=1&state=none": "",
	} {
		if got := zones(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}

	n := s.create(t, "member", "networks", `{"network":{"availability_zone_hints":["az2"]}}`)
	show := func(path, object string) (hints, zones any) {
		o := first(s.must(t, http.StatusOK, "member", http.MethodGet, path, nil).doc()[object])
		return o["availability_zone_hints"], o["availability_zones"]
	}
	network := fmt.Sprintf("/networks/%s", n["id"])
	hints, served := show(network, "network")
	if d := cmp.Diff([]any{[]any{"az2"}, []any{}}, []any{hints, served}); d != "" {
		t.Errorf("a network without DHCP: %s", d)
	}
	sub := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, n["id"]))
	if _, served = show(network, "network"); !cmp.Equal(served, any([]any{"az2", "nova"})) {
		t.Errorf("a network with DHCP is in %v", served)
	}
	r := s.create(t, "member", "routers", `{"router":{"availability_zone_hints":["nova"]}}`)
	router := fmt.Sprintf("/routers/%s", r["id"])
	if hints, served = show(router, "router"); !cmp.Equal([]any{hints, served}, []any{[]any{"nova"}, []any{}}) {
		t.Errorf("a router without ports: hints %v, in %v", hints, served)
	}
	s.must(t, http.StatusOK, "member", http.MethodPut, router+"/add_router_interface", fmt.Sprintf(`{"subnet_id":%q}`, sub["id"]))
	if _, served = show(router, "router"); !cmp.Equal(served, any([]any{"az2", "nova"})) {
		t.Errorf("a router with an interface is in %v", served)
	}
}

// TestAgentSchedules: what hosts serve is on all of them, and a router alone can be taken from one;
// the rest is where admins put it.
func TestAgentSchedules(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "11111111-0000-4000-8000-000000000000", "host-1")
	s.addHost(t, "22222222-0000-4000-8000-000000000000", "host-2")
	for _, x := range []struct {
		kind, agent, collection, object string
		serve                           func(id string)
		again                           int // given to an agent that has it
		taken                           int // away while it is in use
		refused                         string
	}{
		{"dhcp", "DHCP agent", "networks", `{"network":{}}`, func(id string) {
			s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, id))
		}, http.StatusConflict, http.StatusConflict, "NetworkInUse"},
		{"l3", "L3 agent", "routers", `{"router":{}}`, func(id string) {
			n := s.create(t, "member", "networks", `{"network":{}}`)
			sub := s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24","enable_dhcp":false}}`, n["id"]))
			s.must(t, http.StatusOK, "member", http.MethodPut, "/routers/"+id+"/add_router_interface", fmt.Sprintf(`{"subnet_id":%q}`, sub["id"]))
		}, http.StatusCreated, http.StatusNoContent, ""},
	} {
		id := s.create(t, "member", x.collection, x.object)["id"].(string)
		one, other := s.agentOf(t, "host-1", x.agent), s.agentOf(t, "host-2", x.agent)
		on := fmt.Sprintf("/agents/%s/%s-%s", one, x.kind, x.collection)
		body := fmt.Sprintf(`{"%s_id":%q}`, strings.TrimSuffix(x.collection, "s"), id)
		hosting := fmt.Sprintf("/%s/%s/%s-agents", x.collection, id, x.kind)
		expect := func(when string, agents ...string) {
			t.Helper()
			slices.Sort(agents)
			if d := cmp.Diff(agents, s.must(t, http.StatusOK, "admin", http.MethodGet, hosting, nil).ids("agents")); d != "" {
				t.Errorf("%s, %s: agents -want +got\n%s", x.kind, when, d)
			}
			got := s.must(t, http.StatusOK, "admin", http.MethodGet, on, nil).ids(x.collection)
			if slices.Contains(got, id) != slices.Contains(agents, one) {
				t.Errorf("%s, %s: on the agent are %v", x.kind, when, got)
			}
		}
		expect("new", []string{}...)
		s.must(t, http.StatusCreated, "admin", http.MethodPost, on, body)
		expect("added", one)
		s.must(t, x.again, "admin", http.MethodPost, on, body)
		s.must(t, http.StatusNoContent, "admin", http.MethodDelete, on+"/"+id, nil)
		expect("removed", []string{}...)
		x.serve(id)
		expect("in use", one, other)
		a := s.do(t, "admin", http.MethodDelete, on+"/"+id, nil, nil)
		if a.status != x.taken || !strings.Contains(string(a.body), x.refused) {
			t.Errorf("%s: removed what is in use: %d %s", x.kind, a.status, a.body)
		}
		if x.taken == http.StatusNoContent {
			expect("taken away", other)
			s.must(t, http.StatusNoContent, "admin", http.MethodDelete, on+"/"+id, nil)
			expect("taken away twice", other)
			s.must(t, http.StatusCreated, "admin", http.MethodPost, on, body)
			expect("given back", one, other)
		}

		for _, path := range []string{on, hosting} {
			if a := s.do(t, "member", http.MethodGet, path, nil, nil); a.status != http.StatusForbidden || !strings.Contains(string(a.body), "rule:get_"+x.kind+"-") {
				t.Errorf("a member: %s: %d %s", path, a.status, a.body)
			}
		}
		s.must(t, http.StatusForbidden, "member", http.MethodPost, on, body)
		s.must(t, http.StatusForbidden, "member", http.MethodDelete, on+"/"+id, nil)
		s.must(t, http.StatusBadRequest, "admin", http.MethodPost, on, `{}`)
		s.must(t, http.StatusBadRequest, "admin", http.MethodPost, on, `{"network_id":{},"router_id":7}`)
		s.must(t, http.StatusNotFound, "admin", http.MethodPost, on, strings.ReplaceAll(body, id, one))
		s.must(t, http.StatusNotFound, "admin", http.MethodGet, strings.ReplaceAll(on, one, id), nil)
		s.must(t, http.StatusNotFound, "admin", http.MethodPost, strings.ReplaceAll(on, one, "11111111-0000-4000-8000-000000000000"), body)
		s.must(t, http.StatusNotFound, "admin", http.MethodGet, strings.ReplaceAll(hosting, id, one), nil)
	}
}
