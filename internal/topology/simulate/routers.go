package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// router is a virtual router.
type router struct {
	object
	claims  claims[topology.Router]
	def     *topology.Router // nil while it is only referred to
	in, out *chain
	forward *chain

	ports     []*port // by id
	vteps     []*port // by id: those that are the ends of VXLAN tunnels
	remotes   map[remoteKey]claims[topology.RemoteMacEntry]
	routes    routeTable
	balancers []*balancer // by id; the first counts

	speakers    claims[topology.BgpSpeaker]
	redirect    *chain // of the speaker that counts; nil for none
	speakerHost string // that runs that speaker, "" for none: its learned routes count
}

// excluded returns the hosts at which the router's ports have no home.
func (r *router) excluded() []string {
	if r.def == nil {
		return nil
	}
	return r.def.ExcludedHostIDs
}

func (w *World) linkRouter(r *router) {
	def := r.claims.top()
	if def == r.def {
		return
	}
	w.touchRouter(r)
	for _, q := range r.ports {
		w.routerPortChanged(q)
	}
	was := r.excluded()
	r.def = def
	if !slices.Equal(was, r.excluded()) {
		for _, q := range r.ports {
			if p := q.peer(); p != nil {
				w.rehome(p)
			}
		}
	}
	before := []*chain{r.in, r.out, r.forward}
	r.in, r.out, r.forward = nil, nil, nil
	if def != nil {
		r.in, r.out, r.forward = w.useChain(def.InboundFilterID), w.useChain(def.OutboundFilterID), w.useChain(def.ForwardChainID)
	}
	swapFilters(w, r, func(c *chain) *users[*router] { return &c.routers }, before, []*chain{r.in, r.out, r.forward})
}

// routerPortChanged notes that the network of a router's port may advertise something else.
func (w *World) routerPortChanged(q *port) {
	if b := q.peer(); b != nil && b.network != nil {
		w.advertisementChanged(b.network)
	}
}

// portGroup is a set of ports.
type portGroup struct {
	object
	claims claims[topology.PortGroup]
	def    *topology.PortGroup // nil while it is only referred to: ports are members all the same
	ports  []*port             // by id
}

// linkPortGroup follows a definition. No decision rests on it, only on the ports' membership.
func (w *World) linkPortGroup(g *portGroup) { g.def = g.claims.top() }

// StateHosts returns the hosts of the ports that are in stateful port groups with a port: replies
// to its packets may enter by any of them (midonet-topology §2.4). Of a port that moves both hosts
// count, its own as well. Hosts may come twice.
func (w *World) StateHosts(portID string) (hostIDs []string) {
	p := w.ports[portID]
	if p == nil {
		return nil
	}
	if p.from != nil {
		hostIDs = append(hostIDs, p.host.id, p.from.id)
	}
	for _, g := range p.groups {
		if g.def == nil || !g.def.Stateful {
			continue
		}
		for _, member := range g.ports {
			if member == p || member.host == nil {
				continue
			}
			hostIDs = append(hostIDs, member.host.id)
			if member.from != nil {
				hostIDs = append(hostIDs, member.from.id)
			}
		}
	}
	return hostIDs
}

// FirstHop returns the address by which a router answers source, a machine at a port whose frames
// go to a MAC address (RFC 1812 §4.3.2.4); false if that is no router's.
func (w *World) FirstHop(portID string, mac packet.MAC, source netip.Addr) (netip.Addr, bool) {
	p := w.ports[portID]
	if p == nil || p.network == nil {
		return netip.Addr{}, false
	}
	q := p.network.routerPort(mac)
	if q == nil {
		return netip.Addr{}, false
	}
	a := q.addressFor(source)
	return a, a.IsValid()
}
