package simulate

import (
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// speaks reports whether the router has a BGP speaker.
func (r *router) speaks() bool { return len(r.speakers) > 0 }

// linkRedirect follows the speaker of a router, of which packets meet the redirect chain alone.
func (w *World) linkRedirect(r *router) {
	id := ""
	if def := r.speakers.top(); def != nil {
		id = def.RedirectChainID
	}
	if id == "" && r.redirect == nil || r.redirect != nil && r.redirect.id == id {
		return
	}
	w.touchRouter(r)
	before := r.redirect
	r.redirect = w.useChain(id)
	swapFilters(w, r, func(c *chain) *users[*router] { return &c.routers }, []*chain{before}, []*chain{r.redirect})
}

// redirected applies the chain of a router ahead of its inbound filter, and reports whether that
// has dealt with the packet (midonet-simulation §4, §12).
func (s *Simulator) redirected(r *router) bool {
	c := r.redirect
	if c == nil || c.def == nil {
		return false
	}
	s.filters.visited = s.filters.visited[:0]
	v, by, rule := s.filters.run(c)
	switch v {
	case redirect:
		s.handOver(r, rule)
	case drop, reject, invalid:
		s.dec.denied(r.id, "redirect", by, rule)
	case ended:
	default:
		return false
	}
	return true
}

// handOver sends the packet to the service container at a rule's port: as it is, past the filters
// of the router and of the port.
func (s *Simulator) handOver(r *router, by *rule) {
	q := by.to
	switch {
	case q.def == nil || q.router != r:
		s.dec.errorDrop(r.id, flow.CodeBadObject, "rule "+by.id+" redirects to port "+q.id+", which the router does not have")
		return
	case !q.def.AdminStateUp:
		s.dec.drop(q.id, flow.CodePortDown, "the port is administratively down")
		return
	case !q.def.Exterior():
		s.dec.drop(q.id, flow.CodeNotBound, "no host runs the service container that packets are redirected to")
		return
	}
	f := s.filters.now
	f.Src, f.Dst = q.def.PortMAC, topology.ContainerMAC(q.def.PortMAC)
	if s.dec.explain {
		s.dec.say(r.id, flow.StepRedirect, "redirected by rule "+by.id+" to the service container at port "+q.id)
	}
	s.filters.outPort = q
	s.dec.touch(q.id, nil)
	s.emit(q)
}
