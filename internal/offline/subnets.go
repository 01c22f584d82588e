package offline

import (
	"slices"

	"heddle/internal/control"
	"heddle/internal/control/addresses"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
)

func subnetResource() resource {
	type subnet = neutron.Subnet
	modes := []string{"slaac", "dhcpv6-stateful", "dhcpv6-stateless"}
	return &table[subnet]{
		what: "subnet",
		attributes: map[string]setter[subnet]{
			"name":       setText(func(s *subnet) *string { return &s.Name }),
			"network_id": setID(func(s *subnet) *string { return &s.NetworkID }),
			"cidr":       func(s *subnet, v node) (err error) { s.CIDR, err = v.subnet(); return err },
			"ip_version": func(s *subnet, v node) (err error) { s.IPVersion, _, err = v.number(4, 6); return err },
			"gateway_ip": func(s *subnet, v node) error {
				gateway, err := v.addr()
				s.GatewayIP = nil
				if gateway.IsValid() {
					s.GatewayIP = &gateway
				}
				return err
			},
			"enable_dhcp":       setFlag(func(s *subnet) *bool { return &s.EnableDHCP }, true),
			"dns_nameservers":   func(s *subnet, v node) (err error) { s.DNSNameservers, err = each(v, node.addr); return err },
			"host_routes":       func(s *subnet, v node) (err error) { s.HostRoutes, err = each(v, readHostRoute); return err },
			"allocation_pools":  func(s *subnet, v node) (err error) { s.AllocationPools, err = each(v, readPool); return err },
			"ipv6_ra_mode":      func(s *subnet, v node) (err error) { s.IPv6RAMode, err = v.oneOf(modes...); return err },
			"ipv6_address_mode": func(s *subnet, v node) (err error) { s.IPv6AddressMode, err = v.oneOf(modes...); return err },
		},
		ignored: commonIgnored("project_id", "subnetpool_id", "use_default_subnetpool", "prefixlen", "segment_id",
			"service_types", "dns_publish_fixed_ip", "shared"),
		nested: map[string][]string{
			"host_routes": {"destination", "nexthop"}, "allocation_pools": {"start", "end"},
		},
		objects: func(w *world) map[string]*subnet { return w.subnets },
		fresh: func(_ *world, std neutron.Standard) *subnet {
			return &subnet{Standard: std, EnableDHCP: true}
		},
		validate: validateSubnet,
		remove:   removeSubnet,
	}
}

func readHostRoute(n node) (r neutron.HostRoute, err error) {
	o, err := n.object("destination", "nexthop")
	if err != nil {
		return r, err
	}
	if r.Destination, err = o.get("destination").prefix(); err != nil {
		return r, err
	}
	if r.Nexthop, err = o.get("nexthop").addr(); err != nil {
		return r, err
	}
	if !r.Destination.IsValid() || !r.Nexthop.IsValid() {
		return r, n.wants("a destination and a nexthop")
	}
	return r, nil
}

func readPool(n node) (p neutron.Pool, err error) {
	o, err := n.object("start", "end")
	if err != nil {
		return p, err
	}
	if p.Start, err = o.get("start").addr(); err != nil {
		return p, err
	}
	if p.End, err = o.get("end").addr(); err != nil {
		return p, err
	}
	if !p.Start.IsValid() || !p.End.IsValid() || p.Start.BitLen() != p.End.BitLen() || p.End.Less(p.Start) {
		return p, n.wants("a pool from start to end")
	}
	return p, nil
}

func validateSubnet(w *world, s, old *neutron.Subnet, data object) error {
	if s.NetworkID == "" {
		return refuse(neutron.Invalid, "subnet %s: network_id is missing", s.ID)
	}
	if w.networks[s.NetworkID] == nil {
		return notFound("network", s.NetworkID)
	}
	if !s.CIDR.IsValid() {
		return refuse(neutron.Invalid, "subnet %s: cidr is missing", s.ID)
	}
	version := 4
	if s.CIDR.Addr().Is6() {
		version = 6
	}
	if s.IPVersion == 0 {
		s.IPVersion = version
	}
	if old != nil && (s.CIDR != old.CIDR || s.NetworkID != old.NetworkID) {
		return refuse(neutron.Invalid, "subnet %s: cidr and network_id cannot be changed", s.ID)
	}
	if err := control.CheckSubnet(s, old); err != nil {
		return err
	}
	if old == nil && !data.has("gateway_ip") {
		if gateway, ok := addresses.DefaultGateway(s.CIDR); ok {
			s.GatewayIP = &gateway
		}
	}
	poolsGiven := data.has("allocation_pools") && !data.get("allocation_pools").null()
	if !poolsGiven && (old == nil || data.has("allocation_pools")) {
		s.AllocationPools = addresses.DefaultPools(s.CIDR, s.GatewayIP)
	}
	if poolsGiven || old != nil && data.has("gateway_ip") {
		if err := control.CheckAllocationPools(s); err != nil {
			return err
		}
	}
	var others []*neutron.Subnet
	for _, o := range w.subnets {
		if o.NetworkID == s.NetworkID {
			others = append(others, o)
		}
	}
	return control.CheckOverlap(s, others)
}

// removeSubnet refuses while ports hold addresses that somebody gave them. Addresses of DHCP servers, and those that
// machines make themselves, go along (neutron-api §4).
func removeSubnet(w *world, s *neutron.Subnet) error {
	holder := first(w.ports, func(p *neutron.Port) bool { return slices.Contains(subnetsOf(p), s.ID) && !releases(p, s) })
	if holder != nil {
		return refuse(neutron.Conflict, "subnet %s: port %s has an address on it; delete the port first", s.ID, holder.ID)
	}
	for _, p := range w.portsOn(s.NetworkID) {
		if !slices.Contains(subnetsOf(p), s.ID) {
			continue
		}
		without := *p
		without.FixedIPs = slices.DeleteFunc(slices.Clone(p.FixedIPs), func(f neutron.FixedIP) bool { return f.SubnetID == s.ID })
		w.ports[p.ID] = &without
	}
	return nil
}

// releases says whether the port gives up its addresses on the subnet when that goes.
func releases(p *neutron.Port, s *neutron.Subnet) bool {
	switch translate.ClassOf(p.DeviceOwner) {
	case translate.DHCP:
		return true
	case translate.RouterIface, translate.Gateway:
		return false
	}
	return addresses.AutoAddress(s)
}
