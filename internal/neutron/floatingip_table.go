package neutron

import (
	"net/netip"
	"strconv"
)

// FloatingIPView is a floating IP with its port. The FloatingIP is not to be modified.
type FloatingIPView struct {
	*FloatingIP
	Port        *PortView // the port that it is associated with; nil = none
	Forwardings []*PortForwarding
}

// Status returns ACTIVE while a router translates the address, else DOWN.
func (v *FloatingIPView) Status() string {
	if v.RouterID != "" {
		return "ACTIVE"
	}
	return "DOWN"
}

func floatingIPTable() *Table[*FloatingIPView] {
	std := func(o *FloatingIPView) *Standard { return &o.Standard }
	cols := []column[*FloatingIPView]{
		idColumn(std),
		row(Attribute{Name: "floating_ip_address", Create: true, Default: unset{}, Filter: true, Sort: true, Policed: true,
			CreateBy: AdminOnly, Type: "ip address", Doc: "a free one of the network unless given", parse: address},
			addressOrNullValue(func(o *FloatingIPView) netip.Addr { return o.FloatingIPAddress })),
		row(Attribute{Name: "subnet_id", Create: true, Hidden: true, Type: "uuid", Doc: "the address is one of this subnet",
			parse: orNull(uuid)}, value[*FloatingIPView]{}),
		row(Attribute{Name: "floating_network_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "an external network", parse: uuid},
			textValue(func(o *FloatingIPView) string { return o.FloatingNetworkID })),
		row(Attribute{Name: "router_id", Filter: true, Sort: true, Type: "uuid", Doc: "the router between the two networks; null = none"},
			textOrNullValue(func(o *FloatingIPView) string { return o.RouterID })),
		row(Attribute{Name: "port_id", Create: true, Update: true, Filter: true, Sort: true, Type: "uuid",
			Doc: "null takes the address from its port", parse: orNull(uuid)},
			textOrNullValue(func(o *FloatingIPView) string { return o.PortID })),
		row(Attribute{Name: "fixed_ip_address", Create: true, Update: true, Filter: true, Sort: true, Type: "ip address",
			Doc: "of the port; needed if that has several IPv4 addresses", parse: orNull(address)},
			addressOrNullValue(func(o *FloatingIPView) netip.Addr { return o.FixedIPAddress })),
	}
	cols = append(cols, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "status", Filter: true, Sort: true, Type: "string", Doc: "ACTIVE while it has a port or port forwardings, else DOWN"},
			textValue((*FloatingIPView).Status)),
		row(Attribute{Name: "port_details", Computed: true, Type: "object", Doc: "some attributes of the port; null = none"},
			jsonValue(func(b []byte, o *FloatingIPView) []byte { return appendPortDetails(b, o.Port) })),
	)
	cols = append(cols, qosPolicyColumn("its limits; marks mean nothing here", func(o *FloatingIPView) string { return o.QoSPolicyID }))
	cols = append(cols,
		row(Attribute{Name: "port_forwardings", Computed: true,
			Type: "list of {id, protocol, external_port, internal_port, internal_ip_address, internal_port_id}", Doc: "a range shows no ports here"},
			jsonValue(func(b []byte, o *FloatingIPView) []byte { return appendList(b, o.Forwardings, appendForwarding) })),
		row(Attribute{Name: "dns_name", Create: true, Default: "", Type: "string", Doc: "relative to dns_domain, which it needs",
			parse: floatingDNSName}, textValue(func(o *FloatingIPView) string { return o.DNSName })),
		row(Attribute{Name: "dns_domain", Create: true, Default: "", Type: "string", Doc: "ends with a dot; needs dns_name",
			parse: dnsDomain}, textValue(func(o *FloatingIPView) string { return o.DNSDomain })),
	)
	cols = append(cols, descriptionColumn(std))
	cols = append(cols, lastColumns(std)...)
	cols = append(cols, tagColumns(Attribute{Doc: "set through the tags sub-resource"}, std)...)
	return newTable(FloatingIPs, cols)
}

// addressOrNullValue writes the invalid address as null.
func addressOrNullValue[T any](get func(o T) netip.Addr) value[T] {
	return textOrNullValue(func(o T) string {
		if a := get(o); a.IsValid() {
			return a.String()
		}
		return ""
	})
}

func appendPortDetails(b []byte, p *PortView) []byte {
	if p == nil {
		return append(b, "null"...)
	}
	b = append(b, '{')
	for _, member := range []struct{ name, text string }{
		{"name", p.Name}, {"network_id", p.NetworkID}, {"mac_address", p.MACAddress.String()}, {"status", p.Status},
		{"device_id", p.DeviceID}, {"device_owner", p.DeviceOwner},
	} {
		b = append(b, `"`+member.name+`":`...)
		b = append(appendString(b, member.text), ',')
	}
	b = append(b, `"admin_state_up":`...)
	return append(strconv.AppendBool(b, p.AdminStateUp), '}')
}
