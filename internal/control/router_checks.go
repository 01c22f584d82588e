package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// maxRoutes bounds the extra routes of a router, as in the reference.
const maxRoutes = 30

// checkRouterSubnets refuses a port x on subnets that the router is on already, or that overlap
// with those of its interfaces or with those of a gateway's network.
func (e routerEdit) checkRouterSubnets(x *neutron.RouterPort, subnets []*neutron.Subnet) error {
	var others []string // on which no range may overlap
	for other := range schema.RouterPorts.By(e.tx, "router", e.r.ID) {
		if other.PortID == x.PortID || e.gatewaysToOne(x, other, subnets) {
			continue
		}
		for _, id := range other.SubnetIDs {
			if slices.ContainsFunc(subnets, func(s *neutron.Subnet) bool { return s.ID == id }) {
				return alreadyOn(id)
			}
		}
		ids, err := e.reached(other)
		if err != nil {
			return err
		}
		others = append(others, ids...)
	}
	if err := e.checkApart(subnets, others); err != nil {
		return err
	}
	if err := e.checkDestinations(e.r.Routes, subnets); err != nil {
		return err
	}
	for _, s := range subnets {
		e.guardRange(s.CIDR)
	}
	return nil
}

// gatewaysToOne reports whether two ports are gateways to the network of the subnets.
func (e routerEdit) gatewaysToOne(x, other *neutron.RouterPort, subnets []*neutron.Subnet) bool {
	i := e.gatewayAt(other.PortID)
	return x.Gateway && i >= 0 && len(subnets) > 0 && e.r.Gateways[i].NetworkID == subnets[0].NetworkID
}

// reached returns the subnets that a port of a router leads to: those of its addresses, and of a
// gateway all of its network.
func (o *operation) reached(x *neutron.RouterPort) ([]string, error) {
	if !x.Gateway {
		return x.SubnetIDs, nil
	}
	p, err := schema.Ports.Need(o.tx, x.PortID)
	if err != nil {
		return nil, err
	}
	return subnetIDs(slices.Collect(schema.Subnets.By(o.tx, "network", p.NetworkID))), nil
}

func (e routerEdit) checkApart(subnets []*neutron.Subnet, others []string) error {
	for _, id := range others {
		other, err := schema.Subnets.Need(e.tx, id)
		if err != nil {
			return err
		}
		for _, s := range subnets {
			if s.CIDR.Overlaps(other.CIDR) {
				return neutron.BadRouter("Cidr %s of subnet %s overlaps with cidr %s of subnet %s", s.CIDR, s.ID, other.CIDR, other.ID)
			}
		}
	}
	return nil
}

// guardRange makes the commit fail if the router gets a port on an overlapping range meanwhile.
//
// A range is a path of hexadecimal digits, shortened to whole digits, with a mark at its end. Two
// ranges can overlap only if one path begins with the other: the transaction heeds all marks below
// its own path, and the marks at the end of each shorter one.
func (e routerEdit) guardRange(cidr netip.Prefix) {
	const end = "/end"
	path := fmt.Sprintf("router/%s/ranges/%d", e.r.ID, cidr.Addr().BitLen())
	digits := fmt.Sprintf("%x", cidr.Addr().AsSlice())
	for _, digit := range digits[:cidr.Bits()/4] {
		e.tx.Heed(path + end)
		path += "/" + string(digit)
	}
	e.tx.Heed(path)
	e.tx.Mark(path + end)
}

// applyRoutes sets the extra routes. The next hop of each new one is on a subnet of the router, and
// is not the router.
func (e routerEdit) applyRoutes(routes []neutron.HostRoute) error {
	if len(routes) > maxRoutes {
		return neutron.Errorf(neutron.Invalid, "RoutesExhausted",
			"Unable to complete operation for %s. The number of routes exceeds the maximum %d.", e.r.ID, maxRoutes)
	}
	var subnets []*neutron.Subnet
	var own []netip.Addr
	for _, id := range schema.RouterPorts.Referrers(e.tx, "router", e.r.ID) {
		x, err := schema.RouterPorts.Get(e.tx, id)
		if err != nil {
			return err
		}
		l, err := e.linkOf(x)
		if err != nil {
			return err
		}
		own = append(own, addressesOf(l.Port)...)
		subnets = append(subnets, l.Subnets...)
	}
	var added []neutron.HostRoute
	for _, route := range routes {
		if !slices.Contains(e.r.Routes, route) {
			added = append(added, route)
		}
	}
	for _, route := range added {
		switch {
		case route.Destination.Addr().Is4() != route.Nexthop.Is4():
			return invalidRoutes(routes, "the nexthop is of another IP version than the destination")
		case !slices.ContainsFunc(subnets, func(s *neutron.Subnet) bool { return translate.OnLink(s.CIDR, route.Nexthop) }):
			return invalidRoutes(routes, "the nexthop is not connected with router")
		case slices.Contains(own, route.Nexthop):
			return invalidRoutes(routes, "the nexthop is used by router")
		}
	}
	if err := e.checkDestinations(added, subnets); err != nil {
		return err
	}
	e.r.Routes = routes
	return nil
}

// checkDestinations refuses routes to addresses of subnets, on which the router is or will be, that
// are not the caller's: these would be taken from their machines, by whom the router takes packets
// with such sources from.
func (e routerEdit) checkDestinations(routes []neutron.HostRoute, subnets []*neutron.Subnet) error {
	for _, route := range routes {
		for _, s := range subnets {
			if !e.caller.Owns(s.ProjectID) && s.CIDR.Contains(route.Destination.Addr()) && route.Destination.Bits() >= s.CIDR.Bits() {
				return invalidRoutes(routes, fmt.Sprintf("the destination %s is in subnet %s, which the router is on and another project owns", route.Destination, s.ID))
			}
		}
	}
	return nil
}

// invalidRoutes returns the refusal of routes, written as Neutron prints them.
func invalidRoutes(routes []neutron.HostRoute, why string) error {
	texts := make([]string, len(routes))
	for i, r := range routes {
		texts[i] = fmt.Sprintf("{'destination': '%s', 'nexthop': '%s'}", r.Destination, r.Nexthop)
	}
	return neutron.Errorf(neutron.Invalid, "InvalidRoutes", "Invalid format for routes: [%s], %s", strings.Join(texts, ", "), why)
}

// checkUnneeded refuses to leave subnets, by a port, that extra routes, floating IPs or NDP
// proxies need.
func (e routerEdit) checkUnneeded(portID string, subnets []string) error {
	for _, id := range subnets {
		s, err := schema.Subnets.Need(e.tx, id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(e.r.Routes, func(route neutron.HostRoute) bool { return s.CIDR.Contains(route.Nexthop) }) {
			return conflict("RouterInterfaceInUseByRoute",
				"Router interface for subnet %s on router %s cannot be deleted, as it is required by one or more routes.", id, e.r.ID)
		}
		if err := e.checkInterfaceUnused(e.r.ID, portID, s); err != nil {
			return err
		}
		if err := e.checkInterfaceUnproxied(e.r.ID, s); err != nil {
			return err
		}
	}
	return nil
}

func alreadyOn(subnetID string) error {
	return neutron.BadRouter("Router already has a port on subnet %s", subnetID)
}

func routerInUse(id string, ports []string) error {
	return conflict("RouterInUse", "Router %s has ports still attached: %s", id, strings.Join(ports, ", "))
}

func subnetMismatch(portID, subnetID string) error {
	return neutron.Errorf(neutron.Invalid, "SubnetMismatchForPort", "Subnet on port %s does not match the requested subnet %s.", portID, subnetID)
}

func portInUse(p *neutron.Port) error {
	return conflict("PortInUse", "Unable to complete operation on port %s for network %s. Port already has an attached device %s.",
		p.ID, p.NetworkID, p.DeviceID)
}
