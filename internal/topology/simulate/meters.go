package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// meters are the counters of what passes routers' gateways.
type meters struct {
	all      map[string]*topology.Meter   // by id
	byTenant map[string][]*topology.Meter // of one tenant's routers, by id
	shared   []*topology.Meter            // of all routers, by id
}

// setMeter replaces a meter by another with its id; either may be nil.
func (w *World) setMeter(before, after *topology.Meter) {
	if before != nil {
		delete(w.meters.all, before.ID)
		w.meters.list(before, func(list []*topology.Meter, i int) []*topology.Meter { return slices.Delete(list, i, i+1) })
		w.touchMetered(before)
	}
	if after != nil {
		w.meters.all[after.ID] = after
		w.meters.list(after, func(list []*topology.Meter, i int) []*topology.Meter { return slices.Insert(list, i, after) })
		w.touchMetered(after)
	}
}

// list changes the list that a meter belongs to, at its place there.
func (m *meters) list(x *topology.Meter, change func(list []*topology.Meter, i int) []*topology.Meter) {
	list := m.byTenant[x.TenantID]
	if x.Shared {
		list = m.shared
	}
	i, _ := slices.BinarySearchFunc(list, x.ID, func(o *topology.Meter, id string) int { return cmp.Compare(o.ID, id) })
	switch list = change(list, i); {
	case x.Shared:
		m.shared = list
	case len(list) == 0:
		delete(m.byTenant, x.TenantID)
	default:
		m.byTenant[x.TenantID] = list
	}
}

// touchMetered touches the routers that a meter counts on.
func (w *World) touchMetered(m *topology.Meter) {
	for _, r := range w.routers {
		if r.def != nil && (m.Shared || r.def.TenantID == m.TenantID) {
			w.touchRouter(r)
		}
	}
}

// isGateway reports whether the port is a router's link to an external network.
func (p *port) isGateway() bool {
	return len(p.claims) > 0 && p.claims[0].owner.Kind == "router-gateway"
}

// meter notes which meters count a packet that goes from port p of a router to port q.
func (s *Simulator) meter(r *router, p, q *port) {
	ingress := p.isGateway()
	if ingress == q.isGateway() {
		return
	}
	f, m := s.filters.now, &s.world.meters
	for _, list := range [][]*topology.Meter{m.byTenant[r.def.TenantID], m.shared} {
		for _, x := range list {
			if x.Counts(ingress, f.SrcIP, f.DstIP) {
				s.dec.Meters = append(s.dec.Meters, flow.Meter{Label: x.ID, Project: r.def.TenantID})
			}
		}
	}
}
