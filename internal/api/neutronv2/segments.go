package neutronv2

import "heddle/internal/neutron"

// segments is the part of the places of networks in the underlay.
func segments() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[neutron.SegmentRangeView]{h, h.tables.SegmentRanges, h.ops.SegmentRanges()})
		},
		extensions: []extension{
			{"network-segment-range", "Neutron Network Segment Range", "2018-11-29T00:00:00-00:00",
				"Provides support for the network segment range management"},
		},
	}
}
