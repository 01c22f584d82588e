package services

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/services/plan"
	"heddle/internal/topology"
	"heddle/internal/topology/routerbgp"
)

// learnedRoutes holds the routes of a router that its speakers have learned, of one speaker after
// the other: those of one that has ended stay until the next has settled or their time is over. It
// is pure.
type learnedRoutes struct {
	hostID string
	router *plan.Speaker // that says which port leads to a gateway
	routes map[netip.Prefix][]netip.Addr
	stale  map[netip.Prefix]bool // those of an earlier speaker
	within bool                  // a report of everything has begun and is not complete
	blocks map[learnedBlock]map[netip.Prefix]bool
	dirty  map[learnedBlock]bool // of which the records have to be written
}

// learnedBlock names a record of routes.
type learnedBlock struct {
	port  string
	block int
}

// staleTime is the time for which routes of a speaker that has ended are used (services §6.3/3).
const staleTime = routerbgp.RestartTime

func newLearnedRoutes(hostID string, router *plan.Speaker) *learnedRoutes {
	return &learnedRoutes{hostID: hostID, router: router, routes: map[netip.Prefix][]netip.Addr{}, stale: map[netip.Prefix]bool{},
		blocks: map[learnedBlock]map[netip.Prefix]bool{}, dirty: map[learnedBlock]bool{}}
}

// load takes the routes that an earlier agent has reported.
func (l *learnedRoutes) load(records []*topology.LearnedRoutes) {
	found := map[netip.Prefix][]netip.Addr{}
	for _, r := range records {
		// A record whose routes have other ports by now is written again, or deleted.
		l.dirty[learnedBlock{r.PortID, r.Block}] = true
		for _, x := range r.Routes {
			found[x.Dst] = append(found[x.Dst], x.Gateway)
		}
	}
	for dst, gateways := range found {
		slices.SortFunc(gateways, netip.Addr.Compare)
		l.set(dst, slices.Compact(gateways))
		l.stale[dst] = true
	}
}

// abandon marks all routes as those of a speaker that has ended.
func (l *learnedRoutes) abandon() {
	l.within = false
	for dst := range l.routes {
		l.stale[dst] = true
	}
}

// dropStale removes the routes that no speaker has learned again.
func (l *learnedRoutes) dropStale() {
	for dst := range l.stale {
		l.set(dst, nil)
	}
	clear(l.stale)
}

// take takes a report.
func (l *learnedRoutes) take(r *routerbgp.Report) {
	if r.Full {
		l.abandon()
		l.within = true
	}
	for _, x := range r.Routes {
		l.set(x.Dst, x.Gateways)
		delete(l.stale, x.Dst)
	}
	if r.Complete {
		l.within = false
	}
	if r.Settled && !l.within {
		l.dropStale()
	}
}

// setRouter has the routes follow the router's ports.
func (l *learnedRoutes) setRouter(router *plan.Speaker) {
	if l.router.SamePorts(router) {
		l.router = router
		return
	}
	all := maps.Clone(l.routes)
	for dst := range all {
		l.set(dst, nil)
	}
	l.router = router
	for dst, gateways := range all {
		l.set(dst, gateways)
	}
}

// set sets the gateways of a destination, none to remove it.
func (l *learnedRoutes) set(dst netip.Prefix, gateways []netip.Addr) {
	for _, g := range l.routes[dst] {
		b := l.blockOf(dst, g)
		l.dirty[b] = true
		if delete(l.blocks[b], dst); len(l.blocks[b]) == 0 {
			delete(l.blocks, b)
		}
	}
	if len(gateways) == 0 {
		delete(l.routes, dst)
		return
	}
	l.routes[dst] = gateways
	for _, g := range gateways {
		b := l.blockOf(dst, g)
		l.dirty[b] = true
		if l.blocks[b] == nil {
			l.blocks[b] = map[netip.Prefix]bool{}
		}
		l.blocks[b][dst] = true
	}
}

func (l *learnedRoutes) blockOf(dst netip.Prefix, gateway netip.Addr) learnedBlock {
	return learnedBlock{l.router.PortTo(gateway), topology.LearnedRouteBlock(dst)}
}

// changes returns the records that have changed since the last call. One without routes is to be
// deleted.
func (l *learnedRoutes) changes() (all []topology.LearnedRoutes) {
	for b := range l.dirty {
		if b.port != "" { // else the router has lost the subnet
			all = append(all, l.record(b))
		}
	}
	clear(l.dirty)
	return all
}

func (l *learnedRoutes) record(b learnedBlock) topology.LearnedRoutes {
	r := topology.LearnedRoutes{HostID: l.hostID, PortID: b.port, Block: b.block}
	for dst := range l.blocks[b] {
		for _, g := range l.routes[dst] {
			if l.router.PortTo(g) == b.port {
				r.Routes = append(r.Routes, topology.LearnedRoute{Dst: dst, Gateway: g})
			}
		}
	}
	slices.SortFunc(r.Routes, func(a, b topology.LearnedRoute) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), a.Gateway.Compare(b.Gateway))
	})
	return r
}

// withdraw removes all routes.
func (l *learnedRoutes) withdraw() {
	for dst := range maps.Clone(l.routes) {
		l.set(dst, nil)
	}
	clear(l.stale)
}

// staleUntil returns when the stale routes end, the zero Time if there are none.
func (l *learnedRoutes) staleUntil(since time.Time) time.Time {
	if len(l.stale) == 0 {
		return time.Time{}
	}
	return since.Add(staleTime)
}
