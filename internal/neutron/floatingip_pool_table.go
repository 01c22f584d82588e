package neutron

// FloatingIPPool is an IPv4 subnet of an external network, from which floating IPs can be had. The
// Subnet is not to be modified.
type FloatingIPPool struct {
	*Subnet
}

// floatingIPPoolTable has the attributes of the reference. A pool's id, by which lists are ordered
// and cut into pages, is that of its subnet.
func floatingIPPoolTable() *Table[*FloatingIPPool] {
	id := textValue(func(o *FloatingIPPool) string { return o.ID })
	project := textValue(func(o *FloatingIPPool) string { return o.ProjectID })
	return newTable(FloatingIPPools, []column[*FloatingIPPool]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "uuid", Doc: "that of the subnet"}, id),
		row(Attribute{Name: "subnet_id", Filter: true, Sort: true, Type: "uuid", Doc: "an IPv4 subnet of an external network"}, id),
		row(Attribute{Name: "subnet_name", Filter: true, Sort: true, Type: "string"},
			textValue(func(o *FloatingIPPool) string { return o.Name })),
		row(Attribute{Name: "tenant_id", Filter: true, Sort: true, Type: "string", Doc: "the older name of project_id"}, project),
		row(Attribute{Name: "network_id", Filter: true, Sort: true, Type: "uuid", Doc: "the external network"},
			textValue(func(o *FloatingIPPool) string { return o.NetworkID })),
		row(Attribute{Name: "cidr", Filter: true, Sort: true, Type: "cidr"},
			textValue(func(o *FloatingIPPool) string { return o.CIDR.String() })),
		row(Attribute{Name: "project_id", Filter: true, Sort: true, Type: "string", Doc: "the subnet's"}, project),
	})
}
