package control

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

func (o *operation) createPort(_ context.Context, v neutron.Values) (*neutron.Port, error) {
	n, err := o.networkFor(v.Text("network_id"))
	if err != nil {
		return nil, err
	}
	p := &neutron.Port{
		Standard:            o.standard(v, 1),
		NetworkID:           n.ID,
		AdminStateUp:        v.Flag("admin_state_up"),
		DeviceID:            v.Text("device_id"),
		DeviceOwner:         v.Text("device_owner"),
		PortSecurityEnabled: n.PortSecurityEnabled,
		VNICType:            v.Text("binding:vnic_type"),
		Profile:             map[string]any{},
		FixedIPs:            []neutron.FixedIP{},
		SecurityGroups:      []string{},
		AllowedAddressPairs: []neutron.AddressPair{},
		ExtraDHCPOpts:       mergeDHCPOpts(nil, list[neutron.DHCPOptChange](v, "extra_dhcp_opts")),
		DNSDomain:           v.Text("dns_domain"),
	}
	p.Tags = list[string](v, "tags")
	setFlag(&p.PortSecurityEnabled, v, "port_security_enabled")
	e, _ := portEdit{o, p, v}.withDeviceMAC()
	e.applyDevice()
	for _, choose := range []func() error{e.applyDNSName, func() error { return e.applyQoSPolicy(n) }, e.checkDevice, e.checkRemoteSite, e.chooseMAC, e.chooseGroups, e.newAddresses, e.chooseVIPMAC,
		e.chooseTunnelKey, e.bind, func() error { return e.settleSegment("") }} {
		if err := choose(); err != nil {
			return nil, err
		}
	}
	e.mirrorTrusted()
	return p, o.putPort(p, n)
}

// chooseGroups settles security groups and address pairs of a new port; without any said it is in
// its project's default group (neutron-api §5).
func (e portEdit) chooseGroups() error {
	e.p.AllowedAddressPairs = pairs(e.v, e.p.MACAddress)
	group, err := e.defaultGroup(e.p.ProjectID)
	if err != nil {
		return err
	}
	trusted := translate.ClassOf(e.p.DeviceOwner).Trusted()
	switch {
	case e.v.Has("security_groups") && !trusted:
		e.p.SecurityGroups = list[string](e.v, "security_groups")
	case e.p.PortSecurityEnabled && !trusted && group != nil:
		e.p.SecurityGroups = []string{group.ID}
	}
	if err := cmp.Or(checkPortSecurity(e.p, e.v), applyMACLearning(e.p, e.v)); err != nil {
		return err
	}
	return e.checkGroups(e.p)
}

// applyMACLearning refuses a mac_learning_enabled that does not follow from port security: without
// it any address that the port's machine sends from is learned, and with it none but its own pass.
func applyMACLearning(p *neutron.Port, v neutron.Values) error {
	p.NamesMACLearning = p.NamesMACLearning || v.Has("mac_learning_enabled")
	switch want := v.Flag("mac_learning_enabled"); {
	case !v.Has("mac_learning_enabled") || want == !p.PortSecurityEnabled:
		return nil
	case want:
		return invalid("mac_learning_enabled needs port_security_enabled to be false, since a port with port security sends from its own addresses alone")
	}
	return invalid("mac_learning_enabled cannot be false while port_security_enabled is false: a port without port security learns")
}

// pairs returns the allowed address pairs of a request; a pair without a MAC gets the port's.
func pairs(v neutron.Values, mac packet.MAC) []neutron.AddressPair {
	ps := list[neutron.AddressPair](v, "allowed_address_pairs")
	for i := range ps {
		if ps[i].MACAddress.IsZero() {
			ps[i].MACAddress = mac
		}
	}
	return ps
}

// checkPortSecurity: without port security there can be no address pairs and no groups.
func checkPortSecurity(p *neutron.Port, v neutron.Values) error {
	switch {
	case p.PortSecurityEnabled:
		return nil
	case len(p.AllowedAddressPairs) > 0:
		return conflict("AddressPairAndPortSecurityRequired",
			"Port Security must be enabled in order to have allowed address pairs on a port.")
	case v.Has("security_groups") && len(p.SecurityGroups) > 0:
		return neutron.Errorf(neutron.Invalid, "PortSecurityAndIPRequiredForSecurityGroups",
			"Port security must be enabled and port must have an IP address in order to use security groups.")
	case len(p.SecurityGroups) > 0:
		return conflict("PortSecurityPortHasSecurityGroup",
			"Port has security group associated. Cannot disable port security or IP address until security group is removed.")
	}
	return nil
}

// checkGroups: the groups of a port exist, are its project's, shared with it, or the caller's, and
// agree on being stateful. They are read as a whole, because the port's chains depend on that.
func (o *operation) checkGroups(p *neutron.Port) error {
	var missing []string
	stateful := map[bool]bool{}
	for _, id := range p.SecurityGroups {
		g, err := schema.SecurityGroups.Get(o.tx, id)
		if err != nil || !o.mayUseGroup(p, g) || o.pending(workDeleteGroup, id) {
			missing = append(missing, id)
			continue
		}
		stateful[g.Stateful] = true
	}
	if missing != nil {
		return neutron.SecurityGroups.NotFound(strings.Join(missing, ", "))
	}
	if len(stateful) > 1 {
		return conflict("SecurityGroupConflict", "Error Cannot apply both stateful and stateless security groups "+
			"on the same port at the same time while attempting the operation.")
	}
	return nil
}

// mayUseGroup reports whether a port may be in a group.
func (o *operation) mayUseGroup(p *neutron.Port, g *neutron.SecurityGroup) bool {
	return g.ProjectID == p.ProjectID || o.caller.Owns(g.ProjectID) || sharedWith(o.tx, p.ProjectID, neutron.SecurityGroups, g.ID)
}

// Options that may be empty.
func mayBeBlank(option string) bool { return option == "router" || option == "classless-static-route" }

// mergeDHCPOpts applies changes to extra DHCP options: null removes one, an empty value changes
// nothing unless the option may be blank.
func mergeDHCPOpts(had []neutron.DHCPOpt, changes []neutron.DHCPOptChange) []neutron.DHCPOpt {
	type key struct {
		name    string
		version int
	}
	opts := append([]neutron.DHCPOpt{}, had...)
	places := make(map[key]int, len(opts)) // in opts
	for i, o := range opts {
		places[key{o.OptName, o.IPVersion}] = i
	}
	removed := map[int]bool{}
	for _, c := range changes {
		k := key{c.OptName, c.IPVersion}
		i, there := places[k]
		switch {
		case c.OptValue == nil && there:
			removed[i] = true
			delete(places, k)
		case c.OptValue == nil, *c.OptValue == "" && !mayBeBlank(c.OptName):
		case there:
			opts[i].OptValue = *c.OptValue
		default:
			places[k] = len(opts)
			opts = append(opts, neutron.DHCPOpt{OptName: c.OptName, OptValue: *c.OptValue, IPVersion: c.IPVersion})
		}
	}
	kept := opts[:0]
	for i, o := range opts {
		if !removed[i] {
			kept = append(kept, o)
		}
	}
	return kept
}

// update changes a port.
func (s ports) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.PortView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.PortView, error) {
		old, n, err := o.portToChange(id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		if err := o.refuseChange(n.ID); err != nil {
			return nil, err
		}
		p := *old
		if err := (portEdit{o, &p, v}).apply(old); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(&p, old) {
			return s.service.portView(o.tx, old), nil
		}
		o.bump(&p.Standard)
		if err := o.putPort(&p, n); err != nil {
			return nil, err
		}
		return s.service.portView(o.tx, &p), nil
	})
}

// apply sets what an update names, and checks it against the rest.
func (e portEdit) apply(old *neutron.Port) error {
	device, ofDevice := e.withDeviceMAC()
	p, v := e.p, e.v
	applyStandard(&p.Standard, v)
	setText(&p.DNSDomain, v, "dns_domain")
	if err := e.applyDNSName(); err != nil {
		return err
	}
	if v.Has(attrQoSPolicy) {
		n, err := schema.Networks.Need(e.tx, p.NetworkID)
		if err != nil {
			return err
		}
		if err := e.applyQoSPolicy(n); err != nil {
			return err
		}
	}
	setFlag(&p.AdminStateUp, v, "admin_state_up")
	setText(&p.DeviceID, v, "device_id")
	setText(&p.DeviceOwner, v, "device_owner")
	setText(&p.DataPlaneStatus, v, "data_plane_status")
	if v.Has("device_id") || v.Has("device_owner") {
		if err := cmp.Or(e.checkDevice(), e.checkRemoteSite()); err != nil {
			return err
		}
	}
	setFlag(&p.PortSecurityEnabled, v, "port_security_enabled")
	switch {
	case ofDevice:
		if err := device.chooseMAC(); err != nil {
			return err
		}
	case v.Has("mac_address"):
		if err := e.changeMAC(); err != nil {
			return err
		}
	}
	if v.Has("allowed_address_pairs") {
		p.AllowedAddressPairs = pairs(v, p.MACAddress)
	}
	if err := e.applyGroups(); err != nil {
		return err
	}
	if v.Has("extra_dhcp_opts") {
		p.ExtraDHCPOpts = mergeDHCPOpts(p.ExtraDHCPOpts, list[neutron.DHCPOptChange](v, "extra_dhcp_opts"))
		if err := neutron.CheckList("extra_dhcp_opts", len(p.ExtraDHCPOpts)); err != nil {
			return err
		}
	}
	if v.Has("fixed_ips") || p.MACAddress != old.MACAddress {
		if err := e.changeAddresses(old); err != nil {
			return err
		}
		if err := e.checkRouterAddresses(old); err != nil {
			return err
		}
	}
	e.applyDevice()
	if err := e.bind(); err != nil {
		return err
	}
	e.mirrorTrusted()
	return e.settleSegment(old.HostID)
}

// applyDNSName sets the dns_name that a request names.
func (e portEdit) applyDNSName() error {
	setText(&e.p.DNSName, e.v, "dns_name")
	return neutron.CheckDNSName(e.v.Text("dns_name"), e.opts.DNSDomain)
}

// applyGroups sets the groups that an update names.
func (e portEdit) applyGroups() error {
	p, v := e.p, e.v
	setList(&p.SecurityGroups, v, "security_groups")
	if err := cmp.Or(checkPortSecurity(p, v), applyMACLearning(p, v)); err != nil {
		return err
	}
	if !v.Has("security_groups") {
		return nil
	}
	return e.checkGroups(p)
}

// delete deletes a port, unless it is a service's that deletes it itself.
func (s ports) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		p, n, err := o.portToChange(id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return err
		}
		if err := o.checkPortInNoTrunk(p); err != nil {
			return err
		}
		if o.heldByService(p) {
			return servicePortInUse(p)
		}
		return o.deletePort(p, n)
	})
}

// deletePort deletes a port, and rewrites the subnets for which it served DHCP.
func (o *operation) deletePort(p *neutron.Port, n *neutron.Network) error {
	if err := o.removePort(p, n); err != nil {
		return err
	}
	return o.deriveServed(p, nil)
}

func servicePortInUse(p *neutron.Port) error {
	return conflict("ServicePortInUse",
		"Port %s cannot be deleted directly via the port API: has device owner %s.", p.ID, p.DeviceOwner)
}

// removePort deletes a port with what is derived from it alone. Its floating IPs stay, without one,
// and its port forwardings and NDP proxies go.
func (o *operation) removePort(p *neutron.Port, n *neutron.Network) error {
	if err := errors.Join(o.checkPortFree(p), o.checkLocalPortFree(p), o.checkPortInNoTrunk(p), o.releaseFloatingIPs(p.ID, nil), o.releaseForwardings(p.ID, nil), o.releaseNDPProxies(p.ID, nil)); err != nil {
		return err
	}
	if err := errors.Join(o.dropBundle(kindPort, p.ID), o.dropLoggers("target", p.ID), o.dropTaps(p.ID), o.calico().dropEndpoint(p, n)); err != nil {
		return err
	}
	return schema.Ports.Delete(o.tx, p.ID)
}

// putPort stores a port with what is derived from it.
func (o *operation) putPort(p *neutron.Port, n *neutron.Network) error {
	old, _ := schema.Ports.Peek(o.tx, p.ID)
	if err := schema.Ports.Put(o.tx, p); err != nil {
		return portTaken(p, err)
	}
	if err := o.followLocalIPs(old, p); err != nil {
		return err
	}
	groups, err := o.groupsOf(p)
	if err != nil {
		return err
	}
	if n.Routed() {
		if err := errors.Join(checkRoutedPort(p, groups), o.calico().checkNoGateway(p)); err != nil {
			return err
		}
	}
	o.heedQoSPolicy(n)
	if err := errors.Join(o.putPortBundle(p, n, groups), o.calico().deriveEndpoint(old, p, n)); err != nil {
		return err
	}
	return errors.Join(o.derivePortOfRouter(old, p), o.deriveServed(old, p), o.followPort(old, p), o.followParent(old, p), o.followVIPPort(old, p))
}

// groupsOf returns the security groups of a port.
func (o *operation) groupsOf(p *neutron.Port) ([]*neutron.SecurityGroup, error) {
	groups := make([]*neutron.SecurityGroup, 0, len(p.SecurityGroups))
	for _, id := range p.SecurityGroups {
		g, err := schema.SecurityGroups.Need(o.tx, id)
		if err != nil {
			return nil, neutron.SecurityGroups.NotFound(id)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// deriveServed rewrites the subnets for which a port serves DHCP, or did. Either may be nil.
func (o *operation) deriveServed(before, after *neutron.Port) error {
	was, is := servedBy(before), servedBy(after)
	if slices.Equal(was, is) {
		return nil
	}
	return o.deriveSubnetsOf(append(was, is...))
}

// deriveSubnetsOf rewrites the subnets of addresses at which DHCP is or was served, and what
// routers have of them.
func (o *operation) deriveSubnetsOf(addresses []neutron.FixedIP) error {
	var subnets []string
	for _, f := range addresses {
		if !slices.Contains(subnets, f.SubnetID) {
			subnets = append(subnets, f.SubnetID)
		}
	}
	for _, id := range subnets {
		s, err := schema.Subnets.Get(o.tx, id)
		if err != nil {
			return err
		}
		n, err := schema.Networks.Need(o.tx, s.NetworkID)
		if err != nil {
			return err
		}
		if err := o.deriveSubnet(s, n); err != nil {
			return err
		}
		if _, err := o.deriveRouterPorts(id); err != nil {
			return err
		}
	}
	return nil
}

// servedBy returns the addresses at which a port serves DHCP.
func servedBy(p *neutron.Port) []neutron.FixedIP {
	if p == nil || p.DeviceOwner != ownerDHCP {
		return nil
	}
	return slices.Clone(p.FixedIPs)
}

// portToChange finds a port and its network for an update or a delete.
func (o *operation) portToChange(id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*neutron.Port, *neutron.Network, error) {
	p, err := o.ports.toChange(o, id, op, v, ifMatch)
	if err != nil {
		return nil, nil, err
	}
	n, err := schema.Networks.Need(o.tx, p.NetworkID)
	return p, n, err
}

func portOwner(p *neutron.Port, n *neutron.Network) neutron.Owner {
	return neutron.Owner{ProjectID: p.ProjectID, NetworkProjectID: n.ProjectID}
}
