package control

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// AvailabilityZones returns the list of the zones that hosts are in. Everyone sees them.
func (s *Service) AvailabilityZones() Operations[*neutron.AvailabilityZone] {
	return Operations[*neutron.AvailabilityZone]{List: s.listAvailabilityZones}
}

// listAvailabilityZones lists each zone for routers and for networks, as the reference does.
func (s *Service) listAvailabilityZones(ctx context.Context, _ neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.AvailabilityZone], error) {
	snap, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	zones := map[neutron.AvailabilityZone]bool{} // whether an agent is switched on there
	for h := range schema.Hosts.All(snap) {
		zone := schema.ZoneOf(snap, h.ID)
		for function, resource := range map[schema.AgentFunction]neutron.Resource{
			schema.DHCPAgent: neutron.Networks, schema.L3Agent: neutron.Routers,
		} {
			key := neutron.AvailabilityZone{Name: zone, Resource: resource.Name()}
			zones[key] = zones[key] || agentUp(snap, h.ID, function)
		}
	}
	var list []*neutron.AvailabilityZone
	for _, z := range slices.SortedFunc(maps.Keys(zones), func(a, b neutron.AvailabilityZone) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Resource, a.Resource))
	}) {
		list = append(list, &neutron.AvailabilityZone{Name: z.Name, Resource: z.Resource, Available: zones[z]})
	}
	return slices.Values(list), nil
}

// checkZones refuses hints to zones in which there is no host.
func checkZones(r records.Reader, hints []string) error {
	for _, name := range hints {
		if !schema.HasZone(r, name) {
			return neutron.Errorf(neutron.NotFound, "AvailabilityZoneNotFound", "AvailabilityZone %s could not be found.", name)
		}
	}
	return nil
}

// zonesOf returns the zones of the hosts that serve a network or router: all, if any does.
func zonesOf(r records.Reader, everywhere bool, scheduled iter.Seq[*schema.Scheduled]) []string {
	if everywhere {
		return schema.Zones(r)
	}
	zones := []string{}
	for s := range scheduled {
		if zone := schema.ZoneOf(r, s.HostID); !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// zonesOfNetwork returns the zones of the hosts that answer DHCP on a network.
func zonesOfNetwork(r records.Reader, id string) []string {
	return zonesOf(r, hasDHCP(r, id), schema.ScheduledNetworks.By(r, "network", id))
}

// zonesOfRouter returns the zones of the hosts on which a router is.
func zonesOfRouter(r records.Reader, id string) []string {
	return zonesOf(r, routes(r, id), schema.ScheduledRouters.By(r, "router", id))
}
