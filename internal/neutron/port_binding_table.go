package neutron

import "strings"

// portBindingTable has the attributes of the reference. A binding's id, by which lists are ordered
// and cut into pages, is the name of its host.
func portBindingTable() *Table[*PortBindingView] {
	host := textValue(func(o *PortBindingView) string { return o.HostID })
	vnic := vnicTypes()
	return newTable(PortBindings, []column[*PortBindingView]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "string", Doc: "that is, host"}, host),
		row(Attribute{Name: "host", Create: true, Update: true, Default: required{}, CreateBy: AdminOnly, UpdateBy: AdminOnly,
			Filter: true, Sort: true, Type: "string", Doc: "name of the host; a port has one binding to each", parse: hostName}, host),
		row(Attribute{Name: "vif_type", Default: unset{}, Filter: true, Sort: true, Computed: true, Type: "string",
			Doc: "tap; binding_failed while the host is not known; unbound once another binding was activated instead"},
			textValue(func(o *PortBindingView) string { return o.VIFType })),
		row(Attribute{Name: "vif_details", Default: unset{}, Computed: true, Type: "object"},
			jsonValue(func(b []byte, o *PortBindingView) []byte { return appendValue(b, o.VIFDetails) })),
		row(Attribute{Name: "vnic_type", Create: true, Update: true, Default: "normal", CreateBy: AdminOnly, UpdateBy: AdminOnly,
			Filter: true, Sort: true, Type: "string", Doc: strings.Join(vnic, ", "), parse: oneOf(vnic...)},
			textValue(func(o *PortBindingView) string { return o.VNICType })),
		row(Attribute{Name: "profile", Create: true, Update: true, Default: unset{}, CreateBy: AdminOnly, UpdateBy: AdminOnly,
			Type: "object", Doc: "interface_name names the interface on the host; null is {}; at most 4095 bytes",
			parse: nullAs(map[string]any{}, bindingProfile)},
			jsonValue(func(b []byte, o *PortBindingView) []byte { return appendValue(b, o.Profile) })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Type: "string", Doc: "ACTIVE or INACTIVE"},
			textValue(func(o *PortBindingView) string { return o.Status })),
		row(Attribute{Name: "project_id", Create: true, Default: unset{}, CreateBy: AdminOnly, Hidden: true, Type: "string",
			Doc: "taken and ignored, as the reference does", parse: text(maxProject)}, value[*PortBindingView]{}),
	})
}

// hostName takes the name of a host.
func hostName(v any) (any, error) {
	name, err := text(maxName)(v)
	if err == nil && strings.TrimSpace(name.(string)) == "" {
		return nil, reasonf("'%s' Blank strings are not permitted", name)
	}
	return name, err
}
