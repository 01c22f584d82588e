package neutron_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
)

func aRouter() *neutron.RouterView {
	return &neutron.RouterView{
		Router: &neutron.Router{
			Standard: aStandard(), AdminStateUp: true,
			Gateways: []neutron.RouterGateway{{NetworkID: uuid1, PortID: uuid2, EnableSNAT: true}, {NetworkID: uuid2, PortID: uuid1}},
			Routes:   []neutron.HostRoute{{Destination: netip.MustParsePrefix("10.9.0.0/16"), Nexthop: netip.MustParseAddr("10.0.0.9")}},
		},
		Status:           "ACTIVE",
		ExternalFixedIPs: []neutron.FixedIP{{SubnetID: uuid2, IPAddress: netip.MustParseAddr("172.24.4.5")}},
		OtherFixedIPs:    [][]neutron.FixedIP{{{SubnetID: uuid1, IPAddress: netip.MustParseAddr("192.0.2.5")}}},
	}
}

// TestRouterAnswer: who sees what of a router, as recorded of the reference.
func TestRouterAnswer(t *testing.T) {
	t.Parallel()
	table := neutron.NewTables("").Routers
	member := "admin_state_up availability_zone_hints availability_zones conntrack_helpers created_at description enable_ndp_proxy " +
		"external_gateway_info external_gateways flavor_id id name project_id revision_number routes status tags tenant_id updated_at"
	for name, tt := range map[string]struct {
		answer []byte
		want   string
	}{
		"a member's":     {table.Encoder(false, nil).Append(nil, aRouter()), member},
		"an admin's":     {table.Encoder(true, nil).Append(nil, aRouter()), member + " distributed ha"},
		"of an action":   {table.Whole().Append(nil, aRouter()), member + " distributed ha gw_port_id ha_vr_id"},
		"of one field":   {table.Encoder(false, []string{"name", "gw_port_id"}).Append(nil, aRouter()), "name"},
		"without fields": {table.Encoder(false, []string{"nosuch"}).Append(nil, aRouter()), ""},
	} {
		want := map[string]bool{}
		for _, field := range strings.Fields(tt.want) {
			want[field] = true
		}
		got := map[string]bool{}
		for _, key := range keys(t, tt.answer) {
			got[key] = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(table.Whole().Append(nil, aRouter()), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"gw_port_id": uuid2,
		"routes":     []any{map[string]any{"destination": "10.9.0.0/16", "nexthop": "10.0.0.9"}},
		"external_gateway_info": map[string]any{"network_id": uuid1, "enable_snat": true,
			"external_fixed_ips": []any{map[string]any{"subnet_id": uuid2, "ip_address": "172.24.4.5"}}},
		"external_gateways": []any{
			map[string]any{"network_id": uuid1, "enable_snat": true,
				"external_fixed_ips": []any{map[string]any{"subnet_id": uuid2, "ip_address": "172.24.4.5"}}},
			map[string]any{"network_id": uuid2, "enable_snat": false,
				"external_fixed_ips": []any{map[string]any{"subnet_id": uuid1, "ip_address": "192.0.2.5"}}},
		},
	} {
		if d := cmp.Diff(want, got[key]); d != "" {
			t.Errorf("%s: -want +got\n%s", key, d)
		}
	}
	plain := aRouter()
	plain.Gateways = nil
	if answer := string(table.Encoder(false, []string{"external_gateway_info", "external_gateways"}).Append(nil, plain)); answer != `{"external_gateway_info":null,"external_gateways":[]}` {
		t.Errorf("without a gateway: %s", answer)
	}
}

func TestParseRouter(t *testing.T) {
	t.Parallel()
	const gateway, invalid = `{"external_gateway_info":`, "Invalid input for external_gateway_info. Reason: "
	for _, tt := range []struct {
		op         neutron.Op
		text, want string
	}{
		{neutron.Create, `{}`, ""},
		{neutron.Create, gateway + `null}`, ""},
		{neutron.Create, gateway + `{}}`, ""},
		{neutron.Create, gateway + `{"network_id":"` + uuid1 + `"}}`, ""},
		{neutron.Update, gateway + `{"network_id":"` + uuid1 + `","enable_snat":"false","external_fixed_ips":[{"ip_address":"192.0.2.1"}]}}`, ""},
		{neutron.Update, gateway + `{"network_id":"` + uuid1 + `","external_fixed_ips":null}}`, ""},
		{neutron.Update, gateway + `{"foo":1}}`, invalid + "Validation of dictionary's keys failed. Expected keys: {'network_id'} Provided keys: {'foo'}."},
		{neutron.Update, gateway + `{"network_id":"` + uuid1 + `","foo":1}}`, invalid + "Unexpected keys supplied: foo."},
		{neutron.Update, gateway + `{"network_id":"x"}}`, invalid + "'x' is not a valid UUID."},
		{neutron.Update, gateway + `"x"}`, invalid + "'x' is not a dictionary."},
		{neutron.Update, gateway + `{"network_id":"` + uuid1 + `","enable_snat":"perhaps"}}`, "Invalid input for operation: 'perhaps' cannot be converted to boolean."},
		{neutron.Update, gateway + `{"network_id":"` + uuid1 + `","external_fixed_ips":5}}`, invalid + "Invalid data format for fixed IP: '5'."},
		{neutron.Create, `{"routes":[]}`, "Attribute 'routes' not allowed in POST"},
		{neutron.Update, `{"routes":[{"destination":"10.0.0.0/8"}]}`, "Invalid input for routes. Reason: Validation of dictionary's keys failed. " +
			"Expected keys: {'destination', 'nexthop'} Provided keys: {'destination'}."},
		{neutron.Create, `{"external_gateways":[]}`, "Attribute 'external_gateways' not allowed in POST"},
		{neutron.Update, `{"external_gateways":[]}`, "Cannot update read-only attribute external_gateways"},
		{neutron.Create, `{"status":"ACTIVE"}`, "Attribute 'status' not allowed in POST"},
		{neutron.Create, `{"gw_port_id":"` + uuid1 + `"}`, "Unrecognized attribute(s) 'gw_port_id'"},
		{neutron.Create, `{"flavor_id":"x"}`, "Invalid input for flavor_id. Reason: 'x' is not a valid UUID."},
	} {
		if _, err := neutron.Parse(admin, neutron.Routers, tt.op, decode(t, tt.text)); message(err) != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.op, tt.text, message(err), tt.want)
		}
	}
}

func message(err error) string {
	var e *neutron.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

func TestParseInterface(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body   string
		remove bool
		want   string
	}{
		{`{"subnet_id":"` + uuid1 + `"}`, false, ""},
		{`{"port_id":"` + uuid1 + `"}`, false, ""},
		{`{"port_id":"` + uuid1 + `","subnet_id":"` + uuid2 + `"}`, true, ""},
		{`{}`, false, "Bad router request: Either subnet_id or port_id must be specified."},
		{`{}`, true, "Bad router request: Either subnet_id or port_id must be specified."},
		{`{"port_id":"` + uuid1 + `","subnet_id":"` + uuid2 + `"}`, false, "Bad router request: Cannot specify both subnet-id and port-id."},
		{`{"subnet_id":5}`, false, "Bad router request: '5' is not a valid UUID."},
		{`{"port_id":null}`, true, "Bad router request: 'None' is not a valid UUID."},
	} {
		if _, err := neutron.ParseInterface(decode(t, tt.body), tt.remove); message(err) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.body, message(err), tt.want)
		}
	}
}

// TestRouterPolicy: members may set the network of a gateway and nothing else of it, in the words
// recorded of the reference.
func TestRouterPolicy(t *testing.T) {
	t.Parallel()
	own := neutron.Owner{ProjectID: "p"}
	reader := neutron.Caller{ProjectID: "p", Roles: []string{"reader"}}
	const gateway, network = `{"external_gateway_info":{"network_id":"` + uuid1 + `"`, "rule:update_router:external_gateway_info:network_id"
	for _, tt := range []struct {
		caller neutron.Caller
		op     neutron.Op
		text   string
		want   string
	}{
		{member, neutron.Create, gateway + `}}`, ""},
		{member, neutron.Update, gateway + `}}`, ""},
		{member, neutron.Update, `{"external_gateway_info":null}`, ""},
		{member, neutron.Update, gateway + `,"enable_snat":false}}`,
			"(rule:update_router and (rule:update_router:external_gateway_info and (" + network + " and rule:update_router:external_gateway_info:enable_snat)))"},
		{member, neutron.Update, gateway + `,"external_fixed_ips":[]}}`,
			"(rule:update_router and (rule:update_router:external_gateway_info and (" + network + " and rule:update_router:external_gateway_info:external_fixed_ips)))"},
		{member, neutron.Create, `{"distributed":true}`, "(rule:create_router and rule:create_router:distributed)"},
		{member, neutron.Create, `{"ha":true}`, "(rule:create_router and rule:create_router:ha)"},
		{admin, neutron.Update, gateway + `,"enable_snat":false,"external_fixed_ips":[]}}`, ""},
		{admin, neutron.Create, `{"ha":true,"distributed":true}`, ""},
		{reader, neutron.Create, `{}`, "rule:create_router"},
	} {
		v, err := neutron.Parse(tt.caller, neutron.Routers, tt.op, decode(t, tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		checkRefusal(t, tt.text, neutron.Authorize(tt.caller, neutron.Routers, tt.op, v, own), tt.want)
	}
	checkRefusal(t, "an interface", neutron.AuthorizeAction(member, neutron.Routers, "add_router_interface", own), "")
	checkRefusal(t, "an interface as reader", neutron.AuthorizeAction(reader, neutron.Routers, "add_router_interface", own), "rule:add_router_interface")
	if neutron.CanSee(member, neutron.Routers, neutron.Owner{ProjectID: "q"}) {
		t.Error("another project's router is seen")
	}
}
