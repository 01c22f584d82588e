package schema

import (
	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// SegmentID returns the id of a network's segment.
func SegmentID(networkID string) string {
	network, _ := uuid.Parse(networkID) // another name space where ids are no UUIDs
	return uuid.NewSHA1(network, []byte("segment of "+networkID)).String()
}

// Segments has what admins have said about segments.
var Segments = records.NewTable("segment", NeutronPrefix+"segments/", func(s *neutron.Segment) string { return SegmentID(s.NetworkID) },
	records.Ref("network", Networks, func(s *neutron.Segment) []string { return []string{s.NetworkID} }, records.Cascade()),
)

// SegmentRanges of one network type and physical network do not overlap.
var SegmentRanges = records.NewTable("segment-range", NeutronPrefix+"segment-ranges/", func(r *neutron.SegmentRange) string { return r.ID },
	records.Index("name", func(r *neutron.SegmentRange) []string { return []string{r.Name} }),
)
