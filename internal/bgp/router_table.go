package bgp

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/routerbgp"
)

// routerTable holds the routes that a router's speaker has learned and that are in use: the best
// ones, and of each neighbour a bounded number of destinations. It is pure. Of a neighbour that
// announces too many those that came first are in use; when one is withdrawn, another follows.
type routerTable struct {
	limit  int
	routes map[netip.Prefix][]learnedPath
	used   map[netip.Addr]map[netip.Prefix]bool // by neighbour
	excess map[netip.Addr]map[netip.Prefix]bool // by neighbour, refused since there are too many
}

// learnedPath is a neighbour's way to a destination.
type learnedPath struct{ neighbour, gateway netip.Addr }

func newRouterTable(limit int) *routerTable {
	return &routerTable{limit: limit, routes: map[netip.Prefix][]learnedPath{},
		used: map[netip.Addr]map[netip.Prefix]bool{}, excess: map[netip.Addr]map[netip.Prefix]bool{}}
}

// set replaces the best paths to a destination, and reports whether its gateways have changed.
func (t *routerTable) set(dst netip.Prefix, best []learnedPath) (changed bool) {
	before := t.gateways(dst)
	inUse := map[netip.Addr]bool{} // neighbours whose path is in use already
	for _, p := range t.routes[dst] {
		inUse[p.neighbour] = true
		delete(t.used[p.neighbour], dst)
	}
	for _, refused := range t.excess {
		delete(refused, dst)
	}
	var paths []learnedPath
	for _, p := range best {
		if inUse[p.neighbour] || len(t.used[p.neighbour]) < t.limit {
			mark(t.used, p.neighbour, dst)
			paths = append(paths, p)
		} else {
			mark(t.excess, p.neighbour, dst)
		}
	}
	if len(paths) > 0 {
		t.routes[dst] = paths
	} else {
		delete(t.routes, dst)
	}
	return !slices.Equal(before, t.gateways(dst))
}

func mark(of map[netip.Addr]map[netip.Prefix]bool, neighbour netip.Addr, dst netip.Prefix) {
	if of[neighbour] == nil {
		of[neighbour] = map[netip.Prefix]bool{}
	}
	of[neighbour][dst] = true
}

// gateways returns those of a destination in order, each once; none if it is not in use.
func (t *routerTable) gateways(dst netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for _, p := range t.routes[dst] {
		all = append(all, p.gateway)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// route returns a destination's route.
func (t *routerTable) route(dst netip.Prefix) routerbgp.Route {
	return routerbgp.Route{Dst: dst, Gateways: t.gateways(dst)}
}

// waiting returns refused destinations for which there is room now.
func (t *routerTable) waiting() (all []netip.Prefix) {
	for neighbour, refused := range t.excess {
		room := t.limit - len(t.used[neighbour])
		for dst := range refused {
			if room <= 0 {
				break
			}
			all = append(all, dst)
			room--
		}
	}
	return all
}

// forget removes what is kept of neighbours other than these.
func (t *routerTable) forget(except map[netip.Addr]bool) {
	for _, of := range []map[netip.Addr]map[netip.Prefix]bool{t.used, t.excess} {
		for neighbour, destinations := range of {
			if !except[neighbour] && len(destinations) == 0 {
				delete(of, neighbour)
			}
		}
	}
}

// refusal returns which of the reasons of r, if any, excludes a path that a neighbour announces.
func refusal(r *routerbgp.Refused, p *routerbgp.Plan, dst netip.Prefix, gateway netip.Addr) *int {
	if !isUnicast(dst) {
		return &r.Invalid
	}
	if slices.Contains(p.Own, gateway) {
		return &r.NextHop
	}
	connected := false
	for _, l := range p.Links {
		if l.Tenant && l.Subnet.Bits() <= dst.Bits() && l.Subnet.Contains(dst.Addr()) {
			return &r.Tenant
		}
		connected = connected || l.Subnet.Contains(gateway)
	}
	if !connected {
		return &r.NextHop
	}
	return nil
}

// noUnicast are blocks of addresses that are no destinations (RFC 6890).
var noUnicast = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3")}

func isUnicast(dst netip.Prefix) bool {
	return !slices.ContainsFunc(noUnicast, func(p netip.Prefix) bool { return p.Bits() <= dst.Bits() && p.Contains(dst.Addr()) })
}
