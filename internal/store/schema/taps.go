package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// TapServices are deleted with their port.
var TapServices = records.NewTable("tap-service", NeutronPrefix+"tap-services/", func(s *neutron.TapService) string { return s.ID },
	records.Ref("port", Ports, func(s *neutron.TapService) []string { return []string{s.PortID} }, records.Cascade()),
	records.Index("project", func(s *neutron.TapService) []string { return []string{s.ProjectID} }),
)

// TapFlows are deleted with their service, and with the port whose packets they have copied.
var TapFlows = records.NewTable("tap-flow", NeutronPrefix+"tap-flows/", func(f *neutron.TapFlow) string { return f.ID },
	records.Ref("tap_service", TapServices, func(f *neutron.TapFlow) []string { return []string{f.TapServiceID} }, records.Cascade()),
	records.Ref("source_port", Ports, func(f *neutron.TapFlow) []string { return []string{f.SourcePortID} }, records.Cascade()),
	records.Index("project", func(f *neutron.TapFlow) []string { return []string{f.ProjectID} }),
)
