package neutron

// Segment has what admins say about a network's segment, which is there with the network.
type Segment struct {
	Standard
	NetworkID string `json:"network_id"`
}

// SegmentView is the segment of a network. The Network is not to be modified.
type SegmentView struct {
	Segment
	Network *Network
}

func segmentTable() *Table[*SegmentView] {
	std := func(o *SegmentView) *Standard { return &o.Standard }
	said := func(name, doc string, p parser, get func(o *SegmentView) string) column[*SegmentView] {
		return row(Attribute{Name: name, Create: true, Update: true, Default: unset{}, Filter: true, Sort: true, Type: "string", Doc: doc, parse: p},
			textOrNullValue(get))
	}
	place := func(name, typ, doc string, def any, p parser, v value[*SegmentView]) column[*SegmentView] {
		return row(Attribute{Name: name, Create: true, Default: def, Filter: true, Sort: true, Type: typ, Doc: doc, parse: p}, v)
	}
	cols := []column[*SegmentView]{idColumn(std),
		said("name", "need not be unique", orNull(text(maxName)), func(o *SegmentView) string { return o.Name }),
		place("network_id", "uuid", "which has this segment alone", required{}, uuid, textValue(func(o *SegmentView) string { return o.NetworkID })),
		place("physical_network", "string", "the network's", unset{}, orNull(text(maxPhysical)),
			textOrNullValue(func(o *SegmentView) string { return o.Network.PhysicalNetwork })),
		place("network_type", "string", "the network's", required{}, text(maxType), textValue(func(o *SegmentView) string { return o.Network.NetworkType })),
		place("segmentation_id", "integer", "the network's", unset{}, orNull(integer),
			numberOrNullValue(func(o *SegmentView) *int { return o.Network.SegmentationID })),
		said("description", "", orNull(text(maxDescription)), func(o *SegmentView) string { return o.Description }),
	}
	cols = append(cols, unshownProject[*SegmentView]()...)
	return newTable(Segments, append(cols, lastColumns(std)...))
}
