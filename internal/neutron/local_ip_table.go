package neutron

func localIPTable() *Table[*LocalIP] {
	std := func(o *LocalIP) *Standard { return &o.Standard }
	attr := func(name, typ, doc string, byDefault any, p parser) Attribute {
		return Attribute{Name: name, Create: true, Default: byDefault, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}
	}
	description := attr("description", "string", "", "", text(maxLongDescription))
	description.Update = true
	cols := []column[*LocalIP]{
		idColumn(std), nameColumn(std),
		row(description, textValue(func(o *LocalIP) string { return o.Description })),
		row(attr("local_port_id", "uuid", "the port that has the address; else network_id is needed", unset{}, uuid),
			textValue(func(o *LocalIP) string { return o.LocalPortID })),
		row(attr("network_id", "uuid", "where a port is made for the address; ignored with local_port_id", unset{}, uuid),
			textValue(func(o *LocalIP) string { return o.NetworkID })),
		row(attr("local_ip_address", "ip address", "IPv4; needed if the port has several addresses", unset{}, orNull(address)),
			textValue(func(o *LocalIP) string { return o.Address.String() })),
		row(attr("ip_mode", "string", "translate, or passthrough: the associated ports have the address themselves", LocalIPTranslate,
			oneOf(LocalIPTranslate, LocalIPPassthrough)),
			textValue(func(o *LocalIP) string { return o.Mode })),
	}
	return newTable(LocalIPs, append(append(cols, projectColumns(std)...), lastColumns(std)...))
}

// localIPAssociationTable has the attributes of the reference. An association's id, by which lists
// are ordered and cut into pages, is that of its port.
func localIPAssociationTable() *Table[*LocalIPAssociationView] {
	port := textValue(func(o *LocalIPAssociationView) string { return o.FixedPortID })
	cols := []column[*LocalIPAssociationView]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "string", Doc: "that is, fixed_port_id"}, port),
		row(Attribute{Name: "local_ip_id", Type: "uuid"},
			textValue(func(o *LocalIPAssociationView) string { return o.LocalIPID })),
		row(Attribute{Name: "local_ip_address", Filter: true, Sort: true, Computed: true, Type: "ip address", Doc: "of the local IP"},
			textValue(func(o *LocalIPAssociationView) string { return o.Address.String() })),
		row(Attribute{Name: "fixed_port_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "a port on the local IP's network", parse: uuid}, port),
		row(Attribute{Name: "fixed_ip", Create: true, Filter: true, Sort: true, Type: "ip address",
			Doc: "of the port, IPv4; needed if that has several addresses", parse: orNull(address)},
			textValue(func(o *LocalIPAssociationView) string { return o.FixedIP.String() })),
		row(Attribute{Name: "host", Filter: true, Sort: true, Computed: true, Type: "string", Doc: "that the port is bound to; empty: none"},
			textValue(func(o *LocalIPAssociationView) string { return o.HostID })),
	}
	return newTable(LocalIPAssociations, append(cols, unshownProject[*LocalIPAssociationView]()...))
}
