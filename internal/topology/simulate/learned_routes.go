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

// learnedRoute is a route that hosts report. It is in the table of its router while the host that
// runs the router's speaker is one of them.
type learnedRoute struct {
	route   *route
	reports []report
}

// report is the number of a host's records that have a route, as a record of any block may.
type report struct {
	host    string
	records int
}

// areaBits is the length of the prefixes by which decisions rest on learned routes: a change of one
// to a longer prefix concerns the decisions about destinations in its area alone.
const areaBits = 16

// ApplyLearnedRoutes replaces what a host reports of the routes that it has learned by a port, nil
// for nothing, and returns what decisions rest on that may change. Routes count while the host runs
// the speaker of the port's router. Cost follows the difference. The world keeps neither.
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
		w.learn(after.HostID, k, areas)
	}
	for k := range had {
		w.unlearn(before.HostID, k, areas)
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

// learn notes that a host reports a route.
func (w *World) learn(host string, k learnedKey, areas map[string]bool) {
	l := w.learned[k]
	if l == nil {
		l = w.newLearnedRoute(k)
	}
	l.count(host, 1)
	w.settleLearned(l, areas)
}

// newLearnedRoute returns a route that no host reports yet.
func (w *World) newLearnedRoute(k learnedKey) *learnedRoute {
	l := &learnedRoute{route: &route{}}
	r := l.route
	r.id, r.learned = "learned "+k.dst.String()+" "+k.gateway.String()+" "+k.port, l
	r.def = &topology.Route{
		ID: r.id, SrcSubnet: netip.PrefixFrom(netip.IPv4Unspecified(), 0), DstSubnet: k.dst,
		NextHop: topology.HopPort, NextHopPortID: k.port, NextHopGateway: k.gateway, Weight: topology.LearnedRouteWeight,
	}
	r.port = hold(w.ports, k.port)
	r.port.routes = append(r.port.routes, r)
	w.learned[k] = l
	return l
}

// unlearn takes back a host's report of a route, and with the last report the route.
func (w *World) unlearn(host string, k learnedKey, areas map[string]bool) {
	l := w.learned[k]
	if l == nil {
		return
	}
	l.count(host, -1)
	w.settleLearned(l, areas)
	if len(l.reports) > 0 {
		return
	}
	delete(w.learned, k)
	r := l.route
	i := slices.Index(r.port.routes, r)
	last := len(r.port.routes) - 1
	r.port.routes[i] = r.port.routes[last] // of thousands; their order means nothing
	r.port.routes[last] = nil
	r.port.routes = r.port.routes[:last]
	release(w.ports, r.port)
}

// count counts the records of a host that have the route.
func (l *learnedRoute) count(host string, by int) {
	i := slices.IndexFunc(l.reports, func(r report) bool { return r.host == host })
	if i < 0 {
		i = len(l.reports)
		l.reports = append(l.reports, report{host: host})
	}
	if l.reports[i].records += by; l.reports[i].records == 0 {
		l.reports = slices.Delete(l.reports, i, i+1)
	}
}

// counts reports whether the host that runs the speaker of a router reports the route.
func (l *learnedRoute) counts(in *router) bool {
	return in.speakerHost != "" && slices.ContainsFunc(l.reports, func(r report) bool { return r.host == in.speakerHost })
}

// settleLearned puts a learned route into the table of its router if it counts, and else takes it
// out.
func (w *World) settleLearned(l *learnedRoute, areas map[string]bool) {
	r := l.route
	to := r.port.router
	switch counts := to != nil && l.counts(to); {
	case counts && r.router == nil:
		w.placeRoute(r)
	case !counts && r.router != nil:
		w.unplaceRoute(r)
	default:
		return
	}
	w.touchLearned(to, r.dst, areas)
}

// followSpeaker has the learned routes of the host count that runs the router's speaker: the one
// that the port of the speaker's container is bound to.
func (w *World) followSpeaker(r *router) {
	if r == nil { // of a port of a network
		return
	}
	host := ""
	if def := r.speakers.top(); def != nil {
		for _, p := range r.ports {
			if p.toContainer() && p.def.ServiceContainerID == def.ContainerID {
				host = p.def.HostID
			}
		}
	}
	if host == r.speakerHost {
		return
	}
	r.speakerHost = host
	areas := map[string]bool{}
	for _, p := range r.ports {
		for _, route := range p.routes {
			if route.learned != nil {
				w.settleLearned(route.learned, areas)
			}
		}
	}
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
	return r.routes.find(f, s.in.Reads)
}
