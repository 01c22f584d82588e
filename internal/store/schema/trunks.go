package schema

import (
	"fmt"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Trunks have a parent port each, which is in no other trunk.
var Trunks = records.NewTable("trunk", NeutronPrefix+"trunks/", func(t *neutron.Trunk) string { return t.ID },
	records.Ref("port", Ports, func(t *neutron.Trunk) []string { return []string{t.PortID} }, records.Refuse()),
	records.Unique("parent", func(t *neutron.Trunk) []string { return []string{t.PortID} }),
	records.Index("project", func(t *neutron.Trunk) []string { return []string{t.ProjectID} }),
	records.Index("name", func(t *neutron.Trunk) []string { return []string{t.Name} }),
)

// Subports have the ids of their ports. Those of one trunk differ in their segmentation.
var Subports = records.NewTable("subport", NeutronPrefix+"subports/", func(s *neutron.Subport) string { return s.PortID },
	records.Ref("trunk", Trunks, func(s *neutron.Subport) []string { return []string{s.TrunkID} }, records.Refuse()),
	records.Ref("port", Ports, func(s *neutron.Subport) []string { return []string{s.PortID} }, records.Refuse()),
	records.Unique("segmentation", func(s *neutron.Subport) []string {
		return []string{fmt.Sprintf("%s/%s/%d", s.TrunkID, s.SegmentationType, s.SegmentationID)}
	}),
)
