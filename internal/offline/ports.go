package offline

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"heddle/internal/control/addresses"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

func portResource() resource {
	type port = neutron.Port
	return &table[port]{
		what: "port",
		attributes: map[string]setter[port]{
			"name":           setText(func(p *port) *string { return &p.Name }),
			"network_id":     setID(func(p *port) *string { return &p.NetworkID }),
			"admin_state_up": setFlag(func(p *port) *bool { return &p.AdminStateUp }, true),
			"mac_address":    func(p *port, v node) (err error) { p.MACAddress, err = v.mac(); return err },
			"fixed_ips":      func(p *port, v node) (err error) { p.FixedIPs, err = each(v, readFixedIP); return err },
			"device_id":      setText(func(p *port) *string { return &p.DeviceID }),
			"device_owner":   setText(func(p *port) *string { return &p.DeviceOwner }),
			"security_groups": func(p *port, v node) (err error) {
				p.SecurityGroups, err = each(v, idOf)
				return err
			},
			"allowed_address_pairs": func(p *port, v node) (err error) {
				p.AllowedAddressPairs, err = each(v, readAddressPair)
				return err
			},
			"extra_dhcp_opts":       setDHCPOpts,
			"port_security_enabled": setFlag(func(p *port) *bool { return &p.PortSecurityEnabled }, true),
			"dns_name":              setText(func(p *port) *string { return &p.DNSName }),
			"binding:host_id":       setText(func(p *port) *string { return &p.HostID }),
			"binding:profile":       setProfile,
			"qos_policy_id":         func(_ *port, v node) error { return refuseQoS(v) },
		},
		ignored: commonIgnored("project_id", "dns_domain", "dns_assignment", "binding:vnic_type", "binding:vif_type",
			"binding:vif_details", "data_plane_status", "propagate_uplink_status", "device_profile",
			"numa_affinity_policy", "ip_allocation", "resource_request", "qos_network_policy_id", "trunk_details"),
		nested: map[string][]string{
			"fixed_ips":             {"subnet_id", "ip_address"},
			"allowed_address_pairs": {"ip_address", "mac_address"},
			"extra_dhcp_opts":       {"opt_name", "opt_value", "ip_version"},
		},
		objects: func(w *world) map[string]*port { return w.ports },
		fresh: func(w *world, std neutron.Standard) *port {
			return &port{Standard: std, AdminStateUp: true, Profile: map[string]any{}}
		},
		validate: validatePort,
	}
}

func readFixedIP(n node) (f neutron.FixedIP, err error) {
	o, err := n.object("subnet_id", "ip_address")
	if err != nil {
		return f, err
	}
	if f.SubnetID, err = optionalID(o.get("subnet_id")); err != nil {
		return f, err
	}
	f.IPAddress, err = o.get("ip_address").addr()
	return f, err
}

func readAddressPair(n node) (p neutron.AddressPair, err error) {
	o, err := n.object("ip_address", "mac_address")
	if err != nil {
		return p, err
	}
	ip, err := o.get("ip_address").prefix()
	if err != nil {
		return p, err
	}
	if !ip.IsValid() {
		return p, refuse(neutron.Invalid, "%s is missing", o.under("ip_address"))
	}
	p.IPAddress = ip.String()
	p.MACAddress, err = o.get("mac_address").mac()
	return p, err
}

// setDHCPOpts replaces the options, as every list of an update is replaced; one whose value is null is left out.
func setDHCPOpts(p *neutron.Port, v node) error {
	nodes, err := v.list()
	if err != nil {
		return err
	}
	p.ExtraDHCPOpts = nil
	for _, n := range nodes {
		opt, isNull, err := readDHCPOpt(n)
		if err != nil {
			return err
		}
		if !isNull {
			p.ExtraDHCPOpts = append(p.ExtraDHCPOpts, opt)
		}
	}
	return nil
}

func readDHCPOpt(n node) (opt neutron.DHCPOpt, isNull bool, err error) {
	o, err := n.object("opt_name", "opt_value", "ip_version")
	if err != nil {
		return opt, false, err
	}
	if opt.OptName, err = o.get("opt_name").text(); err != nil {
		return opt, false, err
	}
	if opt.OptName == "" {
		return opt, false, refuse(neutron.Invalid, "%s is missing", o.under("opt_name"))
	}
	if opt.OptValue, err = o.get("opt_value").text(); err != nil {
		return opt, false, err
	}
	version, given, err := o.get("ip_version").number(4, 6)
	switch {
	case err != nil:
		return opt, false, err
	case !given:
		version = 4
	case version == 5:
		return opt, false, o.get("ip_version").wants("4 or 6")
	}
	opt.IPVersion = version
	return opt, o.get("opt_value").null(), nil
}

// setProfile keeps null apart from an empty profile: null unbinds the port.
func setProfile(p *neutron.Port, v node) error {
	o, err := v.anyObject()
	if err != nil {
		return err
	}
	p.Profile = o.fields
	if o.null() {
		return nil
	}
	_, err = o.get("interface_name").text()
	return err
}

func validatePort(w *world, p, old *neutron.Port, data object) error {
	if p.NetworkID == "" {
		return refuse(neutron.Invalid, "port %s: network_id is missing", p.ID)
	}
	n := w.networks[p.NetworkID]
	if n == nil {
		return notFound("network", p.NetworkID)
	}
	if old != nil {
		if err := refuseChange(p, old); err != nil {
			return err
		}
	}
	if old == nil && !data.has("port_security_enabled") {
		p.PortSecurityEnabled = n.PortSecurityEnabled
	}
	if translate.ClassOf(p.DeviceOwner) == translate.Remote && !translate.Uplink(n) {
		return refuse(neutron.Conflict, "port %s: owner network:remote_site needs a layer-2 gateway connection on network %s, which has none", p.ID, n.ID)
	}
	for _, id := range p.SecurityGroups {
		if w.groups[id] == nil {
			return notFound("security group", id)
		}
	}
	if err := w.settleMAC(p); err != nil {
		return err
	}
	if old == nil || data.has("fixed_ips") {
		if err := w.settleFixedIPs(p); err != nil {
			return err
		}
	}
	if !w.hasTopologyPort(p) {
		return nil
	}
	if data.has("binding:host_id") || data.has("binding:profile") {
		if err := w.settleBinding(p, data); err != nil {
			return err
		}
	}
	if old == nil {
		p.TunnelKey = w.nextTunnelKey()
	}
	return nil
}

// refuseChange holds what a port keeps for its life (midonet-translations §7.2 step 2).
func refuseChange(p, old *neutron.Port) error {
	if p.NetworkID != old.NetworkID {
		return refuse(neutron.Invalid, "port %s: network_id cannot be changed", p.ID)
	}
	is, was := translate.ClassOf(p.DeviceOwner), translate.ClassOf(old.DeviceOwner)
	convertible := func(c translate.Class) bool { return c == translate.VIF || c == translate.RouterIface }
	if is != was && !(convertible(is) && convertible(was)) {
		return refuse(neutron.Unsupported, "port %s: device_owner cannot change from %q to %q", p.ID, old.DeviceOwner, p.DeviceOwner)
	}
	return nil
}

// settleMAC gives a port without MAC address one that follows from its id, so that the same file always has the same
// answer.
func (w *world) settleMAC(p *neutron.Port) error {
	if p.MACAddress.IsZero() {
		sum := sha256.Sum256([]byte(p.ID))
		p.MACAddress = packet.MAC{0xfa, 0x16, 0x3e, sum[0], sum[1], sum[2]}
	}
	if p.MACAddress.IsMulticast() {
		return refuse(neutron.Invalid, "port %s: %s is a multicast address, a port's must be unicast", p.ID, p.MACAddress)
	}
	holder := first(w.ports, func(o *neutron.Port) bool {
		return o.ID != p.ID && o.NetworkID == p.NetworkID && o.MACAddress == p.MACAddress
	})
	if holder != nil {
		return refuse(neutron.Conflict, "port %s: MAC address %s is that of port %s", p.ID, p.MACAddress, holder.ID)
	}
	return nil
}

// settleFixedIPs checks the addresses that are named, and takes the first free one where only the subnet is.
func (w *world) settleFixedIPs(p *neutron.Port) error {
	wanted := p.FixedIPs
	p.FixedIPs = nil
	for _, f := range wanted {
		s, err := w.subnetOf(p, f)
		if err != nil {
			return err
		}
		f.SubnetID = s.ID
		if !f.IPAddress.IsValid() {
			if f.IPAddress, err = w.firstFree(s, p); err != nil {
				return err
			}
		}
		if !addresses.Usable(s.CIDR, f.IPAddress, p.DeviceOwner) {
			return refuse(neutron.Invalid, "port %s: IP address %s is not a valid IP for subnet %s, %s", p.ID, f.IPAddress, s.ID, s.CIDR)
		}
		if hasAddress(p, f.IPAddress) {
			return refuse(neutron.Invalid, "port %s: IP address %s is there twice", p.ID, f.IPAddress)
		}
		if holder := w.holder(p, f.IPAddress); holder != nil {
			return refuse(neutron.Conflict, "port %s: IP address %s is that of port %s", p.ID, f.IPAddress, holder.ID)
		}
		p.FixedIPs = append(p.FixedIPs, f)
	}
	return nil
}

func hasAddress(p *neutron.Port, a netip.Addr) bool {
	return slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress == a })
}

// holder is another port on p's network that has the address.
func (w *world) holder(p *neutron.Port, a netip.Addr) *neutron.Port {
	return first(w.ports, func(o *neutron.Port) bool { return o.ID != p.ID && o.NetworkID == p.NetworkID && hasAddress(o, a) })
}

// subnetOf finds the subnet that a fixed IP names, or in which its address lies.
func (w *world) subnetOf(p *neutron.Port, f neutron.FixedIP) (*neutron.Subnet, error) {
	if f.SubnetID != "" {
		s := w.subnets[f.SubnetID]
		if s == nil {
			return nil, notFound("subnet", f.SubnetID)
		}
		if s.NetworkID != p.NetworkID {
			return nil, refuse(neutron.Invalid, "port %s: subnet %s is not on network %s", p.ID, s.ID, p.NetworkID)
		}
		return s, nil
	}
	s := first(w.subnets, func(s *neutron.Subnet) bool {
		return s.NetworkID == p.NetworkID && s.CIDR.Contains(f.IPAddress)
	})
	if s != nil {
		return s, nil
	}
	return nil, refuse(neutron.Invalid, "port %s: a fixed IP needs the subnet_id of a subnet, or an ip_address on one, of network %s", p.ID, p.NetworkID)
}

// firstFree is the machine's own address on subnets where it makes one, elsewhere the lowest that is free.
func (w *world) firstFree(s *neutron.Subnet, p *neutron.Port) (netip.Addr, error) {
	if addresses.AutoAddress(s) {
		return addresses.EUI64(s.CIDR, p.MACAddress), nil
	}
	taken := map[netip.Addr]bool{}
	for _, o := range append(w.portsOn(p.NetworkID), p) {
		for _, f := range o.FixedIPs {
			taken[f.IPAddress] = taken[f.IPAddress] || o.ID != p.ID || o == p
		}
	}
	for _, pool := range s.AllocationPools {
		for a := pool.Start; a.IsValid() && !pool.End.Less(a); a = a.Next() {
			if !taken[a] {
				return a, nil
			}
		}
	}
	return netip.Addr{}, refuse(neutron.Conflict, "subnet %s: no more IP addresses available", s.ID)
}

// hasTopologyPort says whether the port's translation has a port: not on uplinks, nor for what only holds an address.
func (w *world) hasTopologyPort(p *neutron.Port) bool {
	return len(translate.Port(p, w.networks[p.NetworkID], w.groupsOf(p)).Ports) > 0
}

// nextTunnelKey takes the next of the sequence, so that no two ports of the file ever have the same.
func (w *world) nextTunnelKey() uint32 {
	w.tunnelKeys++
	return w.tunnelKeys
}
