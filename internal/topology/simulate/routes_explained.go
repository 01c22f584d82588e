package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// mostRoutes bounds the routes that a walk lists beside the one taken.
const mostRoutes = 8

// routeText describes a route that the packet f could take.
func routeText(rt *route, f *packet.Frame) string {
	text := fmt.Sprintf("route to %v, weight %d", rt.dst, rt.def.Weight)
	if rt.learned != nil {
		text += ", learned by BGP"
	}
	switch rt.def.NextHop {
	case topology.HopPort:
		if rt.port != nil {
			text += ": by port " + rt.port.id + " to " + rt.gateway(f.DstIP).String()
		}
	case topology.HopLocal:
		text += ": an address of the router"
	}
	return text
}

// sayRoutes adds the route that the packet takes to the walk, and the others to its destination.
func (s *Simulator) sayRoutes(r *router, taken *route) {
	text := routeText(taken, s.filters.now)
	s.dec.say(r.id, flow.StepRoute, text)
	at := len(s.dec.Walk) - 1
	others := s.sayOtherRoutes(r, taken)
	s.dec.Walk[at].Routes = append([]flow.RouteChoice{{ID: taken.id, To: taken.dst, Text: text}}, others...)
}

// sayOtherRoutes adds the other routes to the packet's destination to the walk, each with why it is
// not the one taken, and returns them; taken is nil if none is.
func (s *Simulator) sayOtherRoutes(r *router, taken *route) (all []flow.RouteChoice) {
	f := s.filters.now
	others := slices.DeleteFunc(r.routes.covering(f), func(x *route) bool { return x == taken })
	for _, x := range others[:min(len(others), mostRoutes)] {
		c := flow.RouteChoice{ID: x.id, To: x.dst, Text: routeText(x, f), WhyNot: x.whyNot(f, taken)}
		s.dec.say(r.id, flow.StepRoute, "not by "+c.Text+": "+c.WhyNot)
		all = append(all, c)
	}
	if more := len(others) - mostRoutes; more > 0 {
		s.dec.say(r.id, flow.StepRoute, fmt.Sprintf("not by %d further routes", more))
	}
	return all
}

// covering returns the routes whose prefix holds the packet's destination, longest prefix and
// lowest weight first.
func (t *routeTable) covering(f *packet.Frame) []*route {
	var all []*route
	for _, l := range t.lengths {
		if p, err := f.DstIP.Prefix(l.bits); err == nil && l.is4 == f.DstIP.Is4() {
			all = append(all, t.byDst[p]...)
		}
	}
	slices.SortStableFunc(all, func(a, b *route) int { return cmp.Compare(b.dst.Bits(), a.dst.Bits()) })
	return all
}

// whyNot says why the packet f takes another route, or none, instead of r.
func (r *route) whyNot(f *packet.Frame, taken *route) string {
	switch {
	case r.port != nil && !r.port.up():
		return "its port is down"
	case !r.usable(f.SrcIP):
		return fmt.Sprintf("it is for packets from %v", r.def.SrcSubnet)
	case taken == nil:
	case taken.dst.Bits() > r.dst.Bits():
		return "its prefix is shorter"
	case taken.dst.Bits() == r.dst.Bits() && taken.def.Weight < r.def.Weight:
		return "its weight is greater"
	case taken.dst.Bits() == r.dst.Bits() && taken.def.Weight == r.def.Weight:
		return "other connections take it"
	}
	return "the source address belongs to another gateway"
}
