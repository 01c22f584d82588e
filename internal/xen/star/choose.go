package star

import (
	"cmp"
	"slices"
)

// Decide returns the next intent: the center, and with a new one the next epoch. The center is left
// where it is unless it is no member any more, no host reaches it, another was asked for (§10.2),
// or a newcomer is center of far fewer networks. The key is the caller's; without one nothing is
// decided.
func Decide(n *Network, in Intent, v View) Intent {
	if in.Key == 0 {
		return in
	}
	center, others := members(n, in)
	stays := center != nil && !center.Unwilling && !inTheWay(center, others)
	if stays && n.wishes(in) {
		if m := member(n, n.Preferred); m.candidate() && m.Enabled && slices.Contains(others, m) {
			return in.move(n, m.Host)
		}
	}
	best := elect(n, v, center, others)
	relief := relieve(n, in, center, others, v)
	switch {
	case best == nil:
		return in
	case !stays, !center.Enabled && best.Enabled, unreached(n, in, center, others, v):
		return in.move(n, best.Host)
	case relief != nil:
		return in.move(n, relief.Host)
	}
	return in
}

// imbalance is by how many networks a center must exceed a newcomer for the newcomer to take its
// place: with less a move would only turn the difference around.
const imbalance = 2

// relieve returns the newcomer that should take the center's place, nil for none: the one that is
// center of the fewest networks, if that is fewer enough. Networks grow host by host, and so the
// first hosts that they have would be center of all of them. A center that was asked for stays.
func relieve(n *Network, in Intent, center *Member, others []*Member, v View) *Member {
	if center == nil || center.Host == n.Preferred {
		return nil
	}
	var best *Member
	for _, m := range others {
		if m.Live && m.Enabled && Considered(n, in, m, v) && v.Load(center.Host)-v.Load(m.Host) >= imbalance && (best == nil || n.before(m, best, v)) {
			best = m
		}
	}
	return best
}

// Considered reports whether a decision takes the member into account as a newcomer: it has proved
// that it can be center, since its leg is in place and frames pass, and the network is not on the
// move. The member is a newcomer no more then, whatever came of it, so that no center moves but
// when a network grows.
func Considered(n *Network, in Intent, m *Member, v View) bool {
	center := member(n, in.Center)
	return m.New && m.candidate() && center != nil && !n.Steady && !in.Moving() &&
		made(m.leg(center.Host), in) && made(center.leg(m.Host), in) && v.Health(m.Host, center.Host) == Up
}

func member(n *Network, host string) *Member {
	for i := range n.Members {
		if n.Members[i].Host == host {
			return &n.Members[i]
		}
	}
	return nil
}

// wishes reports whether another center is preferred, newly or with auto-revert.
func (n *Network) wishes(in Intent) bool {
	return n.Preferred != "" && n.Preferred != in.Center && (n.AutoRevert || n.Preferred != in.Preferred)
}

// candidate reports whether the host can become center: its legs are known, and it is willing.
func (m *Member) candidate() bool { return m != nil && m.Known && !m.Unwilling }

// move makes host the center.
func (in Intent) move(n *Network, host string) Intent {
	in.Previous, in.Center = in.Center, host
	in.Epoch++
	if host == n.Preferred {
		in.Preferred = host
	}
	return in
}

// elect is the best center other than the one there is, nil when there are fewer than two members
// or none can be it: the preferred one, else that of the fewest networks; ties by UUID. Disabled
// hosts are chosen only where there are no others.
func elect(n *Network, v View, center *Member, others []*Member) *Member {
	if len(others) == 0 || center == nil && len(others) < 2 {
		return nil
	}
	var best *Member
	for _, m := range others {
		if m.candidate() && (best == nil || n.before(m, best, v)) {
			best = m
		}
	}
	return best
}

// before reports whether a is the better center.
func (n *Network) before(a, b *Member, v View) bool {
	return cmp.Or(
		order(a.Live, b.Live),
		order(a.Enabled, b.Enabled),
		order(a.Host == n.Preferred, b.Host == n.Preferred),
		cmp.Compare(v.Load(a.Host), v.Load(b.Host)),
		cmp.Compare(a.Host, b.Host),
	) < 0
}

// order puts what is true first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// inTheWay reports whether the center's switch cannot be given legs that it should have.
func inTheWay(center *Member, others []*Member) bool {
	if center.Known || !center.Lost {
		return false
	}
	return slices.ContainsFunc(others, func(m *Member) bool {
		return m.leg(center.Host) == nil || center.Seen && center.leg(m.Host) == nil
	})
}

// unreached reports whether the center is dead, or as good as that: the path to it is down from
// each host that probes it, or, where it is not known itself, from half of them. With one spoke a
// move would change nothing.
func unreached(n *Network, in Intent, center *Member, others []*Member, v View) bool {
	if n.Steady || len(others) < 2 {
		return false
	}
	up, down := 0, 0
	for _, m := range others {
		switch v.Health(m.Host, in.Center) {
		case Up:
			up++
		case Down:
			down++
		}
	}
	return down >= 2 && up == 0 || !center.Known && down > 0 && down >= up
}
