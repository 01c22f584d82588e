package neutronv2_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"heddle/internal/control"
)

const ownTopology = "/auto-allocated-topology/None"

// topologyServer is a server with default subnet pools of both IP versions and a default external
// network, whose ids it returns.
func topologyServer(t *testing.T) (s *server, external string) {
	t.Helper()
	s = newServer(t, control.Options{})
	external = s.create(t, "admin", "networks", `{"network":{"router:external":true,"is_default":true}}`)["id"].(string)
	s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+external+`","ip_version":4,"cidr":"203.0.113.0/24"}}`)
	for prefix, least := range map[string]int{"10.8.0.0/15": 24, "fd08::/48": 64} {
		s.create(t, "admin", "subnetpools",
			fmt.Sprintf(`{"subnetpool":{"name":"p","prefixes":[%q],"min_prefixlen":%d,"shared":true,"is_default":true}}`, prefix, least))
	}
	return s, external
}

// topologyID returns the network of a topology that is there, or made.
func topologyID(t *testing.T, s *server, who, path string) string {
	t.Helper()
	return fmt.Sprint(first(s.must(t, http.StatusOK, who, http.MethodGet, path, nil).doc()["auto_allocated_topology"])["id"])
}

// countTopology returns how many networks, subnets and routers a project has.
func countTopology(t *testing.T, s *server, who string) (counts [3]int) {
	t.Helper()
	for i, collection := range []string{"networks", "subnets", "routers"} {
		counts[i] = len(s.must(t, http.StatusOK, who, http.MethodGet, "/"+collection+"?project_id="+tokens[who].ProjectID, nil).ids(collection))
	}
	return counts
}

// TestAutoTopology: a project gets one network with a subnet of each default pool behind a router,
// once, and it is deleted as a whole.
func TestAutoTopology(t *testing.T) {
	t.Parallel()
	s, external := topologyServer(t)
	s.refused(t, http.StatusOK, "member", http.MethodGet, ownTopology+"?fields=dry-run", "",
		`{"auto_allocated_topology":{"id":"dry-run=pass","tenant_id":"`+memberProject+`"}}`)
	if got := countTopology(t, s, "member"); got != [3]int{} {
		t.Fatalf("%v after a dry run", got)
	}
	id := topologyID(t, s, "member", ownTopology)
	s.refused(t, http.StatusOK, "member", http.MethodGet, ownTopology, "",
		`{"auto_allocated_topology":{"id":"`+id+`","project_id":"`+memberProject+`","tenant_id":"`+memberProject+`"}}`)
	s.must(t, http.StatusOK, "member", http.MethodGet, "/auto-allocated-topology/"+memberProject+".json", nil)
	if got := countTopology(t, s, "member"); got != [3]int{1, 2, 1} {
		t.Fatalf("%v networks, subnets and routers", got)
	}
	network := first(s.must(t, http.StatusOK, "member", http.MethodGet, "/networks/"+id, nil).doc()["network"])
	if network["name"] != "auto_allocated_network" || network["admin_state_up"] != true || network["project_id"] != memberProject {
		t.Errorf("network %v", network)
	}
	names := map[any]bool{}
	for _, sub := range list(s.must(t, http.StatusOK, "member", http.MethodGet, "/subnets?network_id="+id, nil).doc()["subnets"]) {
		names[first(sub)["name"]] = true
	}
	if !names["auto_allocated_subnet_v4"] || !names["auto_allocated_subnet_v6"] {
		t.Errorf("subnets %v", names)
	}
	router := first(list(s.must(t, http.StatusOK, "member", http.MethodGet, "/routers?name=auto_allocated_router", nil).doc()["routers"])[0])
	if got := first(router["external_gateway_info"])["network_id"]; got != external || router["admin_state_up"] != true {
		t.Errorf("router %v", router)
	}
	if got := len(s.must(t, http.StatusOK, "member", http.MethodGet, "/ports?device_owner=network:router_interface&network_id="+id, nil).ids("ports")); got != 2 {
		t.Errorf("%d interfaces", got)
	}

	port := s.create(t, "member", "ports", `{"port":{"network_id":"`+id+`"}}`)["id"].(string)
	s.refused(t, http.StatusConflict, "member", http.MethodDelete, ownTopology, "", "NetworkInUse")
	if got := countTopology(t, s, "member"); got != [3]int{1, 2, 1} {
		t.Errorf("%v after a refusal", got)
	}
	s.must(t, http.StatusNoContent, "member", http.MethodDelete, "/ports/"+port, nil)
	for range 2 {
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, ownTopology, nil)
	}
	if got := countTopology(t, s, "member"); got != [3]int{} {
		t.Errorf("%v left", got)
	}
}

// TestAutoTopologyParts: what users do to the parts of a topology leaves none behind that cannot be
// had again or deleted.
func TestAutoTopologyParts(t *testing.T) {
	t.Parallel()
	s, _ := topologyServer(t)
	id := topologyID(t, s, "member", ownTopology)
	router := s.must(t, http.StatusOK, "member", http.MethodGet, "/routers", nil).ids("routers")[0]
	for _, subnet := range s.must(t, http.StatusOK, "member", http.MethodGet, "/subnets?network_id="+id, nil).ids("subnets") {
		s.must(t, http.StatusOK, "member", http.MethodPut, "/routers/"+router+"/remove_router_interface", `{"subnet_id":"`+subnet+`"}`)
	}
	s.must(t, http.StatusNoContent, "member", http.MethodDelete, "/routers/"+router, nil)
	if again := topologyID(t, s, "member", ownTopology); again != id {
		t.Errorf("network %s without a router, %s with one", again, id)
	}
	s.must(t, http.StatusNoContent, "member", http.MethodDelete, "/networks/"+id, nil)
	if again := topologyID(t, s, "member", ownTopology); again == id {
		t.Errorf("network %s was deleted", id)
	}
	s.must(t, http.StatusNoContent, "member", http.MethodDelete, ownTopology, nil)
	if got := countTopology(t, s, "member"); got != [3]int{} {
		t.Errorf("%v left", got)
	}
}

// TestAutoTopologyOnce: requests at once get the same network.
func TestAutoTopologyOnce(t *testing.T) {
	t.Parallel()
	s, _ := topologyServer(t)
	var wait sync.WaitGroup
	var ids [4]string
	for i := range ids {
		wait.Go(func() {
			a := s.do(t, "member", http.MethodGet, ownTopology, nil, nil)
			ids[i] = fmt.Sprint(first(a.doc()["auto_allocated_topology"])["id"])
		})
	}
	wait.Wait()
	for _, id := range ids[1:] {
		if id != ids[0] {
			t.Errorf("networks %v", ids)
		}
	}
	if got := countTopology(t, s, "member"); got != [3]int{1, 2, 1} {
		t.Errorf("%v networks, subnets and routers", got)
	}
}

// TestAutoTopologyMissing: what is missing is named as by the reference, and nothing is left.
func TestAutoTopologyMissing(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{Quotas: map[string]int{"router": 0}})
	refuse := func(query, text string) {
		t.Helper()
		s.refused(t, http.StatusConflict, "member", http.MethodGet, ownTopology+query, "", text)
		if got := countTopology(t, s, "member"); got != [3]int{} {
			t.Errorf("%v left", got)
		}
	}
	failure := func(reason string) string {
		return `"type":"AutoAllocationFailure","message":"Deployment error: ` + reason + `."`
	}
	refuse("", failure("No default router:external network"))
	refuse("?fields=dry-run", failure("No default router:external network"))
	external := s.create(t, "admin", "networks", `{"network":{"router:external":true,"is_default":true}}`)["id"].(string)
	refuse("", failure("Unable to provide tenant private network"))
	refuse("?fields=dry-run", failure("No default subnetpools defined"))
	pool := s.create(t, "admin", "subnetpools", `{"subnetpool":{"name":"p","prefixes":["10.8.0.0/24"],"is_default":true,"min_prefixlen":24}}`)["id"].(string)
	refuse("?fields=dry-run", failure("No default subnetpools defined")) // the member does not see it
	s.create(t, "admin", "rbac-policies", `{"rbac_policy":{"object_type":"subnetpool","object_id":"`+pool+`","action":"access_as_shared","target_tenant":"*"}}`)
	s.must(t, http.StatusOK, "member", http.MethodGet, ownTopology+"?fields=dry-run", nil)
	refuse("", "OverQuota")
	quota := func(n int) {
		s.must(t, http.StatusOK, "admin", http.MethodPut, "/quotas/"+memberProject, fmt.Sprintf(`{"quota":{"router":%d}}`, n))
	}
	quota(1)
	taken := s.create(t, "admin", "networks", `{"network":{}}`)["id"].(string)
	subnet := s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+taken+`","ip_version":4,"subnetpool_id":"`+pool+`"}}`)["id"].(string)
	refuse("", failure("Unable to provide tenant private network"))
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/subnets/"+subnet, nil)
	s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+external+`","ip_version":4,"cidr":"203.0.113.0/24"}}`)
	id := topologyID(t, s, "member", ownTopology)
	s.must(t, http.StatusOK, "admin", http.MethodPut, "/networks/"+external, `{"network":{"is_default":false}}`)
	if again := topologyID(t, s, "member", ownTopology); again != id {
		t.Errorf("%s, before %s", again, id)
	}
	s.refused(t, http.StatusBadRequest, "member", http.MethodGet, ownTopology+"?fields=id", "", "Bad auto_allocate request: Unrecognized field.")
}

// TestAutoTopologyPolicy: a topology is for its project and admins; readers only see it.
func TestAutoTopologyPolicy(t *testing.T) {
	t.Parallel()
	s, _ := topologyServer(t)
	path := "/auto-allocated-topology/" + memberProject
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		s.refused(t, http.StatusForbidden, "other", method, path, "", "Not authorized.")
	}
	s.refused(t, http.StatusForbidden, "reader", http.MethodGet, path, "", "rule:get_auto_allocated_topology is disallowed by policy")
	id := topologyID(t, s, "admin", path)
	if got := topologyID(t, s, "reader", ownTopology); got != id {
		t.Errorf("%s, the admin has %s", got, id)
	}
	s.refused(t, http.StatusForbidden, "reader", http.MethodDelete, path, "", "rule:delete_auto_allocated_topology is disallowed by policy")
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, path, nil)
	if got := countTopology(t, s, "member"); got != [3]int{} {
		t.Errorf("%v left", got)
	}
}
