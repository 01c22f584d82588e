package simulate

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// balancing holds the load balancers of routers with what belongs to them.
type balancing struct {
	balancers map[string]*balancer
	pools     map[string]*pool
	members   map[string]*member
	vips      map[string]*vip
	monitors  map[string]*monitor
	checkers  map[string]checkers // by service container; none without hosts
}

func newBalancing() balancing {
	return balancing{
		balancers: map[string]*balancer{},
		pools:     map[string]*pool{},
		members:   map[string]*member{},
		vips:      map[string]*vip{},
		monitors:  map[string]*monitor{},
		checkers:  map[string]checkers{},
	}
}

func (b *balancing) empty() bool {
	return len(b.balancers)+len(b.pools)+len(b.members)+len(b.vips)+len(b.monitors)+len(b.checkers) == 0
}

// endpoint is an address with a port of TCP or UDP.
type endpoint struct {
	addr  netip.Addr
	port  uint16
	proto uint8
}

// tag is the name that decisions about packets to an endpoint without a VIP rest on.
func (e endpoint) tag(balancer string) string {
	b := append(make([]byte, 0, 64), balancer...)
	b = append(b, ' ')
	b = netip.AddrPortFrom(e.addr, e.port).AppendTo(b)
	b = append(b, ' ')
	return string(strconv.AppendUint(b, uint64(e.proto), 10))
}

// balancer is a load balancer.
type balancer struct {
	object
	claims   claims[topology.LoadBalancer]
	def      *topology.LoadBalancer // nil while it is only referred to
	router   *router
	checkers checkers // the hosts whose verdicts about its members count

	pools   []*pool               // by id
	vips    map[endpoint][]*vip   // by id; the first that is up counts
	members map[endpoint]int      // counted in all pools
	ports   map[endpoint][]uint16 // of VIPs in order, by their endpoint without the port
}

// checkers are the hosts whose verdicts count: the one that runs the service container, "" for
// none, and until that has a verdict those that ran it before. A verdict of any other host may be
// forged.
type checkers struct {
	host   string
	former []string
}

// pool is a set of members.
type pool struct {
	object
	claims   claims[topology.Pool]
	def      *topology.Pool // nil while it is only referred to
	balancer *balancer
	monitor  *monitor // nil for none

	members []*member              // by id
	at      map[endpoint][]*member // the same, by id
	vips    []*vip                 // by id
	choice  atomic.Pointer[choice] // nil until a packet asks for it
}

// member is a member of a pool.
type member struct {
	object
	claims claims[topology.PoolMember]
	def    *topology.PoolMember // nil while it is only referred to
	pool   *pool                // nil for none

	health []*topology.MemberHealth // by host
}

// vip is an address and port that a load balancer stands for.
type vip struct {
	object
	claims   claims[topology.Vip]
	def      *topology.Vip // nil while it is only referred to
	pool     *pool         // nil for none
	balancer *balancer     // that it names itself, nil for none
	listed   *balancer     // that it is found by
}

// monitor is a health monitor.
type monitor struct {
	object
	claims claims[topology.HealthMonitor]
	def    *topology.HealthMonitor // nil while it is only referred to
	pools  []*pool                 // by id
}

func insertByID[P placed](list []P, o P) []P {
	i, _ := slices.BinarySearchFunc(list, o.head().id, compareID[P])
	return slices.Insert(list, i, o)
}

func removeByID[P placed](list []P, o P) []P {
	if i, found := slices.BinarySearchFunc(list, o.head().id, compareID[P]); found {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func compareID[P placed](o P, id string) int { return cmp.Compare(o.head().id, id) }

// applyBalancers applies load balancers with their pools, members, VIPs and monitors.
func (w *World) applyBalancers(owner topology.Owner, old, b *topology.Bundle) {
	if owner.Kind == topology.ContainerOwner {
		w.followCheckers(owner.ID, b)
	}
	changes(old.LoadBalancers, b.LoadBalancers, func(l *topology.LoadBalancer) string { return l.ID }, func(id string, _, after *topology.LoadBalancer) {
		w.linkBalancer(define(w.balancers, id, func(l *balancer) *claims[topology.LoadBalancer] { return &l.claims }, owner, after))
	})
	changes(old.HealthMonitors, b.HealthMonitors, func(m *topology.HealthMonitor) string { return m.ID }, func(id string, _, after *topology.HealthMonitor) {
		w.linkMonitor(define(w.monitors, id, func(m *monitor) *claims[topology.HealthMonitor] { return &m.claims }, owner, after))
	})
	changes(old.Pools, b.Pools, func(p *topology.Pool) string { return p.ID }, func(id string, _, after *topology.Pool) {
		w.linkPool(define(w.pools, id, func(p *pool) *claims[topology.Pool] { return &p.claims }, owner, after))
	})
	changes(old.PoolMembers, b.PoolMembers, func(m *topology.PoolMember) string { return m.ID }, func(id string, _, after *topology.PoolMember) {
		w.linkMember(define(w.members, id, func(m *member) *claims[topology.PoolMember] { return &m.claims }, owner, after))
	})
	changes(old.Vips, b.Vips, func(v *topology.Vip) string { return v.ID }, func(id string, _, after *topology.Vip) {
		w.linkVip(define(w.vips, id, func(v *vip) *claims[topology.Vip] { return &v.claims }, owner, after))
	})
}

// followCheckers notes the hosts of a service container, the present one by the container's port.
func (w *World) followCheckers(container string, b *topology.Bundle) {
	var now checkers
	if len(b.Ports) > 0 {
		now.host = b.Ports[0].HostID
	}
	if len(b.ServiceContainers) > 0 {
		now.former = b.ServiceContainers[0].FormerHostIDs
	}
	if now.equal(w.checkers[container]) {
		return
	}
	if w.checkers[container] = now; now.equal(checkers{}) {
		delete(w.checkers, container)
	}
	for _, l := range w.balancers {
		if l.def != nil && l.def.ServiceContainerID == container {
			w.setCheckers(l)
		}
	}
}

func (c checkers) equal(other checkers) bool {
	return c.host == other.host && slices.Equal(c.former, other.former)
}

// setCheckers has the verdicts of a load balancer's container count.
func (w *World) setCheckers(b *balancer) {
	var now checkers
	if b.def != nil {
		now = w.checkers[b.def.ServiceContainerID]
	}
	if now.equal(b.checkers) {
		return
	}
	var all []*member
	var before []string
	for _, p := range b.pools {
		for _, m := range p.members {
			all, before = append(all, m), append(before, m.reported())
		}
	}
	b.checkers = now
	for i, m := range all {
		if m.reported() != before[i] {
			w.touchMember(m)
		}
	}
}

// linkBalancer follows a definition. All packets of a router are looked at by its load balancer.
func (w *World) linkBalancer(b *balancer) {
	def, old := b.claims.top(), b.router
	if def == b.def {
		return
	}
	b.def, b.router = def, nil
	w.setCheckers(b)
	if def != nil && def.RouterID != "" {
		b.router = hold(w.routers, def.RouterID)
		b.router.balancers = insertByID(b.router.balancers, b)
		w.touchRouter(b.router)
	}
	if old != nil {
		old.balancers = removeByID(old.balancers, b)
		w.touchRouter(old)
		release(w.routers, old)
	}
}

// balancer returns the router's load balancer, or nil.
func (r *router) balancer() *balancer {
	if len(r.balancers) == 0 {
		return nil
	}
	return r.balancers[0]
}

func (w *World) linkMonitor(m *monitor) {
	def := m.claims.top()
	known := (def != nil) != (m.def != nil)
	m.def = def
	if known { // else the same reports count
		for _, p := range m.pools {
			w.touchPool(p)
		}
	}
}

func (w *World) linkPool(p *pool) {
	def, balancer, monitor := p.claims.top(), p.balancer, p.monitor
	if def == p.def {
		return
	}
	w.touchPool(p)
	w.unlistPool(p)
	p.def, p.balancer, p.monitor = def, nil, nil
	if def != nil {
		p.balancer = hold(w.balancers, def.LoadBalancerID)
		p.balancer.pools = insertByID(p.balancer.pools, p)
		if def.HealthMonitorID != "" {
			p.monitor = hold(w.monitors, def.HealthMonitorID)
			p.monitor.pools = insertByID(p.monitor.pools, p)
		}
	}
	if balancer != nil {
		balancer.pools = removeByID(balancer.pools, p)
		release(w.balancers, balancer)
	}
	if monitor != nil {
		monitor.pools = removeByID(monitor.pools, p)
		release(w.monitors, monitor)
	}
	w.listPool(p)
}

// unlistPool takes what is found by the pool's load balancer away from it.
func (w *World) unlistPool(p *pool) {
	for e, all := range p.at {
		p.count(e, -len(all))
	}
	for _, v := range p.vips {
		w.unlistVip(v)
	}
}

// listPool reverses unlistPool, for the load balancer and protocol that the pool has now. Its
// protocol is part of the endpoints of its members.
func (w *World) listPool(p *pool) {
	p.at = map[endpoint][]*member{}
	for _, m := range p.members {
		p.at[m.endpoint()] = append(p.at[m.endpoint()], m)
	}
	for e, all := range p.at {
		p.count(e, len(all))
	}
	for _, v := range p.vips {
		w.listVip(v)
	}
}

// count counts the members at an endpoint, by which the load balancer knows replies.
func (p *pool) count(e endpoint, by int) {
	if p.balancer == nil {
		return
	}
	if p.balancer.members == nil {
		p.balancer.members = map[endpoint]int{}
	}
	if p.balancer.members[e] += by; p.balancer.members[e] == 0 {
		delete(p.balancer.members, e)
	}
}

// proto returns the protocol of the pool's connections.
func (p *pool) proto() uint8 {
	if p.def == nil {
		return 0
	}
	return balancedProto(p.def.Protocol)
}

// balancedProto returns the IP protocol of a pool or VIP: HTTP, for example, is TCP here.
func balancedProto(name string) uint8 {
	if name == topology.BalanceUDP {
		return packet.ProtoUDP
	}
	return packet.ProtoTCP
}

// endpoint returns where a member of a pool is reached.
func (m *member) endpoint() endpoint {
	return endpoint{m.def.Address, m.def.ProtocolPort, m.pool.proto()}
}

func (w *World) linkMember(m *member) {
	def, old := m.claims.top(), m.pool
	if def == m.def {
		return
	}
	if old != nil {
		w.touchMember(m)
		e := m.endpoint()
		old.members = removeByID(old.members, m)
		if old.at[e] = removeByID(old.at[e], m); len(old.at[e]) == 0 {
			delete(old.at, e)
		}
		old.count(e, -1)
	}
	m.def, m.pool = def, nil
	if def != nil && def.PoolID != "" {
		m.pool = hold(w.pools, def.PoolID)
		m.pool.members = insertByID(m.pool.members, m)
		if m.pool.at == nil {
			m.pool.at = map[endpoint][]*member{}
		}
		e := m.endpoint()
		m.pool.at[e] = insertByID(m.pool.at[e], m)
		m.pool.count(e, 1)
		w.touchMember(m)
	}
	if old != nil {
		release(w.pools, old)
	}
}

// ApplyMemberHealth enters what a host reports of a member's health, nil when it reports nothing
// any more, and returns what decisions rest on that may change. The report of the host with the
// container counts or, if there is none yet, the newest of its former hosts. The world keeps h.
func (w *World) ApplyMemberHealth(hostID, memberID string, h *topology.MemberHealth) (affected []string) {
	w.begin()
	m := hold(w.members, memberID)
	was := m.reported()
	i, found := slices.BinarySearchFunc(m.health, hostID, func(h *topology.MemberHealth, id string) int { return cmp.Compare(h.HostID, id) })
	switch {
	case found && h != nil:
		m.health[i] = h
	case found:
		m.health = slices.Delete(m.health, i, i+1)
		m.refs--
	case h != nil:
		m.health = slices.Insert(m.health, i, h)
		m.refs++
	}
	if m.reported() != was && m.pool != nil {
		w.touchMember(m)
	}
	release(w.members, m)
	return w.end()
}

// reported returns the status that the host with the container reports, or else the newest that a
// former one does, "" for none: what the last host has found counts until the next one knows.
func (m *member) reported() (status string) {
	if m.pool == nil || m.pool.balancer == nil {
		return ""
	}
	by := &m.pool.balancer.checkers
	var newest *topology.MemberHealth
	for _, h := range m.health {
		if h.HostID == by.host {
			return h.Status
		}
		if slices.Contains(by.former, h.HostID) && (newest == nil || h.Since.After(newest.Since)) {
			newest, status = h, h.Status
		}
	}
	return status
}

// isInactive reports whether the health monitor of the member's pool says that the member is down.
func (m *member) isInactive() bool {
	if m.pool.monitor == nil || m.pool.monitor.def == nil {
		return false
	}
	if status := m.reported(); status != "" {
		return status == topology.MemberInactive
	}
	return m.def.Status == topology.MemberInactive
}

// isSelectable reports whether new connections may go to the member (services §3.1); backup members
// are chosen only while there is no other.
func (m *member) isSelectable() bool {
	return m.def.AdminStateUp && m.def.Weight > 0 && m.def.Address.Is4() && !m.isInactive()
}

// keeps reports whether the member keeps a connection that it has, or the connections of a client.
func (m *member) keeps(sticky bool) bool {
	return !m.isInactive() && (!sticky || m.def.AdminStateUp && m.pool.def.AdminStateUp)
}

func (w *World) linkVip(v *vip) {
	def, pool, balancer := v.claims.top(), v.pool, v.balancer
	if def == v.def {
		return
	}
	w.touchVip(v)
	w.unlistVip(v)
	v.def, v.pool, v.balancer = def, nil, nil
	if def != nil && def.PoolID != "" {
		v.pool = hold(w.pools, def.PoolID)
		v.pool.vips = insertByID(v.pool.vips, v)
	}
	if def != nil && def.LoadBalancerID != "" {
		v.balancer = hold(w.balancers, def.LoadBalancerID)
	}
	if pool != nil {
		pool.vips = removeByID(pool.vips, v)
		release(w.pools, pool)
	}
	if balancer != nil {
		release(w.balancers, balancer)
	}
	w.listVip(v)
	w.touchVip(v)
}

// endpoint returns where a VIP is reached.
func (v *vip) endpoint() endpoint {
	return endpoint{v.def.Address, v.def.ProtocolPort, balancedProto(v.def.Protocol)}
}

// listVip enters a VIP where packets look for it: in the load balancer that it names or else in its
// pool's.
func (w *World) listVip(v *vip) {
	if v.def == nil {
		return
	}
	b := v.balancer
	if b == nil && v.pool != nil {
		b = v.pool.balancer
	}
	if b == nil {
		return
	}
	b.refs++
	v.listed = b
	e := v.endpoint()
	if b.vips == nil {
		b.vips, b.ports = map[endpoint][]*vip{}, map[endpoint][]uint16{}
	}
	b.vips[e] = insertByID(b.vips[e], v)
	w.touchEndpoint(b, e)
	all := endpoint{addr: e.addr, proto: e.proto}
	i, _ := slices.BinarySearch(b.ports[all], e.port)
	b.ports[all] = slices.Insert(b.ports[all], i, e.port)
}

func (w *World) unlistVip(v *vip) {
	b := v.listed
	if b == nil {
		return
	}
	v.listed = nil
	e := v.endpoint()
	w.touchEndpoint(b, e)
	if b.vips[e] = removeByID(b.vips[e], v); len(b.vips[e]) == 0 {
		delete(b.vips, e)
	}
	all := endpoint{addr: e.addr, proto: e.proto}
	if i, found := slices.BinarySearch(b.ports[all], e.port); found {
		if b.ports[all] = slices.Delete(b.ports[all], i, i+1); len(b.ports[all]) == 0 {
			delete(b.ports, all)
		}
	}
	release(w.balancers, b)
}

// touchEndpoint touches the decisions about packets to an endpoint where another VIP counts now, or
// none.
func (w *World) touchEndpoint(b *balancer, e endpoint) {
	w.affected = append(w.affected, e.tag(b.id))
	for _, v := range b.vips[e] {
		w.touchVip(v)
	}
}

// VipEndpoint returns where a VIP is reached, on its load balancer; false for none.
func (w *World) VipEndpoint(id string) (at flow.Endpoint, ok bool) {
	v := w.vips[id]
	if v == nil || v.listed == nil {
		return at, false
	}
	e := v.endpoint()
	return flow.Endpoint{Device: v.listed.id, Addr: e.addr, Port: e.port, Proto: e.proto}, true
}

// reserved returns the ports of VIPs at an address, which are no sources of connections there.
func (r *router) reserved(a netip.Addr, proto uint8) []uint16 {
	if b := r.balancer(); b != nil {
		return b.ports[endpoint{addr: a, proto: proto}]
	}
	return nil
}

// bound is the name that decisions about connections by a VIP to a member rest on.
func bound(v *vip, m *member) string { return v.id + " " + m.id }

// touchMember touches the decisions that lead to a member of a pool, and those that may lead to it
// from now on, as there was none to choose.
func (w *World) touchMember(m *member) {
	m.pool.choice.Store(nil)
	for _, v := range m.pool.vips {
		w.affected = append(w.affected, bound(v, m), v.id)
	}
}

// touchPool touches all decisions about packets to the VIPs of a pool, and the replies.
func (w *World) touchPool(p *pool) {
	p.choice.Store(nil)
	for _, v := range p.vips {
		w.touchVip(v)
	}
}

// touchVip touches all decisions about packets to a VIP, and the replies.
func (w *World) touchVip(v *vip) {
	if v.def == nil {
		return
	}
	w.affected = append(w.affected, v.id)
	if v.pool != nil {
		for _, m := range v.pool.members {
			w.affected = append(w.affected, bound(v, m))
		}
	}
}
