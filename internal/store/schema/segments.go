package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// SegmentRanges of one network type and physical network do not overlap.
var SegmentRanges = records.NewTable("segment-range", NeutronPrefix+"segment-ranges/", func(r *neutron.SegmentRange) string { return r.ID },
	records.Index("name", func(r *neutron.SegmentRange) []string { return []string{r.Name} }),
)
