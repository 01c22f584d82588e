package neutron

// tapServiceTable has the attributes of the reference, which answers no times and no revision.
func tapServiceTable() *Table[*TapServiceView] {
	std := func(o *TapServiceView) *Standard { return &o.Standard }
	cols := append([]column[*TapServiceView]{idColumn(std), nameColumn(std), descriptionColumn(std)}, projectColumns(std)...)
	return newTable(TapServices, append(cols,
		row(Attribute{Name: "port_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "receives the copies; deleting it deletes the service", parse: uuid},
			textValue(func(o *TapServiceView) string { return o.PortID })),
		row(tapStatus("ACTIVE if the port is, else DOWN"), textValue(func(o *TapServiceView) string { return o.Status })),
	))
}

// tapFlowTable likewise.
func tapFlowTable() *Table[*TapFlowView] {
	std := func(o *TapFlowView) *Standard { return &o.Standard }
	cols := append([]column[*TapFlowView]{idColumn(std), nameColumn(std), descriptionColumn(std)}, projectColumns(std)...)
	return newTable(TapFlows, append(cols,
		row(Attribute{Name: "tap_service_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "of the same project; deleting it deletes its flows", parse: uuid},
			textValue(func(o *TapFlowView) string { return o.TapServiceID })),
		row(Attribute{Name: "source_port", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "whose packets are copied; deleting it deletes the flow", parse: uuid},
			textValue(func(o *TapFlowView) string { return o.SourcePortID })),
		row(Attribute{Name: "direction", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string",
			Doc:   "IN: to the machine, before its security groups; OUT: from it, after them; BOTH",
			parse: oneOf(TapIn, TapOut, TapBoth)}, textValue(func(o *TapFlowView) string { return o.Direction })),
		row(Attribute{Name: "vlan_filter", Create: true, Filter: true, Sort: true, Type: "string",
			Doc: "VLAN ids and ranges, such as 1,5,10-20, of the frames to copy, 0 for those without a tag; null: all", parse: orNull(vlanFilter)},
			textOrNullValue(func(o *TapFlowView) string { return o.VLANFilter })),
		row(tapStatus("that of the service"), textValue(func(o *TapFlowView) string { return o.Status })),
	))
}

func tapStatus(doc string) Attribute {
	return Attribute{Name: "status", Filter: true, Sort: true, Computed: true, Type: "string", Doc: doc}
}

// vlanFilter takes a list of VLAN ids and ranges.
func vlanFilter(v any) (any, error) {
	s, ok := v.(string)
	if !ok || s == "" {
		return nil, reasonf("'%s' is not a valid input", pyText(v))
	}
	if _, err := parseVLANs(s); err != nil {
		return nil, err
	}
	return s, nil
}
