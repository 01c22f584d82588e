package neutronv2_test

import (
	"fmt"
	"net/http"
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
