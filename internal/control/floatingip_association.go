package control

import (
	"net/netip"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// associate sets the port that a request names, or none, and the router between. An update that
// does not name a port leaves them as they are.
func (o *operation) associate(f *neutron.FloatingIP, v neutron.Values) error {
	fixed, _ := v["fixed_ip_address"].(netip.Addr)
	id := v.Text("port_id")
	switch {
	case fixed.IsValid() && id == "":
		return badFloatingIP("fixed_ip_address cannot be specified without a port_id")
	case !v.Has("port_id"):
		return nil
	case f.Forwarded():
		if id == "" {
			return nil
		}
		return inUseByForwardings(f)
	case id == "":
		disassociate(f)
		return nil
	}
	p, err := o.portToFloat(f, id)
	if err != nil {
		return err
	}
	a, err := fixedAddress(f, p, fixed)
	if err != nil {
		return err
	}
	f.PortID, f.FixedIPAddress = p.ID, a.IPAddress
	if err := o.place(f, a.SubnetID, v.Text("router_id")); err != nil {
		return err
	}
	for other := range schema.FloatingIPs.By(o.tx, "fixed_ip", schema.FloatingFixedIP(f.FloatingNetworkID, p.ID, a.IPAddress)) {
		if other.ID != f.ID {
			return alreadyAssociated(f)
		}
	}
	return nil
}

// portToFloat finds the port that a floating IP is to be associated with.
func (o *operation) portToFloat(f *neutron.FloatingIP, id string) (*neutron.Port, error) {
	p, _, err := o.ports.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	_, updated := schema.FloatingIPs.Peek(o.tx, f.ID)
	switch {
	case p.ProjectID != f.ProjectID && !o.caller.Admin() && updated:
		return nil, badFloatingIP("Port %s is associated with a different tenant than Floating IP %s and therefore cannot be bound", id, f.ID)
	case p.ProjectID != f.ProjectID && !o.caller.Admin():
		return nil, badFloatingIP("Cannot create floating IP and bind it to Port %s, since that port is owned by a different tenant", id)
	case p.DeviceOwner == ownerDHCP || p.DeviceOwner == ownerDistributed:
		return nil, badFloatingIP("Port %s is unable to be assigned a floating IP", id)
	}
	return p, nil
}

// fixedAddress returns the IPv4 address of a port that a request wants: its only one unless named.
func fixedAddress(f *neutron.FloatingIP, p *neutron.Port, want netip.Addr) (neutron.FixedIP, error) {
	var none neutron.FixedIP
	if want.IsValid() && !want.Is4() {
		return none, badFloatingIP("Floating IP %s is associated with non-IPv4 address %s and therefore cannot be bound", f.ID, want)
	}
	var found []neutron.FixedIP
	for _, a := range p.FixedIPs {
		if a.IPAddress.Is4() && (!want.IsValid() || a.IPAddress == want) {
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case want.IsValid():
		return none, badFloatingIP("Port %s does not have fixed ip %s", p.ID, want)
	case len(found) == 0:
		return none, badFloatingIP("Cannot add floating IP to port %s that has no fixed IPv4 addresses", p.ID)
	}
	return none, badFloatingIP("Port %s has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when assigning a floating IP", p.ID)
}

// place finds the router that translates a floating IP, and its port on the floating network
// (midonet-translations §10, §24): one with an interface on the subnet of the fixed address, first
// the subnet's gateway. Gateways count before interfaces. named is the router's id if known.
func (o *operation) place(f *neutron.FloatingIP, subnet, named string) error {
	candidates := []string{named}
	if named == "" {
		var err error
		if candidates, err = o.routersFor(f, subnet); err != nil {
			return err
		}
	}
	for _, find := range []func(router string, f *neutron.FloatingIP) (string, error){o.gatewayTo, o.interfaceTo} {
		for _, router := range candidates {
			port, err := find(router, f)
			if err != nil {
				return err
			}
			if port != "" {
				f.RouterID, f.ServedBy = router, port
				return nil
			}
		}
	}
	return neutron.Errorf(neutron.NotFound, "ExternalGatewayForFloatingIPNotFound", "External network %s is not reachable from subnet %s.  "+
		"Therefore, cannot associate Port %s with a Floating IP.", f.FloatingNetworkID, subnet, f.PortID)
}

// routersFor returns the routers with an interface on a subnet that may serve a floating IP there:
// the one that is the subnet's gateway, then those of the floating IP's project, then those of the
// subnet's. Another project's would be another tenant's way to the machine, and only an admin may
// choose it.
func (o *operation) routersFor(f *neutron.FloatingIP, subnet string) ([]string, error) {
	s, err := schema.Subnets.Need(o.tx, subnet)
	if err != nil {
		return nil, err
	}
	const gateway, own, subnets, others = 0, 1, 2, 3
	var routers [others + 1][]string
	for link := range schema.RouterPorts.By(o.tx, "subnet", subnet) {
		if link.Gateway {
			continue
		}
		if _, err := schema.RouterPorts.Need(o.tx, link.PortID); err != nil {
			return nil, err
		}
		p, _ := schema.Ports.Peek(o.tx, link.PortID)
		r, _ := schema.Routers.Peek(o.tx, link.RouterID)
		kind := others
		switch {
		case p != nil && s.GatewayIP != nil && slices.Contains(p.FixedIPs, neutron.FixedIP{SubnetID: subnet, IPAddress: *s.GatewayIP}):
			kind = gateway
		case r != nil && r.ProjectID == f.ProjectID:
			kind = own
		case r != nil && r.ProjectID == s.ProjectID:
			kind = subnets
		case !o.caller.Admin():
			continue
		}
		routers[kind] = append(routers[kind], link.RouterID)
	}
	return slices.Concat(routers[:]...), nil
}

// gatewayTo returns a router's gateway port on the network of a floating IP, or "".
func (o *operation) gatewayTo(router string, f *neutron.FloatingIP) (string, error) {
	r, err := schema.Routers.Need(o.tx, router)
	if err != nil {
		return "", neutron.Routers.NotFound(router)
	}
	for _, g := range r.Gateways {
		if g.NetworkID == f.FloatingNetworkID {
			return g.PortID, nil
		}
	}
	return "", nil
}

// interfaceTo returns a router's interface on the network of a floating IP, on the subnet of its
// address, or "".
func (o *operation) interfaceTo(router string, f *neutron.FloatingIP) (string, error) {
	for link := range schema.RouterPorts.By(o.tx, "router", router) {
		p, err := schema.Ports.Need(o.tx, link.PortID)
		if err != nil {
			return "", err
		}
		if link.Gateway || p.NetworkID != f.FloatingNetworkID || len(p.FixedIPs) == 0 {
			continue
		}
		s, err := schema.Subnets.Need(o.tx, p.FixedIPs[0].SubnetID)
		if err != nil {
			return "", err
		}
		if s.CIDR.Contains(f.FloatingIPAddress) {
			return p.ID, nil
		}
	}
	return "", nil
}

// checkGatewayUnused refuses to take a gateway from a router while it serves floating IPs.
func (o *operation) checkGatewayUnused(router string, g neutron.RouterGateway) error {
	if len(schema.FloatingIPs.Referrers(o.tx, "served_by", g.PortID)) > 0 {
		return conflict("RouterExternalGatewayInUseByFloatingIp", "Gateway cannot be updated for router %s, since a gateway to external "+
			"network %s is required by one or more floating IPs.", router, g.NetworkID)
	}
	return nil
}

// checkInterfaceUnused refuses to take a router from a subnet while floating IPs of machines there,
// or those that its port serves, need it.
func (o *operation) checkInterfaceUnused(router, port string, s *neutron.Subnet) error {
	for _, id := range schema.FloatingIPs.Referrers(o.tx, "router", router) {
		f, err := schema.FloatingIPs.Get(o.tx, id)
		if err != nil {
			return err
		}
		switch {
		case f.ServedBy == port:
			return conflict("RouterInterfaceInUseAsGatewayByFloatingIP", "Router interface for subnet %s on router %s cannot be deleted, "+
				"as it is required, as a gateway, by one or more floating IPs.", s.ID, router)
		case s.CIDR.Contains(f.FixedIPAddress) || o.forwardsTo(f, s):
			return conflict("RouterInterfaceInUseByFloatingIP", "Router interface for subnet %s on router %s cannot be deleted, "+
				"as it is required by one or more floating IPs.", s.ID, router)
		}
	}
	return nil
}
