package control

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// addInterface joins a router with a subnet, by a new port or one that the request names.
func (s routers) addInterface(ctx context.Context, c neutron.Caller, id string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.InterfaceView, error) {
		old, err := s.routerToActOn(o, id, "add_router_interface")
		if err != nil {
			return nil, err
		}
		r := *old
		e := routerEdit{o, &r}
		if q.PortID != "" {
			return e.addPort(q)
		}
		return e.addSubnet(q.SubnetID)
	})
}

// addSubnet adds an interface that has the gateway address of a subnet. A second IPv6 subnet of a
// network joins the first one's port.
func (e routerEdit) addSubnet(id string) (*neutron.InterfaceView, error) {
	s, _, err := e.subnets.inTransaction(e.operation, id)
	if err != nil {
		return nil, err
	}
	n, err := schema.Networks.Need(e.tx, s.NetworkID)
	if err != nil {
		return nil, err
	}
	if err := e.checkNewSubnet(s, n); err != nil {
		return nil, err
	}
	address := neutron.FixedIPRequest{SubnetID: s.ID, IPAddress: *s.GatewayIP}
	if s.IPVersion == 6 {
		switch p, err := e.ipv6Port(n.ID, ""); {
		case err != nil:
			return nil, err
		case p != nil:
			return e.joinPort(p, address, n)
		}
	}
	x := &neutron.RouterPort{RouterID: e.r.ID}
	if err := e.checkRouterSubnets(x, []*neutron.Subnet{s}); err != nil {
		return nil, err
	}
	p, err := e.newRouterPort(n, ownerRouterIface, e.r.ProjectID, []neutron.FixedIPRequest{address})
	if err != nil {
		return nil, err
	}
	return e.putInterface(p, n, []*neutron.Subnet{s})
}

// checkNewSubnet refuses subnets that a router cannot be on.
func (e routerEdit) checkNewSubnet(s *neutron.Subnet, n *neutron.Network) error {
	switch {
	case s.GatewayIP == nil:
		return neutron.BadRouter("Subnet for router interface must have a gateway IP")
	case !e.caller.Owns(s.ProjectID):
		return neutron.BadRouter("Cannot add interface to router because subnet %s is not owned by project making the request", s.ID)
	case s.IPVersion == 6 && s.IPv6RAMode == "" && s.IPv6AddressMode != "":
		return neutron.BadRouter("IPv6 subnet %s configured to receive RAs from an external router cannot be added to Neutron Router.", s.ID)
	case translate.Uplink(n):
		return withoutBinding(n)
	}
	return e.checkNewNetwork(n)
}

// checkNewNetwork refuses networks that a router cannot be on.
func (o *operation) checkNewNetwork(n *neutron.Network) error {
	if n.Routed() {
		return routedNetwork(n)
	}
	return o.refuseChange(n.ID)
}

// withoutBinding returns the refusal of an interface on an uplink without a host.
func withoutBinding(n *neutron.Network) error {
	return neutron.BadRouter("Network %s is an uplink: its interface needs a port with binding:host_id and interface_name in binding:profile", n.ID)
}

// ipv6Port returns the interface port with an IPv6 address that the router has on a network, other
// than the given one; nil if there is none. One that comes meanwhile fails the commit.
func (e routerEdit) ipv6Port(networkID, but string) (*neutron.Port, error) {
	key := "router/" + e.r.ID + "/ipv6/" + networkID
	e.tx.Heed(key)
	e.tx.Mark(key)
	for x := range schema.RouterPorts.By(e.tx, "router", e.r.ID) {
		if x.Gateway || x.PortID == but {
			continue
		}
		p, ok := schema.Ports.Peek(e.tx, x.PortID)
		if ok && p.NetworkID == networkID && hasIPv6(p) {
			return schema.Ports.Get(e.tx, x.PortID)
		}
	}
	return nil, nil
}

func hasIPv6(p *neutron.Port) bool {
	return slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress.Is6() })
}

// joinPort adds an address to a port of the router.
func (e routerEdit) joinPort(p *neutron.Port, address neutron.FixedIPRequest, n *neutron.Network) (*neutron.InterfaceView, error) {
	ips := []neutron.FixedIPRequest{}
	for _, f := range p.FixedIPs {
		if f.SubnetID == address.SubnetID {
			return nil, alreadyOn(f.SubnetID)
		}
		ips = append(ips, neutron.FixedIPRequest(f))
	}
	if _, err := e.moveRouterPort(p.ID, append(ips, address), n); err != nil {
		return nil, err
	}
	e.bump(&e.r.Standard)
	return interfaceView(e.r, p, []string{address.SubnetID}), schema.Routers.Put(e.tx, e.r)
}

// addPort makes a port that is there an interface.
func (e routerEdit) addPort(q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	old, owner, err := e.ports.inTransaction(e.operation, q.PortID)
	if err != nil {
		return nil, err
	}
	if err := neutron.AuthorizePortUse(e.caller, owner); err != nil {
		return nil, err
	}
	n, err := schema.Networks.Need(e.tx, old.NetworkID)
	if err != nil {
		return nil, err
	}
	if err := e.checkNewPort(old, n); err != nil {
		return nil, err
	}
	if err := e.checkPortInNoTrunk(old); err != nil {
		return nil, err
	}
	p := *old
	p.DeviceID, p.DeviceOwner = e.r.ID, ownerRouterIface
	if err := e.settleHost(&p); err != nil {
		return nil, err
	}
	if translate.Uplink(n) && wantedInterface(&p) == "" {
		return nil, withoutBinding(n)
	}
	ids := subnetsOf(&p)
	switch {
	case q.SubnetID == "" || slices.Contains(ids, q.SubnetID):
	case len(ids) > 0:
		return nil, subnetMismatch(p.ID, q.SubnetID)
	default: // the router has the subnet's gateway address
		ids = []string{q.SubnetID}
	}
	subnets, err := e.interfaceSubnets(&p, ids)
	if err != nil {
		return nil, err
	}
	if err := e.checkRouterSubnets(&neutron.RouterPort{PortID: p.ID, RouterID: e.r.ID}, subnets); err != nil {
		return nil, err
	}
	e.bump(&p.Standard)
	return e.putInterface(&p, n, subnets)
}

// checkNewPort refuses ports that cannot become an interface.
func (e routerEdit) checkNewPort(p *neutron.Port, n *neutron.Network) error {
	_, linked := schema.RouterPorts.Peek(e.tx, p.ID)
	class := translate.ClassOf(p.DeviceOwner)
	switch {
	case linked, p.DeviceID != "" && p.DeviceID != e.r.ID:
		return portInUse(p)
	case class != translate.VIF && class != translate.RouterIface:
		return neutron.BadRouter("Port %s has device owner %s and cannot be a router interface", p.ID, p.DeviceOwner)
	case n.External && !e.caller.Owns(n.ProjectID):
		return neutron.BadRouter("Cannot add interface to router because network %s is external and not owned by project making the request: "+
			"set external_gateway_info instead", n.ID)
	}
	return e.checkNewNetwork(n)
}

// interfaceSubnets returns the subnets of an interface port, which has one IPv4 subnet or none, and
// is the only one with IPv6 addresses on its network.
func (e routerEdit) interfaceSubnets(p *neutron.Port, ids []string) ([]*neutron.Subnet, error) {
	if len(ids) == 0 {
		return nil, neutron.BadRouter("Router port must have at least one fixed IP")
	}
	if hasIPv6(p) {
		switch other, err := e.ipv6Port(p.NetworkID, p.ID); {
		case err != nil:
			return nil, err
		case other != nil:
			return nil, neutron.BadRouter("Router already contains IPv6 port %s belonging to network id %s. "+
				"Only one IPv6 port from the same network subnet can be connected to a router.", other.ID, p.NetworkID)
		}
	}
	var subnets []*neutron.Subnet
	ipv4 := 0
	for _, id := range ids {
		s, err := schema.Subnets.Get(e.tx, id)
		switch {
		case err != nil:
			return nil, neutron.Subnets.NotFound(id)
		case s.NetworkID != p.NetworkID:
			return nil, subnetMismatch(p.ID, id)
		case s.IPVersion == 4:
			ipv4++
		}
		subnets = append(subnets, s)
	}
	if ipv4 > 1 {
		return nil, neutron.BadRouter("Cannot have multiple IPv4 subnets on router port")
	}
	return subnets, nil
}

// putInterface stores a port as an interface of the router.
func (e routerEdit) putInterface(p *neutron.Port, n *neutron.Network, subnets []*neutron.Subnet) (*neutron.InterfaceView, error) {
	if err := e.putPort(p, n); err != nil {
		return nil, err
	}
	x := &neutron.RouterPort{PortID: p.ID, RouterID: e.r.ID, SubnetIDs: subnetIDs(subnets)}
	if err := schema.RouterPorts.Put(e.tx, x); err != nil {
		return nil, err
	}
	if err := e.deriveRouterPort(x); err != nil {
		return nil, err
	}
	v := interfaceView(e.r, p, x.SubnetIDs)
	v.SubnetID = x.SubnetIDs[len(x.SubnetIDs)-1]
	return v, errors.Join(e.deriveRoutesBy(e.r, subnets), e.followBGP(e.r.ID))
}

// deriveRoutesBy rewrites the routes of a router if a next hop is on one of the subnets: it may
// have waited for a port there.
func (o *operation) deriveRoutesBy(r *neutron.Router, subnets []*neutron.Subnet) error {
	for _, route := range r.Routes {
		if slices.ContainsFunc(subnets, func(s *neutron.Subnet) bool { return s.CIDR.Contains(route.Nexthop) }) {
			return o.deriveRouter(r)
		}
	}
	return nil
}

func interfaceView(r *neutron.Router, p *neutron.Port, subnets []string) *neutron.InterfaceView {
	return &neutron.InterfaceView{
		RouterID: r.ID, ProjectID: p.ProjectID, PortID: p.ID, NetworkID: p.NetworkID, SubnetID: subnets[0], SubnetIDs: subnets,
	}
}

// removeInterface parts a router from a port, or from one subnet.
func (s routers) removeInterface(ctx context.Context, c neutron.Caller, id string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.InterfaceView, error) { return s.detach(o, id, q) })
}

// detach removes an interface of a router as part of an operation.
func (s routers) detach(o *operation, id string, q neutron.InterfaceRequest) (*neutron.InterfaceView, error) {
	old, err := s.routerToActOn(o, id, "remove_router_interface")
	if err != nil {
		return nil, err
	}
	r := *old
	e := routerEdit{o, &r}
	x, subnets, err := e.interfaceToRemove(q)
	if err != nil {
		return nil, err
	}
	p, err := schema.Ports.Get(o.tx, x.PortID)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(e.checkUnneeded(x.PortID, subnets), o.checkNoV1Pools(id, subnets)); err != nil {
		return nil, err
	}
	o.bump(&r.Standard)
	if len(subnets) < len(x.SubnetIDs) {
		err = e.leaveSubnet(p, subnets[0])
	} else {
		err = e.removeRouterPort(x, q.KeepPort)
	}
	if err != nil {
		return nil, err
	}
	return interfaceView(&r, p, subnets), e.put(false)
}

// interfaceToRemove finds the interface that a request names, and the subnets to leave.
func (e routerEdit) interfaceToRemove(q neutron.InterfaceRequest) (*neutron.RouterPort, []string, error) {
	if q.PortID != "" {
		x, err := schema.RouterPorts.Get(e.tx, q.PortID)
		switch {
		case err != nil || x.Gateway || x.RouterID != e.r.ID:
			return nil, nil, neutron.Errorf(neutron.NotFound, "RouterInterfaceNotFound",
				"Router %s does not have an interface with id %s", e.r.ID, q.PortID)
		case q.SubnetID != "" && !slices.Contains(x.SubnetIDs, q.SubnetID):
			return nil, nil, subnetMismatch(q.PortID, q.SubnetID)
		}
		return x, x.SubnetIDs, nil
	}
	if _, _, err := e.subnets.inTransaction(e.operation, q.SubnetID); err != nil {
		return nil, nil, err
	}
	for x := range schema.RouterPorts.By(e.tx, "router", e.r.ID) {
		if !x.Gateway && slices.Contains(x.SubnetIDs, q.SubnetID) {
			x, err := schema.RouterPorts.Get(e.tx, x.PortID)
			return x, []string{q.SubnetID}, err
		}
	}
	return nil, nil, neutron.Errorf(neutron.NotFound, "RouterInterfaceNotFoundForSubnet",
		"Router %s has no interface on subnet %s", e.r.ID, q.SubnetID)
}

// leaveSubnet takes the addresses on a subnet from a port of the router, which has others.
func (e routerEdit) leaveSubnet(p *neutron.Port, subnetID string) error {
	n, err := schema.Networks.Need(e.tx, p.NetworkID)
	if err != nil {
		return err
	}
	ips := []neutron.FixedIPRequest{}
	for _, f := range p.FixedIPs {
		if f.SubnetID != subnetID {
			ips = append(ips, neutron.FixedIPRequest(f))
		}
	}
	_, err = e.moveRouterPort(p.ID, ips, n)
	return err
}
