package simulate

import (
	"math"
	"math/bits"
	"net/netip"
)

// choice is the selectable members of a pool, ready to choose from.
type choice struct {
	members []*member
	// The alias table (Vose): of a random number the slot is chosen by its high part, and in the
	// slot the member itself or the alias by its low part.
	limits  []uint64 // below which it is the slot's own member
	aliases []int32
}

// selectable returns the members that new connections may go to.
func (p *pool) selectable() *choice {
	c := p.choice.Load()
	if c == nil {
		c = newChoice(p)
		p.choice.Store(c)
	}
	return c
}

func newChoice(p *pool) *choice {
	c := &choice{}
	if p.def == nil || !p.def.AdminStateUp {
		return c
	}
	for _, backup := range []bool{false, true} {
		for _, m := range p.members {
			if m.def.Backup == backup && m.isSelectable() {
				c.members = append(c.members, m)
			}
		}
		if len(c.members) > 0 {
			break
		}
	}
	c.buildAliases()
	return c
}

// buildAliases makes the table in linear time, of whole numbers: a share is weight × n of the sum.
func (c *choice) buildAliases() {
	n := len(c.members)
	if n == 0 {
		return
	}
	var sum uint64
	for _, m := range c.members {
		sum += uint64(m.def.Weight)
	}
	c.limits, c.aliases = make([]uint64, n), make([]int32, n)
	shares := make([]uint64, n) // of which sum makes a slot
	var small, large []int32
	for i, m := range c.members {
		shares[i] = uint64(m.def.Weight) * uint64(n)
		c.aliases[i] = int32(i)
		if shares[i] < sum {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		c.limits[s], _ = bits.Div64(shares[s], 0, sum) // share/sum of 2^64
		c.aliases[s] = l
		if shares[l] -= sum - shares[s]; shares[l] < sum {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) {
		c.limits[i] = math.MaxUint64
	}
}

// byWeight chooses by a random number: each member with its share of the weights.
func (c *choice) byWeight(random uint64) *member {
	slot, at := bits.Mul64(random, uint64(len(c.members)))
	if at <= c.limits[slot] {
		return c.members[slot]
	}
	return c.members[c.aliases[slot]]
}

// byHash chooses the member with the highest score for a source (weighted rendezvous hashing): when
// one of n comes or goes, 1/n of the sources move.
func (c *choice) byHash(source uint64) *member {
	var best *member
	least := math.Inf(1)
	for _, m := range c.members {
		h := join(source, hashAddr(m.def.Address)^uint64(m.def.ProtocolPort)<<48)
		u := (float64(h>>11) + 0.5) / (1 << 53) // in (0, 1)
		if score := -math.Log(u) / float64(m.def.Weight); score < least {
			best, least = m, score
		}
	}
	return best
}

// byConnections chooses the member with the fewest connections for its weight, and by a random
// number among several.
func (c *choice) byConnections(random uint64, count func(*member) int) *member {
	var best *member
	fewest, weight, ties := 0, 1, uint64(0)
	for _, m := range c.members {
		n := count(m)
		switch order := n*weight - fewest*m.def.Weight; {
		case best == nil || order < 0:
			best, fewest, weight, ties = m, n, m.def.Weight, 1
		case order == 0:
			ties++
			if hi, _ := bits.Mul64(join(random, ties), ties); hi == 0 {
				best, fewest, weight = m, n, m.def.Weight
			}
		}
	}
	return best
}

// hashAddr is a hash of an address, the same on every host.
func hashAddr(a netip.Addr) uint64 {
	b := a.As16()
	h := uint64(0)
	for i := 0; i < 16; i += 8 {
		var v uint64
		for _, x := range b[i : i+8] {
			v = v<<8 | uint64(x)
		}
		h = join(h, v)
	}
	return h
}

// join mixes two numbers into one, of which all bits depend on both.
func join(a, b uint64) uint64 { return mix(a*0x9e3779b97f4a7c15 + b) }
