package simulate

import (
	"net/netip"
	"slices"

	"heddle/internal/topology"
)

// group is a set of addresses that rules ask for.
type group struct {
	object
	claims claims[topology.IPAddrGroup]
	def    *topology.IPAddrGroup // nil while it is only referred to: then nothing is a member

	addrs    map[netip.Addr]int   // how many ports contribute each
	prefixes map[netip.Prefix]int // likewise, masked
	lengths  prefixLengths        // of prefixes

	users     users[*chain]
	lookups   lookups // by decisions that name what they looked up
	questions lookups // by others
}

// prefixLengths counts prefixes by their length, longest first.
type prefixLengths []prefixLength

type prefixLength struct {
	bits, n int
	is4     bool
}

// contains reports whether a is a member.
func (g *group) contains(a netip.Addr) bool {
	if g.def == nil {
		return false
	}
	if g.addrs[a] > 0 {
		return true
	}
	for _, l := range g.lengths {
		if l.is4 != a.Is4() {
			continue
		}
		if p, err := a.Prefix(l.bits); err == nil && g.prefixes[p] > 0 {
			return true
		}
	}
	return false
}

func (w *World) linkGroup(g *group) {
	def := g.claims.top()
	if (def == nil) != (g.def == nil) {
		w.touchGroup(g)
	}
	g.def = def
}

func membershipKey(m *topology.Membership) topology.Membership { return *m }

// setMember moves a contribution. Its key is all of it, so before and after have nothing in common.
func (w *World) setMember(before, after *topology.Membership) {
	if before != nil {
		w.member(before, -1)
	}
	if after != nil {
		w.member(after, 1)
	}
}

// member counts one contribution more or less. Text that is no address contributes nothing.
func (w *World) member(m *topology.Membership, by int) {
	prefix, err := netip.ParsePrefix(m.IPAddress)
	if err != nil {
		a, err := netip.ParseAddr(m.IPAddress)
		if err != nil || a.Zone() != "" {
			return
		}
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	w.contribute(m.GroupID, prefix.Masked(), by)
}

// setMembers replaces the prefixes of a set.
func (w *World) setMembers(groupID string, before, after *topology.MemberSet) {
	var old, now []netip.Prefix
	if before != nil {
		old = before.Prefixes
	}
	if after != nil {
		now = after.Prefixes
	}
	changes(old, now, func(p *netip.Prefix) netip.Prefix { return *p }, func(p netip.Prefix, _, after *netip.Prefix) {
		by := 1
		if after == nil {
			by = -1
		}
		w.contribute(groupID, p.Masked(), by)
	})
}

// contribute counts one contribution of a masked prefix more or less.
func (w *World) contribute(groupID string, prefix netip.Prefix, by int) {
	g := hold(w.groups, groupID)
	if by > 0 {
		g.refs++ // the contribution itself
	}
	var changed bool
	if prefix.IsSingleIP() {
		changed = count(&g.addrs, prefix.Addr(), by)
	} else if changed = count(&g.prefixes, prefix, by); changed {
		g.lengths.count(prefix, by)
	}
	if changed {
		w.reportMember(g, prefix, by > 0)
	}
	switch {
	case !changed:
	case g.questions.mayHave(prefix), !prefix.IsSingleIP() && g.lookups.mayHave(prefix):
		w.touchGroup(g)
	case g.lookups.mayHave(prefix):
		w.affected = append(w.affected, prefix.Addr().String())
	}
	if by < 0 {
		g.refs--
	}
	release(w.groups, g)
}

// count adds to a counter, and reports whether it became or ceased to be zero.
func count[K comparable](m *map[K]int, k K, by int) bool {
	if *m == nil {
		*m = map[K]int{}
	}
	was := (*m)[k]
	if was+by == 0 {
		delete(*m, k)
		return was != 0
	}
	(*m)[k] = was + by
	return was == 0
}

func (s *prefixLengths) count(p netip.Prefix, by int) {
	is4 := p.Addr().Is4()
	i := slices.IndexFunc(*s, func(l prefixLength) bool { return l.bits == p.Bits() && l.is4 == is4 })
	if i < 0 {
		*s = append(*s, prefixLength{p.Bits(), by, is4})
		slices.SortFunc(*s, func(a, b prefixLength) int { return b.bits - a.bits })
		return
	}
	if (*s)[i].n += by; (*s)[i].n == 0 {
		*s = slices.Delete(*s, i, i+1)
	}
}
