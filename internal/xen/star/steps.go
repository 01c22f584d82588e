package star

import "slices"

// Step is a transaction on one host: all that changes there now.
type Step struct {
	Network string // UUID
	Host    string // UUID
	Bridge  string // where Put belongs
	Delete  []Found
	Put     []Leg // new ones, and those there are but not so
}

// Steps returns what can be done now, at once and in any order. The next call, after that, returns
// what had to wait for it.
//
// A center moves so: the new one gets its ends while the old one still works, then each spoke its
// new leg for the old, at last the old center lets go of its others. Each of these is small, and
// machines hardly notice.
func Steps(n *Network, in Intent, v View) []Step {
	s := shapeOf(n, in)
	var steps []Step
	for i := range n.Members {
		m := &n.Members[i]
		if !m.Known || m.Busy || s.waits(m, in) {
			continue
		}
		if st, any := difference(m, s.wanted(n, in, v, m)); any {
			st.Network = n.UUID
			steps = append(steps, st)
		}
	}
	return steps
}

// waits reports whether others have to act before the host does.
func (s shape) waits(m *Member, in Intent) bool {
	switch {
	case s.center == nil || m == s.center || !slices.Contains(s.spokes, m):
		return false
	case len(m.Legs) == 0:
		return !s.center.Known
	case m.leg(s.center.Host) != nil && !m.hub():
		return false
	case m.hub():
		return m.Host == in.Previous && m.leg(s.center.Host) != nil && s.needed(m)
	}
	return s.center.Known && s.center.leg(m.Host) == nil // until the new center expects it
}

// needed reports whether a spoke is still to be moved from the old center to the new one.
func (s shape) needed(old *Member) bool {
	for _, x := range s.spokes {
		if x != old && x.Known && x.leg(old.Host) != nil && x.leg(s.center.Host) == nil && !x.hub() {
			return true
		}
	}
	return false
}

// wanted are the legs that the host shall have now.
func (s shape) wanted(n *Network, in Intent, v View, m *Member) []Leg {
	switch {
	case s.center == nil:
		return nil
	case m == s.center:
		var legs []Leg
		for _, x := range s.spokes {
			if s.welcome(x, in) {
				legs = append(legs, s.end(n, in, v, m, x))
			}
		}
		return legs
	case slices.Contains(s.spokes, m):
		return []Leg{s.end(n, in, v, m, s.center)}
	}
	return nil
}

// welcome reports whether the center may have a port to the spoke now.
func (s shape) welcome(x *Member, in Intent) bool {
	switch has := s.center.leg(x.Host) != nil; {
	case x.hub():
		return has && x.Host == in.Previous && x.leg(s.center.Host) != nil
	case !x.Known || x.Busy:
		return has
	}
	return true
}

// end is the leg from a member to another.
func (s shape) end(n *Network, in Intent, v View, m, peer *Member) Leg {
	return Leg{
		Name: PortName(n.UUID, peer.Host), Peer: peer.Host, Type: s.center.Protocol, LocalIP: m.Address, RemoteIP: peer.Address,
		Key: in.Key, Epoch: in.Epoch, BFD: v.Carries(n.UUID, m.Host, peer.Host),
	}
}

// difference returns the step from the legs found to the desired ones, and whether there is one.
func difference(m *Member, want []Leg) (Step, bool) {
	st := Step{Host: m.Host, Bridge: m.Bridge}
	for _, f := range m.Legs {
		if f.Bridge != m.Bridge || !slices.ContainsFunc(want, func(l Leg) bool { return l.Name == f.Name }) {
			st.Delete = append(st.Delete, f)
		}
	}
	for _, l := range want {
		if !slices.ContainsFunc(m.Legs, func(f Found) bool { return f.Leg == l && f.Bridge == m.Bridge }) {
			st.Put = append(st.Put, l)
		}
	}
	return st, len(st.Delete) > 0 || len(st.Put) > 0
}

// InPlace are the spokes whose legs are made as the intent wants them, at both ends. all says that
// nothing is left to be done for it on any host that is known.
func InPlace(n *Network, in Intent, v View) (spokes []string, all bool) {
	s := shapeOf(n, in)
	all = true
	for i := range n.Members {
		m := &n.Members[i]
		if !m.Known {
			continue
		}
		if _, any := difference(m, s.wanted(n, in, v, m)); any || m.Busy {
			all = false
		}
	}
	for _, x := range s.spokes {
		if made(x.leg(s.center.Host), in) && made(s.center.leg(x.Host), in) {
			spokes = append(spokes, x.Host)
		} else if x.Known && s.center.Known {
			all = false
		}
	}
	return spokes, all
}

// made reports whether the end of a leg is there and works on its host.
func made(f *Found, in Intent) bool {
	return f != nil && f.Key == in.Key && f.Epoch == in.Epoch && f.OfPort > 0 && f.Error == ""
}
