package control

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// What a router has of a port is derived from the router, the port and the port's subnets, and for
// an interface from the DHCP ports on them. Each of these rewrites it when it changes.

// routerPortKind returns the kind of owner that a router's port is.
func routerPortKind(x *neutron.RouterPort) string {
	if x.Gateway {
		return kindRouterGateway
	}
	return kindRouterInterface
}

// deriveRouterPort stores what is derived from a port of a router.
func (o *operation) deriveRouterPort(x *neutron.RouterPort) error {
	r, err := schema.Routers.Get(o.tx, x.RouterID)
	if err != nil {
		return err
	}
	l, err := o.linkOf(x)
	if err != nil {
		return err
	}
	b := translate.RouterInterface
	if i := slices.IndexFunc(r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == x.PortID }); i >= 0 {
		b = func(r *neutron.Router, l translate.RouterLink) topology.Bundle {
			return translate.RouterGateway(r, l, r.Gateways[i].EnableSNAT)
		}
	}
	return o.putBundle(routerPortKind(x), x.PortID, b(r, l))
}

// linkOf returns a port of a router with what its translation reads. All of it is guarded: that a
// DHCP port comes to a subnet or goes is seen in the subnet's bundle.
func (o *operation) linkOf(x *neutron.RouterPort) (l translate.RouterLink, err error) {
	if l.Port, err = schema.Ports.Get(o.tx, x.PortID); err != nil {
		return l, err
	}
	if l.Network, err = schema.Networks.Need(o.tx, l.Port.NetworkID); err != nil {
		return l, err
	}
	if x.Gateway {
		o.heedQoSPolicy(l.Network)
	}
	if translate.Uplink(l.Network) {
		if l.Network, err = schema.Networks.Get(o.tx, l.Port.NetworkID); err != nil { // for its state
			return l, err
		}
	}
	for _, id := range x.SubnetIDs {
		s, err := schema.Subnets.Get(o.tx, id)
		if err != nil {
			return l, err
		}
		l.Subnets = append(l.Subnets, s)
		switch {
		case s.SubnetPoolID == "":
		case s.IPVersion == 4:
			l.AddressScopes.IPv4 = o.scopeOfPool(s.SubnetPoolID)
		default:
			l.AddressScopes.IPv6 = o.scopeOfPool(s.SubnetPoolID)
		}
		if x.Gateway || s.IPVersion != 4 {
			continue
		}
		if _, err := schema.Bundles.Get(o.tx, schema.BundleID(topology.Owner{Kind: kindSubnet, ID: id})); err != nil {
			return l, err
		}
		l.DHCPServer = translate.DHCPServer(s, slices.Collect(schema.Ports.By(o.tx, "dhcp_subnet", id)))
	}
	return l, nil
}

// checkRouterAddresses refuses clients to change the IPv4 addresses of a router's interface, as the
// reference does (extension l3-port-ip-change-not-allowed).
func (e portEdit) checkRouterAddresses(old *neutron.Port) error {
	if e.opts.ServiceMACs || !routerInterface(old.DeviceOwner) {
		return nil
	}
	if _, is := schema.Routers.Peek(e.tx, old.DeviceID); !is || slices.Equal(ipv4Of(old), ipv4Of(e.p)) {
		return nil
	}
	return neutron.Errorf(neutron.Invalid, "IPAddressChangeNotAllowed", "IP updates for port %s are not allowed", old.ID)
}

// ipv4Of returns the IPv4 addresses of a port, in order.
func ipv4Of(p *neutron.Port) []netip.Addr {
	var ips []netip.Addr
	for _, f := range p.FixedIPs {
		if f.IPAddress.Is4() {
			ips = append(ips, f.IPAddress)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// derivePortOfRouter rewrites what a router has of a port that has changed.
func (o *operation) derivePortOfRouter(old, p *neutron.Port) error {
	if old == nil || !ofRouter(old.DeviceOwner) {
		return nil
	}
	had, ok := schema.RouterPorts.Peek(o.tx, p.ID)
	if !ok {
		return nil
	}
	if p.DeviceID != old.DeviceID || p.DeviceOwner != old.DeviceOwner {
		return portInUse(old)
	}
	r, err := schema.Routers.Get(o.tx, had.RouterID)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(p.FixedIPs, old.FixedIPs) {
		return errors.Join(o.deriveRouterPort(had), o.followBGP(had.RouterID))
	}
	x := *had
	x.SubnetIDs = subnetsOf(p)
	if err := (routerEdit{o, r}).checkMoved(had, &x, p); err != nil {
		return err
	}
	if err := schema.RouterPorts.Put(o.tx, &x); err != nil {
		return err
	}
	if err := errors.Join(o.deriveRouterPort(&x), o.followBGP(x.RouterID)); err != nil || len(r.Routes) == 0 {
		return err
	}
	return o.deriveRouter(r)
}

// checkMoved refuses other subnets of a router's port as it would those of a new one, and to leave
// subnets that routes need.
func (e routerEdit) checkMoved(had, x *neutron.RouterPort, p *neutron.Port) error {
	if had.Gateway {
		return e.checkGatewaySubnets(x)
	}
	left := slices.DeleteFunc(slices.Clone(had.SubnetIDs), func(id string) bool { return slices.Contains(x.SubnetIDs, id) })
	if err := e.checkUnneeded(x.PortID, left); err != nil {
		return err
	}
	subnets, err := e.interfaceSubnets(p, x.SubnetIDs)
	if err != nil {
		return err
	}
	return e.checkRouterSubnets(x, subnets)
}

// checkGatewaySubnets refuses to move a gateway to a subnet on which the router has an interface.
func (e routerEdit) checkGatewaySubnets(x *neutron.RouterPort) error {
	var subnets []*neutron.Subnet
	for _, id := range x.SubnetIDs {
		s, err := schema.Subnets.Need(e.tx, id)
		if err != nil {
			return err
		}
		subnets = append(subnets, s)
	}
	return e.checkRouterSubnets(x, subnets)
}

// ofRouter reports whether a port is a router's gateway or interface by its owner.
func ofRouter(owner string) bool { return routerInterface(owner) || owner == ownerRouterGateway }

// deriveRouterPorts rewrites what routers have of their ports on a subnet, after a change of what
// these are derived from. For many ports it makes pending work, and reports that.
func (o *operation) deriveRouterPorts(subnetID string) (pending bool, err error) {
	ids := schema.RouterPorts.Referrers(o.tx, "subnet", subnetID)
	if len(ids) > stepObjects {
		return true, o.begin(workDeriveRouterPorts, subnetID)
	}
	for _, id := range ids {
		if err := o.deriveRouterPortAt(id); err != nil {
			return false, err
		}
	}
	return false, nil
}

// deriveRouterPortAt rewrites what a router has of the port with that id.
func (o *operation) deriveRouterPortAt(portID string) error {
	x, err := schema.RouterPorts.Get(o.tx, portID)
	if err != nil {
		return err
	}
	return errors.Join(o.deriveRouterPort(x), o.followBGP(x.RouterID))
}

// deriveRouterPortsOn is deriveRouterPorts of several subnets. It returns those with pending work.
func (o *operation) deriveRouterPortsOn(subnets []*neutron.Subnet) (pending []string, err error) {
	for _, s := range subnets {
		switch later, err := o.deriveRouterPorts(s.ID); {
		case err != nil:
			return nil, err
		case later:
			pending = append(pending, s.ID)
		}
	}
	return pending, nil
}

// deriveRouterPorts rewrites what routers have of some ports on a subnet, after a port's id.
func (o steps) deriveRouterPorts(subnetID, after string) (done bool, next string, err error) {
	count := 0
	for x := range schema.RouterPorts.By(o.tx, "subnet", subnetID) {
		if x.PortID <= after {
			continue
		}
		if count == stepObjects {
			return false, next, nil
		}
		if err := o.deriveRouterPortAt(x.PortID); err != nil {
			return false, "", err
		}
		count, next = count+1, x.PortID
	}
	return true, "", nil
}

// heldByService reports whether only the service that has a port may delete it: it is a router's,
// or says so and the router exists; or it holds a floating IP; or it is a load balancer's.
func (o *operation) heldByService(p *neutron.Port) bool {
	if _, linked := schema.RouterPorts.Peek(o.tx, p.ID); linked || o.servesVIP(p) {
		return true
	}
	if p.DeviceID == "" || len(p.FixedIPs) == 0 {
		return false
	}
	if ofRouter(p.DeviceOwner) {
		_, exists := schema.Routers.Peek(o.tx, p.DeviceID)
		return exists
	}
	return p.DeviceOwner == ownerFloatingIP
}

// checkDevice refuses that a port names a router as the one it is an interface or the gateway of,
// unless its project has that router.
func (e portEdit) checkDevice() error {
	if !ofRouter(e.p.DeviceOwner) || e.p.DeviceID == "" || e.caller.Admin() {
		return nil
	}
	if r, ok := schema.Routers.Peek(e.tx, e.p.DeviceID); !ok || r.ProjectID != e.p.ProjectID {
		return conflict("DeviceIDNotOwnedByTenant",
			"The following device_id %s is not owned by your tenant or matches another tenants router.", e.p.DeviceID)
	}
	return nil
}
