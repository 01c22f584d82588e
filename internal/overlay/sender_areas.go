package overlay

import (
	"slices"

	"heddle/internal/topology"
)

// relink replaces the links of one owner's ports. Links are made before others are removed.
func (s *senders) relink(before, after []topology.Port) {
	ids := map[string]bool{}
	for _, ports := range [][]topology.Port{before, after} {
		for i := range ports {
			if !ports[i].Exterior() {
				ids[ports[i].ID] = true
			}
		}
	}
	if len(ids) == 0 {
		return
	}
	old := s.linksOf(ids)
	for i := range before {
		s.setEnd(before[i].ID, linkEnd{})
	}
	for i := range after {
		if p := &after[i]; !p.Exterior() {
			s.setEnd(p.ID, linkEnd{deviceOf(p), p.PeerID})
		}
	}
	for _, l := range s.linksOf(ids) {
		s.link(s.device(l[0]), s.device(l[1]))
	}
	for _, l := range old {
		s.unlink(s.device(l[0]), s.device(l[1]))
		s.tidy(l[0])
		s.tidy(l[1])
	}
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

// linksOf returns the devices at both ends of the links of some ports, by the port that names the
// other.
func (s *senders) linksOf(ids map[string]bool) map[string][2]string {
	links := map[string][2]string{}
	add := func(id string) {
		end := s.ends[id]
		if peer, there := s.ends[end.peer]; there && end.peer != "" && end.device != peer.device {
			links[id] = [2]string{end.device, peer.device}
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

func (s *senders) link(a, b *senderDevice) {
	a.links[b]++
	b.links[a]++
	if a.area == b.area {
		return
	}
	large, small := a.area, b.area
	if len(large.devices) < len(small.devices) {
		large, small = small, large
	}
	for host := range small.hosts {
		delete(s.host(host).areas, small)
	}
	for d := range small.devices {
		d.area = large
		large.devices[d] = true
		for host := range d.hosts {
			s.enter(large, host, 1)
		}
	}
	for id := range small.local {
		large.local[id] = true
		s.renew(id)
	}
}

func (s *senders) unlink(a, b *senderDevice) {
	if a.links[b]--; a.links[b] == 0 {
		delete(a.links, b)
	}
	if b.links[a]--; b.links[a] == 0 {
		delete(b.links, a)
	}
	rest := reachable(a)
	if rest[b] {
		return
	}
	// The area falls apart: what a does not reach stays.
	was := a.area
	parted := &area{devices: rest, hosts: map[string]int{}, local: map[string]bool{}}
	for d := range rest {
		delete(was.devices, d)
		d.area = parted
		for id := range d.local {
			delete(was.local, id)
			parted.local[id] = true
		}
	}
	for d := range rest {
		for host := range d.hosts {
			s.enter(parted, host, 1)
			s.enter(was, host, -1)
		}
	}
	for id := range parted.local {
		s.renew(id)
	}
}

// reachable returns the devices to which links lead from d, and d.
func reachable(d *senderDevice) map[*senderDevice]bool {
	found, queue := map[*senderDevice]bool{d: true}, []*senderDevice{d}
	for len(queue) > 0 {
		next := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for other := range next.links {
			if !found[other] {
				found[other] = true
				queue = append(queue, other)
			}
		}
	}
	return found
}
