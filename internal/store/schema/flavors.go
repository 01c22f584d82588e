package schema

import (
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// ServiceProfiles are in any number of flavors.
var ServiceProfiles = records.NewTable("service-profile", NeutronPrefix+"service-profiles/", func(p *neutron.ServiceProfile) string { return p.ID })

// Flavors are of any number of routers.
var Flavors = records.NewTable("flavor", NeutronPrefix+"flavors/", func(f *neutron.Flavor) string { return f.ID },
	records.Ref("service_profile", ServiceProfiles, func(f *neutron.Flavor) []string { return f.ProfileIDs }, records.Refuse()),
	records.Index("name", func(f *neutron.Flavor) []string { return []string{f.Name} }),
)
