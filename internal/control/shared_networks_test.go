package control_test

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/neutron"
)

// sharedNetwork is a network of the operator's on which two tenants may have ports and routers, and
// an external one.
type sharedNetwork struct {
	*world
	id, subnet, external string
}

func newSharedNetwork(t *testing.T) *sharedNetwork {
	w := inMemory(t)
	external := w.externalNetwork("203.0.113.0/24")
	id := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"shared":true,"project_id":"operator"}`).ID
	s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+id+`","project_id":"operator","ip_version":4,"cidr":"10.9.0.0/24"}`).ID
	return &sharedNetwork{w, id, s, external}
}

func (n *sharedNetwork) portOf(c neutron.Caller) string {
	n.t.Helper()
	return must[*neutron.PortView](n.world, c, neutron.Ports, `{"network_id":"`+n.id+`"}`).ID
}

// routerOf makes a tenant's router with a gateway and a port on the network.
func (n *sharedNetwork) routerOf(c neutron.Caller) string {
	n.t.Helper()
	r := n.routerTo(c, n.external)
	if _, err := n.join(c, r, neutron.InterfaceRequest{PortID: n.portOf(c)}); err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *sharedNetwork) float(c neutron.Caller, port string) (*neutron.FloatingIPView, error) {
	views, err := n.create(c, neutron.FloatingIPs, `{"floating_network_id":"`+n.external+`","port_id":"`+port+`"}`)
	if err != nil {
		return nil, err
	}
	return views[0].(*neutron.FloatingIPView), nil
}

// TestFloatingIPsOfSharedNetworks: on a network of several projects, the router of another one
// never serves a project's floating IPs, whatever the order of the routers.
func TestFloatingIPsOfSharedNetworks(t *testing.T) {
	t.Parallel()
	for range 4 { // the ids of ports decide the order
		n := newSharedNetwork(t)
		n.routerOf(n.other)
		_, err := n.float(n.member, n.portOf(n.member))
		if err == nil || !strings.Contains(err.Error(), "is not reachable from subnet "+n.subnet) {
			t.Errorf("by another project's router: %v", err)
		}
		own := n.routerOf(n.member)
		f, err := n.float(n.member, n.portOf(n.member))
		if err != nil || f.RouterID != own {
			t.Errorf("beside an own router: %+v, %v", f, err)
		}
		gateway := n.routerTo(n.admin, n.external)
		if _, err := n.join(n.admin, gateway, neutron.InterfaceRequest{SubnetID: n.subnet}); err != nil {
			t.Fatal(err)
		}
		f, err = n.float(n.member, n.portOf(n.member))
		if err != nil || f.RouterID != gateway {
			t.Errorf("beside the subnet's gateway: %+v, %v", f, err)
		}
		n.verifyStore()
	}
}

// TestRoutesIntoSharedNetworks: a router on another project's network has no routes to addresses
// there, which would make it take packets in their machines' names.
func TestRoutesIntoSharedNetworks(t *testing.T) {
	t.Parallel()
	n := newSharedNetwork(t)
	r := n.routerOf(n.other)
	inside := must[*neutron.NetworkView](n.world, n.other, neutron.Networks, `{}`).ID
	s := must[*neutron.SubnetView](n.world, n.other, neutron.Subnets, `{"network_id":"`+inside+`","ip_version":4,"cidr":"10.0.0.0/24"}`)
	join := func(router string) error {
		_, err := n.join(n.other, router, neutron.InterfaceRequest{SubnetID: s.ID})
		return err
	}
	if err := join(r); err != nil {
		t.Fatal(err)
	}
	routes := func(c neutron.Caller, router, destination string) error {
		_, err := n.change(c, neutron.Routers, router, fmt.Sprintf(`{"routes":[{"destination":%q,"nexthop":"10.0.0.66"}]}`, destination))
		return err
	}
	for destination, refused := range map[string]bool{"10.9.0.183/32": true, "10.9.0.0/24": true, "203.0.113.66/32": true, "10.9.0.0/16": false, "10.8.0.0/16": false} {
		err := routes(n.other, r, destination)
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "which the router is on and another project owns") {
			t.Errorf("route to %s: %v", destination, err)
		}
	}
	if err := routes(n.admin, r, "10.9.0.183/32"); err != nil {
		t.Errorf("by the operator: %v", err)
	}

	later := must[*neutron.RouterView](n.world, n.other, neutron.Routers, `{}`).ID
	s = must[*neutron.SubnetView](n.world, n.other, neutron.Subnets, `{"network_id":"`+inside+`","ip_version":4,"cidr":"10.0.1.0/24"}`)
	if err := join(later); err != nil {
		t.Fatal(err)
	}
	for _, destination := range []string{"10.9.0.183/32", "203.0.113.66/32"} {
		if _, err := n.change(n.other, neutron.Routers, later, `{"routes":[{"destination":"`+destination+`","nexthop":"10.0.1.66"}]}`); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.change(n.other, neutron.Routers, later, `{"external_gateway_info":{"network_id":"`+n.external+`"}}`)
	if err == nil || !strings.Contains(err.Error(), "the destination 203.0.113.66/32 is in subnet") {
		t.Errorf("a gateway after the route: %v", err)
	}
	if _, err := n.change(n.other, neutron.Routers, later, `{"routes":[{"destination":"10.9.0.183/32","nexthop":"10.0.1.66"}]}`); err != nil {
		t.Fatal(err)
	}
	_, err = n.join(n.other, later, neutron.InterfaceRequest{PortID: n.portOf(n.other)})
	if err == nil || !strings.Contains(err.Error(), "the destination 10.9.0.183/32 is in subnet "+n.subnet) {
		t.Errorf("an interface after the route: %v", err)
	}
	n.verifyStore()
}

// TestInterfaceOnExternalNetwork: only its owner gives routers an interface on an external network,
// where it would have no NAT.
func TestInterfaceOnExternalNetwork(t *testing.T) {
	t.Parallel()
	n := newSharedNetwork(t)
	for _, c := range []struct {
		caller neutron.Caller
		want   string
	}{
		{n.member, "BadRequest: Bad router request: Cannot add interface to router because network " + n.external + " is external and not owned by project making the request: set external_gateway_info instead."},
		{n.admin, ""},
	} {
		r := must[*neutron.RouterView](n.world, c.caller, neutron.Routers, `{}`).ID
		port := must[*neutron.PortView](n.world, c.caller, neutron.Ports, `{"network_id":"`+n.external+`"}`).ID
		if _, err := n.join(c.caller, r, neutron.InterfaceRequest{PortID: port}); c.want != "" {
			n.expect(err, c.want)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// TestRoutersOfGuests: a router on another project's network is a guest there.
func TestRoutersOfGuests(t *testing.T) {
	t.Parallel()
	n := newSharedNetwork(t)
	for caller, guest := range map[*neutron.Caller]bool{&n.member: true, &n.admin: true} {
		r := must[*neutron.RouterView](n.world, *caller, neutron.Routers, `{}`).ID
		port := n.portOf(*caller)
		if _, err := n.join(*caller, r, neutron.InterfaceRequest{PortID: port}); err != nil {
			t.Fatal(err)
		}
		if q := n.bundle("router-interface", port).Ports[0]; q.Guest != guest {
			t.Errorf("%+v", q)
		}
	}
	own := n.router(`{}`)
	s := n.subnetOn("10.0.0.0/24")
	v, err := n.join(n.member, own.ID, neutron.InterfaceRequest{SubnetID: s.ID})
	if err != nil {
		t.Fatal(err)
	}
	if q := n.bundle("router-interface", v.PortID).Ports[0]; q.Guest {
		t.Errorf("on an own network: %+v", q)
	}
}
