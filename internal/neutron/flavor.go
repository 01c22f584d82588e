package neutron

import "slices"

// Flavor is a choice that admins offer for a service. Its first profile says what is chosen.
type Flavor struct {
	Standard
	ServiceType string   `json:"service_type"`
	Enabled     bool     `json:"enabled"`
	ProfileIDs  []string `json:"service_profiles"`
}

// ServiceProfile names the driver that flavors with it choose.
type ServiceProfile struct {
	Standard
	Driver   string `json:"driver"` // "" = none
	Metainfo string `json:"metainfo"`
	Enabled  bool   `json:"enabled"`
}

// Services that flavors and providers may be of.
const (
	ServiceL3      = "L3_ROUTER_NAT"
	ServiceFlavors = "FLAVORS"
)

// ServiceProvider is an implementation of a service.
type ServiceProvider struct {
	ServiceType string
	Name        string
	Default     bool
	Driver      string // by which service profiles choose it; "" = none
	// Distributed and HA are the flags of a router of this provider.
	Distributed, HA bool
}

// ServiceProviders returns the implementations of services. Those of routers are the reference's,
// and differ in the flags that their routers have.
func ServiceProviders() []ServiceProvider {
	const l3 = "neutron.services.l3_router.service_providers."
	return []ServiceProvider{
		{ServiceType: ServiceL3, Name: "dvrha", Driver: l3 + "dvrha.DvrHaDriver", Distributed: true, HA: true},
		{ServiceType: ServiceL3, Name: "dvr", Driver: l3 + "dvr.DvrDriver", Distributed: true},
		{ServiceType: ServiceL3, Name: "ha", Driver: l3 + "ha.HaDriver", HA: true},
		{ServiceType: ServiceL3, Name: "single_node", Driver: l3 + "single_node.SingleNodeDriver"},
	}
}

// ProviderOf returns the provider with this driver.
func ProviderOf(driver string) (ServiceProvider, bool) {
	all := ServiceProviders()
	i := slices.IndexFunc(all, func(p ServiceProvider) bool { return p.Driver == driver && driver != "" })
	if i < 0 {
		return ServiceProvider{}, false
	}
	return all[i], true
}
