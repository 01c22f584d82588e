package neutronv2_test

import (
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
)

// ndpSite is a router with NDP proxies enabled between an external network and one of machines,
// both of one IPv6 address scope.
type ndpSite struct {
	*server
	ids map[string]string
}

func newNDPSite(t *testing.T) *ndpSite {
	s := &ndpSite{newServer(t, control.Options{Ordered: true}), map[string]string{}}
	s.make(t, "scope", "admin", neutron.AddressScopes, `"name":"s","ip_version":6,"shared":true`)
	s.make(t, "pool", "admin", neutron.SubnetPools, `"name":"p","address_scope_id":"$scope","default_prefixlen":112,"prefixes":["2001:db8::/96"],"shared":true`)
	s.make(t, "ext", "admin", neutron.Networks, `"router:external":true`)
	s.make(t, "ext6", "admin", neutron.Subnets, `"network_id":"$ext","ip_version":6,"subnetpool_id":"$pool","cidr":"2001:db8::1:0/112"`)
	s.make(t, "ext4", "admin", neutron.Subnets, `"network_id":"$ext","ip_version":4,"cidr":"203.0.113.0/24"`)
	s.make(t, "net", "member", neutron.Networks, ``)
	s.make(t, "sub", "member", neutron.Subnets, `"network_id":"$net","ip_version":6,"subnetpool_id":"$pool","cidr":"2001:db8::2:0/112"`)
	s.make(t, "port", "member", neutron.Ports, `"network_id":"$net","device_owner":"compute:nova","fixed_ips":[{"ip_address":"2001:db8::2:9"}]`)
	s.make(t, "router", "member", neutron.Routers, `"external_gateway_info":{"network_id":"$ext"},"enable_ndp_proxy":true`)
	s.expect(t, "member", "PUT /routers/$router/add_router_interface", `{"subnet_id":"$sub"}`, http.StatusOK, `"$sub"`)
	return s
}

// fill puts ids in place of their names.
func (s *ndpSite) fill(text string) string {
	for name, id := range s.ids {
		text = strings.ReplaceAll(text, "$"+name+`"`, id+`"`)
		text = strings.ReplaceAll(text, "$"+name+"/", id+"/")
		text = strings.ReplaceAll(text, "$"+name+" ", id+" ")
		text = strings.ReplaceAll(text, "$"+name+".", id+".")
		text = strings.ReplaceAll(text, "$"+name+",", id+",")
		if strings.HasSuffix(text, "$"+name) {
			text = strings.TrimSuffix(text, "$"+name) + id
		}
	}
	return text
}

// make makes an object, whose id gets a name.
func (s *ndpSite) make(t *testing.T, name, who string, r neutron.Resource, body string) {
	t.Helper()
	s.ids[name] = s.create(t, who, strings.TrimPrefix(r.Path(), "/"), s.fill(`{"`+r.Name()+`":{`+body+`}}`))["id"].(string)
}

// expect checks the status of an answer, and that it has a text.
func (s *ndpSite) expect(t *testing.T, who, request, body string, status int, text string) {
	t.Helper()
	method, path, _ := strings.Cut(s.fill(request), " ")
	var sent any
	if body != "" {
		sent = s.fill(body)
	}
	got := s.do(t, who, method, path, sent, nil)
	if got.status != status || !strings.Contains(string(got.body), s.fill(text)) {
		t.Errorf("%s %s as %s: %d %s\nwant %d with %s", request, body, who, got.status, got.body, status, s.fill(text))
	}
}

// TestNDPProxies: a proxy is made, listed, renamed and deleted; it has the address of its port that
// the router reaches.
func TestNDPProxies(t *testing.T) {
	t.Parallel()
	s := newNDPSite(t)
	s.expect(t, "member", "GET /routers/$router", "", 200, `"enable_ndp_proxy":true`)
	s.make(t, "proxy", "member", neutron.NDPProxies, `"name":"p","description":"d","router_id":"$router","port_id":"$port"`)
	whole := `"router_id":"$router","port_id":"$port","ip_address":"2001:db8::2:9","description":"d","created_at":"`
	s.expect(t, "member", "GET /ndp_proxies/$proxy", "", 200, whole)
	s.expect(t, "member", "GET /ndp-proxies?router_id=$router", "", 200, whole)
	for _, query := range []string{"ip_address=2001:db8::2:9", "port_id=$port", "name=p", "description=d"} {
		s.expect(t, "member", "GET /ndp_proxies?fields=id&"+query, "", 200, `{"id":"$proxy"}`)
	}
	s.expect(t, "member", "GET /ndp_proxies?ip_address=2001:db8::2:8", "", 200, `{"ndp_proxies":[]}`)
	s.expect(t, "other", "GET /ndp_proxies", "", 200, `{"ndp_proxies":[]}`)
	s.expect(t, "other", "GET /ndp_proxies/$proxy", "", 404, `"type":"NDPProxyNotFound","message":"Ndp proxy $proxy could not be found."`)
	s.expect(t, "member", "PUT /ndp_proxies/$proxy", `{"ndp_proxy":{"name":"q"}}`, 200, `"name":"q"`)
	s.expect(t, "member", "PUT /ndp_proxies/$proxy", `{"ndp_proxy":{"ip_address":"2001:db8::2:8"}}`, 400, `Cannot update read-only attribute ip_address`)
	s.expect(t, "member", "GET /extensions/l3-ndp-proxy", "", 200, `"alias":"l3-ndp-proxy"`)
	s.expect(t, "member", "GET /extensions/l3-ext-ndp-proxy", "", 200, `"alias":"l3-ext-ndp-proxy"`)
	s.expect(t, "member", "DELETE /ndp_proxies/$proxy", "", 204, "")
	s.expect(t, "member", "GET /ndp_proxies", "", 200, `{"ndp_proxies":[]}`)
}

// TestNDPProxyRefusals holds the refusals of proxies in the reference's words.
func TestNDPProxyRefusals(t *testing.T) {
	t.Parallel()
	s := newNDPSite(t)
	s.make(t, "own", "member", neutron.SubnetPools, `"name":"own","default_prefixlen":112,"prefixes":["2001:db8:1::/96"]`)
	s.make(t, "far", "member", neutron.Subnets, `"network_id":"$net","ip_version":4,"cidr":"10.0.0.0/24"`)
	s.make(t, "near", "member", neutron.Subnets, `"network_id":"$net","ip_version":6,"subnetpool_id":"$pool","cidr":"2001:db8::3:0/112"`)
	s.make(t, "v4", "member", neutron.Ports, `"network_id":"$net","fixed_ips":[{"subnet_id":"$far"}]`)
	s.make(t, "beside", "member", neutron.Ports, `"network_id":"$net","fixed_ips":[{"ip_address":"2001:db8::3:9"},{"ip_address":"2001:db8::2:8"}]`)
	s.make(t, "only", "member", neutron.Ports, `"network_id":"$net","fixed_ips":[{"ip_address":"2001:db8::3:8"}]`)
	s.make(t, "net2", "member", neutron.Networks, ``)
	s.make(t, "sub2", "member", neutron.Subnets, `"network_id":"$net2","ip_version":6,"subnetpool_id":"$own","cidr":"2001:db8:1::/112"`)
	s.make(t, "port2", "member", neutron.Ports, `"network_id":"$net2"`)
	s.make(t, "plain", "member", neutron.Routers, ``)
	s.make(t, "othernet", "other", neutron.Networks, ``)
	s.make(t, "theirs", "other", neutron.Ports, `"network_id":"$othernet"`)
	refused := func(router, rest string, status int, text string) {
		t.Helper()
		s.expect(t, "member", "POST /ndp_proxies", `{"ndp_proxy":{"router_id":"`+router+`",`+rest+`}}`, status, text)
	}
	refused("$router", `"port_id":"$theirs"`, 404, `"type":"PortNotFound"`)
	refused("$router", `"port_id":"$port2"`, 409, `"type":"PortUnreachableRouter","message":"The port $port2 cannot reach the router $router by IPv6 subnet."`)
	refused("5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f", `"port_id":"$port"`, 409, `"type":"PortUnreachableRouter"`)
	refused("$router", `"port_id":"$only"`, 409, `"message":"The port $only cannot reach the router $router by IPv6 subnet."`)
	refused("$router", `"port_id":"$v4"`, 400, `"type":"BadRequest","message":"Bad ndp_proxy request: Requested port $v4 must allocate one IPv6 address at least."`)
	refused("$router", `"port_id":"$port","ip_address":"2001:db8::2:1"`, 400,
		`"type":"InvalidAddress","message":"The address 2001:db8::2:1 is invalid, reason: This address not belong to the port $port."`)
	refused("$router", `"port_id":"$port","ip_address":"10.0.0.9"`, 400, `This address not belong to the port $port.`)
	refused("$router", `"port_id":"$beside","ip_address":"2001:db8::3:9"`, 400,
		`"message":"The address 2001:db8::3:9 is invalid, reason: This address cannot reach the router $router."`)
	refused("$router", `"port_id":"$port","ip_address":"x"`, 400, `'x' is not a valid IP address`)
	refused("$router", `"name":"x"`, 400, `Required attribute 'port_id' not specified`)
	s.expect(t, "member", "PUT /routers/$router/add_router_interface", `{"subnet_id":"$sub2"}`, 200, "")
	refused("$router", `"port_id":"$port2"`, 409, `"type":"AddressScopeConflict","message":"The IPv6 address scope $scope of external network `+
		`conflict with internal network's IPv6 address scope None."`)
	s.expect(t, "member", "PUT /routers/$router/remove_router_interface", `{"subnet_id":"$sub2"}`, 200, "")
	s.expect(t, "member", "PUT /routers/$plain/add_router_interface", `{"subnet_id":"$sub2"}`, 200, "")
	refused("$plain", `"port_id":"$port2"`, 409, `"type":"RouterNDPProxyNotEnable","message":"The enable_ndp_proxy parameter of router $plain `+
		`must be set as True while create ndp proxy entry on it."`)
	s.make(t, "first", "member", neutron.NDPProxies, `"router_id":"$router","port_id":"$beside"`)
	s.expect(t, "member", "GET /ndp_proxies/$first", "", 200, `"ip_address":"2001:db8::2:8"`)
	refused("$router", `"port_id":"$beside"`, 409, `"type":"NeutronDbObjectDuplicateEntry","message":"Failed to create a duplicate NDPProxy: `+
		`for attribute(s) ['router_id', 'ip_address'] with value(s) `+s.ids["router"]+`-2001:db8::2:8"`)
}

// TestEnableNDPProxy holds which routers can have proxies, and what they cannot lose then.
func TestEnableNDPProxy(t *testing.T) {
	t.Parallel()
	s := newNDPSite(t)
	s.make(t, "flat", "admin", neutron.Networks, `"router:external":true`)
	s.make(t, "flat6", "admin", neutron.Subnets, `"network_id":"$flat","ip_version":6,"cidr":"2001:db8:2::/112"`)
	s.expect(t, "member", "POST /routers", `{"router":{"enable_ndp_proxy":true}}`, 409, `"type":"RouterGatewayNotValid"`)
	s.expect(t, "member", "POST /routers", `{"router":{"enable_ndp_proxy":true}}`, 409, `, The request body not contain external gateway information."`)
	s.expect(t, "member", "POST /routers", `{"router":{"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"$flat"}}}`, 409,
		`, The external network $flat don't support IPv6 ndp proxy, the network has no IPv6 subnets or has no IPv6 address scope."`)
	s.make(t, "r2", "member", neutron.Routers, ``)
	s.expect(t, "member", "GET /routers/$r2", "", 200, `"enable_ndp_proxy":false`)
	update := func(who, router, body string, status int, text string) {
		t.Helper()
		s.expect(t, who, "PUT /routers/"+router, `{"router":{`+body+`}}`, status, text)
	}
	without := `"message":"Can not enable ndp proxy on router $r2, The router has no external gateway or the external gateway port has no IPv6 ` +
		`address or IPv6 address scope."`
	update("member", "$r2", `"enable_ndp_proxy":true`, 409, without)
	update("member", "$r2", `"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"$flat"}`, 409, without)
	update("admin", "$r2", `"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"$ext","external_fixed_ips":[{"subnet_id":"$ext4"}]}`, 409, without)
	update("member", "$r2", `"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"$ext"}`, 200, `"enable_ndp_proxy":true`)
	update("member", "$r2", `"name":"x"`, 200, `"enable_ndp_proxy":true`)
	s.expect(t, "member", "GET /routers?fields=id&name=x&enable_ndp_proxy=true", "", 200, `{"id":"$r2"}`)
	s.expect(t, "member", "GET /routers?fields=id&name=x&enable_ndp_proxy=false", "", 200, `[]`)
	update("admin", "$r2", `"external_gateway_info":{"network_id":"$ext","external_fixed_ips":[{"subnet_id":"$ext4"}]}`, 409,
		`"type":"RouterIPv6GatewayInUse","message":"Can't remove the IPv6 subnet from external gateway of router $r2, the IPv6 subnet in use by the router's ndp proxy."`)
	update("admin", "$r2", `"external_gateway_info":{"network_id":"$ext","external_fixed_ips":[{"subnet_id":"$ext6"}]}`, 200, "")
	update("member", "$r2", `"enable_ndp_proxy":true,"external_gateway_info":{}`, 409, `, The router's external gateway will be unset."`)
	update("member", "$r2", `"external_gateway_info":{}`, 200, `"enable_ndp_proxy":false`)
	update("member", "$r2", `"external_gateway_info":{"network_id":"$ext"}`, 200, `"enable_ndp_proxy":false`)

	s.make(t, "proxy", "member", neutron.NDPProxies, `"router_id":"$router","port_id":"$port"`)
	inUse := `"type":"RouterGatewayInUseByNDPProxy","message":"Unable to unset external gateway of router $router, There are one or more ndp proxies still in use on the router."`
	update("member", "$router", `"external_gateway_info":null`, 409, inUse)
	update("member", "$router", `"external_gateway_info":{"network_id":"$flat"}`, 409, inUse)
	s.expect(t, "member", "PUT /routers/$router/remove_external_gateways", `{"router":{"external_gateways":[{"network_id":"$ext"}]}}`, 409, inUse)
	s.expect(t, "member", "PUT /routers/$router/remove_router_interface", `{"subnet_id":"$sub"}`, 409, `"type":"RouterInterfaceInUseByNDPProxy",`+
		`"message":"Unable to remove subnet $sub from router $router, There are one or more ndp proxies still in use on the subnet."`)
	update("member", "$router", `"enable_ndp_proxy":false`, 200, `"enable_ndp_proxy":false`)
	update("member", "$router", `"external_gateway_info":null`, 409, inUse)
	s.expect(t, "member", "DELETE /ports/$port", "", 204, "")
	s.expect(t, "member", "GET /ndp_proxies", "", 200, `{"ndp_proxies":[]}`)
	s.expect(t, "member", "PUT /routers/$router/remove_router_interface", `{"subnet_id":"$sub"}`, 200, "")
	update("member", "$router", `"external_gateway_info":null`, 200, "")
	s.expect(t, "member", "DELETE /routers/$router", "", 204, "")
}

// TestNDPProxiesWithoutScope: proxies stay when a pool leaves its address scope, and the router has
// them enabled. New ones need equal scopes on both sides, or none, and no router can enable them.
func TestNDPProxiesWithoutScope(t *testing.T) {
	t.Parallel()
	s := newNDPSite(t)
	s.make(t, "scope2", "member", neutron.AddressScopes, `"name":"s","ip_version":6`)
	s.make(t, "pool2", "admin", neutron.SubnetPools, `"name":"q","address_scope_id":"$scope","default_prefixlen":112,"prefixes":["2001:db8:2::/96"],"shared":true`)
	s.make(t, "net2", "member", neutron.Networks, ``)
	s.make(t, "sub2", "member", neutron.Subnets, `"network_id":"$net2","ip_version":6,"subnetpool_id":"$pool2","cidr":"2001:db8:2::/112"`)
	s.expect(t, "member", "PUT /routers/$router/add_router_interface", `{"subnet_id":"$sub2"}`, 200, "")
	for _, name := range []string{"one", "two", "three"} {
		s.make(t, name, "member", neutron.Ports, `"network_id":"$net2"`)
	}
	create := func(port string, status int, text string) {
		t.Helper()
		s.expect(t, "member", "POST /ndp_proxies", `{"ndp_proxy":{"router_id":"$router","port_id":"$`+port+`"}}`, status, text)
	}
	leave := func(pool string) {
		t.Helper()
		s.expect(t, "admin", "PUT /subnetpools/$"+pool, `{"subnetpool":{"address_scope_id":null}}`, 200, `"address_scope_id":null`)
	}
	create("one", 201, "")
	leave("pool2")
	s.expect(t, "member", "GET /ndp_proxies", "", 200, `"port_id":"$one"`)
	create("two", 409, `The IPv6 address scope $scope of external network conflict with internal network's IPv6 address scope None."`)
	leave("pool")
	s.expect(t, "member", "GET /ndp_proxies", "", 200, `"port_id":"$one"`)
	s.expect(t, "member", "PUT /routers/$router", `{"router":{"name":"x"}}`, 200, `"enable_ndp_proxy":true`)
	create("two", 201, "")
	s.expect(t, "member", "PUT /routers/$router", `{"router":{"enable_ndp_proxy":true}}`, 409, `"type":"RouterGatewayNotValid"`)
	s.expect(t, "member", "PUT /routers/$router", `{"router":{"enable_ndp_proxy":false}}`, 200, `"enable_ndp_proxy":false`)
	create("three", 409, `"type":"RouterNDPProxyNotEnable"`)
}

// TestNDPProxiesOfOtherGateways: proxies are of a router's first gateway, which has to stay that.
// The others come and go.
func TestNDPProxiesOfOtherGateways(t *testing.T) {
	t.Parallel()
	s := newNDPSite(t)
	s.make(t, "plain", "admin", neutron.Networks, `"router:external":true`)
	s.make(t, "plain4", "admin", neutron.Subnets, `"network_id":"$plain","ip_version":4,"cidr":"198.51.100.0/24"`)
	s.make(t, "proxy", "member", neutron.NDPProxies, `"router_id":"$router","port_id":"$port"`)
	change := func(what, gateways string, status int, text string) {
		t.Helper()
		s.expect(t, "member", "PUT /routers/$router/"+what+"_external_gateways", `{"router":{"external_gateways":[`+gateways+`]}}`, status, text)
	}
	const first, second = `{"network_id":"$ext"}`, `{"network_id":"$plain"}`
	const inUse = `"type":"RouterGatewayInUseByNDPProxy"`
	change("add", second, 200, `"enable_ndp_proxy":true`)
	change("update", second+","+first, 409, inUse)
	change("remove", first, 409, inUse)
	change("remove", second, 200, `"enable_ndp_proxy":true`)
	change("add", second, 200, "")
	s.expect(t, "member", "DELETE /ndp_proxies/$proxy", "", 204, "")
	change("update", second+","+first, 200, `"enable_ndp_proxy":false`)
	s.expect(t, "member", "POST /ndp_proxies", `{"ndp_proxy":{"router_id":"$router","port_id":"$port"}}`, 409, `"type":"RouterNDPProxyNotEnable"`)
	s.expect(t, "member", "PUT /routers/$router", `{"router":{"enable_ndp_proxy":true}}`, 409, `"type":"RouterGatewayNotValid"`)
	change("update", first+","+second, 200, `"enable_ndp_proxy":false`)
	s.expect(t, "member", "PUT /routers/$router", `{"router":{"enable_ndp_proxy":true}}`, 200, `"enable_ndp_proxy":true`)
}
