package neutronv2_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/extraroutes"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"

	"heddle/internal/api/neutronv2"
	"heddle/internal/control"
)

// TestGophercloudRouters: an outside client makes a router, gives it a gateway, interfaces and
// routes, and takes them away again.
func TestGophercloudRouters(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{}, neutronv2.NewWithRouters)
	ctx, c := t.Context(), s.client("member")
	external := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"].(string)
	s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+external+`","ip_version":4,"cidr":"172.24.4.0/24"}}`)
	network := s.create(t, "member", "networks", `{"network":{}}`)["id"].(string)
	subnet := s.create(t, "member", "subnets", `{"subnet":{"network_id":"`+network+`","ip_version":4,"cidr":"10.0.0.0/24"}}`)["id"].(string)
	yes := true
	r := must[*routers.Router](t)(routers.Create(ctx, c, routers.CreateOpts{
		Name: "r", AdminStateUp: &yes, GatewayInfo: &routers.GatewayInfo{NetworkID: external},
	}).Extract())
	if r.GatewayInfo.NetworkID != external || !*r.GatewayInfo.EnableSNAT || !strings.HasPrefix(r.GatewayInfo.ExternalFixedIPs[0].IPAddress, "172.24.4.") {
		t.Errorf("router %+v", r)
	}
	i := must[*routers.InterfaceInfo](t)(routers.AddInterface(ctx, c, r.ID, routers.AddInterfaceOpts{SubnetID: subnet}).Extract())
	if i.SubnetID != subnet || i.ID != r.ID {
		t.Errorf("interface %+v", i)
	}
	routes := []routers.Route{{DestinationCIDR: "10.9.0.0/16", NextHop: "10.0.0.9"}}
	if r = must[*routers.Router](t)(extraroutes.Add(ctx, c, r.ID, extraroutes.Opts{Routes: &routes}).Extract()); len(r.Routes) != 1 {
		t.Errorf("routes %v", r.Routes)
	}
	if r = must[*routers.Router](t)(extraroutes.Remove(ctx, c, r.ID, extraroutes.Opts{Routes: &routes}).Extract()); len(r.Routes) != 0 {
		t.Errorf("routes %v", r.Routes)
	}
	if n := count(t, routers.List(c, routers.ListOpts{Name: "r"}), routers.ExtractRouters); n != 1 {
		t.Errorf("%d routers", n)
	}
	if n := count(t, routers.List(s.client("other"), routers.ListOpts{}), routers.ExtractRouters); n != 0 {
		t.Errorf("another project sees %d routers", n)
	}
	name := "renamed"
	if r = must[*routers.Router](t)(routers.Update(ctx, c, r.ID, routers.UpdateOpts{Name: name, GatewayInfo: &routers.GatewayInfo{}}).Extract()); r.Name != name || r.GatewayInfo.NetworkID != "" {
		t.Errorf("router %+v", r)
	}
	must[*routers.InterfaceInfo](t)(routers.RemoveInterface(ctx, c, r.ID, routers.RemoveInterfaceOpts{PortID: i.PortID}).Extract())
	noError(t, routers.Delete(ctx, c, r.ID).ExtractErr())
}

// TestRoutersOverHTTP: tags, filters, sorting, If-Match, quotas and bodies that are none.
func TestRoutersOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, control.Options{Quotas: map[string]int{"router": 2}}, neutronv2.NewWithRouters)
	id := s.create(t, "member", "routers", `{"router":{"name":"b"}}`)["id"].(string)
	s.create(t, "member", "routers", `{"router":{"name":"a"}}`)
	item := "/routers/" + id
	gateway := func(network string) string { return `{"network_id":"` + network + `"}` }
	external := func(cidr string) string {
		n := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"].(string)
		s.create(t, "admin", "subnets", `{"subnet":{"network_id":"`+n+`","ip_version":4,"cidr":"`+cidr+`"}}`)
		return n
	}
	first, second := external("203.0.113.0/24"), external("198.51.100.0/24")
	for _, tt := range []struct {
		method, path, body string
		header             map[string]string
		status             int
		want               string
	}{
		{http.MethodPost, "/routers", `{"router":{}}`, nil, 409, `Quota exceeded for resources: ['router'].`},
		{http.MethodGet, "/routers?fields=name&sort_key=name&sort_dir=asc", ``, nil, 200, `{"routers":[{"name":"a"},{"name":"b"}]}`},
		{http.MethodGet, "/routers?fields=name&name=b", ``, nil, 200, `{"routers":[{"name":"b"}]}`},
		{http.MethodPut, item + "/tags/red", ``, nil, 201, ``},
		{http.MethodGet, "/routers?fields=name&tags=red", ``, nil, 200, `{"routers":[{"name":"b"}]}`},
		{http.MethodGet, item + "?fields=revision_number", ``, nil, 200, `{"router":{"revision_number":2}}`},
		{http.MethodPut, item, `{"router":{"name":"c"}}`, map[string]string{"If-Match": "revision_number=1"}, 412, `Constrained to 1, but current revision is 2`},
		{http.MethodPut, item + "/add_router_interface", `[]`, nil, 400, `Body contains invalid data`},
		{http.MethodPut, item + "/add_router_interface", `{"subnet_id":{}}`, nil, 400, `Bad router request: '{}' is not a valid UUID.`},
		{http.MethodPut, item + "/add_extraroutes", `{}`, nil, 400, `Unable to find 'router' in request body`},
		{http.MethodPut, item + "/add_extraroutes", `{"router":{"routes":5}}`, nil, 400, `Invalid input for routes. Reason: Invalid data format for hostroute: '5'.`},
		{http.MethodPut, item + "/add_external_gateways", `{"router":{"external_gateways":[` + gateway(first) + `,` + gateway(second) + `]}}`, nil, 200,
			`"external_gateway_info":{"network_id":"` + first + `","external_fixed_ips":[{`},
		{http.MethodGet, item + "?fields=external_gateways", ``, nil, 200, `},{"network_id":"` + second + `","external_fixed_ips":[{"subnet_id":"`},
		{http.MethodGet, "/routers?fields=external_gateways&name=b", ``, nil, 200, `},{"network_id":"` + second + `","external_fixed_ips":[{"subnet_id":"`},
		{http.MethodPut, item + "/remove_external_gateways", `{"router":{"external_gateways":[` + gateway(first) + `]}}`, nil, 200,
			`"external_gateways":[{"network_id":"` + second},
		{http.MethodPut, item + "/remove_external_gateways", `{"router":{"external_gateways":[` + gateway(first) + `]}}`, nil, 400, `"type":"UnableToMatchGateways"`},
		{http.MethodPut, item + "/update_external_gateways", `{"router":{"external_gateways":[{}]}}`, nil, 400,
			`Invalid input for external_gateways. Reason: Validation of dictionary's keys failed. Expected keys: {'network_id'} Provided keys: set().`},
		{http.MethodPut, item + "/update_external_gateways", `{"router":{"external_gateways":5}}`, nil, 400, `Invalid input for external_gateways. Reason: '5' is not a list.`},
		{http.MethodPut, item + "/update_external_gateways", `{"router":{"name":"x"}}`, nil, 400, `Unrecognized attribute(s) 'name'`},
		{http.MethodPut, item + "/update_external_gateways", `{"router":{}}`, nil, 400, `Required attribute 'external_gateways' not specified`},
		{http.MethodPut, item + "/update_external_gateways", `{"router":{"external_gateways":null}}`, nil, 200, `"external_gateways":[]`},
		{http.MethodGet, "/extensions/external-gateway-multihoming", ``, nil, 200, `"alias":"external-gateway-multihoming"`},
		{http.MethodGet, item + "/add_router_interface", ``, nil, 405, `HTTPMethodNotAllowed`},
		{http.MethodGet, "/extensions/extraroute-atomic", ``, nil, 200, `Atomically add/remove extra routes`},
		{http.MethodGet, "/quotas/" + memberProject + "/details", ``, nil, 200, `"router":{"limit":2,"used":2,"reserved":0}`},
		{http.MethodDelete, item, ``, nil, 204, ``},
	} {
		got := s.do(t, "member", tt.method, tt.path, tt.body, tt.header)
		if got.status != tt.status || !strings.Contains(string(got.body), tt.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tt.method, tt.path, tt.body, got.status, got.body, tt.status, tt.want)
		}
	}
}
