package neutron

import "strconv"

// MaxSubports bounds the subports of one request, all of which are one commit.
const MaxSubports = 128

func trunkTable() *Table[*TrunkView] {
	std := func(o *TrunkView) *Standard { return &o.Standard }
	cols := append([]column[*TrunkView]{idColumn(std), nameColumn(std)}, projectColumns(std)...)
	cols = append(cols,
		row(Attribute{Name: "port_id", Create: true, Default: required{}, Filter: true, Sort: true, Type: "uuid",
			Doc: "the parent: a port in no trunk", parse: uuid},
			textValue(func(o *TrunkView) string { return o.PortID })),
		row(Attribute{Name: "status", Filter: true, Sort: true, Computed: true, Type: "string",
			Doc: "ACTIVE while a host serves the parent and all subports, BUILD while some are missing, DEGRADED when one cannot be bound, DOWN without the parent"},
			textValue(func(o *TrunkView) string { return o.Status })),
		row(Attribute{Name: "sub_ports", Create: true, Default: []SubportRequest{}, Computed: true,
			Type:  "list of {port_id, segmentation_type, segmentation_id}",
			Doc:   "at most 128 in one request, 4094 in a trunk; segmentation_type is vlan, or inherit for that of the subport's network",
			parse: subports},
			jsonValue(func(b []byte, o *TrunkView) []byte { return appendList(b, o.Subports, appendSubport) })),
		row(Attribute{Name: "admin_state_up", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false keeps it from being deleted and its subports from being changed; traffic goes on", parse: flag},
			flagValue(func(o *TrunkView) bool { return o.AdminStateUp })),
		descriptionColumn(std),
	)
	cols = append(cols, lastColumns(std)...)
	return newTable(Trunks, append(cols, tagColumns(Attribute{Doc: "through the tags sub-resource"}, std)...))
}

// trunkDetailsColumn shows a trunk at its parent, and at no other port.
func trunkDetailsColumn() column[*PortView] {
	v := jsonValue(func(b []byte, o *PortView) []byte {
		b = append(b, `{"trunk_id":`...)
		b = appendString(b, o.Trunk.TrunkID)
		b = append(b, `,"sub_ports":`...)
		return append(appendList(b, o.Trunk.Subports, func(b []byte, s SubportDetails) []byte {
			b = appendSubport(b, s.Subport)
			b = append(b[:len(b)-1], `,"mac_address":`...)
			return append(appendString(b, s.MACAddress), '}')
		}), '}')
	})
	v.omit = func(o *PortView, _ bool) bool { return o.Trunk == nil }
	return row(Attribute{Name: "trunk_details", Default: unset{}, Computed: true, Type: "object",
		Doc: "of the parent of a trunk: trunk_id, and sub_ports with their mac_address"}, v)
}

// AppendSubports writes subports as the answer to a request for those of a trunk.
func AppendSubports(b []byte, all []Subport) []byte {
	b = append(b, `{"sub_ports":`...)
	return append(appendList(b, all, appendSubport), '}')
}

func appendSubport(b []byte, s Subport) []byte {
	b = append(b, `{"port_id":`...)
	b = appendString(b, s.PortID)
	b = append(b, `,"segmentation_type":`...)
	b = appendString(b, s.SegmentationType)
	b = append(b, `,"segmentation_id":`...)
	return append(strconv.AppendInt(b, int64(s.SegmentationID), 10), '}')
}
