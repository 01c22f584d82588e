package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
)

// learnedKey names a learned route by what it is.
type learnedKey struct {
	port    string
	dst     netip.Prefix
	gateway netip.Addr
}

// learnedRoute is a route that hosts report.
type learnedRoute struct {
	route   *route
	reports int // hosts' records that have it
}

// areaBits is the length of the prefixes by which decisions rest on learned routes: a change of one
// to a longer prefix concerns the decisions about destinations in its area alone.
const areaBits = 16

// ApplyLearnedRoutes replaces what a host reports of the routes that it has learned by a port, nil
// for nothing, and returns what decisions rest on that may change. Cost follows the difference. The
// world keeps neither.
func (w *World) ApplyLearnedRoutes(before, after *topology.LearnedRoutes) (affected []string) {
	w.begin()
	areas := map[string]bool{}
	had := map[learnedKey]bool{}
	for k := range learnedKeys(before) {
		had[k] = true
	}
	for k := range learnedKeys(after) {
		if had[k] {
			delete(had, k)
			continue
		}
		w.learn(k, areas)
	}
	for k := range had {
		w.unlearn(k, areas)
	}
	return w.end()
}

// learnedKeys returns the routes of a record, each once.
func learnedKeys(l *topology.LearnedRoutes) map[learnedKey]bool {
	if l == nil {
		return nil
	}
	keys := make(map[learnedKey]bool, len(l.Routes))
	for _, r := range l.Routes {
		if r.Dst.IsValid() && r.Gateway.IsValid() && r.Dst.Addr().Is4() == r.Gateway.Is4() {
			keys[learnedKey{l.PortID, r.Dst.Masked(), r.Gateway}] = true
		}
	}
	return keys
}

// learn counts a report of a route, and makes the route with the first.
func (w *World) learn(k learnedKey, areas map[string]bool) {
	l := w.learned[k]
	if l == nil {
		r := &route{learned: true}
		r.id = "learned " + k.dst.String() + " " + k.gateway.String() + " " + k.port
		r.def = &topology.Route{
			ID: r.id, SrcSubnet: netip.PrefixFrom(netip.IPv4Unspecified(), 0), DstSubnet: k.dst,
			NextHop: topology.HopPort, NextHopPortID: k.port, NextHopGateway: k.gateway, Weight: topology.LearnedRouteWeight,
		}
		r.port = hold(w.ports, k.port)
		r.port.routes = append(r.port.routes, r)
		l = &learnedRoute{route: r}
		w.learned[k] = l
		w.placeRoute(r)
		w.touchLearned(r.router, k.dst, areas)
	}
	l.reports++
}

// unlearn takes back a report of a route, and with the last one the route.
func (w *World) unlearn(k learnedKey, areas map[string]bool) {
	l := w.learned[k]
	if l == nil {
		return
	}
	if l.reports--; l.reports > 0 {
		return
	}
	delete(w.learned, k)
	r := l.route
	w.touchLearned(r.router, k.dst, areas)
	w.unplaceRoute(r)
	i := slices.Index(r.port.routes, r)
	last := len(r.port.routes) - 1
	r.port.routes[i] = r.port.routes[last] // of thousands; their order means nothing
	r.port.routes[last] = nil
	r.port.routes = r.port.routes[:last]
	release(w.ports, r.port)
}

// touchLearned touches the decisions of a router about destinations in a prefix. Those of a router
// without a speaker do not rest on areas.
func (w *World) touchLearned(r *router, dst netip.Prefix, areas map[string]bool) {
	switch {
	case r == nil:
	case !r.speaks() || dst.Bits() < areaBits:
		w.touchRouter(r)
	default:
		if tag := r.area(dst.Addr()); !areas[tag] {
			areas[tag] = true
			w.affected = append(w.affected, tag)
		}
	}
}

// area is the name that decisions about destinations near a rest on.
func (r *router) area(a netip.Addr) string {
	p, _ := a.Prefix(areaBits)
	return r.id + " " + p.Addr().String()
}

// routeOf returns the route of the packet in a router. The decision rests on the routes that the
// router learns for such destinations.
func (s *Simulator) routeOf(r *router) *route {
	f := s.filters.now
	if r.speaks() && f.DstIP.Is4() {
		s.dec.touch(r.area(f.DstIP), nil)
	}
	return r.routes.find(f)
}
