package simulate

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Classes is a partition of machines' ports into those that the world treats alike: for two ports
// of one class and any third, each connection between one of them and the third has the same fate
// as that between the other and the third (explain §6). It holds for the world as it was.
type Classes struct {
	world    *World
	prefixes map[netip.Prefix]uint32 // those that rules, routes and groups compare addresses with, numbered
	lengths  prefixLengths
	members  map[netip.Addr][]uint32 // numbers of the groups that have an address
	unique   map[*port]bool          // that rules name
	key      []byte
}

// NewClasses gathers what the world compares addresses with. The cost follows all of its rules.
func (w *World) NewClasses() *Classes {
	c := &Classes{world: w, prefixes: map[netip.Prefix]uint32{}, members: map[netip.Addr][]uint32{}, unique: map[*port]bool{}}
	asked := map[*group]bool{}
	for _, x := range w.chains {
		if x.purpose() == topology.PurposeAntiSpoof {
			continue // each is its port's own, and part of the port's key
		}
		for _, r := range x.rules {
			c.addPrefix(r.srcIP.Masked())
			c.addPrefix(r.dstIP.Masked())
			for _, g := range []*group{r.srcGroup, r.dstGroup} {
				if g != nil && g.def != nil && !asked[g] {
					asked[g] = true
					c.addGroup(g, uint32(len(asked)))
				}
			}
			for _, ports := range [][]*port{r.inPorts, r.outPorts} {
				for _, p := range ports {
					c.unique[p] = true
				}
			}
		}
	}
	for _, r := range w.routers {
		r.prefixes(c.addPrefix)
	}
	return c
}

func (c *Classes) addPrefix(p netip.Prefix) {
	if _, known := c.prefixes[p]; known || !p.IsValid() {
		return
	}
	c.prefixes[p] = uint32(len(c.prefixes))
	c.lengths.count(p, 1)
}

func (c *Classes) addGroup(g *group, number uint32) {
	for a := range g.addrs {
		c.members[a] = append(c.members[a], number)
	}
	for p := range g.prefixes {
		c.addPrefix(p)
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
	k := classKey{mac: macBits(mac), addresses: append(slices.Clone(addresses), packet.LinkLocal(mac)), text: append(c.key[:0], 0)} // no id begins so
	k.string(p.network.id)
	k.flags(p.def.AdminStateUp, p.def.Trunk)
	k.host(p)
	for _, g := range p.groups {
		k.string(g.id)
	}
	if one.IsValid() {
		c.address(&k, one)
	}
	k.chain(p.in)
	k.chain(p.out)
	c.key = k.text
	return k.text
}

// isUnique reports whether the world has something about a port or its addresses that keys do not.
func (c *Classes) isUnique(p *port, mac packet.MAC, a netip.Addr) bool {
	n := p.network
	if p.def == nil || n == nil || !p.def.Exterior() || p.server() == nil || c.unique[p] || len(p.locals) > 0 || p.peer() != nil || p.def.VlanID != 0 ||
		p.def.VTEP() || n.behind(mac) != p {
		return true
	}
	m, known := n.resolve(a)
	return a.IsValid() && (!known || m != mac || len(n.localIPs[a]) > 0)
}

// address adds what the world compares an address with.
func (c *Classes) address(k *classKey, a netip.Addr) {
	k.number(uint32(a.BitLen()))
	for _, l := range c.lengths {
		if l.is4 != a.Is4() {
			continue
		}
		if p, err := a.Prefix(l.bits); err == nil {
			if n, asked := c.prefixes[p]; asked {
				k.number(n + 1)
			}
		}
	}
	k.number(0)
	for _, n := range c.members[a] {
		k.number(n)
	}
	k.number(0)
}

// classKey is a key as it is made. What is a port's own is noted as such, so that the filters of
// two ports that differ by that alone are the same.
type classKey struct {
	text      []byte
	mac       uint64
	addresses []netip.Addr
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

// chain adds a chain of the port: its rules, and others' by the chain's id.
func (k *classKey) chain(c *chain) {
	switch {
	case c == nil:
		k.number(0)
		return
	case c.def == nil || len(c.ports) > 1 || len(c.networks)+len(c.routers) > 0:
		k.number(1)
		k.string(c.id)
		return
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
	case r.target != nil && r.target.purpose() == topology.PurposeAntiSpoof:
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
