package neutronv2_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
)

// TestSegmentRanges: networks get ids of their project's ranges first, then of shared ones and the
// server's, and never of another project's. What is in use stays.
func TestSegmentRanges(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{VXLANs: control.IDRange{Min: 1, Max: 4}})
	list := func() map[string]map[string]any {
		found := map[string]map[string]any{}
		for _, r := range list(s.must(t, http.StatusOK, "admin", http.MethodGet, "/network_segment_ranges", nil).doc()["network_segment_ranges"]) {
			found[fmt.Sprint(first(r)["name"])] = first(r)
		}
		return found
	}
	s.refused(t, http.StatusOK, "admin", http.MethodGet, "/network-segment-ranges", "", `"default":true`)
	byDefault := list()[""]
	if byDefault["default"] != true || byDefault["minimum"] != 1.0 || byDefault["maximum"] != 4.0 {
		t.Errorf("default range %v", byDefault)
	}
	path := fmt.Sprintf("/network_segment_ranges/%s", byDefault["id"])
	s.refused(t, http.StatusBadRequest, "admin", http.MethodDelete, path, "", "NetworkSegmentRangeDefaultReadOnly")
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPut, path, `{"network_segment_range":{"maximum":9}}`, "NetworkSegmentRangeDefaultReadOnly")
	own := s.create(t, "admin", "network_segment_ranges",
		fmt.Sprintf(`{"network_segment_range":{"name":"own","shared":false,"project_id":%q,"network_type":"vxlan","minimum":3,"maximum":"4"}}`, memberProject))
	s.create(t, "admin", "network_segment_ranges",
		fmt.Sprintf(`{"network_segment_range":{"name":"other","shared":false,"project_id":%q,"network_type":"vxlan","minimum":1,"maximum":1}}`, otherProject))

	id := func(who, project string) any {
		t.Helper()
		n := s.create(t, who, "networks", `{"network":{"name":"`+project+`"}}`)
		return first(s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/networks/%s", n["id"]), nil).doc()["network"])["provider:segmentation_id"]
	}
	a, b, c := id("member", "a"), id("member", "b"), id("member", "c")
	if a == b || a != 3.0 && a != 4.0 || b != 3.0 && b != 4.0 || c != 2.0 {
		t.Errorf("ids %v, %v, %v; want 3 and 4, then 2", a, b, c)
	}
	s.must(t, http.StatusServiceUnavailable, "member", http.MethodPost, "/networks", `{"network":{}}`) // 1 is another project's
	if d := cmp.Diff(map[string]any{"3": memberProject, "4": memberProject}, list()["own"]["used"]); d != "" {
		t.Errorf("used: %s", d)
	}
	if d := cmp.Diff([]any{1.0}, list()["other"]["available"]); d != "" {
		t.Errorf("available: %s", d)
	}
	path = fmt.Sprintf("/network_segment_ranges/%s", own["id"])
	for _, body := range []string{`{"minimum":4}`, `{"maximum":3}`, `{"minimum":3,"maximum":9}`} {
		s.refused(t, http.StatusConflict, "admin", http.MethodPut, path, `{"network_segment_range":`+body+`}`, "NetworkSegmentRangeReferencedByProject")
	}
	s.refused(t, http.StatusConflict, "admin", http.MethodDelete, path, "", "NetworkSegmentRangeReferencedByProject")
	s.refused(t, http.StatusConflict, "admin", http.MethodPut, path, `{"network_segment_range":{"minimum":1,"maximum":5}}`, "NetworkSegmentRangeOverlaps")
	s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"network_segment_range":{"name":"wider","minimum":2,"maximum":5}}`)
	for _, n := range s.must(t, http.StatusOK, "member", http.MethodGet, "/networks", nil).ids("networks") {
		s.must(t, http.StatusNoContent, "member", http.MethodDelete, "/networks/"+n, nil)
	}
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, path, nil)
	s.must(t, http.StatusNotFound, "admin", http.MethodGet, path, nil)
}

// TestSegmentRangeRefusals: what a range cannot be. Members see none.
func TestSegmentRangeRefusals(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.create(t, "admin", "network_segment_ranges", `{"network_segment_range":{"network_type":"vlan","physical_network":"p","minimum":5,"maximum":6}}`)
	s.create(t, "admin", "network_segment_ranges", `{"network_segment_range":{"network_type":"vlan","physical_network":"q","minimum":5,"maximum":6}}`)
	s.refused(t, http.StatusOK, "member", http.MethodGet, "/network_segment_ranges", "", `{"network_segment_ranges":[]}`)
	for _, x := range []struct {
		who, body string
		status    int
		text      string
	}{
		{"member", `"network_type":"vxlan","minimum":1,"maximum":2`, 403, "rule:create_network_segment_range"},
		{"admin", `"network_type":"flat","minimum":1,"maximum":2`, 400, "flat is not in valid_values"},
		{"admin", `"network_type":"gre","minimum":1,"maximum":2`, 400, "NetworkSegmentRangeNetTypeNotSupported"},
		{"admin", `"network_type":"vxlan","minimum":1`, 400, "maximum"},
		{"admin", `"network_type":"vxlan","minimum":3,"maximum":2`, 400, "InvalidInput"},
		{"admin", `"network_type":"vxlan","minimum":3,"maximum":16777216`, 400, "InvalidInput"},
		{"admin", `"network_type":"vlan","minimum":3,"maximum":4`, 400, "physical_network"},
		{"admin", `"network_type":"vlan","physical_network":"p","minimum":3,"maximum":4095`, 400, "InvalidInput"},
		{"admin", `"network_type":"vlan","physical_network":"p","minimum":6,"maximum":7`, 409, "NetworkSegmentRangeOverlaps"},
		{"admin", `"network_type":"vxlan","shared":false,"project_id":"","minimum":3,"maximum":4`, 400, "project_id"},
	} {
		s.refused(t, x.status, x.who, http.MethodPost, "/network_segment_ranges", `{"network_segment_range":{`+x.body+`}}`, x.text)
	}
	if a := s.do(t, "member", http.MethodGet, "/network_segment_ranges/x", nil, nil); a.status != http.StatusNotFound || !strings.Contains(string(a.body), "Network Segment Range x could not be found.") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestSegments: every network has one segment, which admins may name, and which goes with it.
func TestSegments(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	n := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	s.create(t, "member", "networks", `{"network":{}}`)
	all := s.must(t, http.StatusOK, "admin", http.MethodGet, "/segments", nil).ids("segments")
	found := s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/segments?network_id=%s", n), nil).ids("segments")
	if len(all) != 2 || !slices.IsSorted(all) || len(found) != 1 || !slices.Contains(all, found[0]) {
		t.Fatalf("segments %v, of the network %v", all, found)
	}
	path := "/segments/" + found[0]
	got := first(s.must(t, http.StatusOK, "admin", http.MethodGet, path, nil).doc()["segment"])
	network := first(s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/networks/%s", n), nil).doc()["network"])
	if got["network_id"] != n || got["network_type"] != "vxlan" || got["physical_network"] != nil || got["name"] != nil ||
		got["segmentation_id"] != network["provider:segmentation_id"] || got["created_at"] != network["created_at"] {
		t.Errorf("%v of %v", got, network)
	}
	got = first(s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"segment":{"name":"s","description":"d"}}`).doc()["segment"])
	if got["name"] != "s" || got["description"] != "d" || got["revision_number"] != 1.0 {
		t.Errorf("updated: %v", got)
	}
	if ids := s.must(t, http.StatusOK, "admin", http.MethodGet, "/segments?name=s", nil).ids("segments"); len(ids) != 1 {
		t.Errorf("by name: %v", ids)
	}
	s.must(t, http.StatusBadRequest, "admin", http.MethodPut, path, `{"segment":{"network_type":"vlan"}}`)
	s.refused(t, http.StatusConflict, "admin", http.MethodDelete, path, "", "SegmentInUse")
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, "/segments", fmt.Sprintf(`{"segment":{"network_id":%q,"network_type":"vxlan"}}`, n), "have one segment each")
	s.refused(t, http.StatusNotFound, "admin", http.MethodPost, "/segments", `{"segment":{"network_id":"11111111-0000-4000-8000-000000000000","network_type":"vxlan"}}`, "NetworkNotFound")
	s.refused(t, http.StatusForbidden, "member", http.MethodPost, "/segments", fmt.Sprintf(`{"segment":{"network_id":%q,"network_type":"vxlan"}}`, n), "rule:create_segment")
	s.refused(t, http.StatusOK, "member", http.MethodGet, "/segments", "", `{"segments":[]}`)
	s.refused(t, http.StatusNotFound, "member", http.MethodPut, path, `{"segment":{"name":"x"}}`, "SegmentNotFound")
	s.must(t, http.StatusNoContent, "member", http.MethodDelete, fmt.Sprintf("/networks/%s", n), nil)
	s.refused(t, http.StatusNotFound, "admin", http.MethodGet, path, "", "Segment "+found[0]+" could not be found.")
}

// TestRoutedProviderNetwork: on a network whose subnets name its segment ports get addresses with
// their host, and have none on hosts that do not carry its physical network.
func TestRoutedProviderNetwork(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "11111111-0000-4000-8000-000000000000", "host-1")
	s.addHost(t, "22222222-0000-4000-8000-000000000000", "host-2")
	s.carry(t, "11111111-0000-4000-8000-000000000000", "physnet1")
	n := s.create(t, "admin", "networks", `{"network":{"provider:network_type":"vlan","provider:physical_network":"physnet1","provider:segmentation_id":7}}`)["id"]
	segment := s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/segments?network_id=%s", n), nil).ids("segments")[0]
	other := s.create(t, "admin", "networks", `{"network":{}}`)["id"]
	subnet := func(network any, cidr, segment string) string {
		return fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":%q%s}}`, network, cidr, segment)
	}
	on := fmt.Sprintf(`,"segment_id":%q`, segment)
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, "/subnets", subnet(other, "10.9.0.0/24", on), "NetworkIdsDontMatch")
	s.refused(t, http.StatusNotFound, "admin", http.MethodPost, "/subnets", subnet(n, "10.9.0.0/24", `,"segment_id":"11111111-0000-4000-8000-000000000000"`), "SegmentNotFound")
	sub := s.create(t, "admin", "subnets", subnet(n, "10.0.0.0/24", ""))["id"]
	adjacent := func() any {
		return first(s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/networks/%s", n), nil).doc()["network"])["l2_adjacency"]
	}
	if adjacent() != true {
		t.Error("not adjacent without segments")
	}
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, "/subnets", subnet(n, "10.1.0.0/24", on), "SubnetsNotAllAssociatedWithSegments")
	s.refused(t, http.StatusOK, "admin", http.MethodPut, fmt.Sprintf("/subnets/%s", sub), `{"subnet":{`+on[1:]+`}}`, segment)
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPut, fmt.Sprintf("/subnets/%s", sub), `{"subnet":{"segment_id":null}}`, "SubnetSegmentAssociationChangeNotAllowed")
	if adjacent() != false {
		t.Error("adjacent with segments")
	}

	p := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, n))
	if p["ip_allocation"] != "deferred" || len(list(p["fixed_ips"])) != 0 {
		t.Errorf("without a host: %v", p)
	}
	path := fmt.Sprintf("/ports/%s", p["id"])
	s.refused(t, http.StatusConflict, "admin", http.MethodPut, path, `{"port":{"binding:host_id":"host-2"}}`, "HostNotConnectedToAnySegment")
	p = first(s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"port":{"binding:host_id":"host-1"}}`).doc()["port"])
	if p["ip_allocation"] != "immediate" || len(list(p["fixed_ips"])) != 1 {
		t.Errorf("on a host: %v", p)
	}
	s.refused(t, http.StatusConflict, "admin", http.MethodPut, path, `{"port":{"binding:host_id":"host-2"}}`, "HostNotCompatibleWithFixedIps")
	s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"port":{"binding:host_id":""}}`)

	create := func(attributes string) string { return fmt.Sprintf(`{"port":{"network_id":%q,%s}}`, n, attributes) }
	s.refused(t, http.StatusConflict, "admin", http.MethodPost, "/ports", create(`"binding:host_id":"host-2"`), "HostNotConnectedToAnySegment")
	s.refused(t, http.StatusConflict, "admin", http.MethodPost, "/ports", create(`"binding:host_id":"nobody"`), "HostNotConnectedToAnySegment")
	for attributes, want := range map[string]string{`"binding:host_id":"host-1"`: "immediate", `"fixed_ips":[{"ip_address":"10.0.0.77"}]`: "immediate", `"fixed_ips":[]`: "none",
		`"device_owner":"network:dhcp"`: "immediate"} {
		if p := s.create(t, "admin", "ports", create(attributes)); p["ip_allocation"] != want || (len(list(p["fixed_ips"])) == 0) != (want == "none") {
			t.Errorf("%s: %v", attributes, p)
		}
	}

	waiting := s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q}}`, n))["id"]
	bindings := fmt.Sprintf("/ports/%s/bindings", waiting)
	s.must(t, http.StatusOK, "admin", http.MethodPut, fmt.Sprintf("/ports/%s", waiting), `{"port":{"device_id":"x","device_owner":"compute:nova"}}`)
	s.must(t, http.StatusCreated, "admin", http.MethodPost, bindings, `{"binding":{"host":"host-1"}}`)
	s.must(t, http.StatusOK, "admin", http.MethodPut, bindings+"/host-1/activate", nil)
	if p = first(s.must(t, http.StatusOK, "admin", http.MethodGet, fmt.Sprintf("/ports/%s", waiting), nil).doc()["port"]); len(list(p["fixed_ips"])) != 1 {
		t.Errorf("bound by activation: %v", p)
	}
}
