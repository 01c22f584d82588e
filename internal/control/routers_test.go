package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

func (w *world) router(text string) *neutron.RouterView {
	w.t.Helper()
	return must[*neutron.RouterView](w, w.member, neutron.Routers, text)
}

// external makes an external network with a subnet, and returns their ids.
func (w *world) external() (network, subnet string) {
	w.t.Helper()
	network = must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"router:external":true}`).ID
	subnet = must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+network+`","ip_version":4,"cidr":"172.24.4.0/24","enable_dhcp":false}`).ID
	return network, subnet
}

// subnetOn makes a network with a subnet.
func (w *world) subnetOn(cidr string) *neutron.SubnetView {
	w.t.Helper()
	version := "4"
	if strings.Contains(cidr, ":") {
		version = "6"
	}
	return w.subnet(w.network(`{}`).ID, `"ip_version":`+version+`,"cidr":"`+cidr+`"`)
}

func (w *world) join(c neutron.Caller, router string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	return w.Routers().AddInterface(context.Background(), c, router, q)
}

func (w *world) part(c neutron.Caller, router string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	return w.Routers().RemoveInterface(context.Background(), c, router, q)
}

// joined adds an interface, which has to be possible.
func (w *world) joined(router, subnet string) *neutron.InterfaceView {
	w.t.Helper()
	v, err := w.join(w.member, router, neutron.InterfaceRequest{SubnetID: subnet})
	if err != nil {
		w.t.Fatalf("join router %s and subnet %s: %v", router, subnet, err)
	}
	return v
}

func (w *world) showRouter(id string) *neutron.RouterView {
	w.t.Helper()
	r, err := w.Routers().Show(context.Background(), w.admin, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) showPort(id string) *neutron.PortView {
	w.t.Helper()
	p, err := w.Ports().Show(context.Background(), w.admin, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// TestRouterLife: what each step in the life of a router shows, and that nothing is left of it.
func TestRouterLife(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, external := w.external()
	s := w.subnetOn("10.0.0.0/24")
	before := w.dump()
	r := w.router(`{"name":"r"}`)
	if r.RevisionNumber != 1 || r.Status != "ACTIVE" || len(r.Gateways) != 0 {
		t.Errorf("new: %+v", r)
	}
	i := w.joined(r.ID, s.ID)
	want := &neutron.InterfaceView{RouterID: r.ID, ProjectID: "mine", PortID: i.PortID, NetworkID: s.NetworkID, SubnetID: s.ID, SubnetIDs: []string{s.ID}}
	if d := cmp.Diff(want, i); d != "" {
		t.Error(d)
	}
	p := w.showPort(i.PortID)
	if p.DeviceOwner != "network:router_interface" || p.DeviceID != r.ID || p.FixedIPs[0].IPAddress != *s.GatewayIP || p.Status != "ACTIVE" || p.ProjectID != "mine" {
		t.Errorf("port of the interface: %+v", p.Port)
	}
	joined := w.showRouter(r.ID)
	if joined.RevisionNumber <= r.RevisionNumber {
		t.Errorf("revision %d after an interface", joined.RevisionNumber)
	}
	v, err := w.change(w.member, neutron.Routers, r.ID, `{"external_gateway_info":{"network_id":"`+network+`"}}`)
	if err != nil {
		t.Fatal(err)
	}
	set := v.(*neutron.RouterView)
	gateway := w.showPort(set.Gateways[0].PortID)
	if gateway.DeviceOwner != "network:router_gateway" || gateway.DeviceID != r.ID || gateway.ProjectID != "" || gateway.FixedIPs[0].SubnetID != external || gateway.Status != "ACTIVE" {
		t.Errorf("port of the gateway: %+v", gateway.Port)
	}
	if !set.Gateways[0].EnableSNAT || !slices.Equal(set.ExternalFixedIPs, gateway.FixedIPs) || set.RevisionNumber <= joined.RevisionNumber {
		t.Errorf("with a gateway: %+v", set)
	}
	if _, err := w.Ports().Show(t.Context(), w.member, gateway.ID); err == nil {
		t.Error("a member sees the gateway's port")
	}
	w.expect(w.remove(w.member, neutron.Routers, r.ID), "RouterInUse: Router "+r.ID+" has ports still attached: "+i.PortID)
	removed, err := w.part(w.member, r.ID, neutron.InterfaceRequest{SubnetID: s.ID})
	if err != nil || cmp.Diff(want, removed) != "" {
		t.Errorf("removed: %+v, %v", removed, err)
	}
	if now := w.showRouter(r.ID); now.RevisionNumber <= set.RevisionNumber {
		t.Errorf("revision %d after the interface has gone, %d before", now.RevisionNumber, set.RevisionNumber)
	}
	if err := w.remove(w.member, neutron.Routers, r.ID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left of the router:\n%s", d)
	}
}

// TestRouterRefusals holds refusals against the reference's words.
func TestRouterRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, external := w.external()
	s, s2, inside := w.subnetOn("10.0.0.0/24"), w.subnetOn("10.0.0.128/25"), w.subnetOn("10.0.1.0/24")
	bare := w.subnet(s.NetworkID, `"ip_version":4,"cidr":"10.1.0.0/24","gateway_ip":null`)
	six := w.subnet(w.network(`{}`).ID, `"ip_version":6,"cidr":"fd00::/64","ipv6_address_mode":"slaac"`)
	foreign := must[*neutron.SubnetView](w, w.other, neutron.Subnets, `{"network_id":"`+
		must[*neutron.NetworkView](w, w.other, neutron.Networks, `{}`).ID+`","ip_version":4,"cidr":"10.2.0.0/24"}`)
	r := w.router(`{}`)
	theirs := must[*neutron.RouterView](w, w.other, neutron.Routers, `{}`)
	i := w.joined(r.ID, s.ID)
	if _, err := w.change(w.member, neutron.Routers, r.ID, `{"external_gateway_info":{"network_id":"`+network+`"},`+
		`"routes":[{"destination":"10.9.0.0/16","nexthop":"10.0.0.9"}]}`); err != nil {
		t.Fatal(err)
	}
	gateway := w.showRouter(r.ID).Gateways[0].PortID
	vm := w.port(s.NetworkID, `"device_id":"vm"`)
	addressless := w.port(s.NetworkID, `"fixed_ips":[]`)
	two := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+s.NetworkID+`","project_id":"mine","fixed_ips":[{"subnet_id":"`+s.ID+`"},{"subnet_id":"`+bare.ID+`"}]}`)
	dhcp := w.port(inside.NetworkID, `"device_owner":"network:dhcp"`)
	uplink := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"uplink"}`)
	up := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+uplink.ID+`","ip_version":4,"cidr":"10.3.0.0/24"}`)
	routed := w.routed()
	calico := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+routed+`","ip_version":4,"cidr":"10.65.0.0/24"}`)
	routedExternal := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"routed","router:external":true}`).ID
	shared := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true}`).ID
	lent := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+shared+`","ip_version":4,"cidr":"10.4.0.0/24"}`)
	const missing = "11111111-1111-1111-1111-111111111111"
	add := func(c neutron.Caller, id string, q neutron.InterfaceRequest) error {
		_, err := w.join(c, id, q)
		return err
	}
	take := func(id string, q neutron.InterfaceRequest) error { _, err := w.part(w.member, id, q); return err }
	update := func(c neutron.Caller, text string) error {
		_, err := w.change(c, neutron.Routers, r.ID, text)
		return err
	}
	subnet := func(id string) neutron.InterfaceRequest { return neutron.InterfaceRequest{SubnetID: id} }
	port := func(id string) neutron.InterfaceRequest { return neutron.InterfaceRequest{PortID: id} }
	changePort := func(id, text string) error { _, err := w.change(w.admin, neutron.Ports, id, text); return err }
	portOf := func(owner, device string) error {
		_, err := w.create(w.member, neutron.Ports, fmt.Sprintf(`{"network_id":%q,"device_owner":%q,"device_id":%q}`, s.NetworkID, owner, device))
		return err
	}
	routes := func(n int) string {
		var all []string
		for k := range n {
			all = append(all, fmt.Sprintf(`{"destination":"10.%d.0.0/16","nexthop":"10.0.0.9"}`, 10+k))
		}
		return `{"routes":[` + strings.Join(all, ",") + `]}`
	}
	const needsBinding = " is an uplink: its interface needs a port with binding:host_id and interface_name in binding:profile."
	const routedWhy = " is of type routed: its hosts route between all such networks, and no router can be attached to it."
	before := w.dump()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{add(w.member, missing, subnet(s.ID)), "RouterNotFound: Router " + missing + " could not be found"},
		{add(w.member, theirs.ID, subnet(s.ID)), "RouterNotFound: Router " + theirs.ID + " could not be found"},
		{add(neutron.Caller{ProjectID: "mine", Roles: []string{"reader"}}, r.ID, subnet(inside.ID)), "PolicyNotAuthorized: rule:add_router_interface is disallowed by policy"},
		{add(w.member, r.ID, subnet(missing)), "SubnetNotFound: Subnet " + missing + " could not be found."},
		{add(w.member, r.ID, subnet(foreign.ID)), "SubnetNotFound: Subnet " + foreign.ID + " could not be found."},
		{add(w.member, r.ID, subnet(external)), "SubnetNotFound: Subnet " + external + " could not be found."},
		{add(w.member, r.ID, subnet(lent.ID)), "BadRequest: Bad router request: Cannot add interface to router because subnet " + lent.ID + " is not owned by project making the request."},
		{add(w.member, r.ID, subnet(s.ID)), "BadRequest: Bad router request: Router already has a port on subnet " + s.ID + "."},
		{add(w.admin, r.ID, subnet(external)), "BadRequest: Bad router request: Router already has a port on subnet " + external + "."},
		{add(w.member, r.ID, subnet(s2.ID)), "BadRequest: Bad router request: Cidr 10.0.0.128/25 of subnet " + s2.ID + " overlaps with cidr 10.0.0.0/24 of subnet " + s.ID + "."},
		{add(w.member, r.ID, subnet(bare.ID)), "BadRequest: Bad router request: Subnet for router interface must have a gateway IP."},
		{add(w.member, r.ID, subnet(six.ID)), "BadRequest: Bad router request: IPv6 subnet " + six.ID + " configured to receive RAs from an external router cannot be added to Neutron Router.."},
		{add(w.admin, r.ID, subnet(up.ID)), "BadRequest: Bad router request: Network " + uplink.ID + needsBinding},
		{add(w.admin, r.ID, subnet(calico.ID)), "BadRequest: Bad router request: Network " + routed + routedWhy},
		{add(w.member, r.ID, port(missing)), "PortNotFound: Port " + missing + " could not be found."},
		{add(w.member, r.ID, port(gateway)), "PortNotFound: Port " + gateway + " could not be found."},
		{add(w.admin, r.ID, port(gateway)), "PortInUse: Unable to complete operation on port " + gateway + " for network " + network + ". Port already has an attached device " + r.ID + "."},
		{add(w.member, r.ID, port(i.PortID)), "PortInUse: Unable to complete operation on port " + i.PortID + " for network " + s.NetworkID + ". Port already has an attached device " + r.ID + "."},
		{add(w.member, r.ID, port(vm.ID)), "PortInUse: Unable to complete operation on port " + vm.ID + " for network " + s.NetworkID + ". Port already has an attached device vm."},
		{add(w.member, r.ID, port(addressless.ID)), "BadRequest: Bad router request: Router port must have at least one fixed IP."},
		{add(w.member, r.ID, port(two.ID)), "BadRequest: Bad router request: Cannot have multiple IPv4 subnets on router port."},
		{add(w.member, r.ID, port(dhcp.ID)), "BadRequest: Bad router request: Port " + dhcp.ID + " has device owner network:dhcp and cannot be a router interface."},

		{take(r.ID, subnet(missing)), "SubnetNotFound: Subnet " + missing + " could not be found."},
		{take(r.ID, subnet(inside.ID)), "RouterInterfaceNotFoundForSubnet: Router " + r.ID + " has no interface on subnet " + inside.ID},
		{take(r.ID, port(vm.ID)), "RouterInterfaceNotFound: Router " + r.ID + " does not have an interface with id " + vm.ID},
		{take(r.ID, port(gateway)), "RouterInterfaceNotFound: Router " + r.ID + " does not have an interface with id " + gateway},
		{take(r.ID, neutron.InterfaceRequest{PortID: i.PortID, SubnetID: inside.ID}), "SubnetMismatchForPort: Subnet on port " + i.PortID + " does not match the requested subnet " + inside.ID + "."},
		{take(r.ID, subnet(s.ID)), "RouterInterfaceInUseByRoute: Router interface for subnet " + s.ID + " on router " + r.ID + " cannot be deleted, as it is required by one or more routes."},

		{update(w.member, `{"external_gateway_info":{"network_id":"`+s.NetworkID+`"}}`), "BadRequest: Bad router request: Network " + s.NetworkID + " is not an external network."},
		{update(w.member, `{"external_gateway_info":{"network_id":"`+missing+`"}}`), "NetworkNotFound: Network " + missing + " could not be found."},
		{update(w.admin, `{"external_gateway_info":{"network_id":"`+routedExternal+`"}}`), "BadRequest: Bad router request: Network " + routedExternal + routedWhy},
		{update(w.admin, `{"external_gateway_info":{"network_id":"`+network+`","external_fixed_ips":[{"ip_address":"172.24.4.1"}]}}`), "BadRequest: Bad router request: External IP 172.24.4.1 is the same as the gateway IP."},
		{update(w.admin, `{"external_gateway_info":{"network_id":"`+network+`","external_fixed_ips":[{"ip_address":"192.0.2.1"}]}}`), "InvalidIpForNetwork: IP address 192.0.2.1 is not a valid IP for any of the subnets on the specified network."},
		{update(w.member, `{"routes":[{"destination":"1.0.0.0/8","nexthop":"9.9.9.9"}]}`), "InvalidRoutes: Invalid format for routes: [{'destination': '1.0.0.0/8', 'nexthop': '9.9.9.9'}], the nexthop is not connected with router"},
		{update(w.member, `{"routes":[{"destination":"1.0.0.0/8","nexthop":"10.0.0.1"}]}`), "InvalidRoutes: Invalid format for routes: [{'destination': '1.0.0.0/8', 'nexthop': '10.0.0.1'}], the nexthop is used by router"},
		{update(w.member, `{"routes":[{"destination":"1.0.0.0/8","nexthop":"10.0.0.0"}]}`), "InvalidRoutes: Invalid format for routes: [{'destination': '1.0.0.0/8', 'nexthop': '10.0.0.0'}], the nexthop is not connected with router"},
		{update(w.member, `{"routes":[{"destination":"fd00::/8","nexthop":"10.0.0.9"}]}`), "InvalidRoutes: Invalid format for routes: [{'destination': 'fd00::/8', 'nexthop': '10.0.0.9'}], the nexthop is of another IP version than the destination"},
		{update(w.member, routes(31)), "RoutesExhausted: Unable to complete operation for " + r.ID + ". The number of routes exceeds the maximum 30."},
		{update(w.admin, `{"distributed":true}`), "BadRequest: Bad router request: Cannot change the 'distributed' attribute of active routers. Please set router admin_state_up to False prior to upgrade."},
		{update(w.admin, `{"ha":true}`), "BadRequest: Bad router request: Cannot change HA attribute of active routers. Please set router admin_state_up to False prior to upgrade."},

		{w.remove(w.member, neutron.Ports, i.PortID), "ServicePortInUse: Port " + i.PortID + " cannot be deleted directly via the port API: has device owner network:router_interface."},
		{w.remove(w.admin, neutron.Ports, gateway), "ServicePortInUse: Port " + gateway + " cannot be deleted directly via the port API: has device owner network:router_gateway."},
		{w.remove(w.member, neutron.Subnets, s.ID), "SubnetInUse: Unable to complete operation on subnet " + s.ID + ": One or more ports have an IP allocation from this subnet."},
		{w.remove(w.admin, neutron.Subnets, external), "SubnetInUse: Unable to complete operation on subnet " + external + ": One or more ports have an IP allocation from this subnet."},
		{w.remove(w.admin, neutron.Networks, network), "NetworkInUse: Unable to complete operation on network " + network + ". There are one or more ports still in use on the network, id for these ports is: " + gateway + "."},
		{changePort(i.PortID, `{"device_id":"x"}`), "PortInUse: Unable to complete operation on port " + i.PortID + " for network " + s.NetworkID + ". Port already has an attached device " + r.ID + "."},
		{changePort(gateway, `{"device_owner":""}`), "PortInUse: Unable to complete operation on port " + gateway + " for network " + network + ". Port already has an attached device " + r.ID + "."},
		{changePort(i.PortID, `{"fixed_ips":[]}`), "IPAddressChangeNotAllowed: IP updates for port " + i.PortID + " are not allowed"},
		{changePort(i.PortID, `{"fixed_ips":[{"subnet_id":"`+s.ID+`"},{"subnet_id":"`+bare.ID+`"}]}`), "IPAddressChangeNotAllowed: IP updates for port " + i.PortID + " are not allowed"},
		{changePort(i.PortID, `{"fixed_ips":[{"subnet_id":"`+s.ID+`"}]}`), ""},
		{func() error {
			_, err := w.change(w.admin, neutron.Networks, network, `{"router:external":false}`)
			return err
		}(),
			"ExternalNetworkInUse: External network " + network + " cannot be updated to be made non-external, since it has existing gateway ports."},
		{func() error {
			_, err := w.change(w.member, neutron.Subnets, s.ID, `{"gateway_ip":"10.0.0.254"}`)
			return err
		}(),
			"GatewayIpInUse: Current gateway ip 10.0.0.1 already in use by port " + i.PortID + ". Unable to update."},
		{portOf("network:router_interface", theirs.ID), "DeviceIDNotOwnedByTenant: The following device_id " + theirs.ID + " is not owned by your tenant or matches another tenants router."},
		{portOf("network:router_gateway", theirs.ID), "DeviceIDNotOwnedByTenant: The following device_id " + theirs.ID + " is not owned by your tenant or matches another tenants router."},
	} {
		w.expect(tt.err, tt.want)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refusals have changed the store:\n%s", d)
	}
}

// TestRevisionOfRouterIsInsistedOn: If-Match counts interfaces too.
func TestRevisionOfRouterIsInsistedOn(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	r := w.router(`{}`)
	w.joined(r.ID, w.subnetOn("10.0.0.0/24").ID)
	v := neutron.Values{"name": "x"}
	_, err := w.Routers().Update(t.Context(), w.member, r.ID, v, &r.RevisionNumber)
	w.expect(err, "RevisionNumberConstraintFailed: Constrained to 1, but current revision is 2")
	now := w.showRouter(r.ID).RevisionNumber
	if _, err := w.Routers().Update(t.Context(), w.member, r.ID, v, &now); err != nil {
		t.Error(err)
	}
}

// TestGatewayChanges: SNAT, addresses and network of a gateway.
func TestGatewayChanges(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, subnet := w.external()
	other, _ := w.external()
	r := must[*neutron.RouterView](w, w.admin, neutron.Routers, `{"external_gateway_info":{"network_id":"`+network+`","enable_snat":false,`+
		`"external_fixed_ips":[{"subnet_id":"`+subnet+`","ip_address":"172.24.4.9"}]}}`)
	change := func(info string) *neutron.RouterView {
		t.Helper()
		v, err := w.change(w.admin, neutron.Routers, r.ID, `{"external_gateway_info":`+info+`}`)
		if err != nil {
			t.Fatal(err)
		}
		return v.(*neutron.RouterView)
	}
	port := r.Gateways[0].PortID
	if r.Gateways[0].EnableSNAT || r.ExternalFixedIPs[0].IPAddress.String() != "172.24.4.9" || len(w.bundle("router-gateway", port).Rules) != 0 {
		t.Errorf("at first: %+v", r)
	}
	v := change(`{"network_id":"` + network + `"}`)
	if !v.Gateways[0].EnableSNAT || v.Gateways[0].PortID != port || len(w.bundle("router-gateway", port).Rules) == 0 {
		t.Errorf("with SNAT again: %+v", v)
	}
	v = change(`{"network_id":"` + network + `","external_fixed_ips":[{"ip_address":"172.24.4.10"}]}`)
	q := w.bundle("router-gateway", port).Ports[0]
	if v.Gateways[0].PortID != port || v.ExternalFixedIPs[0].IPAddress.String() != "172.24.4.10" || q.PortAddress.String() != "172.24.4.10" || v.RevisionNumber <= r.RevisionNumber {
		t.Errorf("moved: %+v, %+v", v, q)
	}
	v = change(`{"network_id":"` + other + `"}`)
	if v.Gateways[0].PortID == port || v.Gateways[0].NetworkID != other {
		t.Errorf("on another network: %+v", v)
	}
	if _, err := w.Ports().Show(t.Context(), w.admin, port); err == nil {
		t.Error("the port of the gateway before is still there")
	}
	last := v.Gateways[0].PortID
	if v = change(`null`); len(v.Gateways) != 0 || v.ExternalFixedIPs != nil {
		t.Errorf("without: %+v", v)
	}
	if left := strings.Join(w.dump(), "\n"); strings.Contains(left, last) {
		t.Error("something is left of the gateway")
	}
}

// TestRoutesAreEditedAtomically: routes that are there or not are no error, and what no port
// reaches any more waits for one.
func TestRoutesAreEditedAtomically(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	network, _ := w.external()
	r := w.router(`{"external_gateway_info":{"network_id":"` + network + `"}}`)
	w.joined(r.ID, w.subnetOn("10.0.0.0/24").ID)
	route := func(text string) neutron.HostRoute {
		v, err := parse(w.member, neutron.Routers, neutron.Update, `{"routes":[`+text+`]}`)
		if err != nil {
			t.Fatal(err)
		}
		return v["routes"].([]neutron.HostRoute)[0]
	}
	one := route(`{"destination":"10.8.0.0/16","nexthop":"10.0.0.9"}`)
	two := route(`{"destination":"10.9.0.0/16","nexthop":"172.24.4.1"}`)
	edit := func(f func(context.Context, neutron.Caller, string, []neutron.HostRoute) (*neutron.RouterView, error), routes ...neutron.HostRoute) []neutron.HostRoute {
		t.Helper()
		v, err := f(t.Context(), w.member, r.ID, routes)
		if err != nil {
			t.Fatal(err)
		}
		return v.Routes
	}
	ops := w.Routers()
	edit(ops.AddRoutes, one)
	if got := edit(ops.AddRoutes, one, two); !slices.Equal(got, []neutron.HostRoute{one, two}) {
		t.Errorf("added: %v", got)
	}
	if n := len(w.bundle("router", r.ID).Routes); n != 2 {
		t.Errorf("%d routes in the topology, want 2", n)
	}
	for info, want := range map[string]int{`null`: 1, `{"network_id":"` + network + `"}`: 2} {
		if _, err := w.change(w.member, neutron.Routers, r.ID, `{"external_gateway_info":`+info+`}`); err != nil {
			t.Fatal(err)
		}
		if n := len(w.bundle("router", r.ID).Routes); n != want {
			t.Errorf("gateway %s: %d routes in the topology, want %d", info, n, want)
		}
	}
	if got := edit(ops.RemoveRoutes, one, route(`{"destination":"10.7.0.0/16","nexthop":"10.0.0.9"}`)); !slices.Equal(got, []neutron.HostRoute{two}) {
		t.Errorf("removed: %v", got)
	}
	_, err := ops.AddRoutes(t.Context(), neutron.Caller{ProjectID: "mine", Roles: []string{"reader"}}, r.ID, []neutron.HostRoute{one})
	w.expect(err, "PolicyNotAuthorized: rule:add_extraroutes is disallowed by policy")
}

// TestIPv6SubnetsShareAPort: further IPv6 subnets of a network join the port of the first.
func TestIPv6SubnetsShareAPort(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`).ID
	s4 := w.subnet(n, `"ip_version":4,"cidr":"10.0.0.0/24"`)
	a := w.subnet(n, `"ip_version":6,"cidr":"fd00:1::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`)
	b := w.subnet(n, `"ip_version":6,"cidr":"fd00:2::/64"`)
	r := w.router(`{}`)
	four, first, second := w.joined(r.ID, s4.ID), w.joined(r.ID, a.ID), w.joined(r.ID, b.ID)
	if four.PortID == first.PortID || first.PortID != second.PortID || !slices.Equal(second.SubnetIDs, []string{b.ID}) {
		t.Errorf("ports %s, %s, %s", four.PortID, first.PortID, second.PortID)
	}
	if q := w.bundle("router-interface", first.PortID).Ports[0]; len(q.PortSubnet) != 2 {
		t.Errorf("port of the router: %+v", q)
	}
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","fixed_ips":[{"ip_address":"fd00:2::5"}]}`)
	_, err := w.join(w.admin, r.ID, neutron.InterfaceRequest{PortID: p.ID})
	w.expect(err, "BadRequest: Bad router request: Router already contains IPv6 port "+first.PortID+" belonging to network id "+n+
		". Only one IPv6 port from the same network subnet can be connected to a router..")
	revision := w.showRouter(r.ID).RevisionNumber
	if v, err := w.part(w.member, r.ID, neutron.InterfaceRequest{SubnetID: a.ID}); err != nil || v.PortID != first.PortID {
		t.Errorf("%+v, %v", v, err)
	}
	if p := w.showPort(first.PortID); len(p.FixedIPs) != 1 || p.FixedIPs[0].SubnetID != b.ID {
		t.Errorf("the port keeps %v", p.FixedIPs)
	}
	if now := w.showRouter(r.ID).RevisionNumber; now <= revision {
		t.Errorf("revision %d after %d", now, revision)
	}
	if v, err := w.part(w.member, r.ID, neutron.InterfaceRequest{PortID: first.PortID}); err != nil || !slices.Equal(v.SubnetIDs, []string{b.ID}) {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestMachinesPortBecomesInterface: a port of a machine loses its filters as an interface, and gets
// them back when the router leaves it.
func TestMachinesPortBecomesInterface(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1")
	s := w.subnetOn("10.0.0.0/24")
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+s.NetworkID+`","project_id":"mine","binding:host_id":"h1","fixed_ips":[{"ip_address":"10.0.0.7"}]}`)
	was := w.bundle("port", p.ID)
	if len(was.Chains) != 3 || was.Ports[0].HostID == "" {
		t.Fatalf("machine's: %+v", was)
	}
	r := w.router(`{}`)
	if _, err := w.join(w.member, r.ID, neutron.InterfaceRequest{PortID: p.ID}); err != nil {
		t.Fatal(err)
	}
	b := w.bundle("port", p.ID)
	if len(b.Chains)+len(b.Memberships)+len(b.DhcpHosts) != 0 || b.Ports[0].HostID != "" || len(b.MACs) != 1 {
		t.Errorf("as an interface: %+v", b)
	}
	if q := w.bundle("router-interface", p.ID).Ports[0]; q.PeerID != p.ID || q.RouterID != r.ID || q.PortAddress.String() != "10.0.0.7" {
		t.Errorf("the router's port: %+v", q)
	}
	if _, err := w.part(w.member, r.ID, neutron.InterfaceRequest{PortID: p.ID, KeepPort: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.change(w.admin, neutron.Ports, p.ID, `{"device_owner":""}`); err != nil {
		t.Fatal(err)
	}
	now := w.bundle("port", p.ID)
	now.Ports = slices.Clone(now.Ports)
	now.Ports[0].PreviousHostID = ""
	if d := cmp.Diff(text(was), text(now)); d != "" {
		t.Errorf("a machine's again: -was +is\n%s", d)
	}
	if strings.Contains(strings.Join(w.dump(), "\n"), "router-interface/"+p.ID) {
		t.Error("the router still has the port")
	}
}

// TestUplinkFollowsItsNetwork: the interface on an uplink is bound itself, and up as the network.
func TestUplinkFollowsItsNetwork(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1")
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"uplink"}`).ID
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.0.0.0/24"}`)
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","binding:host_id":"h1","binding:profile":{"interface_name":"eth1"}}`)
	r := must[*neutron.RouterView](w, w.admin, neutron.Routers, `{}`)
	if _, err := w.join(w.admin, r.ID, neutron.InterfaceRequest{PortID: p.ID}); err != nil {
		t.Fatal(err)
	}
	port := func() topology.Port { return w.bundle("router-interface", p.ID).Ports[0] }
	q := port()
	if q.HostID != "id-h1" || q.InterfaceName != "eth1" || q.PeerID != "" || !q.AdminStateUp {
		t.Errorf("at first: %+v", q)
	}
	status := func() string {
		v, err := w.Ports().Show(t.Context(), w.admin, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		return v.Status
	}
	if got := status(); got != "DOWN" {
		t.Errorf("bound, not yet served: %s", got)
	}
	if _, err := w.db.Update(t.Context(), func(tx *records.Tx) error {
		return schema.PortStates.Put(tx, &topology.PortState{PortID: q.ID, HostID: q.HostID, Since: time.Now()})
	}); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != "ACTIVE" {
		t.Errorf("served: %s", got)
	}
	if _, err := w.change(w.admin, neutron.Networks, n, `{"admin_state_up":false}`); err != nil {
		t.Fatal(err)
	}
	if q := port(); q.AdminStateUp {
		t.Error("up on a network that is down")
	}
	if _, err := w.change(w.admin, neutron.Ports, p.ID, `{"binding:profile":{"interface_name":"eth2"}}`); err != nil {
		t.Fatal(err)
	}
	if q := port(); q.InterfaceName != "eth2" || q.AdminStateUp {
		t.Errorf("bound elsewhere: %+v", q)
	}
}

// TestManyRoutersFollowASubnet: a gateway address that changes reaches all routers, in steps.
func TestManyRoutersFollowASubnet(t *testing.T) {
	t.Parallel()
	w := open(t, inEtcd(t, false), control.Options{Quotas: map[string]int{"router": -1}})
	network, subnet := w.external()
	var gateways []string
	for range 70 {
		r := w.router(`{"external_gateway_info":{"network_id":"` + network + `"}}`)
		gateways = append(gateways, r.Gateways[0].PortID)
	}
	if _, err := w.change(w.admin, neutron.Subnets, subnet, `{"allocation_pools":[{"start":"172.24.4.2","end":"172.24.4.200"}],"gateway_ip":"172.24.4.254"}`); err != nil {
		t.Fatal(err)
	}
	for _, id := range gateways {
		found := false
		for _, route := range w.bundle("router-gateway", id).Routes {
			found = found || route.NextHopGateway.String() == "172.24.4.254"
		}
		if !found {
			t.Fatalf("gateway %s does not lead to the new address", id)
		}
	}
	for _, key := range w.dump() {
		if strings.HasPrefix(key, "/heddle/neutron/pending/") {
			t.Errorf("left: %s", key)
		}
	}
}

// TestMetadataFollowsDHCPPorts: the route to the metadata service leads to the subnet's DHCP port.
func TestMetadataFollowsDHCPPorts(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	s := w.subnetOn("10.0.0.0/24")
	r := w.router(`{}`)
	i := w.joined(r.ID, s.ID)
	hop := func() string {
		for _, route := range w.bundle("router-interface", i.PortID).Routes {
			if route.DstSubnet.String() == "169.254.169.254/32" {
				return route.NextHopGateway.String()
			}
		}
		return ""
	}
	var dhcp *neutron.PortView
	for _, tt := range []struct {
		step string
		do   func() error
		want string
	}{
		{"without", func() error { return nil }, ""},
		{"with", func() error {
			dhcp = w.port(s.NetworkID, `"device_owner":"network:dhcp","fixed_ips":[{"ip_address":"10.0.0.2"}]`)
			return nil
		}, "10.0.0.2"},
		{"moved", func() error {
			_, err := w.change(w.member, neutron.Ports, dhcp.ID, `{"fixed_ips":[{"ip_address":"10.0.0.3"}]}`)
			return err
		}, "10.0.0.3"},
		{"gone", func() error { return w.remove(w.member, neutron.Ports, dhcp.ID) }, ""},
	} {
		if err := tt.do(); err != nil {
			t.Fatal(err)
		}
		if got := hop(); got != tt.want {
			t.Errorf("%s: by %q, want %q", tt.step, got, tt.want)
		}
	}
}

// derivedRouter returns the bundles that a router and its ports should have, by id.
func derivedRouter(r *neutron.Router, links []translate.RouterLink) map[string]topology.Bundle {
	derived := map[string]topology.Bundle{"router/" + r.ID: translate.Router(r, links)}
	for _, l := range links {
		i := slices.IndexFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == l.Port.ID })
		if i >= 0 {
			derived["router-gateway/"+l.Port.ID] = translate.RouterGateway(r, l, r.Gateways[i].EnableSNAT)
		} else {
			derived["router-interface/"+l.Port.ID] = translate.RouterInterface(r, l)
		}
	}
	return derived
}
