package neutron

import "slices"

// maxLongDescription bounds descriptions in the newer tables of the reference, characters.
const maxLongDescription = 1024

// unshownProject returns the two names of a project, which bodies may carry and nothing reads.
func unshownProject[T any]() []column[T] {
	attr := Attribute{Create: true, Default: unset{}, Hidden: true, Type: "string", Doc: "accepted and ignored: no project owns it", parse: text(maxProject)}
	tenant, project := attr, attr
	tenant.Name, project.Name = "tenant_id", "project_id"
	return []column[T]{row(tenant, value[T]{}), row(project, value[T]{})}
}

// longDescription returns the row of a description that may be null, which is no description.
func longDescription[T any](get func(o T) *Standard) column[T] {
	return row(Attribute{Name: "description", Create: true, Update: true, Default: "", Filter: true, Sort: true, Type: "string",
		parse: nullAs("", text(maxLongDescription))}, textValue(func(o T) string { return get(o).Description }))
}

func flavorTable() *Table[*Flavor] {
	std := func(o *Flavor) *Standard { return &o.Standard }
	cols := []column[*Flavor]{idColumn(std), nameColumn(std), longDescription(std),
		row(Attribute{Name: "service_type", Create: true, Default: required{}, Filter: true, Sort: true, Type: "string",
			Doc: "L3_ROUTER_NAT: of routers, by their flavor_id; FLAVORS: of nothing", parse: serviceType},
			textValue(func(o *Flavor) string { return o.ServiceType })),
		row(Attribute{Name: "service_profiles", Create: true, Update: true, Default: []string{}, Filter: true, Type: "list of uuids",
			Doc: "at most 100; the first chooses the provider", parse: nullAs([]any{}, fewer(uuids))},
			textsValue(func(o *Flavor) []string { return o.ProfileIDs })),
		row(Attribute{Name: "enabled", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false refuses new routers of it", parse: flag}, flagValue(func(o *Flavor) bool { return o.Enabled })),
	}
	return newTable(Flavors, append(cols, unshownProject[*Flavor]()...))
}

// serviceType takes the service that a flavor is for.
func serviceType(v any) (any, error) {
	s, _ := v.(string)
	if !slices.Contains([]string{ServiceL3, ServiceFlavors}, s) {
		return nil, Errorf(Invalid, "InvalidServiceType", "Invalid service type: %s.", pyText(v))
	}
	return s, nil
}

func serviceProfileTable() *Table[*ServiceProfile] {
	std := func(o *ServiceProfile) *Standard { return &o.Standard }
	attr := func(name, doc string) Attribute {
		return Attribute{Name: name, Create: true, Update: true, Default: "", Filter: true, Sort: true, Type: "string", Doc: doc,
			parse: nullAs("", text(maxLongDescription))}
	}
	cols := []column[*ServiceProfile]{idColumn(std), longDescription(std),
		row(attr("driver", "of a service provider; empty: none"), textValue(func(o *ServiceProfile) string { return o.Driver })),
		row(attr("metainfo", "stored"), textValue(func(o *ServiceProfile) string { return o.Metainfo })),
		row(Attribute{Name: "enabled", Create: true, Update: true, Default: true, Filter: true, Sort: true, Type: "boolean",
			Doc: "false refuses new routers of flavors that choose by it", parse: flag},
			flagValue(func(o *ServiceProfile) bool { return o.Enabled })),
	}
	return newTable(ServiceProfiles, append(cols, unshownProject[*ServiceProfile]()...))
}

// serviceProviderTable has the attributes of the reference, and an id by which lists are cut into
// pages.
func serviceProviderTable() *Table[*ServiceProvider] {
	return newTable(ServiceProvidersResource, []column[*ServiceProvider]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "string", Doc: "orders lists"},
			textValue(func(o *ServiceProvider) string { return o.ServiceType + "/" + o.Name })),
		row(Attribute{Name: "service_type", Filter: true, Sort: true, Type: "string"},
			textValue(func(o *ServiceProvider) string { return o.ServiceType })),
		row(Attribute{Name: "name", Filter: true, Sort: true, Type: "string"}, textValue(func(o *ServiceProvider) string { return o.Name })),
		row(Attribute{Name: "default", Filter: true, Sort: true, Type: "boolean"}, flagValue(func(o *ServiceProvider) bool { return o.Default })),
	})
}
