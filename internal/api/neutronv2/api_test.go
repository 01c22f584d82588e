package neutronv2_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"heddle/internal/control"
)

// names are the names of the objects of a list, in its order.
func (a answer) names() string {
	var names []string
	for k, v := range a.doc() {
		if strings.HasSuffix(k, "_links") {
			continue
		}
		for _, o := range list(v) {
			name, _ := first(o)["name"].(string)
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// links are the hrefs of a page by rel.
func (a answer) links(collection string) map[string]string {
	links := map[string]string{}
	for _, l := range list(a.doc()[collection+"_links"]) {
		links[first(l)["rel"].(string)] = first(l)["href"].(string)
	}
	return links
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	for _, token := range []string{"", "nonsense"} {
		a := s.do(t, token, http.MethodGet, "/nosuch", nil, nil)
		if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != `Keystone uri="http://identity/v3"` {
			t.Errorf("token %q: %d %v %s", token, a.status, a.header, a.body)
		}
	}
	s.must(t, http.StatusOK, "", http.MethodGet, "!/", nil)
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "member", "networks", `{"network":{"name":"n"}}`)["id"].(string)
	tests := []struct {
		method, path string
		want         int
	}{
		{"GET", "/networks/", 200}, {"GET", "/networks.json", 200}, {"GET", "/networks/" + net + ".json", 200},
		{"HEAD", "/networks", 200}, {"GET", "/extensions", 200}, {"GET", "/extensions/quotas", 200}, {"GET", "/extensions.json", 200},
		{"GET", "!/v2.0", 200}, {"GET", "!/v3/networks", 404}, {"POST", "!/", 404}, {"GET", "/networks/" + net + "/nosuch", 404}, {"GET", "/nosuch", 404},
		{"PATCH", "/networks/" + net, 405}, {"DELETE", "/networks", 405}, {"POST", "/agents", 405}, {"POST", "/quotas", 405},
		{"GET", "/quotas/tenant", 200}, {"GET", "/quotas/project", 200},
		{"GET", "/networks/" + net + "/tags/", 200}, {"GET", "/networks/x/tags", 404}, {"PUT", "/networks/x/tags/y", 404},
		{"GET", "/networks/.", 404}, {"DELETE", "/networks/..", 404}, {"PUT", "/networks/./tags/y", 404}, {"GET", "//networks", 404},
		{"GET", "/networks/../networks", 404}, {"DELETE", "/networks//" + net, 404},
		{"PUT", "/networks/" + net + "/tags/..", 201}, {"GET", "/networks/" + net + "/tags/..", 204},
		{"GET", "/networks?name=%00%3B", 200}, {"GET", "/networks?%zz&name=n", 400}, {"GET", "/networks?name=zzz;x", 400},
		{"GET", "/networks?name=%zz", 400}, {"GET", "/networks/" + net + "?fields=%", 400}, {"PUT", "/quotas/" + memberProject + "?check_limit=%zz", 400},
	}
	for _, tt := range tests {
		a := s.do(t, "member", tt.method, tt.path, nil, nil)
		if a.status != tt.want {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, a.status, a.body, tt.want)
		}
		if a.status >= 400 && a.doc()["NeutronError"] == nil {
			t.Errorf("%s %s: %s is no Neutron error", tt.method, tt.path, a.body)
		}
	}
	if a := s.do(t, "member", "PATCH", "/networks", nil, nil); a.header.Get("Allow") == "" {
		t.Error("405 without Allow")
	}
	if a := s.do(t, "member", http.MethodDelete, "/networks/"+net, `{}`, nil); a.status != 400 {
		t.Errorf("delete with a body: %d", a.status)
	}
	if a := s.do(t, "member", http.MethodPost, "/networks", strings.Repeat(" ", 5<<20), nil); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("body of 5 MiB: %d %s", a.status, a.body)
	}
}

func TestWhoSeesWhat(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	own := s.create(t, "member", "networks", `{"network":{"name":"own"}}`)
	shared := s.create(t, "admin", "networks", `{"network":{"name":"shared","shared":true}}`)
	s.create(t, "admin", "networks", `{"network":{"name":"external","router:external":true}}`)
	s.create(t, "admin", "networks", fmt.Sprintf(`{"network":{"name":"given","tenant_id":%q}}`, otherProject))
	tests := []struct{ who, path, want string }{
		{"member", "/networks?sort_key=name&sort_dir=asc", "external own shared"},
		{"reader", "/networks?sort_key=name&sort_dir=asc", "external own shared"},
		{"other", "/networks?sort_key=name&sort_dir=desc", "shared given external"},
		{"admin", "/networks?sort_key=name&sort_dir=asc", "external given own shared"},
		{"admin", "/networks?shared=true", "shared"},
		{"member", "/networks?shared=False&router:external=0", "own"},
		{"member", "/networks?router:external=True", "external"},
		{"member", "/networks?tenant_id=" + memberProject, "own"},
		{"member", "/networks?project_id=" + adminProject + "&shared=1", "shared"},
		{"other", "/networks?id=" + own["id"].(string), ""},
		{"member", "/security-groups?name=default", "default"},
		{"member", "/agents", ""},
	}
	for _, tt := range tests {
		if got := s.must(t, http.StatusOK, tt.who, http.MethodGet, tt.path, nil).names(); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.who, tt.path, got, tt.want)
		}
	}
	for _, net := range []map[string]any{own, shared} {
		s.create(t, "admin", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"name":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, net["id"], net["name"]))
	}
	for _, tt := range []struct{ who, query, want string }{
		{"admin", "shared=True", "shared"}, {"other", "shared=1", "shared"}, {"member", "shared=false", "own"}, {"other", "shared=false", ""},
		{"admin", "shared=True&shared=False&sort_key=name&sort_dir=asc", "own shared"},
		{"member", "shared=True&fields=name", "shared"}, {"member", "shared=False&limit=1&fields=name", "own"},
	} {
		if got := s.must(t, http.StatusOK, tt.who, http.MethodGet, "/subnets?"+tt.query, nil).names(); got != tt.want {
			t.Errorf("%s /subnets?%s: %q, want %q", tt.who, tt.query, got, tt.want)
		}
	}
	s.must(t, http.StatusBadRequest, "member", http.MethodGet, "/subnets?shared=maybe", nil)
	if _, seen := own["provider:network_type"]; seen {
		t.Error("a member sees where its network lies")
	}
	if _, seen := shared["provider:network_type"]; !seen {
		t.Error("an admin does not see where the network lies")
	}
	path := "/networks/" + shared["id"].(string)
	s.must(t, http.StatusForbidden, "member", http.MethodPut, path, `{"network":{"name":"mine"}}`)
	s.must(t, http.StatusForbidden, "member", http.MethodDelete, path, nil)
	s.must(t, http.StatusForbidden, "member", http.MethodPut, path+"/tags/x", nil)
	s.must(t, http.StatusForbidden, "reader", http.MethodPost, "/networks", `{"network":{}}`)
	s.must(t, http.StatusForbidden, "reader", http.MethodDelete, "/networks/"+own["id"].(string), nil)
	s.must(t, http.StatusForbidden, "member", http.MethodPost, "/subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, shared["id"]))
	port := s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, shared["id"]))
	if port["security_groups"] == nil || port["binding:host_id"] != nil {
		t.Errorf("a member's port on a shared network: %v", port)
	}
}

func TestFieldsSortAndPages(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.must(t, http.StatusCreated, "member", http.MethodPost, "/networks",
		`{"networks":[{"name":"c","mtu":1400},{"name":"a","mtu":1300},{"network":{"name":"b","mtu":1300}},{"name":"","description":"empty"}]}`)
	tests := []struct{ query, want string }{
		{"sort_key=name&sort_dir=asc", " a b c"},
		{"sort_key=mtu&sort_key=name&sort_dir=asc&sort_dir=desc", "b a c "},
		{"name=a&name=c&sort_key=name&sort_dir=desc", "c a"},
		{"name=a&mtu=1300", "a"},
		{"name=a&mtu=1400", ""},
		{"name=&description=empty", ""},
		{"nosuch=1&sort_key=name&sort_dir=asc&limit=2", " a"},
		{"sort_key=name&sort_dir=asc&limit=2&page_reverse=True", "b c"},
		{"sort_key=name&sort_dir=asc&limit=0", " a b c"},
	}
	for _, tt := range tests {
		a := s.must(t, http.StatusOK, "member", http.MethodGet, "/networks?"+tt.query, nil)
		if got := a.names(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
	// Pages without the id among the fields, in the default order.
	a1 := s.must(t, http.StatusOK, "member", http.MethodGet, "/networks?fields=mtu&limit=3", nil)
	a2 := s.must(t, http.StatusOK, "member", http.MethodGet, "!"+strings.TrimPrefix(a1.links("networks")["next"], s.url), nil)
	if page1, page2 := list(a1.doc()["networks"]), list(a2.doc()["networks"]); len(page1) != 3 || len(page2) != 1 || len(first(page2)) != 1 {
		t.Errorf("pages by fields: %s, %s", a1.body, a2.body)
	}
	var walked []string
	path := "/networks?limit=1&sort_key=name&sort_dir=desc&fields=name"
	for range 6 {
		a := s.must(t, http.StatusOK, "member", http.MethodGet, path, nil)
		next, more := a.links("networks")["next"]
		if !more {
			break
		}
		walked = append(walked, a.names())
		path = "!" + strings.TrimPrefix(next, s.url)
	}
	if want := []string{"c", "b", "a", ""}; !slices.Equal(walked, want) {
		t.Errorf("pages: %q, want %q", walked, want)
	}
	a := s.must(t, http.StatusOK, "member", http.MethodGet, "/networks?name=a&fields=id&fields=tenant_id&fields=nosuch", nil)
	if o := first(a.doc()["networks"]); len(o) != 2 || o["tenant_id"] != memberProject {
		t.Errorf("fields: %s", a.body)
	}
}

func TestTagsOfEveryResource(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	paths := map[string]any{
		"networks":        net,
		"subnets":         s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, net))["id"],
		"ports":           s.create(t, "member", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"tags":["made","with"]}}`, net))["id"],
		"security-groups": s.create(t, "member", "security-groups", `{"security_group":{"name":"g"}}`)["id"],
	}
	if got := s.must(t, http.StatusOK, "member", http.MethodGet, fmt.Sprintf("/ports?tags=made,with&id=%s", paths["ports"]), nil); len(list(got.doc()["ports"])) != 1 {
		t.Errorf("a port made with tags: %s", got.body)
	}
	for collection, id := range paths {
		path := fmt.Sprintf("/%s/%s", collection, id)
		before := s.must(t, http.StatusOK, "member", http.MethodGet, path, nil)
		s.must(t, http.StatusOK, "member", http.MethodPut, path+"/tags", `{"tags":["red","b/lue"]}`)
		s.must(t, http.StatusNoContent, "member", http.MethodGet, path+"/tags/b%2Flue", nil)
		s.must(t, http.StatusCreated, "member", http.MethodPut, path+"/tags/green.json", nil)
		s.must(t, http.StatusCreated, "member", http.MethodPut, path+"/tags/green.json", nil)
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, path+"/tags/red", nil)
		s.must(t, http.StatusNotFound, "member", http.MethodDelete, path+"/tags/red", nil)
		s.must(t, http.StatusNotFound, "other", http.MethodGet, path+"/tags", nil)
		s.must(t, http.StatusNotFound, "other", http.MethodPut, path+"/tags/x", nil)
		s.must(t, http.StatusBadRequest, "member", http.MethodPut, path+"/tags", `{"tags":["x","x"]}`)
		s.must(t, http.StatusBadRequest, "member", http.MethodPut, path+"/tags", `{}`)
		s.must(t, http.StatusBadRequest, "member", http.MethodPut, path+"/tags/"+strings.Repeat("x", 256), nil)
		s.must(t, http.StatusBadRequest, "member", http.MethodPut, path+"/tags/%ff", nil)
		got := s.must(t, http.StatusOK, "member", http.MethodGet, path+"/tags", nil)
		if string(got.body) != `{"tags":["b/lue","green.json"]}` {
			t.Errorf("%s: %s", collection, got.body)
		}
		for _, filter := range []string{"tags=b/lue,green.json", "tags-any=x,green.json", "not-tags=x,green.json", "not-tags-any=x"} {
			a := s.must(t, http.StatusOK, "member", http.MethodGet, fmt.Sprintf("/%s?id=%s&%s", collection, id, filter), nil)
			if !strings.Contains(string(a.body), id.(string)) {
				t.Errorf("%s?%s: %s", collection, filter, a.body)
			}
		}
		after := s.must(t, http.StatusOK, "member", http.MethodGet, path, nil)
		if revision(before) >= revision(after) {
			t.Errorf("%s: a tag leaves the revision %v", collection, revision(after))
		}
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, path+"/tags", nil)
	}
}

func revision(a answer) float64 {
	for _, o := range a.doc() {
		n, _ := first(o)["revision_number"].(float64)
		return n
	}
	return 0
}

func TestIfMatchHolds(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	id := s.create(t, "member", "security-groups", `{"security_group":{"name":"g"}}`)["id"].(string)
	path := "/security-groups/" + id
	a := s.must(t, http.StatusOK, "member", http.MethodGet, path, nil)
	stale := map[string]string{"If-Match": fmt.Sprintf("revision_number=%v", revision(a)-1)}
	current := map[string]string{"If-Match": fmt.Sprintf(`"revision_number=%v"`, revision(a))}
	if a := s.do(t, "member", http.MethodDelete, path, nil, stale); a.status != http.StatusPreconditionFailed {
		t.Errorf("stale delete: %d %s", a.status, a.body)
	}
	if a := s.do(t, "member", http.MethodDelete, path, nil, current); a.status != http.StatusNoContent {
		t.Errorf("current delete: %d %s", a.status, a.body)
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	set := fmt.Sprintf("/quotas/%s", memberProject)
	s.must(t, http.StatusOK, "admin", http.MethodPut, set, `{"quota":{"network":2,"router":"15","trunk":0}}`)
	s.must(t, http.StatusCreated, "member", http.MethodPost, "/networks", `{"networks":[{},{}]}`)
	s.must(t, http.StatusConflict, "member", http.MethodPost, "/networks", `{"network":{}}`)
	a := s.must(t, http.StatusOK, "member", http.MethodGet, set+"/details.json", nil)
	if got := first(first(a.doc()["quota"])["network"]); got["limit"] != 2.0 || got["used"] != 2.0 || got["reserved"] != 0.0 {
		t.Errorf("details: %s", a.body)
	}
	s.must(t, http.StatusBadRequest, "admin", http.MethodPut, set+"?check_limit=true", `{"quota":{"network":1}}`)
	s.must(t, http.StatusBadRequest, "admin", http.MethodPut, set, `{"quota":{"network":1,"check_limit":true}}`)
	s.must(t, http.StatusOK, "admin", http.MethodPut, set, `{"quota":{"network":1,"force":true}}`)
	a = s.must(t, http.StatusOK, "admin", http.MethodGet, "/quotas", nil)
	if q := first(a.doc()["quotas"]); q["project_id"] != memberProject || q["network"] != 1.0 || q["router"] != 15.0 {
		t.Errorf("quotas: %s", a.body)
	}
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, set, nil)
	a = s.must(t, http.StatusOK, "member", http.MethodGet, set, nil)
	if q := first(a.doc()["quota"]); q["network"] != 100.0 || q["trunk"] != -1.0 {
		t.Errorf("after the reset: %s", a.body)
	}
	s.must(t, http.StatusForbidden, "other", http.MethodGet, set+"/default", nil)
	s.must(t, http.StatusForbidden, "other", http.MethodGet, set+"/details", nil)
	s.must(t, http.StatusForbidden, "member", http.MethodDelete, set, nil)
}

func TestAgents(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "99999999-0000-0000-0000-000000000001", "host-1")
	a := s.must(t, http.StatusOK, "admin", http.MethodGet, "/agents?host=host-1&alive=true", nil)
	agent := first(a.doc()["agents"])
	if agent["host"] != "host-1" || agent["alive"] != true || agent["admin_state_up"] != true {
		t.Fatalf("agents: %s", a.body)
	}
	path := fmt.Sprintf("/agents/%s", agent["id"])
	s.must(t, http.StatusNotFound, "member", http.MethodGet, path, nil)
	s.must(t, http.StatusNotFound, "member", http.MethodPut, path, `{"agent":{"description":"x"}}`)
	s.must(t, http.StatusBadRequest, "admin", http.MethodPut, path, `{"agent":{"host":"x"}}`)
	s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"agent":{"description":"d","admin_state_up":false}}`)
	got := first(s.must(t, http.StatusOK, "admin", http.MethodGet, path, nil).doc()["agent"])
	if got["description"] != "d" || got["admin_state_up"] != false {
		t.Errorf("after the update: %v", got)
	}
	if a := s.must(t, http.StatusConflict, "admin", http.MethodDelete, path, nil); !strings.Contains(string(a.body), "heddle host remove host-1") {
		t.Errorf("delete: %s", a.body)
	}
	s.must(t, http.StatusNotFound, "member", http.MethodDelete, path, nil)
	s.must(t, http.StatusNotFound, "admin", http.MethodDelete, "/agents/"+memberProject, nil)
}

func TestProfileOfNullUnbinds(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "99999999-0000-0000-0000-000000000002", "host-2")
	net := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	id := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"binding:host_id":"host-2"}}`, net))["id"]
	for _, step := range []struct{ body, want string }{
		{`{"port":{"binding:profile":null}}`, "unbound"},
		{`{"port":{"binding:profile":{}}}`, "tap"},
	} {
		a := s.must(t, http.StatusOK, "admin", http.MethodPut, fmt.Sprintf("/ports/%s", id), step.body)
		port := first(a.doc()["port"])
		if profile, ok := port["binding:profile"].(map[string]any); !ok || len(profile) != 0 || port["binding:vif_type"] != step.want || port["binding:host_id"] != "host-2" {
			t.Errorf("%s: %s", step.body, a.body)
		}
	}
}

// TestNothingRemainsOfARefusal: a refused list leaves nothing behind.
func TestNothingRemainsOfARefusal(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	s.create(t, "member", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, net))
	s.must(t, http.StatusConflict, "member", http.MethodPost, "/ports", fmt.Sprintf(
		`{"ports":[{"network_id":%[1]q,"fixed_ips":[{"ip_address":"10.0.0.9"}]},{"network_id":%[1]q,"fixed_ips":[{"ip_address":"10.0.0.9"}]}]}`, net))
	if a := s.must(t, http.StatusOK, "member", http.MethodGet, "/ports", nil); string(a.body) != `{"ports":[]}` {
		t.Errorf("left: %s", a.body)
	}
}

// TestExtensionsHold: every alias that is about an attribute is listed only if the attribute is in
// the answers.
func TestExtensionsHold(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	net := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)
	sub := s.create(t, "admin", "subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.0.0/24"}}`, net["id"]))
	port := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, net["id"]))
	group := s.create(t, "admin", "security-groups", `{"security_group":{"name":"g"}}`)
	promises := map[string]struct {
		object     map[string]any
		attributes string
	}{
		"external-net":                     {net, "router:external"},
		"net-mtu":                          {net, "mtu"},
		"provider":                         {net, "provider:network_type provider:physical_network provider:segmentation_id"},
		"l2_adjacency":                     {net, "l2_adjacency"},
		"project-id":                       {net, "project_id tenant_id"},
		"standard-attr-description":        {sub, "description"},
		"standard-attr-revisions":          {sub, "revision_number"},
		"standard-attr-tag":                {group, "tags"},
		"standard-attr-timestamp":          {port, "created_at updated_at"},
		"subnet-service-types":             {sub, "service_types"},
		"allowed-address-pairs":            {port, "allowed_address_pairs"},
		"binding":                          {port, "binding:host_id binding:profile binding:vif_details binding:vif_type binding:vnic_type"},
		"extra_dhcp_opt":                   {port, "extra_dhcp_opts"},
		"dns-domain-ports":                 {port, "dns_domain"},
		"dns-integration":                  {port, "dns_name dns_assignment"},
		"ip_allocation":                    {port, "ip_allocation"},
		"port-security":                    {port, "port_security_enabled"},
		"security-group":                   {port, "security_groups"},
		"stateful-security-group":          {group, "stateful"},
		"security-groups-shared-filtering": {group, "shared"},
		"security-groups-normalized-cidr":  {first(group["security_group_rules"]), "normalized_cidr"},
	}
	var doc struct {
		Extensions []struct{ Alias, Name, Description, Updated string }
	}
	if err := json.Unmarshal(s.must(t, http.StatusOK, "member", http.MethodGet, "/extensions", nil).body, &doc); err != nil {
		t.Fatal(err)
	}
	for _, e := range doc.Extensions {
		if e.Name == "" || e.Description == "" || e.Updated == "" {
			t.Errorf("%s is not described: %+v", e.Alias, e)
		}
		promise := promises[e.Alias]
		for _, attribute := range strings.Fields(promise.attributes) {
			if _, holds := promise.object[attribute]; !holds {
				t.Errorf("%s promises %s, which is not in %v", e.Alias, attribute, promise.object)
			}
		}
	}
}
