package neutronv2_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"

	"heddle/internal/control"
)

// ports makes some ports of the member on a network.
func (s *server) ports(t *testing.T, n int) []string {
	t.Helper()
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = s.create(t, "member", "ports", `{"port":{"network_id":"`+network+`"}}`)["id"].(string)
	}
	return ids
}

// TestGophercloudTrunks: an outside client makes a trunk, changes its subports and deletes it.
func TestGophercloudTrunks(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	ctx, c, p := t.Context(), s.client("member"), s.ports(t, 3)
	first := trunks.Subport{SegmentationID: 5, SegmentationType: "vlan", PortID: p[1]}
	second := trunks.Subport{SegmentationID: 6, SegmentationType: "vlan", PortID: p[2]}
	tr := must[*trunks.Trunk](t)(trunks.Create(ctx, c, trunks.CreateOpts{Name: "t", PortID: p[0], Subports: []trunks.Subport{first}}).Extract())
	if tr.Status != "DOWN" || tr.PortID != p[0] || len(tr.Subports) != 1 || tr.Subports[0] != first || tr.RevisionNumber != 0 || !tr.AdminStateUp {
		t.Errorf("made %+v", tr)
	}
	if tr = must[*trunks.Trunk](t)(trunks.AddSubports(ctx, c, tr.ID, trunks.AddSubportsOpts{Subports: []trunks.Subport{second}}).Extract()); len(tr.Subports) != 2 {
		t.Errorf("after an addition: %+v", tr)
	}
	if all := must[[]trunks.Subport](t)(trunks.GetSubports(ctx, c, tr.ID).Extract()); len(all) != 2 {
		t.Errorf("subports %+v", all)
	}
	remove := trunks.RemoveSubportsOpts{Subports: []trunks.RemoveSubport{{PortID: p[1]}}}
	if tr = must[*trunks.Trunk](t)(trunks.RemoveSubports(ctx, c, tr.ID, remove).Extract()); len(tr.Subports) != 1 || tr.Subports[0] != second {
		t.Errorf("after a removal: %+v", tr)
	}
	name := "other"
	if tr = must[*trunks.Trunk](t)(trunks.Update(ctx, c, tr.ID, trunks.UpdateOpts{Name: &name}).Extract()); tr.Name != name {
		t.Errorf("after an update: %+v", tr)
	}
	if n := count(t, trunks.List(c, trunks.ListOpts{PortID: p[0], Name: name}), trunks.ExtractTrunks); n != 1 {
		t.Errorf("%d trunks of the port", n)
	}
	noError(t, trunks.Delete(ctx, c, tr.ID).ExtractErr())
}

// TestTrunksOverHTTP: what requests are answered, by whom.
func TestTrunksOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	p := s.ports(t, 5)
	tr := s.create(t, "member", "trunks", `{"trunk":{"port_id":"`+p[0]+`"}}`)
	for name, want := range map[string]any{
		"name": "", "description": "", "admin_state_up": true, "status": "DOWN", "port_id": p[0], "revision_number": 0.0, "project_id": memberProject,
		"sub_ports": []any{}, "tags": []any{},
	} {
		if got, there := tr[name]; !there || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	item := "/trunks/" + tr["id"].(string)
	sub := func(port string, id int) string {
		return fmt.Sprintf(`{"sub_ports":[{"port_id":"%s","segmentation_type":"vlan","segmentation_id":%d}]}`, port, id)
	}
	for _, tt := range []struct {
		who, method, path, body string
		want                    int
	}{
		{"member", http.MethodGet, "/extensions/trunk-details", "", 200},
		{"member", http.MethodPut, item + "/add_subports", sub(p[1], 5), 200},
		{"member", http.MethodGet, item + "/get_subports", "", 200},
		{"reader", http.MethodGet, item, "", 200},
		{"reader", http.MethodGet, item + "/get_subports", "", 200},
		{"reader", http.MethodPut, item + "/add_subports", sub(p[2], 6), 403},
		{"reader", http.MethodPut, item + "/remove_subports", sub(p[1], 5), 403},
		{"reader", http.MethodPut, item, `{"trunk":{"name":"x"}}`, 403},
		{"reader", http.MethodDelete, item, "", 403},
		{"reader", http.MethodPost, "/trunks", `{"trunk":{"port_id":"` + p[2] + `"}}`, 403},
		{"other", http.MethodGet, item, "", 404},
		{"other", http.MethodGet, item + "/get_subports", "", 404},
		{"other", http.MethodPut, item + "/add_subports", sub(p[2], 6), 404},
		{"other", http.MethodDelete, item, "", 404},
		{"other", http.MethodPost, "/trunks", `{"trunk":{"port_id":"` + p[2] + `"}}`, 404},
		{"member", http.MethodPut, item + "/add_subports", `{}`, 400},
		{"member", http.MethodPut, item + "/add_subports", `{"sub_ports":{"port_id":"x"}}`, 400},
		{"member", http.MethodPut, item + "/add_subports", `{"sub_ports":["x"]}`, 400},
		{"member", http.MethodPut, item + "/add_subports", `{"sub_ports":[{"port_id":5}]}`, 400},
		{"member", http.MethodPut, item + "/add_subports", `{"sub_ports":[{"port_id":"` + p[2] + `","segmentation_type":[],"segmentation_id":{}}]}`, 400},
		{"member", http.MethodPut, item + "/add_subports", `[]`, 400},
		{"member", http.MethodPut, item + "/add_subports", sub(p[2], 5), 409},
		{"member", http.MethodPut, item, `{"trunk":{"port_id":"` + p[2] + `"}}`, 400},
		{"member", http.MethodPut, item, `{"trunk":{"sub_ports":[]}}`, 400},
		{"member", http.MethodPost, "/trunks", `{"trunk":{}}`, 400},
		{"member", http.MethodPost, "/trunks", `{"trunk":{"port_id":"` + p[2] + `","sub_ports":null}}`, 400},
		{"member", http.MethodPost, "/trunks", `{"trunks":[{"port_id":"` + p[2] + `"},{"port_id":"` + p[2] + `"}]}`, 409},
		{"member", http.MethodPost, "/trunks", `{"trunks":[{"port_id":"` + p[2] + `"},{"port_id":"` + p[3] + `"}]}`, 201},
		{"member", http.MethodDelete, "/ports/" + p[1], "", 409},
		{"member", http.MethodDelete, "/ports/" + p[0], "", 409},
		{"member", http.MethodPut, item + "/tags/x", "", 201},
		{"admin", http.MethodPut, "/quotas/" + memberProject, `{"quota":{"trunk":3}}`, 200},
		{"member", http.MethodPost, "/trunks", `{"trunk":{"port_id":"` + p[4] + `"}}`, 409},
		{"member", http.MethodDelete, item, "", 204},
		{"member", http.MethodDelete, item, "", 404},
		{"member", http.MethodDelete, "/ports/" + p[0], "", 204},
	} {
		var body any
		if tt.body != "" {
			body = tt.body
		}
		if got := s.do(t, tt.who, tt.method, tt.path, body, nil); got.status != tt.want {
			t.Errorf("%s %s %s %s: %d %s, want %d", tt.who, tt.method, tt.path, tt.body, got.status, got.body, tt.want)
		}
	}
}
