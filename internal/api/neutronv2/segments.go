package neutronv2

import "heddle/internal/neutron"

// segments is the part of the places of networks in the underlay.
func segments() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.SegmentView]{h, h.tables.Segments, h.ops.Segments()})
			ranges := &collection[*neutron.SegmentRangeView]{h, h.tables.SegmentRanges, h.ops.SegmentRanges()}
			register(on, ranges)                              // as openstacksdk has it
			registerAt(on, "/network-segment-ranges", ranges) // as the reference has it
		},
		extensions: []extension{
			{"network-segment-range", "Neutron Network Segment Range", "2018-11-29T00:00:00-00:00",
				"Provides support for the network segment range management"},
			{"standard-attr-segment", "Standard Attribute Segment Extension", "2018-04-09T10:00:00-00:00",
				"Add standard attributes to Segment resource"},
			{"subnet-segmentid-writable", "Subnet SegmentID (writable)", "2018-03-12T00:00:00-00:00",
				"Provides a writable segment_id attribute for a subnet resource."},
		},
	}
}
