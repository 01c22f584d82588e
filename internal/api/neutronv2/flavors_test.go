package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// refused sends a request and expects an error with this type and text.
func (s *server) refused(t *testing.T, status int, who, method, path, body, text string) {
	t.Helper()
	if a := s.do(t, who, method, path, body, nil); a.status != status || !strings.Contains(string(a.body), text) {
		t.Errorf("%s %s %s as %s: %d %s, want %d %s", method, path, body, who, a.status, a.body, status, text)
	}
}

// TestFlavors: a router's flavor chooses its flags by the driver of its first profile, and neither
// goes while it is in use.
func TestFlavors(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	const l3 = "neutron.services.l3_router.service_providers."
	profile := s.create(t, "admin", "service_profiles", `{"service_profile":{"driver":"`+l3+`dvr.DvrDriver","metainfo":"{}"}}`)["id"].(string)
	flavor := s.create(t, "admin", "flavors", `{"flavor":{"name":"f","service_type":"L3_ROUTER_NAT","tenant_id":"x"}}`)["id"].(string)
	router := fmt.Sprintf(`{"router":{"flavor_id":%q}}`, flavor)
	s.refused(t, http.StatusNotFound, "member", http.MethodPost, "/routers", router, "FlavorServiceProfileBindingNotFound")
	bind := fmt.Sprintf(`{"service_profile":{"id":%q}}`, profile)
	s.refused(t, http.StatusForbidden, "member", http.MethodPost, "/flavors/"+flavor+"/service_profiles", bind, "rule:create_flavor_service_profile")
	s.must(t, http.StatusCreated, "admin", http.MethodPost, "/flavors/"+flavor+"/service_profiles", bind)
	s.refused(t, http.StatusConflict, "admin", http.MethodPost, "/flavors/"+flavor+"/service_profiles", bind, "FlavorServiceProfileBindingExists")
	s.refused(t, http.StatusOK, "member", http.MethodGet, "/flavors/"+flavor+"/next_providers", "", `"provider":"dvr"`)

	r := s.create(t, "admin", "routers", router)
	if r["flavor_id"] != flavor || r["distributed"] != true || r["ha"] != false {
		t.Errorf("router %v", r)
	}
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, "/routers", fmt.Sprintf(`{"router":{"flavor_id":%q,"ha":true}}`, flavor), "Provider dvr does not support ha=True")
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPut, fmt.Sprintf("/routers/%s", r["id"]), `{"router":{"ha":true}}`, "associated with a flavor")
	s.refused(t, http.StatusNotFound, "member", http.MethodPost, "/routers", fmt.Sprintf(`{"router":{"flavor_id":%q}}`, profile), "FlavorNotFound")
	s.refused(t, http.StatusConflict, "admin", http.MethodDelete, "/flavors/"+flavor, "", "FlavorInUse")
	s.refused(t, http.StatusConflict, "admin", http.MethodDelete, "/service_profiles/"+profile, "", "ServiceProfileInUse")
	s.refused(t, http.StatusConflict, "admin", http.MethodPut, "/service_profiles/"+profile, `{"service_profile":{"enabled":false}}`, "ServiceProfileInUse")
	s.refused(t, http.StatusForbidden, "member", http.MethodPut, "/flavors/"+flavor, `{"flavor":{"enabled":false}}`, "rule:update_flavor")
	s.must(t, http.StatusOK, "admin", http.MethodPut, "/flavors/"+flavor, `{"flavor":{"enabled":false,"description":null}}`)
	s.refused(t, http.StatusServiceUnavailable, "member", http.MethodPost, "/routers", router, "FlavorDisabled")

	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, fmt.Sprintf("/routers/%s", r["id"]), nil)
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/flavors/"+flavor+"/service_profiles/"+profile, nil)
	s.refused(t, http.StatusNotFound, "admin", http.MethodDelete, "/flavors/"+flavor+"/service_profiles/"+profile, "", "FlavorServiceProfileBindingNotFound")
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/service_profiles/"+profile, nil)
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, "/flavors/"+flavor, nil)
	if left := s.must(t, http.StatusOK, "member", http.MethodGet, "/flavors", nil).ids("flavors"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestFlavorRefusals: what flavors and profiles cannot be, and who may see what.
func TestFlavorRefusals(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	for _, x := range []struct {
		who, path, body string
		status          int
		text            string
	}{
		{"member", "/flavors", `{"flavor":{"service_type":"L3_ROUTER_NAT"}}`, 403, "rule:create_flavor is disallowed"},
		{"member", "/service_profiles", `{"service_profile":{"metainfo":"x"}}`, 403, "rule:create_service_profile is disallowed"},
		{"admin", "/flavors", `{"flavor":{"service_type":"zzz"}}`, 400, "InvalidServiceType"},
		{"admin", "/flavors", `{"flavor":{}}`, 400, "service_type"},
		{"admin", "/flavors", `{"flavor":{"service_type":"FLAVORS","service_profiles":["11111111-0000-4000-8000-000000000000"]}}`, 404, "Service Profile 11111111"},
		{"admin", "/service_profiles", `{"service_profile":{}}`, 400, "Service Profile needs either a driver or metainfo."},
		{"admin", "/service_profiles", `{"service_profile":{"driver":"zzz"}}`, 404, "ServiceProfileDriverNotFound"},
		{"admin", "/flavors/zzz/service_profiles", `{"service_profile":{}}`, 400, "id"},
		{"admin", "/flavors/zzz/service_profiles", `{}`, 400, "service_profile"},
		{"admin", "/flavors/zzz/service_profiles", `{"service_profile":{"id":"x"}}`, 404, "Flavor zzz could not be found."},
	} {
		s.refused(t, x.status, x.who, http.MethodPost, x.path, x.body, x.text)
	}
	p := s.create(t, "admin", "service_profiles", `{"service_profile":{"metainfo":"x"}}`)["id"].(string)
	s.refused(t, http.StatusNotFound, "member", http.MethodGet, "/service_profiles/"+p, "", "ServiceProfileNotFound")
	s.refused(t, http.StatusOK, "member", http.MethodGet, "/service_profiles", "", `{"service_profiles":[]}`)
	f := s.create(t, "admin", "flavors", fmt.Sprintf(`{"flavor":{"service_type":"L3_ROUTER_NAT","service_profiles":[%q]}}`, p))["id"].(string)
	s.refused(t, http.StatusNotFound, "member", http.MethodPost, "/routers", fmt.Sprintf(`{"router":{"flavor_id":%q}}`, f), "ServiceProfileDriverNotFound")
	other := s.create(t, "admin", "flavors", `{"flavor":{"service_type":"FLAVORS"}}`)["id"].(string)
	s.refused(t, http.StatusBadRequest, "member", http.MethodPost, "/routers", fmt.Sprintf(`{"router":{"flavor_id":%q}}`, other), "not of L3_ROUTER_NAT")
	for query, want := range map[string]int{"": 4, "?name=dvr": 1, "?service_type=zzz": 0} {
		if got := list(s.must(t, http.StatusOK, "member", http.MethodGet, "/service-providers"+query, nil).doc()["service_providers"]); len(got) != want {
			t.Errorf("service providers%s: %v", query, got)
		}
	}
}
