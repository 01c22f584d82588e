package neutron

import "net/netip"

// ndpProxyTable has the attributes of the reference's l3-ndp-proxy. Which objects a proxy names
// never changes.
func ndpProxyTable() *Table[*NDPProxy] {
	std := func(o *NDPProxy) *Standard { return &o.Standard }
	cols := append([]column[*NDPProxy]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "router_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "a router with enable_ndp_proxy", parse: uuid},
			textValue(func(o *NDPProxy) string { return o.RouterID })),
		row(Attribute{Name: "port_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "a port on an IPv6 subnet that the router has an interface on", parse: uuid},
			textValue(func(o *NDPProxy) string { return o.PortID })),
		row(Attribute{Name: "ip_address", Create: true, Filter: true, Sort: true, Type: "ip address",
			Doc: "an IPv6 address of the port; the first that the router reaches unless given", parse: orNull(address)},
			addressOrNullValue(func(o *NDPProxy) netip.Addr { return o.IPAddress })),
		row(Attribute{Name: "description", Create: true, Update: true, Default: "", Filter: true, Sort: true, Type: "string",
			parse: text(maxLongDescription)},
			textValue(func(o *NDPProxy) string { return o.Description })),
	)
	return newTable(NDPProxies, append(cols, lastColumns(std)...))
}
