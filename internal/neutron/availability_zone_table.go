package neutron

// AvailabilityZone is a zone that hosts are in, for one kind of resource.
type AvailabilityZone struct {
	Name      string
	Resource  string // network or router
	Available bool   // an agent for the resource is switched on in the zone
}

// availabilityZoneTable has the attributes of the reference, and an id by which lists are cut into
// pages.
func availabilityZoneTable() *Table[*AvailabilityZone] {
	return newTable(AvailabilityZones, []column[*AvailabilityZone]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "string", Doc: "orders lists"},
			textValue(func(o *AvailabilityZone) string { return o.Name + "/" + o.Resource })),
		row(Attribute{Name: "name", Filter: true, Sort: true, Type: "string", Doc: "as hosts joined with; nova unless they say another"},
			textValue(func(o *AvailabilityZone) string { return o.Name })),
		row(Attribute{Name: "resource", Filter: true, Sort: true, Type: "string", Doc: "network or router"},
			textValue(func(o *AvailabilityZone) string { return o.Resource })),
		row(Attribute{Name: "state", Filter: true, Sort: true, Type: "string", Doc: "available while an agent for the resource is switched on there, else unavailable"},
			textValue(func(o *AvailabilityZone) string {
				if o.Available {
					return "available"
				}
				return "unavailable"
			})),
	})
}

// zoneColumns have the availability zones of a network or router. Where it may be is not narrowed
// by hints: each host serves its own machines.
func zoneColumns[T any](update bool, hints, zones func(o T) []string) []column[T] {
	return []column[T]{
		row(Attribute{Name: "availability_zones", Computed: true, Type: "list of strings", Doc: "of the hosts that serve it"}, textsValue(zones)),
		row(Attribute{Name: "availability_zone_hints", Create: true, Update: update, Default: []string{}, Filter: true, Type: "list of strings",
			Doc: "at most 100 zones of hosts; stored, and changes nothing", parse: nullAs([]any{}, fewer(texts(maxName)))}, textsValue(hints)),
	}
}
