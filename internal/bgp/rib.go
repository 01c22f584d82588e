package bgp

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/bgp/plan"
	"heddle/internal/hostnet"
)

// rib holds all that decides which routes this host exports and which the kernel should have: the
// plan, the kernel's table, what peers have announced, and the ways to their next hops. It is pure:
// events mark the destinations that they may change, and settle decides on these.
//
// A speaker that starts begins a life. Until it has converged, that is until every peer has
// announced all its routes or the restart time is over, routes of earlier lives are kept.
type rib struct {
	table     *mainTable
	plan      *plan.Plan            // nil before the first
	blocks    map[netip.Prefix]bool // of the plan
	learned   map[netip.Prefix]announcement
	ways      map[netip.Addr]hostnet.Path // to next hops; the zero Path: none
	changed   map[netip.Prefix]bool
	life      int
	waiting   map[netip.Addr]bool // peers that have yet to announce all, in this life
	converged bool
	// restarted: peers may still forward what an earlier life announced.
	restarted bool
}

// announcement is a destination as peers announced it in a life of the speaker.
type announcement struct {
	life int
	hops []netip.Addr
}

// decisions are the outcome of settle.
type decisions struct {
	exports map[netip.Prefix]bool // destinations to announce as this host's own, or with false to withdraw
	set     []hostnet.OwnedRoute
	unset   []netip.Prefix
}

func newRIB() *rib {
	return &rib{table: newMainTable(), blocks: map[netip.Prefix]bool{}, learned: map[netip.Prefix]announcement{},
		ways: map[netip.Addr]hostnet.Path{}, changed: map[netip.Prefix]bool{}, waiting: map[netip.Addr]bool{}}
}

// setPlan puts a plan in force.
func (r *rib) setPlan(p *plan.Plan) {
	maps.Copy(r.changed, r.blocks)
	r.blocks = map[netip.Prefix]bool{}
	for _, b := range p.Blackholes {
		r.blocks[b], r.changed[b] = true, true
	}
	if r.plan == nil || !reflect.DeepEqual(r.plan.Tunnels, p.Tunnels) {
		for dst := range r.learned {
			r.changed[dst] = true
		}
	}
	r.plan = p
}

// begin begins a life of the speaker.
func (r *rib) begin() {
	r.life++
	r.converged, r.waiting = false, map[netip.Addr]bool{}
	for _, s := range r.plan.Sessions {
		r.waiting[s.Peer] = true
	}
}

// keepSessions stops waiting for peers without a session.
func (r *rib) keepSessions(sessions map[netip.Addr]plan.Session) {
	maps.DeleteFunc(r.waiting, func(peer netip.Addr, _ bool) bool { _, there := sessions[peer]; return !there })
	r.convergeIfComplete()
}

// announce takes what peers have announced: the hops of each destination, none where it was
// withdrawn, and the peers that have announced all they have.
func (r *rib) announce(destinations []netip.Prefix, hops map[netip.Prefix][]netip.Addr, complete map[netip.Addr]bool) {
	for _, dst := range destinations {
		if h := hops[dst]; len(h) > 0 && routable(dst) {
			r.learned[dst] = announcement{r.life, h}
		} else {
			delete(r.learned, dst)
		}
		r.changed[dst] = true
	}
	for peer := range complete {
		delete(r.waiting, peer)
	}
	r.convergeIfComplete()
}

func (r *rib) convergeIfComplete() {
	if len(r.waiting) == 0 {
		r.converge()
	}
}

// converge ends the restart: what no peer has announced in this life is gone.
func (r *rib) converge() {
	if r.converged || r.life == 0 {
		return
	}
	r.converged, r.restarted = true, false
	for dst, h := range r.learned {
		if h.life != r.life {
			delete(r.learned, dst)
			r.changed[dst] = true
		}
	}
}

// kernelEvent takes a change of the kernel's table, and reports whether the ways to next hops may
// have changed with it.
func (r *rib) kernelEvent(e hostnet.TableEvent) (lookUp bool) {
	switch {
	case e.Lost:
		return false
	case e.Link != "":
		r.table.set(e)
		return r.anyWay(func(way hostnet.Path) bool { return way.Link == e.Link })
	case e.Route.Protocol == hostnet.ProtocolBGP:
		return !e.Removed && r.anyWay(func(way hostnet.Path) bool { return way == hostnet.Path{} })
	}
	dst, ok := r.table.set(e)
	if ok {
		r.changed[dst] = true
	}
	return ok
}

func (r *rib) anyWay(match func(hostnet.Path) bool) bool {
	for _, way := range r.ways {
		if match(way) {
			return true
		}
	}
	return false
}

// isTunnel reports whether a link is a tunnel of the plan.
func (r *rib) isTunnel(link string) bool {
	return r.plan != nil && slices.ContainsFunc(r.plan.Tunnels, func(t plan.Tunnel) bool { return t.Device == link })
}

// setTable takes the kernel's whole table.
func (r *rib) setTable(links []hostnet.Link, all []hostnet.TableEvent) {
	maps.Copy(r.changed, r.table.replace(links, all))
}

// setWays takes the ways to next hops, and marks what is reached by one whose way has changed.
func (r *rib) setWays(ways map[netip.Addr]hostnet.Path) {
	moved := map[netip.Addr]bool{}
	for hop, way := range ways {
		before, known := r.ways[hop]
		moved[hop] = known && before != way
		r.ways[hop] = way
	}
	for dst, h := range r.learned {
		if slices.ContainsFunc(h.hops, func(hop netip.Addr) bool { return moved[hop] }) {
			r.changed[dst] = true
		}
	}
}

// unresolved returns the next hops of changed destinations whose ways settle lacks.
func (r *rib) unresolved() (hops []netip.Addr) {
	lacking := map[netip.Addr]bool{}
	for dst := range r.changed {
		for _, hop := range r.learned[dst].hops {
			if _, known := r.ways[hop]; !known {
				lacking[hop] = true
			}
		}
	}
	return slices.Collect(maps.Keys(lacking))
}

// settle decides on the changed destinations. Before the first plan it does not: with that all is
// announced, and the kernel's routes depend on it.
func (r *rib) settle() (d decisions) {
	if r.plan == nil || len(r.changed) == 0 {
		return d
	}
	d.exports = make(map[netip.Prefix]bool, len(r.changed))
	for dst := range r.changed {
		d.exports[dst] = r.exported(dst)
		if route, ok := r.route(dst); ok {
			d.set = append(d.set, route)
		} else {
			d.unset = append(d.unset, dst)
		}
	}
	clear(r.changed)
	return d
}

// exports returns all destinations that the speaker should announce as this host's own, with true,
// and those of announced that it should not, with false.
func (r *rib) exports(announced map[netip.Prefix]bool) map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for dst := range announced {
		all[dst] = false
	}
	maps.Copy(all, r.blocks)
	for dst := range r.table.routes {
		if r.exported(dst) {
			all[dst] = true
		}
	}
	return all
}

// exported reports whether the speaker should announce a destination as this host's own: its
// blocks, and destinations on its links that the export filter accepts.
func (r *rib) exported(dst netip.Prefix) bool {
	return r.blocks[dst] || r.plan.Exports(dst) && r.table.local(dst, r.plan)
}

// route returns the route that the kernel should have to a destination, if any. None of ours goes
// where another program has a route.
func (r *rib) route(dst netip.Prefix) (hostnet.OwnedRoute, bool) {
	x := hostnet.OwnedRoute{Dst: dst}
	if r.blocks[dst] {
		return x, true
	}
	h, ok := r.learned[dst]
	if !ok || r.table.taken(dst) {
		return x, false
	}
	for _, hop := range h.hops {
		if device := r.plan.Device(dst, hop); device != "" {
			x.Paths = append(x.Paths, hostnet.Path{Gateway: hop, Link: device, OnLink: true})
		} else if way := r.ways[hop]; way.Link != "" && !slices.Contains(x.Paths, way) {
			x.Paths = append(x.Paths, way)
		}
	}
	return x, len(x.Paths) > 0
}

// routable reports whether a route to a destination can mean anything on this host. Peers' mistakes
// in this must not reach the kernel.
func routable(dst netip.Prefix) bool {
	a := dst.Addr()
	return !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast()
}
