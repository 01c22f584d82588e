package overlay

import "heddle/internal/topology"

// senderMirrors holds which ports copies for mirrors go to. Hosts that may send to a port also send
// its copies, so they may send to the ports that get them.
type senderMirrors struct {
	// locate returns the device that a port is in, "" for none.
	locate  func(port string) string
	targets map[string]string          // port of a mirror
	to      map[string]map[string]bool // mirrors of a port
	at      map[string]map[string]int  // mirrors attached to a port
	tapped  map[string]map[string]int  // the reverse: ports that a mirror is attached to
	// watched are the ports of which a local port gets copies, over several mirrors too, with their
	// devices, as counted; watchers is the reverse.
	watched  map[string]map[string]string
	watchers map[string]map[string]bool
}

func newSenderMirrors() senderMirrors {
	return senderMirrors{locate: func(string) string { return "" }, targets: map[string]string{}, to: map[string]map[string]bool{},
		at: map[string]map[string]int{}, tapped: map[string]map[string]int{}, watched: map[string]map[string]string{}, watchers: map[string]map[string]bool{}}
}

// remirror replaces what an owner says about mirrors, and follows its ports.
func (s *senders) remirror(before, after *topology.Bundle) {
	m := &s.mirrors
	affected := map[string]bool{}
	m.collect(affected, before, after)
	for i := range before.Mirrors {
		x := &before.Mirrors[i]
		delete(m.targets, x.ID)
		put(m.to, x.ToPortID, x.ID, false)
	}
	for i := range after.Mirrors {
		x := &after.Mirrors[i]
		m.targets[x.ID] = x.ToPortID
		put(m.to, x.ToPortID, x.ID, true)
	}
	for _, e := range after.MirrorEntries {
		addTo(m.at, e.PortID, e.MirrorID, 1)
		addTo(m.tapped, e.MirrorID, e.PortID, 1)
	}
	for _, e := range before.MirrorEntries {
		addTo(m.at, e.PortID, e.MirrorID, -1)
		addTo(m.tapped, e.MirrorID, e.PortID, -1)
	}
	m.collect(affected, before, after)
	for id := range affected {
		s.watch(id, m.sourcesOf(id, s.ports[id] != ""))
	}
}

// collect adds the ports that get other copies, or none, if these bundles change.
func (m *senderMirrors) collect(affected map[string]bool, bundles ...*topology.Bundle) {
	for _, b := range bundles {
		for i := range b.Mirrors {
			m.follow(affected, b.Mirrors[i].ToPortID)
		}
		for i := range b.MirrorEntries {
			if to, there := m.targets[b.MirrorEntries[i].MirrorID]; there {
				m.follow(affected, to)
			}
		}
		for i := range b.Ports {
			id := b.Ports[i].ID
			if len(m.at[id])+len(m.to[id]) > 0 {
				m.follow(affected, id)
			}
		}
	}
}

// follow adds a port, and those that get copies of what goes to it.
func (m *senderMirrors) follow(found map[string]bool, id string) {
	if found[id] {
		return
	}
	found[id] = true
	for mirror := range m.at[id] {
		if to, there := m.targets[mirror]; there {
			m.follow(found, to)
		}
	}
}

// sourcesOf returns the ports of which a port gets copies, with their devices; none of a port that
// is not local.
func (m *senderMirrors) sourcesOf(id string, local bool) map[string]string {
	found := map[string]string{}
	if local {
		m.trace(found, map[string]bool{}, id)
	}
	return found
}

func (m *senderMirrors) trace(found map[string]string, visited map[string]bool, id string) {
	for mirror := range m.to[id] {
		for source := range m.tapped[mirror] {
			if visited[source] {
				continue
			}
			visited[source] = true
			if device := m.locate(source); device != "" {
				found[source] = device
			}
			m.trace(found, visited, source)
		}
	}
}

// watch replaces the ports of which a local port gets copies. It counts as a port of their devices,
// and as one with their floating IPs.
func (s *senders) watch(id string, now map[string]string) {
	m := &s.mirrors
	was := m.watched[id]
	for source, device := range now {
		if old, there := was[source]; !there || old != device {
			s.watchOne(id, source, device, 1)
		}
	}
	for source, device := range was {
		if is, there := now[source]; !there || is != device {
			s.watchOne(id, source, device, -1)
		}
		put(m.watchers, source, id, false)
	}
	for source := range now {
		put(m.watchers, source, id, true)
	}
	if m.watched[id] = now; len(now) == 0 {
		delete(m.watched, id)
	}
}

func (s *senders) watchOne(id, source, device string, by int) {
	d := s.device(device)
	add(d.local, id, by)
	s.house(d.area, id, by)
	s.tidy(device)
	for f := range s.borders.floatsOf[source] {
		s.openOne(f, id, by)
	}
	s.stale[id] = true
}
