package control

import (
	"maps"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// applyGateway sets the first gateway as a request asks, and reports whether it has changed. No
// gateway means none at all.
func (e routerEdit) applyGateway(v neutron.Values) (changed bool, err error) {
	if !v.Has(attrGateway) {
		return false, nil
	}
	want, _ := v[attrGateway].(*neutron.GatewayRequest)
	had := gatewayOf(e.r)
	port := v.Text("gw_port_id")
	switch {
	case want == nil && had == nil:
		return false, nil
	case want == nil:
		return true, e.removeAllGateways()
	}
	n, err := e.externalNetwork(want)
	if err != nil {
		return false, err
	}
	switch {
	case had != nil && port != "" && port != had.PortID:
		return false, conflict("RouterInUse", "Router %s has port %s as its gateway. Delete that port before the router gets port %s.",
			e.r.ID, had.PortID, port)
	case had != nil && had.NetworkID == n.ID:
		return e.changeGateway(0, want, n)
	case had != nil:
		return true, e.replaceGateway(want, n, port)
	}
	return true, e.addGateway(want, n, port, 0)
}

// replaceGateway gives the router another first gateway, which has the QoS policy of the one before
// unless the request says otherwise.
func (e routerEdit) replaceGateway(want *neutron.GatewayRequest, n *neutron.Network, port string) error {
	had := e.r.Gateways[0]
	if err := e.applyQoSPolicy(&had, want); err != nil {
		return err
	}
	if err := e.removeGateway(0); err != nil {
		return err
	}
	if err := e.addGateway(want, n, port, 0); err != nil {
		return err
	}
	e.r.Gateways[0].QoSPolicyID = had.QoSPolicyID
	return nil
}

// externalNetwork returns the network of a gateway. It is read as a whole: while it has gateways it
// stays external.
func (o *operation) externalNetwork(want *neutron.GatewayRequest) (*neutron.Network, error) {
	if _, err := o.networkFor(want.NetworkID); err != nil {
		return nil, err
	}
	n, err := schema.Networks.Get(o.tx, want.NetworkID)
	switch {
	case err != nil:
		return nil, err
	case !n.External:
		return nil, neutron.BadRouter("Network %s is not an external network", n.ID)
	case n.Routed():
		return nil, routedNetwork(n)
	case translate.Uplink(n):
		return nil, neutron.BadRouter("Network %s is an uplink: routers have interfaces on it, and no gateway", n.ID)
	}
	for s := range schema.Subnets.By(o.tx, "network", n.ID) {
		is := func(f neutron.FixedIPRequest) bool { return s.GatewayIP != nil && f.IPAddress == *s.GatewayIP }
		if slices.ContainsFunc(want.FixedIPs, is) {
			return nil, neutron.BadRouter("External IP %s is the same as the gateway IP", *s.GatewayIP)
		}
	}
	return n, nil
}

// routedNetwork returns the refusal of a router on a routed network.
func routedNetwork(n *neutron.Network) error {
	return neutron.BadRouter("Network %s is of type routed: its hosts route between all such networks, and no router can be attached to it", n.ID)
}

// addGateway gives the router a gateway, at a place among the others: a new port, or the one that a
// file names.
func (e routerEdit) addGateway(want *neutron.GatewayRequest, n *neutron.Network, portID string, at int) error {
	x := &neutron.RouterPort{PortID: portID, RouterID: e.r.ID, Gateway: true}
	if err := e.checkRouterSubnets(x, slices.Collect(schema.Subnets.By(e.tx, "network", n.ID))); err != nil {
		return err
	}
	var p *neutron.Port
	var err error
	if portID == "" {
		p, err = e.newRouterPort(n, ownerRouterGateway, "", want.FixedIPs)
	} else {
		p, err = e.givenGateway(n, portID)
	}
	if err != nil {
		return err
	}
	if err := e.putPort(p, n); err != nil {
		return err
	}
	x.PortID, x.SubnetIDs = p.ID, subnetsOf(p)
	g := neutron.RouterGateway{NetworkID: n.ID, PortID: p.ID, EnableSNAT: wantsSNAT(want)}
	if err := e.applyQoSPolicy(&g, want); err != nil {
		return err
	}
	e.r.Gateways = slices.Insert(slices.Clone(e.r.Gateways), at, g)
	return schema.RouterPorts.Put(e.tx, x)
}

// givenGateway returns the port that a file names, with the router as its device.
func (e routerEdit) givenGateway(n *neutron.Network, id string) (*neutron.Port, error) {
	old, _, err := e.ports.inTransaction(e.operation, id)
	if err != nil {
		return nil, err
	}
	_, linked := schema.RouterPorts.Peek(e.tx, id)
	switch {
	case linked:
		return nil, portInUse(old)
	case old.NetworkID != n.ID:
		return nil, neutron.BadRouter("Port %s is not on network %s", id, n.ID)
	case old.DeviceOwner != ownerRouterGateway:
		return nil, neutron.BadRouter("Port %s has device owner '%s', not %s", id, old.DeviceOwner, ownerRouterGateway)
	}
	p := *old
	p.DeviceID = e.r.ID
	e.bump(&p.Standard)
	return &p, nil
}

// changeGateway sets SNAT and, if the request names any, the addresses of a gateway.
func (e routerEdit) changeGateway(i int, want *neutron.GatewayRequest, n *neutron.Network) (changed bool, err error) {
	had := e.r.Gateways[i]
	has := had
	has.EnableSNAT = wantsSNAT(want)
	if err := e.applyQoSPolicy(&has, want); err != nil {
		return false, err
	}
	if changed = has != had; changed {
		e.r.Gateways = slices.Clone(e.r.Gateways)
		e.r.Gateways[i] = has
	}
	if len(want.FixedIPs) == 0 {
		return changed, nil
	}
	p, err := schema.Ports.Get(e.tx, had.PortID)
	if err != nil || namesAll(want.FixedIPs, p.FixedIPs) {
		return changed, err
	}
	if err := e.checkGatewayKeepsIPv6(i, want); err != nil {
		return changed, err
	}
	moved, err := e.moveRouterPort(had.PortID, want.FixedIPs, n)
	return changed || moved, err
}

// namesAll reports whether a request names the addresses and the subnets that a gateway has, and no
// others. As in the reference such a request changes nothing, though it may name a subnet twice.
func namesAll(want []neutron.FixedIPRequest, has []neutron.FixedIP) bool {
	wanted, actual := map[string]bool{}, map[string]bool{}
	for _, f := range want {
		wanted[f.SubnetID] = f.SubnetID != ""
		if f.IPAddress.IsValid() {
			wanted[f.IPAddress.String()] = true
		}
	}
	delete(wanted, "")
	for _, f := range has {
		actual[f.SubnetID], actual[f.IPAddress.String()] = true, true
	}
	return maps.Equal(wanted, actual)
}

// moveRouterPort gives a port of the router other addresses.
func (e routerEdit) moveRouterPort(id string, ips []neutron.FixedIPRequest, n *neutron.Network) (moved bool, err error) {
	old, err := schema.Ports.Get(e.tx, id)
	if err != nil {
		return false, err
	}
	p := *old
	if err := (portEdit{e.operation, &p, neutron.Values{"fixed_ips": ips}}).changeAddresses(old); err != nil {
		return false, err
	}
	if slices.Equal(p.FixedIPs, old.FixedIPs) {
		return false, nil
	}
	e.bump(&p.Standard)
	return true, e.putPort(&p, n)
}

func wantsSNAT(want *neutron.GatewayRequest) bool { return want.EnableSNAT == nil || *want.EnableSNAT }

// removeAllGateways deletes all gateways.
func (e routerEdit) removeAllGateways() error {
	for len(e.r.Gateways) > 0 {
		if err := e.removeGateway(len(e.r.Gateways) - 1); err != nil {
			return err
		}
	}
	return nil
}

// removeGateway deletes a gateway with its port. Routes towards its network stay, without effect.
func (e routerEdit) removeGateway(i int) error {
	g := e.r.Gateways[i]
	if err := e.checkGatewayUnused(e.r.ID, g); err != nil {
		return err
	}
	x, err := schema.RouterPorts.Get(e.tx, g.PortID)
	if err != nil {
		return err
	}
	e.r.Gateways = slices.Delete(slices.Clone(e.r.Gateways), i, i+1)
	return e.removeRouterPort(x, false)
}

// newRouterPort makes a port for the router, with any addresses unless some are given. Its project
// is "" if clients should not see it.
func (e routerEdit) newRouterPort(n *neutron.Network, owner, project string, ips []neutron.FixedIPRequest) (*neutron.Port, error) {
	v := neutron.Values{"project_id": project}
	if len(ips) > 0 {
		v["fixed_ips"] = ips
	}
	p := &neutron.Port{
		Standard:            e.standard(v, 1),
		NetworkID:           n.ID,
		AdminStateUp:        true,
		DeviceID:            e.r.ID,
		DeviceOwner:         owner,
		VNICType:            "normal",
		Profile:             map[string]any{},
		FixedIPs:            []neutron.FixedIP{},
		SecurityGroups:      []string{},
		AllowedAddressPairs: []neutron.AddressPair{},
		ExtraDHCPOpts:       []neutron.DHCPOpt{},
	}
	edit := portEdit{e.operation, p, v}
	for _, choose := range []func() error{edit.chooseMAC, edit.newAddresses, edit.chooseTunnelKey} {
		if err := choose(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addressesOf returns a port's addresses.
func addressesOf(p *neutron.Port) []netip.Addr {
	ips := make([]netip.Addr, len(p.FixedIPs))
	for i, f := range p.FixedIPs {
		ips[i] = f.IPAddress
	}
	return ips
}

// subnetsOf returns the subnets of a port's addresses, each once.
func subnetsOf(p *neutron.Port) []string {
	ids := []string{}
	for _, f := range p.FixedIPs {
		if !slices.Contains(ids, f.SubnetID) {
			ids = append(ids, f.SubnetID)
		}
	}
	return ids
}
