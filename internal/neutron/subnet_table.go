package neutron

import (
	"net/netip"
	"strings"
)

func subnetTable() *Table[*SubnetView] {
	std := func(o *SubnetView) *Standard { return &o.Standard }
	cols := []column[*SubnetView]{
		idColumn(std),
		nameColumn(std),
		row(Attribute{Name: "ip_version", Create: true, Default: required{}, Filter: true, Sort: true,
			Type: "integer", Doc: "4 or 6", parse: ipVersion},
			numberValue(func(o *SubnetView) int64 { return int64(o.IPVersion) })),
		row(Attribute{Name: "network_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid", parse: uuid},
			textValue(func(o *SubnetView) string { return o.NetworkID })),
		row(Attribute{Name: "subnetpool_id", Create: true, Filter: true, Sort: true, Type: "uuid", Doc: "that the range is taken from",
			parse: subnetPoolID}, textOrNullValue(func(o *SubnetView) string { return o.SubnetPoolID })),
		row(Attribute{Name: "prefixlen", Create: true, Default: unset{}, Hidden: true, Type: "integer",
			Doc: "of any free range of the pool; its default_prefixlen unless given", parse: nonNegative}, value[*SubnetView]{}),
		row(Attribute{Name: "cidr", Create: true, Default: unset{}, Filter: true, Sort: true, Type: "cidr",
			Doc: "host bits are cleared", parse: cidr}, textValue(func(o *SubnetView) string { return o.CIDR.String() })),
		row(Attribute{Name: "gateway_ip", Create: true, Update: true, Default: unset{}, Filter: true, Sort: true, Type: "address",
			Doc: "null = none; the first address of the range unless given", parse: orNull(address)}, textOrNullValue(gateway)),
		row(Attribute{Name: "allocation_pools", Create: true, Update: true, Default: unset{}, Type: "list of {start, end}",
			Doc: "at most 100; all usable addresses but the gateway unless given", parse: fewer(pools)},
			jsonValue(func(b []byte, o *SubnetView) []byte { return appendList(b, o.AllocationPools, appendPool) })),
		row(Attribute{Name: "dns_nameservers", Create: true, Update: true, Default: unset{}, Type: "list of addresses",
			Doc: "told by DHCP in this order; at most 5", parse: nullAs([]any{}, nameservers)},
			jsonValue(func(b []byte, o *SubnetView) []byte { return appendList(b, o.DNSNameservers, appendAddr) })),
		row(Attribute{Name: "host_routes", Create: true, Update: true, Default: unset{}, Type: "list of {destination, nexthop}",
			Doc: "told by DHCP; at most 20", parse: nullAs([]any{}, hostRoutes)},
			jsonValue(func(b []byte, o *SubnetView) []byte { return appendList(b, o.HostRoutes, appendRoute) })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "enable_dhcp", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean", parse: flag},
			flagValue(func(o *SubnetView) bool { return o.EnableDHCP })),
		ipv6Mode("ipv6_ra_mode", func(o *SubnetView) string { return o.IPv6RAMode }),
		ipv6Mode("ipv6_address_mode", func(o *SubnetView) string { return o.IPv6AddressMode }),
		row(Attribute{Name: "use_default_subnetpool", Create: true, Default: false, Hidden: true,
			Type: "boolean", Doc: "take the range from the default pool of its IP version", parse: flag}, value[*SubnetView]{}),
		row(Attribute{Name: "segment_id", Create: true, Update: true, Policed: true, CreateBy: AdminOnly, UpdateBy: AdminOnly, Filter: true, Sort: true,
			See: AdminOnly, Type: "uuid", Doc: "the network's segment, of all subnets or none: ports get their addresses with their host, which must be on the segment",
			parse: orNull(uuid)}, textOrNullValue(func(o *SubnetView) string { return o.SegmentID })),
		row(Attribute{Name: "service_types", Create: true, Update: true, Default: unset{}, Type: "list of strings",
			Doc: "at most 100; device owners that may have addresses here; empty = all", parse: fewer(serviceTypes)},
			textsValue(func(o *SubnetView) []string { return o.ServiceTypes })),
		row(Attribute{Name: "shared", Filter: true, Hidden: true, Computed: true, Type: "boolean", Doc: "filter: its network is shared", parse: flag},
			flagValue(func(o *SubnetView) bool { return o.Shared })),
		descriptionColumn(std),
	)
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(Subnets, cols)
}

func ipv6Mode(name string, get func(o *SubnetView) string) column[*SubnetView] {
	return row(Attribute{Name: name, Create: true, Default: unset{}, Filter: true, Sort: true, Type: "string",
		Doc:   "slaac, dhcpv6-stateful or dhcpv6-stateless",
		parse: orNull(oneOf("dhcpv6-stateful", "dhcpv6-stateless", "slaac"))}, textOrNullValue(get))
}

func gateway(o *SubnetView) string {
	if o.GatewayIP == nil {
		return ""
	}
	return o.GatewayIP.String()
}

func appendPool(b []byte, p Pool) []byte {
	return appendObject(b, "start", p.Start, appendAddr, "end", p.End, appendAddr)
}

func appendRoute(b []byte, r HostRoute) []byte {
	return appendObject(b, "destination", r.Destination, appendPrefix, "nexthop", r.Nexthop, appendAddr)
}

// pools takes a list of {start, end}. The operation checks whether they fit the subnet.
func pools(v any) (any, error) {
	return entries(v, "Invalid data format for IP pool: '%s'", "", func(x any) (Pool, error) {
		if err := exactKeys(x, "start", "end"); err != nil {
			return Pool{}, err
		}
		m := x.(map[string]any)
		start, err := address(m["start"])
		if err != nil {
			return Pool{}, err
		}
		end, err := address(m["end"])
		if err != nil {
			return Pool{}, err
		}
		return Pool{Start: start.(netip.Addr), End: end.(netip.Addr)}, nil
	})
}

// nameservers takes a list of different addresses.
func nameservers(v any) (any, error) {
	return entries(v, "Invalid data format for nameserver: '%s'", "nameserver", func(x any) (netip.Addr, error) {
		a, err := address(x)
		if err != nil {
			return netip.Addr{}, reasonf("'%s' is not a valid nameserver. %s", pyText(x), err)
		}
		return a.(netip.Addr), nil
	})
}

// hostRoutes takes a list of different {destination, nexthop}.
func hostRoutes(v any) (any, error) {
	return entries(v, "Invalid data format for hostroute: '%s'", "hostroute", func(x any) (HostRoute, error) {
		if err := exactKeys(x, "destination", "nexthop"); err != nil {
			return HostRoute{}, err
		}
		m := x.(map[string]any)
		destination, err := routeCIDR(m["destination"])
		if err != nil {
			return HostRoute{}, err
		}
		nexthop, err := address(m["nexthop"])
		if err != nil {
			return HostRoute{}, err
		}
		return HostRoute{Destination: destination, Nexthop: nexthop.(netip.Addr)}, nil
	})
}

// routeCIDR takes a network in CIDR form without host bits.
func routeCIDR(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	p, ok := parseCIDR(s)
	switch {
	case !ok:
		return p, reasonf("'%s' is not a valid CIDR", pyText(v))
	case !strings.Contains(s, "/"), p != p.Masked():
		return p, reasonf("'%s' is not a recognized CIDR, '%s' is recommended", s, p.Masked())
	case p.Addr().IsLoopback():
		return p, reasonf("'%s' is not a routable CIDR", s)
	}
	return p, mappedReason(p)
}

// serviceTypes takes device owners or their beginnings.
func serviceTypes(v any) (any, error) {
	if v == nil {
		return []string{}, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, badRequest("Subnet service types must be a list.")
	}
	out := make([]string, 0, len(list))
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, Errorf(Invalid, "InvalidInputSubnetServiceType", "Subnet service type %s is not a string.", pyText(x))
		}
		if !isServiceType(s) {
			return nil, Errorf(Invalid, "InvalidSubnetServiceType",
				"Subnet service type %s does not correspond to a valid device owner.", s)
		}
		out = append(out, s)
	}
	return out, nil
}

// isServiceType accepts the reference's device owners. The reference means to require network:,
// neutron: or compute:, but compares with the letters of the last, and its tests rely on that.
func isServiceType(s string) bool {
	return strings.HasPrefix(s, "network:") || strings.HasPrefix(s, "neutron:") || s != "" && strings.Contains("compute:", s[:1])
}
