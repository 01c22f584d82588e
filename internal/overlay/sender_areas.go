package overlay

import (
	"slices"

	"heddle/internal/topology"
)

// linkEnd is a port that may be linked: its device, and the port that it names as its peer.
type linkEnd struct{ device, peer string }

// portLink is a link from a port to the one that it names as its peer.
type portLink struct{ from, to portOfLink }

type portOfLink struct{ port, device string }

// relink replaces one owner's ports, and returns the links that those had and those that they have
// now, by the port that names the other.
func (s *senders) relink(before, after []topology.Port) (was, now map[string]portLink) {
	ids := map[string]bool{}
	for _, ports := range [][]topology.Port{before, after} {
		for i := range ports {
			if !ports[i].Exterior() {
				ids[ports[i].ID] = true
			}
		}
	}
	was = s.linksOf(ids)
	for i := range before {
		s.setEnd(before[i].ID, linkEnd{})
	}
	for i := range after {
		if p := &after[i]; !p.Exterior() {
			s.setEnd(p.ID, linkEnd{deviceOf(p), p.PeerID})
		}
	}
	return was, s.linksOf(ids)
}

// setEnd notes a port that may be linked; the zero end removes it.
func (s *senders) setEnd(id string, end linkEnd) {
	if was, there := s.ends[id]; there && was.peer != "" {
		names := s.namedBy[was.peer]
		if names = slices.DeleteFunc(names, func(n string) bool { return n == id }); len(names) == 0 {
			delete(s.namedBy, was.peer)
		} else {
			s.namedBy[was.peer] = names
		}
	}
	if end == (linkEnd{}) {
		delete(s.ends, id)
		return
	}
	s.ends[id] = end
	if end.peer != "" {
		s.namedBy[end.peer] = append(s.namedBy[end.peer], id)
	}
}

// linksOf returns the links of some ports, by the port that names the other.
func (s *senders) linksOf(ids map[string]bool) map[string]portLink {
	links := map[string]portLink{}
	add := func(id string) {
		end := s.ends[id]
		if peer, there := s.ends[end.peer]; there && end.peer != "" && end.device != peer.device {
			links[id] = portLink{portOfLink{id, end.device}, portOfLink{end.peer, peer.device}}
		}
	}
	for id := range ids {
		add(id)
		for _, other := range s.namedBy[id] {
			add(other)
		}
	}
	return links
}

// setLink makes or removes a link, which may be a border.
func (s *senders) setLink(l portLink, border, there bool) {
	a, b := s.device(l.from.device), s.device(l.to.device)
	switch {
	case border && there:
		s.border(a, b, 1)
	case border:
		s.border(a, b, -1)
	case there:
		s.link(a, b)
	default:
		s.unlink(a, b)
	}
	s.tidy(a.id)
	s.tidy(b.id)
}

// upward returns an area and those that borders lead up to from it, over several too.
func (a *area) upward() []*area {
	found := []*area{a}
	for i := 0; i < len(found); i++ {
		for d := range found[i].exits {
			for network := range d.above {
				if !slices.Contains(found, network.area) {
					found = append(found, network.area)
				}
			}
		}
	}
	return found
}

// areasBelow returns the areas from which borders lead up to some devices, over several too, and
// those of all.
func areasBelow(all map[*area]bool, devices map[*senderDevice]bool) map[*area]bool {
	for d := range devices {
		for router := range d.below {
			if a := router.area; !all[a] {
				all[a] = true
				areasBelow(all, a.entries)
			}
		}
	}
	return all
}

// withdraw takes what areas contribute to those above them away, before borders above them change.
func (s *senders) withdraw(areas map[*area]bool) {
	for a := range areas {
		s.contribute(a, -1)
		a.contributes = false
	}
}

// restore adds it again.
func (s *senders) restore(areas map[*area]bool) {
	for a := range areas {
		s.contribute(a, 1)
		a.contributes = true
	}
}

func (s *senders) contribute(a *area, by int) {
	for _, above := range a.upward() {
		for host := range a.hosts {
			s.countBelow(above, host, by)
		}
		for id, n := range a.local {
			add(above.portsBelow, id, by*n)
		}
	}
	for id := range a.local {
		s.stale[id] = true
	}
}

// border adds or removes a border from a router up to a network.
func (s *senders) border(router, network *senderDevice, by int) {
	if n := router.above[network]; n > 0 && n+by > 0 {
		router.above[network] += by
		network.below[router] += by
		return
	}
	affected := areasBelow(map[*area]bool{router.area: true}, router.area.entries)
	s.withdraw(affected)
	add(router.above, network, by)
	add(network.below, router, by)
	router.area.list(router)
	network.area.list(network)
	s.restore(affected)
}

// list notes whether a device of the area has borders.
func (a *area) list(d *senderDevice) {
	if a.exits[d] = true; len(d.above) == 0 || !a.devices[d] {
		delete(a.exits, d)
	}
	if a.entries[d] = true; len(d.below) == 0 || !a.devices[d] {
		delete(a.entries, d)
	}
}

// weight returns about what it costs to move all devices of an area to another.
func (a *area) weight() int {
	n := len(a.devices)
	for d := range a.entries {
		n += len(d.below)
	}
	return n
}

func (s *senders) link(a, b *senderDevice) {
	a.links[b]++
	b.links[a]++
	if a.area == b.area {
		return
	}
	large, small := a.area, b.area
	if large.weight() < small.weight() {
		large, small = small, large
	}
	affected := areasBelow(map[*area]bool{small: true}, small.entries)
	if len(small.exits) > 0 { // also for what is below the large one
		affected[large] = true
		areasBelow(affected, large.entries)
	}
	s.withdraw(affected)
	s.move(small.devices, small, large)
	delete(affected, small)
	s.restore(affected)
}

// move moves devices from one area to another.
func (s *senders) move(devices map[*senderDevice]bool, from, to *area) {
	for d := range devices {
		d.area = to
		to.devices[d] = true
		delete(from.devices, d)
		from.list(d)
		to.list(d)
		for host := range d.hosts {
			s.enter(to, host, 1)
			s.enter(from, host, -1)
		}
		for host, n := range d.floating {
			s.float(to, host, n)
			s.float(from, host, -n)
		}
		for id, n := range d.opened {
			add(to.opened, id, n)
			add(from.opened, id, -n)
			s.stale[id] = true
		}
		for id, n := range d.local {
			s.house(to, id, n)
			s.house(from, id, -n)
			s.stale[id] = true
		}
	}
}

func (s *senders) unlink(a, b *senderDevice) {
	add(a.links, b, -1)
	add(b.links, a, -1)
	rest := partOf(a, b)
	if rest == nil {
		return
	}
	// The area falls apart: what is not in the smaller part stays.
	was, parted := a.area, newArea()
	affected := areasBelow(map[*area]bool{}, rest)
	for d := range rest {
		if len(d.above) > 0 { // also for what is below the other part
			affected[was] = true
			areasBelow(affected, was.entries)
		}
	}
	s.withdraw(affected)
	s.move(rest, was, parted)
	affected[parted] = true
	s.restore(affected)
}

// partOf returns the devices to which links lead from a or those from b, whichever cost less to
// move; nil if links lead from a to b.
func partOf(a, b *senderDevice) map[*senderDevice]bool {
	found := [2]map[*senderDevice]bool{{a: true}, {b: true}}
	queue := [2][]*senderDevice{{a}, {b}}
	var cost [2]int
	for {
		side := 0
		if cost[1] < cost[0] {
			side = 1
		}
		q := queue[side]
		if len(q) == 0 {
			return found[side]
		}
		next := q[len(q)-1]
		queue[side] = q[:len(q)-1]
		cost[side] += 1 + len(next.links) + len(next.below)
		for other := range next.links {
			if found[1-side][other] {
				return nil
			}
			if !found[side][other] {
				found[side][other] = true
				queue[side] = append(queue[side], other)
			}
		}
	}
}
