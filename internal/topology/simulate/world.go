package simulate

import (
	"cmp"
	"net/netip"
	"reflect"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Options of a World.
type Options struct {
	// DefaultMTU is for subnets without an MTU of their own, in bytes; 0 = 1500.
	DefaultMTU int
	// NeighbourChanged, if not nil, is called while a change is applied to the MAC address of ip in
	// a network's table; see [World.Neighbour]. It must not change the world.
	NeighbourChanged func(networkID string, ip netip.Addr)
	// HomeChanged, if not nil, is called while a change is applied that may give a MAC address of a
	// network with a localnet port another home, or none; see [World.Home]. It must not change the
	// world, nor ask it before the change is done. The number of calls follows what changed.
	HomeChanged func(networkID string, mac packet.MAC)
	// AdvertisementChanged, if not nil, is called while a change is applied to what a network may
	// advertise; see [World.Advertisement]. It must not read the world.
	AdvertisementChanged func(networkID string)
}

// World is the topology as a graph in memory, ready to be walked by packets. It depends on what was
// applied, not on the order: missing references are defined, and count as soon as they come.
//
// It has no lock. Any number of Simulators may run while nothing is applied.
type World struct {
	defaultMTU       int
	neighbourChanged func(networkID string, ip netip.Addr)
	homeChanged      func(networkID string, mac packet.MAC)
	advertChanged    func(networkID string)
	owners           map[topology.Owner]*topology.Bundle

	networks   map[string]*network
	routers    map[string]*router
	ports      map[string]*port
	routes     map[string]*route
	learned    map[learnedKey]*learnedRoute // they are not in routes
	chains     map[string]*chain
	groups     map[string]*group
	portGroups map[string]*portGroup
	limits     map[string]*limits
	subnets    map[string]*subnet
	subnets6   map[string]*subnet6

	machines
	observers
	balancing
	underway
}

// machines holds the hosts, and what carries packets between them.
type machines struct {
	hosts       map[string]*host
	physicals   map[string]*physicalNetwork // by name
	underlayMTU int                         // for a workload's packet, bytes; 0 = not known
}

// observers holds what counts, records and copies packets or classifies ports, and decides nothing.
type observers struct {
	mirrors     map[string]*mirror
	meters      meters
	loggers     loggers
	ruleLoggers ruleLoggers
	classes     []*Classes
}

// underway is the state of the change under way.
type underway struct {
	round    uint64 // objects marked with it have been looked at in this one
	affected []string
}

// NewWorld makes an empty world.
func NewWorld(o Options) *World {
	return &World{
		defaultMTU:       cmp.Or(o.DefaultMTU, 1500),
		neighbourChanged: o.NeighbourChanged,
		homeChanged:      o.HomeChanged,
		advertChanged:    o.AdvertisementChanged,
		owners:           map[topology.Owner]*topology.Bundle{},
		networks:         map[string]*network{},
		routers:          map[string]*router{},
		ports:            map[string]*port{},
		routes:           map[string]*route{},
		learned:          map[learnedKey]*learnedRoute{},
		chains:           map[string]*chain{},
		groups:           map[string]*group{},
		portGroups:       map[string]*portGroup{},
		limits:           map[string]*limits{},
		subnets:          map[string]*subnet{},
		subnets6:         map[string]*subnet6{},
		machines:         machines{hosts: map[string]*host{}, physicals: map[string]*physicalNetwork{}},
		observers: observers{
			mirrors: map[string]*mirror{},
			meters:  meters{all: map[string]*topology.Meter{}, byTenant: map[string][]*topology.Meter{}},
			loggers: loggers{all: map[string]*topology.Logger{}, byTenant: map[string][]*topology.Logger{}},

			ruleLoggers: ruleLoggers{resources: map[string]*topology.LoggingResource{}, byResource: map[string][]*topology.RuleLogger{}},
		},
		balancing: newBalancing(),
	}
}

// Empty reports whether the world has no definitions and no references.
func (w *World) Empty() bool {
	return len(w.learned)+len(w.owners)+len(w.networks)+len(w.routers)+len(w.ports)+len(w.routes)+len(w.chains)+len(w.groups)+len(w.portGroups)+len(w.limits)+
		len(w.subnets)+len(w.subnets6)+len(w.hosts)+len(w.physicals)+len(w.mirrors)+len(w.meters.all)+len(w.loggers.all)+
		len(w.ruleLoggers.resources)+len(w.ruleLoggers.byResource) == 0 && w.balancing.empty()
}

// Apply replaces everything that owner has in the world by b, nil for nothing. It returns the ids
// of the ports and routers whose decisions may change, addresses that decisions have looked up in
// groups, and names of VIPs and their members: all other decisions stand. The cost follows the
// difference and the number of those ports. The world keeps b.
func (w *World) Apply(owner topology.Owner, b *topology.Bundle) (affected []string) {
	old := w.owners[owner]
	if old == nil {
		old = &topology.Bundle{}
	}
	if b == nil {
		b = &topology.Bundle{}
		delete(w.owners, owner)
	} else {
		w.owners[owner] = b
	}
	w.begin()
	w.applyDevices(owner, old, b)
	w.applyFilters(owner, old, b)
	w.applyBalancers(owner, old, b)
	changes(old.BgpSpeakers, b.BgpSpeakers, func(s *topology.BgpSpeaker) string { return s.RouterID }, func(id string, _, after *topology.BgpSpeaker) {
		r := define(w.routers, id, func(r *router) *claims[topology.BgpSpeaker] { return &r.speakers }, owner, after)
		w.linkRedirect(r)
		w.followSpeaker(r)
	})
	changes(old.Dhcps, b.Dhcps, func(d *topology.Dhcp) string { return d.ID }, func(id string, _, after *topology.Dhcp) {
		w.linkSubnet(define(w.subnets, id, func(s *subnet) *claims[topology.Dhcp] { return &s.claims }, owner, after))
	})
	changes(old.DhcpV6s, b.DhcpV6s, func(d *topology.DhcpV6) string { return d.ID }, func(id string, _, after *topology.DhcpV6) {
		w.linkSubnet6(define(w.subnets6, id, func(s *subnet6) *claims[topology.DhcpV6] { return &s.claims }, owner, after))
	})
	changes(old.MACs, b.MACs, macSeedKey, func(_ macSeed, before, after *topology.MACEntry) {
		w.setMACSeed(owner, before, after)
	})
	changes(old.Neighbours, b.Neighbours, neighbourSeedKey, func(_ neighbourSeed, before, after *topology.NeighbourEntry) {
		w.setNeighbourSeed(owner, before, after)
	})
	changes(old.Meters, b.Meters, func(m *topology.Meter) string { return m.ID }, func(_ string, before, after *topology.Meter) {
		w.setMeter(before, after)
	})
	changes(old.Loggers, b.Loggers, func(l *topology.Logger) string { return l.ID }, func(_ string, before, after *topology.Logger) {
		w.setLogger(before, after)
	})
	changes(old.RuleLoggers, b.RuleLoggers, func(l *topology.RuleLogger) string { return l.ID }, func(_ string, before, after *topology.RuleLogger) {
		w.setRuleLogger(before, after)
	})
	changes(old.LoggingResources, b.LoggingResources, func(r *topology.LoggingResource) string { return r.ID }, func(id string, _, after *topology.LoggingResource) {
		w.setLoggingResource(id, after)
	})
	changes(old.LocalIPs, b.LocalIPs, func(l *topology.LocalIP) string { return l.ID }, func(_ string, before, after *topology.LocalIP) {
		w.setLocalIP(before, after)
	})
	changes(old.RemoteMacEntries, b.RemoteMacEntries, func(e *topology.RemoteMacEntry) string { return e.ID }, func(_ string, before, after *topology.RemoteMacEntry) {
		w.setRemote(owner, before, after)
	})
	w.applyMirrors(owner, old, b)
	w.setDhcpHosts(owner, old.DhcpHosts, b.DhcpHosts)
	return w.end()
}

// applyDevices applies networks, routers, limits, ports and routes.
func (w *World) applyDevices(owner topology.Owner, old, b *topology.Bundle) {
	changes(old.Networks, b.Networks, func(n *topology.Network) string { return n.ID }, func(id string, _, after *topology.Network) {
		w.linkNetwork(define(w.networks, id, func(n *network) *claims[topology.Network] { return &n.claims }, owner, after))
	})
	changes(old.Routers, b.Routers, func(r *topology.Router) string { return r.ID }, func(id string, _, after *topology.Router) {
		w.linkRouter(define(w.routers, id, func(r *router) *claims[topology.Router] { return &r.claims }, owner, after))
	})
	changes(old.PortGroups, b.PortGroups, func(g *topology.PortGroup) string { return g.ID }, func(id string, _, after *topology.PortGroup) {
		w.linkPortGroup(define(w.portGroups, id, func(g *portGroup) *claims[topology.PortGroup] { return &g.claims }, owner, after))
	})
	changes(old.Limits, b.Limits, func(l *topology.Limits) string { return l.ID }, func(id string, _, after *topology.Limits) {
		w.linkLimits(define(w.limits, id, func(l *limits) *claims[topology.Limits] { return &l.claims }, owner, after))
	})
	changes(old.Ports, b.Ports, func(p *topology.Port) string { return p.ID }, func(id string, _, after *topology.Port) {
		w.linkPort(define(w.ports, id, func(p *port) *claims[topology.Port] { return &p.claims }, owner, after))
	})
	changes(old.Routes, b.Routes, func(r *topology.Route) string { return r.ID }, func(id string, _, after *topology.Route) {
		w.linkRoute(define(w.routes, id, func(r *route) *claims[topology.Route] { return &r.claims }, owner, after))
	})
}

// applyFilters applies chains, rules and address groups.
func (w *World) applyFilters(owner topology.Owner, old, b *topology.Bundle) {
	changes(old.Chains, b.Chains, func(c *topology.Chain) string { return c.ID }, func(id string, _, after *topology.Chain) {
		w.linkChain(define(w.chains, id, func(c *chain) *claims[topology.Chain] { return &c.claims }, owner, after))
	})
	changes(old.Rules, b.Rules, ruleEntryKey, func(_ entryKey, before, after *topology.RuleEntry) {
		w.setRuleEntry(owner, before, after)
	})
	changes(old.IPAddrGroups, b.IPAddrGroups, func(g *topology.IPAddrGroup) string { return g.ID }, func(id string, _, after *topology.IPAddrGroup) {
		w.linkGroup(define(w.groups, id, func(g *group) *claims[topology.IPAddrGroup] { return &g.claims }, owner, after))
	})
	changes(old.Memberships, b.Memberships, membershipKey, func(_ topology.Membership, before, after *topology.Membership) {
		w.setMember(before, after)
	})
	changes(old.MemberSets, b.MemberSets, func(s *topology.MemberSet) string { return s.GroupID }, w.setMembers)
}

// applyMirrors applies mirrors and their entries at ports.
func (w *World) applyMirrors(owner topology.Owner, old, b *topology.Bundle) {
	changes(old.Mirrors, b.Mirrors, func(m *topology.Mirror) string { return m.ID }, func(id string, _, after *topology.Mirror) {
		w.linkMirror(define(w.mirrors, id, func(m *mirror) *claims[topology.Mirror] { return &m.claims }, owner, after))
	})
	changes(old.MirrorEntries, b.MirrorEntries, entryOfMirror, func(_ mirrorEntryKey, before, after *topology.MirrorEntry) {
		w.setMirrorEntry(owner, before, after)
	})
}

// changes calls change for each key whose value differs. A key that comes twice counts once.
func changes[T any, K comparable](before, after []T, key func(*T) K, change func(k K, before, after *T)) {
	if len(before) == 0 && len(after) == 1 { // most bundles are new and short
		change(key(&after[0]), nil, &after[0])
		return
	}
	old := make(map[K]*T, len(before))
	for i := range before {
		if k := key(&before[i]); old[k] == nil {
			old[k] = &before[i]
		}
	}
	seen := make(map[K]bool, len(after))
	for i := range after {
		seen[key(&after[i])] = true
	}
	for k, was := range old {
		if !seen[k] {
			change(k, was, nil)
		}
	}
	for i := range after {
		k := key(&after[i])
		if !seen[k] {
			continue
		}
		seen[k] = false
		if was := old[k]; was == nil || !reflect.DeepEqual(was, &after[i]) {
			change(k, was, &after[i])
		}
	}
}

func (w *World) begin() {
	w.round++
	w.affected = nil
}

func (w *World) end() []string {
	affected := w.affected
	w.affected = nil
	w.reportClasses(func(c *Classes) {
		for _, id := range affected {
			c.changed.Ports[id] = true
		}
	})
	return affected
}

// first reports whether o is looked at for the first time in this round of changes.
func (w *World) first(o *object) bool {
	if o.mark == w.round {
		return false
	}
	o.mark = w.round
	return true
}

// mark notes that decisions that touched p may change.
func (w *World) mark(p *port) {
	if w.first(&p.object) {
		w.affected = append(w.affected, p.id)
	}
}

// touch is for changes of a port itself. Packets that only pass it, on their way from or to a
// router, have touched that.
func (w *World) touch(p *port) {
	w.mark(p)
	if p.router != nil {
		w.touchRouter(p.router)
	}
	if q := p.peer(); q != nil && q.router != nil {
		w.touchRouter(q.router)
	}
}

func (w *World) touchRouter(r *router) {
	if w.first(&r.object) {
		w.affected = append(w.affected, r.id)
	}
}

func (w *World) touchNetwork(n *network) {
	if w.first(&n.object) {
		for _, p := range n.ports {
			w.mark(p)
		}
	}
}

// touchBehind touches the ports to which a network sends frames for a MAC address.
func (w *World) touchBehind(n *network, m packet.MAC) {
	if e := n.macs[keyOf(table, m)]; e != nil {
		w.touch(e.top)
	}
	for _, q := range n.routers.macs[m] {
		w.touch(q)
	}
}

// touchChain touches the ports and routers whose filters reach the chain.
func (w *World) touchChain(c *chain) {
	if !w.first(&c.object) {
		return
	}
	for p := range c.ports {
		w.touch(p)
	}
	for n := range c.networks {
		w.touchNetwork(n)
	}
	for r := range c.routers {
		w.touchRouter(r)
	}
	for from := range c.jumpers {
		w.touchChain(from)
	}
}

// touchGroup touches the ports whose filters ask for members of the group.
func (w *World) touchGroup(g *group) {
	g.lookups.clear()
	g.questions.clear()
	for c := range g.users {
		w.touchChain(c)
	}
}
