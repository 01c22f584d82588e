package control_test

import (
	"fmt"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// TestManyNDPProxies: a router with more proxies than a commit should rewrite gets all of them
// rewritten, and its interface, when they are disabled and enabled. They go with the addresses of
// their ports.
func TestManyNDPProxies(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.unlimited()
	scope := must[*neutron.AddressScopeView](w, w.member, neutron.AddressScopes, `{"name":"s","ip_version":6}`).ID
	pool := must[*neutron.SubnetPoolView](w, w.member, neutron.SubnetPools,
		`{"name":"p","address_scope_id":"`+scope+`","default_prefixlen":112,"prefixes":["2001:db8::/96"]}`).ID
	subnet := func(network, cidr string) string {
		return must[*neutron.SubnetView](w, w.admin, neutron.Subnets,
			`{"network_id":"`+network+`","project_id":"mine","ip_version":6,"subnetpool_id":"`+pool+`","cidr":"`+cidr+`"}`).ID
	}
	external := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`).ID
	subnet(external, "2001:db8::1:0/112")
	network := must[*neutron.NetworkView](w, w.member, neutron.Networks, `{}`).ID
	inside := subnet(network, "2001:db8::2:0/112")
	router := must[*neutron.RouterView](w, w.member, neutron.Routers,
		`{"enable_ndp_proxy":true,"external_gateway_info":{"network_id":"`+external+`"}}`).ID
	w.addInterface(router, inside)
	const count = 70
	ports := w.many(w.member, neutron.Ports, count, func(i int) string {
		return fmt.Sprintf(`{"network_id":%q,"fixed_ips":[{"ip_address":"2001:db8::2:1%03x"}]}`, network, i)
	})
	proxies := w.many(w.member, neutron.NDPProxies, count, func(i int) string {
		return `{"router_id":"` + router + `","port_id":"` + ports[i].(*neutron.PortView).ID + `"}`
	})
	last := proxies[count-1].(*neutron.NDPProxy)
	for _, enabled := range []bool{true, false, true} {
		if _, err := w.change(w.member, neutron.Routers, router, fmt.Sprintf(`{"enable_ndp_proxy":%t}`, enabled)); err != nil {
			t.Fatal(err)
		}
		w.finished()
		w.checkDerived(t)
		if b := w.bundle("ndp-proxy", last.ID); len(b.Neighbours) > 0 != enabled {
			t.Errorf("enabled %t: a proxy has %d neighbours", enabled, len(b.Neighbours))
		}
	}
	if _, err := w.change(w.member, neutron.Ports, last.PortID, `{"fixed_ips":[{"ip_address":"2001:db8::2:2000"}]}`); err != nil {
		t.Fatal(err)
	}
	snap := w.checkDerived(t)
	if n := schema.NDPProxies.Count(snap); n != count-1 {
		t.Errorf("%d proxies, want %d: one port has lost its address", n, count-1)
	}
	w.verifyStore()
}
