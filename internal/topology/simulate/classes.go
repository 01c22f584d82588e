package simulate

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Classes is a partition of machines' ports into those that the world treats alike: for two ports
// of one class and any third, each connection between one of them and the third has the same fate
// as that between the other and the third (explain §6). It follows the world: after changes,
// [Classes.Refresh] says of which ports the class may be another. It must not be used while the
// world changes.
type Classes struct {
	world    *World
	last     uint32 // number that was given
	prefixes map[netip.Prefix]*comparison
	lengths  prefixLengths
	groups   map[*group]*comparison
	named    map[*port]int // ports that rules name, by the number of rules
	members  map[netip.Addr][]*group

	machines map[netip.Prefix]int // of machines' routes
	of       map[*chain]compared  // what the rules of chains compare packets with
	listed   map[*group][]netip.Prefix
	routed   map[netip.Prefix]bool // by routers
	changed  KeyChanges
	dirty    struct {
		chains map[*chain]bool
		groups map[*group]bool
	}
	key []byte
}

// comparison is a prefix or a group with which rules, routes or groups compare addresses. Numbers
// are not given again.
type comparison struct {
	number uint32
	users  int
}

// compared is a list of what the rules of a chain compare packets with, each as often as they do.
type compared struct {
	prefixes []netip.Prefix
	groups   []*group
	ports    []*port
}

// KeyChanges is a set of ports of which the keys may have changed.
type KeyChanges struct {
	All       bool                // in place of the others
	Ports     map[string]bool     // by id; some are none of ports
	Addresses map[netip.Addr]bool // those that have one of these
	Prefixes  []netip.Prefix      // or one in these
}

// NewClasses gathers what the world compares addresses with, at a cost that follows all of its
// rules, and has the world report its changes.
func (w *World) NewClasses() *Classes {
	c := &Classes{world: w}
	c.gather()
	w.classes = append(w.classes, c)
	return c
}

func (c *Classes) gather() {
	c.prefixes, c.lengths, c.groups, c.named = map[netip.Prefix]*comparison{}, nil, map[*group]*comparison{}, map[*port]int{}
	c.members, c.of, c.listed, c.routed = map[netip.Addr][]*group{}, map[*chain]compared{}, map[*group][]netip.Prefix{}, map[netip.Prefix]bool{}
	c.reset()
	for _, g := range c.world.groups {
		for a := range g.addrs {
			c.members[a] = append(c.members[a], g)
		}
	}
	for _, x := range c.world.chains {
		c.compare(x)
	}
	c.route()
	for p := range c.machines {
		c.countPrefix(p, 1)
	}
	c.reset()
}

// reset forgets the changes.
func (c *Classes) reset() {
	c.changed = KeyChanges{Ports: map[string]bool{}, Addresses: map[netip.Addr]bool{}}
	c.dirty.chains, c.dirty.groups = map[*chain]bool{}, map[*group]bool{}
}

// Refresh follows the changes of the world since the last call, and returns of which ports the keys
// may have changed.
func (c *Classes) Refresh() KeyChanges {
	if c.changed.All {
		c.gather()
		return KeyChanges{All: true}
	}
	for x := range c.dirty.chains {
		c.compare(x)
	}
	for g := range c.dirty.groups {
		c.list(g)
	}
	c.route()
	changed := c.changed
	c.reset()
	return changed
}

// compare counts what a chain compares packets with in place of what it did before. Filters against
// spoofing are each its port's own, and part of the port's key.
func (c *Classes) compare(x *chain) {
	var now compared
	if x.purpose() != topology.PurposeAntiSpoof {
		now = x.compared()
	}
	before := c.of[x]
	c.count(now, 1)
	c.count(before, -1)
	if len(now.prefixes)+len(now.groups)+len(now.ports) > 0 {
		c.of[x] = now
	} else {
		delete(c.of, x)
	}
}

// compared returns what the chain's rules compare packets with.
func (c *chain) compared() (x compared) {
	for _, r := range c.rules {
		for _, p := range []netip.Prefix{r.srcIP, r.dstIP} {
			if p.IsValid() {
				x.prefixes = append(x.prefixes, p.Masked())
			}
		}
		for _, g := range []*group{r.srcGroup, r.dstGroup} {
			if g != nil {
				x.groups = append(x.groups, g)
			}
		}
		x.ports = append(append(x.ports, r.inPorts...), r.outPorts...)
	}
	return x
}

func (c *Classes) count(x compared, by int) {
	for _, p := range x.prefixes {
		c.countPrefix(p, by)
	}
	for _, g := range x.groups {
		if countUse(c, c.groups, g, by) {
			c.list(g)
			for a := range g.addrs {
				c.changed.Addresses[a] = true
			}
		}
	}
	for _, p := range x.ports {
		if count(&c.named, p, by) {
			c.changed.Ports[p.id] = true
		}
	}
}

// CountRoute counts one machine more or less whose routes have a destination.
func (c *Classes) CountRoute(dst netip.Prefix, by int) {
	if count(&c.machines, dst, by) {
		c.countPrefix(dst, by)
	}
}

// countPrefix counts one more or less that compares addresses with a prefix.
func (c *Classes) countPrefix(p netip.Prefix, by int) {
	if !countUse(c, c.prefixes, p, by) {
		return
	}
	c.lengths.count(p, by)
	c.changed.Prefixes = append(c.changed.Prefixes, p)
}

// countUse counts uses of a prefix or a group, and reports whether it is used now and was not, or
// no more.
func countUse[K comparable](c *Classes, all map[K]*comparison, k K, by int) bool {
	x := all[k]
	if x == nil {
		c.last++
		x = &comparison{number: c.last}
		all[k] = x
	}
	was := x.users
	if x.users += by; x.users == 0 {
		delete(all, k)
	}
	return was == 0 || x.users == 0
}

// list counts the prefixes of a group, if rules ask for it, in place of those that it had.
func (c *Classes) list(g *group) {
	var now []netip.Prefix
	if c.groups[g] != nil {
		now = slices.Collect(maps.Keys(g.prefixes))
	}
	for _, p := range now {
		c.countPrefix(p, 1)
	}
	for _, p := range c.listed[g] {
		c.countPrefix(p, -1)
	}
	if c.listed[g] = now; len(now) == 0 {
		delete(c.listed, g)
	}
}

// route counts the prefixes of routers in place of those that they had.
func (c *Classes) route() {
	now := map[netip.Prefix]bool{}
	for _, r := range c.world.routers {
		r.prefixes(func(p netip.Prefix) {
			if p.IsValid() {
				now[p] = true
			}
		})
	}
	for p := range now {
		if !c.routed[p] {
			c.countPrefix(p, 1)
		}
	}
	for p := range c.routed {
		if !now[p] {
			c.countPrefix(p, -1)
		}
	}
	c.routed = now
}

// reportClasses calls report for what follows the world. It costs nothing where nothing does.
func (w *World) reportClasses(report func(c *Classes)) {
	for _, c := range w.classes {
		report(c)
	}
}

// reportRules reports that the rules of a chain have changed.
func (w *World) reportRules(x *chain) {
	w.reportClasses(func(c *Classes) { c.dirty.chains[x] = true })
}

// reportHost reports that a host has changed.
func (w *World) reportHost() {
	w.reportClasses(func(c *Classes) { c.changed.All = true })
}

// reportNeighbour reports that an address may have another MAC address in a network.
func (w *World) reportNeighbour(a netip.Addr) {
	w.reportClasses(func(c *Classes) { c.changed.Addresses[a] = true })
}

// reportMember reports that an address has become a member of a group, or is none any more.
func (w *World) reportMember(g *group, p netip.Prefix, added bool) {
	for _, c := range w.classes {
		if !p.IsSingleIP() {
			c.dirty.groups[g] = true
			continue
		}
		a := p.Addr()
		if added {
			c.members[a] = append(c.members[a], g)
		} else if c.members[a] = slices.DeleteFunc(c.members[a], func(x *group) bool { return x == g }); len(c.members[a]) == 0 {
			delete(c.members, a)
		}
		c.changed.Addresses[a] = true
	}
}

// reportKeys reports that the keys of some ports may have changed, nil for none.
func (w *World) reportKeys(ports ...*port) {
	for _, c := range w.classes {
		for _, p := range ports {
			if p != nil {
				c.changed.Ports[p.id] = true
			}
		}
	}
}

// reportOwn reports that another port has begun to share a chain, or does so no more: one that two
// share is no port's own.
func (w *World) reportOwn(c *chain) {
	if len(w.classes) == 0 || len(c.ports) > 2 {
		return
	}
	for p := range c.ports {
		w.reportKeys(p)
	}
}

// Key returns a text that is the same for ports of one class alone, if their machines also have
// the same routes. A port that is like no other has its id. The addresses are the machine's; the
// classes are for connections from and to one of them. The text is overwritten by the next call.
func (c *Classes) Key(portID string, mac packet.MAC, addresses []netip.Addr, one netip.Addr) []byte {
	p := c.world.ports[portID]
	if p == nil || c.isUnique(p, mac, one) {
		return append(c.key[:0], portID...)
	}
	k := c.newKey(p, mac, addresses, append(c.key[:0], 0)) // no id begins so
	if one.IsValid() {
		k.number(uint32(one.BitLen()))
		for _, n := range c.numbers(one) {
			k.number(n)
		}
		k.number(0)
	}
	k.chain(p.in)
	k.chain(p.out)
	c.key = k.text
	return k.text
}

// newKey returns the part of a machine's key, after what is in text, that is not about addresses
// and filters.
func (c *Classes) newKey(p *port, mac packet.MAC, addresses []netip.Addr, text []byte) classKey {
	k := classKey{mac: macBits(mac), addresses: append(slices.Clone(addresses), packet.LinkLocal(mac)), text: text}
	k.string(p.network.id)
	k.flags(p.def.AdminStateUp, p.def.Trunk)
	k.host(p)
	for _, g := range p.groups {
		k.string(g.id)
	}
	return k
}

// isUnique reports whether the world has something about a port or its addresses that keys do not.
func (c *Classes) isUnique(p *port, mac packet.MAC, a netip.Addr) bool {
	n := p.network
	if p.def == nil || n == nil || !p.def.Exterior() || p.server() == nil || c.named[p] > 0 || len(p.locals) > 0 || p.peer() != nil || p.def.VlanID != 0 ||
		p.def.VTEP() || n.behind(mac) != p {
		return true
	}
	m, known := n.resolve(a)
	return a.IsValid() && (!known || m != mac || len(n.localIPs[a]) > 0)
}

// numbers returns the numbers of what an address is compared with and in, in order.
func (c *Classes) numbers(a netip.Addr) (all []uint32) {
	for _, l := range c.lengths {
		if l.is4 != a.Is4() {
			continue
		}
		if p, err := a.Prefix(l.bits); err == nil {
			if x := c.prefixes[p]; x != nil {
				all = append(all, x.number)
			}
		}
	}
	for _, g := range c.members[a] {
		if x := c.groups[g]; x != nil {
			all = append(all, x.number)
		}
	}
	slices.Sort(all)
	return all
}

// classKey is a key as it is made. What is a port's own is noted as such, so that the filters of
// two ports that differ by that alone are the same.
type classKey struct {
	text      []byte
	mac       uint64
	addresses []netip.Addr
	deep      []*chain // nil: others' chains by their ids; else by their rules, those that have come
}

func (k *classKey) number(n uint32) { k.text = binary.AppendUvarint(k.text, uint64(n)) }

func (k *classKey) string(s string) {
	k.number(uint32(len(s)))
	k.text = append(k.text, s...)
}

func (k *classKey) flags(all ...bool) {
	n := uint32(0)
	for _, f := range all {
		n <<= 1
		if f {
			n |= 1
		}
	}
	k.number(n)
}

// host adds what tells hosts apart: their tunnel zones and LANs, and the home of the port on a LAN.
// A host without tunnels is like no other.
func (k *classKey) host(p *port) {
	h := p.server()
	for _, x := range []*host{p.home, p.standby} {
		if x != nil {
			k.string(x.id)
		}
	}
	if h.def == nil || len(h.def.Tunnels) == 0 {
		k.string(h.id)
		return
	}
	zones := make([]string, 0, 4)
	for _, t := range h.def.Tunnels {
		zones = append(zones, t.ZoneID)
	}
	slices.Sort(zones)
	k.string(strings.Join(zones, " "))
	k.string(strings.Join(h.def.PhysicalNetworks, " "))
	k.flags(h.state != nil)
}

// chain adds a chain of the port: its rules, and others' by the chain's id if the key is not deep.
func (k *classKey) chain(c *chain) {
	switch {
	case c == nil:
		k.number(0)
		return
	case c.def == nil || k.deep == nil && (len(c.ports) > 1 || len(c.networks)+len(c.routers) > 0):
		k.number(1)
		k.string(c.id)
		return
	}
	if k.deep != nil { // a filter does not evaluate a chain twice
		if i := slices.Index(k.deep, c); i >= 0 {
			k.number(uint32(i) + 3)
			return
		}
		k.deep = append(k.deep, c)
	}
	k.number(2)
	for _, r := range c.rules {
		k.rule(r)
	}
	k.number(0)
}

func (k *classKey) rule(r *rule) {
	k.number(uint32(r.verb) + 1)
	k.condition(&r.condition)
	switch {
	case r.nat != nil || r.to != nil:
		k.string(r.id)
	case r.target != nil && (k.deep != nil || r.target.purpose() == topology.PurposeAntiSpoof):
		k.chain(r.target)
	case r.target != nil:
		k.string(r.target.id)
	}
}

func (k *classKey) condition(c *condition) {
	for _, n := range []uint32{uint32(c.set), uint32(c.inverted), uint32(c.frags), uint32(c.proto), uint32(c.tos), uint32(c.etherType), uint32(c.vlan),
		uint32(c.tpSrc.low), uint32(c.tpSrc.high), uint32(c.tpDst.low), uint32(c.tpDst.high)} {
		k.number(n)
	}
	k.flags(c.negated, c.ofNAT)
	for _, p := range []netip.Prefix{c.srcIP, c.dstIP, c.target} {
		k.prefix(p)
	}
	for _, m := range [][2]uint64{{c.srcMAC, c.srcMask}, {c.dstMAC, c.dstMask}} {
		if m == [2]uint64{k.mac, 1<<48 - 1} {
			k.number(1)
			continue
		}
		k.number(0)
		k.text = binary.AppendUvarint(binary.AppendUvarint(k.text, m[0]), m[1])
	}
	for _, g := range []*group{c.srcGroup, c.dstGroup} {
		if g != nil {
			k.string(g.id)
		}
	}
	for _, g := range []*portGroup{c.portGroup, c.inGroup, c.outGroup} {
		if g != nil {
			k.string(g.id)
		}
	}
	for _, ports := range [][]*port{c.inPorts, c.outPorts} {
		for _, p := range ports {
			k.string(p.id)
		}
	}
}

// prefix adds a prefix, or which of the machine's own addresses it is.
func (k *classKey) prefix(p netip.Prefix) {
	if i := slices.Index(k.addresses, p.Addr()); i >= 0 && p.IsSingleIP() {
		k.number(uint32(i) + 2)
		return
	}
	k.flags(p.IsValid())
	if p.IsValid() {
		b, _ := p.MarshalBinary()
		k.string(string(b))
	}
}
