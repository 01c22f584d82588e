package reach

import (
	"net/netip"
	"slices"

	"heddle/internal/topology/simulate"
)

// OutsideAnswer is the answer for a range of addresses outside.
type OutsideAnswer struct {
	First, Last netip.Addr
	Answer
}

// Span is a range of addresses.
type Span struct{ First, Last netip.Addr }

var (
	addr = netip.MustParseAddr
	// unicast4 and unicast6 are the addresses of single machines that routers forward, in order.
	unicast4 = []Span{{addr("1.0.0.0"), addr("126.255.255.255")}, {addr("128.0.0.0"), addr("169.253.255.255")}, {addr("169.255.0.0"), addr("223.255.255.255")}}
	unicast6 = []Span{{addr("1::"), addr("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}}
)

// Outside returns all addresses of a version of IP that machines outside may have, in order.
func Outside(is4 bool) []Span {
	if is4 {
		return unicast4
	}
	return unicast6
}

// FromOutside answers the question for each address outside in the place of its Source. The ranges
// are in order; those that reach nothing are left out.
func (a *Asker) FromOutside(q Question) []OutsideAnswer {
	q.From = nil
	return a.outside(&q, &q.Source, q.Target)
}

// ToOutside answers the question for each address outside in the place of its Target.
func (a *Asker) ToOutside(q Question) []OutsideAnswer {
	q.To = nil
	return a.outside(&q, &q.Target, q.Source)
}

// outside answers a question for each address that may take the place of one of its ends. Those of
// machines that the virtual network knows on the LAN are not outside.
func (a *Asker) outside(q *Question, place *netip.Addr, other netip.Addr) (all []OutsideAnswer) {
	for _, s := range Outside(other.Is4()) {
		var known netip.Addr // the first of the addresses before that are not outside
		for first := s.First; first.IsValid() && first.Compare(s.Last) <= 0; {
			if a.isInside(q, first) {
				if !known.IsValid() {
					known = first
				}
				first = first.Next()
				continue
			}
			*place = first
			c := collector{asker: a, question: q, outside: first, lastOutside: s.Last}
			answer := c.answer()
			all = appendAnswer(all, OutsideAnswer{first, c.lastOutside, answer}, known)
			known, first = netip.Addr{}, c.lastOutside.Next()
		}
	}
	return all
}

// isInside reports whether the virtual network knows an address on the LAN of the question's door,
// of one about outside on any LAN.
func (a *Asker) isInside(q *Question, address netip.Addr) bool {
	if a.doors == nil {
		a.doors = a.world.Doors()
	}
	inside := func(network string) bool {
		_, _, ok := a.world.Neighbour(network, address)
		return ok
	}
	if q.From == nil {
		return inside(q.Door.NetworkID)
	}
	return slices.ContainsFunc(a.doors, func(d simulate.Door) bool { return inside(d.NetworkID) })
}

// appendAnswer appends an answer that is not empty, to the last one if that is equal and nothing
// but an address that is known is between.
func appendAnswer(all []OutsideAnswer, x OutsideAnswer, known netip.Addr) []OutsideAnswer {
	if x.IsEmpty() {
		return all
	}
	from := x.First
	if known.IsValid() {
		from = known
	}
	if n := len(all) - 1; n >= 0 && all[n].Last.Next() == from && all[n].equal(&x.Answer) {
		all[n].Last = x.Last
		return all
	}
	return append(all, x)
}

// narrow has the answer stand for no address outside that the routes of a machine, or the
// neighbours that it has, tell from the one that was asked about.
func (c *collector) narrow(e *End) {
	if !c.outside.IsValid() || e == nil {
		return
	}
	bounds, known := c.asker.bounds[e.PortID]
	if !known {
		for _, r := range e.Routes {
			bounds = append(bounds, r.Destination.Masked())
		}
		if c.asker.world.HasLAN(e.NetworkID) {
			for _, a := range c.asker.world.NeighbourAddrs(e.NetworkID) {
				bounds = append(bounds, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		c.asker.bounds[e.PortID] = bounds
	}
	for _, p := range bounds {
		c.lastOutside = simulate.SameAddresses(p, c.outside, c.lastOutside)
	}
}
