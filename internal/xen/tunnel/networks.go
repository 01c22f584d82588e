package tunnel

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"heddle/internal/xen/star"
)

// fade delays a status that says less, without an error: legs that are replaced are back by then.
const fade = time.Second

// tracked is a core's state of a network beside its intent.
type tracked struct {
	center  string               // that is counted in core.centers
	acted   star.Intent          // that was followed last
	inPlace int                  // spokes whose legs are made, as of the last pass
	legs    int                  // spokes there should be
	moves   int                  // in a row, to centers that no host reached
	steady  time.Time            // until when a move is not followed by another
	unused  time.Time            // since when the network has no tunnels and no leg, zero if it has
	fading  map[string]time.Time // tunnels whose status is about to say less, since when
	passed  map[string]time.Time // when frames last passed between a host and the others
}

func newTracked() *tracked {
	return &tracked{fading: map[string]time.Time{}, passed: map[string]time.Time{}}
}

// network returns a network's state, with the refs of its tunnels, those of the first members.
func (c *core) network(uuid string, now time.Time) (*star.Network, []string) {
	n, refs := c.pool.network(uuid)
	in, _ := c.intents.get(uuid)
	have := map[string]bool{}
	for i := range n.Members {
		have[n.Members[i].Host] = true
	}
	add := func(host string) {
		have[host] = true
		n.Members = append(n.Members, star.Member{Host: host})
	}
	// Hosts that have ports, or may have, and no tunnel any more.
	for _, host := range in.Hosts {
		if !have[host] && c.hosts[host] != nil {
			add(host)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.hosts)) {
		if !have[host] && len(c.hosts[host].ends[uuid]) > 0 {
			add(host)
		}
	}
	for i := range n.Members {
		if h := c.hosts[n.Members[i].Host]; h != nil {
			h.describe(&n.Members[i], uuid, now)
		}
		n.Members[i].New = slices.Contains(in.Newcomers, n.Members[i].Host)
	}
	for i := range n.Members {
		n.Members[i].Passing = c.passing(n, in.Intent, n.Members[i].Host, now)
	}
	if net := c.nets[uuid]; net != nil {
		n.Steady = now.Before(net.steady)
	}
	return n, refs
}

// passing reports whether frames pass between a host and the rest of a star, as star.Passing, or
// did a moment ago and nothing says that they do not: a leg that was just replaced has no BFD
// session yet.
func (c *core) passing(n *star.Network, in star.Intent, host string, now time.Time) bool {
	net := c.nets[n.UUID]
	switch {
	case net == nil:
		return false
	case star.Passing(n, in, host, c):
		net.passed[host] = now
		return true
	}
	since, did := net.passed[host]
	if !did || !now.Before(since.Add(passedFor)) || star.CutOff(n, in, host, c) {
		delete(net.passed, host)
		return false
	}
	c.agenda.addAt(n.UUID, since.Add(passedFor))
	return true
}

// setProbes updates which paths the network probes.
func (c *core) setProbes(n *star.Network, in star.Intent) {
	before := c.paths.Pairs(n.UUID)
	pairs, probing := star.Pairs(n, in)
	c.addAll(slices.Values(c.paths.Set(n.UUID, pairs, probing)))
	for _, pair := range append(before, pairs...) {
		c.paths.agenda.add(pair)
	}
}

// aim decides the intent of a network.
func (c *core) aim(network string, now time.Time) {
	in, known := c.intents.get(network)
	tunnelled := c.pool.tunnelled(network)
	if !known && !tunnelled {
		return
	}
	if c.nets[network] == nil {
		c.nets[network] = newTracked()
	}
	before := in
	in.Hosts, in.Newcomers = slices.Clone(in.Hosts), slices.Clone(in.Newcomers)
	if tunnelled && in.Key == 0 {
		in.Key = c.intents.key(network)
	}
	n, _ := c.network(network, now)
	in.Intent = star.Decide(n, in.Intent, c)
	for i := range n.Members {
		if m := &n.Members[i]; m.New && star.Considered(n, before.Intent, m, c) {
			in.Newcomers = slices.DeleteFunc(in.Newcomers, func(host string) bool { return host == m.Host })
		}
	}
	for _, host := range star.Hosts(n, in.Intent) {
		if slices.Contains(in.Hosts, host) {
			continue
		}
		in.Hosts = append(in.Hosts, host)
		if before.Center != "" {
			in.Newcomers = append(in.Newcomers, host)
		}
	}
	if in.Intent != before.Intent || !slices.Equal(in.Hosts, before.Hosts) || !slices.Equal(in.Newcomers, before.Newcomers) {
		c.intents.set(network, in)
	}
	c.count(network, in.Center)
}

// count counts a network's center.
func (c *core) count(network, center string) {
	net := c.nets[network]
	if net.center == center {
		return
	}
	if net.center != "" {
		c.centers[net.center]--
	}
	if net.center = center; center != "" {
		c.centers[center]++
	}
}

// noteMove notes a move of the center once it is in the store.
func (c *core) noteMove(network string, now time.Time) {
	net := c.nets[network]
	if net == nil {
		return
	}
	in, _ := c.intents.get(network)
	before := net.acted
	if net.acted = in.Intent; before.Center == "" || before.Epoch == in.Epoch {
		return
	}
	c.counts.moves++
	net.steady = now.Add(min(calm<<min(net.moves, 8), maxCalm))
	net.moves++
	c.do(logEntry{slog.LevelInfo, "center moves", []any{"network", network, "from", c.nameOf(before.Center), "to", c.nameOf(in.Center), "epoch", in.Epoch}})
}

// follow does what can be done now for a network whose intent is in the store. One without an
// intent has no legs: those that a host brings back are removed.
func (c *core) follow(network string, now time.Time) {
	in, decided := c.intents.get(network)
	n, refs := c.network(network, now)
	c.setProbes(n, in.Intent)
	steps := star.Steps(n, in.Intent, c)
	for _, st := range steps {
		if h := c.hosts[st.Host]; h != nil && h.followed {
			h.steps = append(h.steps, st)
		}
	}
	for i := range n.Members {
		h := c.hosts[n.Members[i].Host]
		switch {
		case h == nil:
		case h.busy:
			h.waiting[network] = true
		case h.relents(network, now) && !slices.ContainsFunc(steps, func(st star.Step) bool { return st.Host == h.uuid }):
			delete(h.failed, network) // the step that it refused is not needed any more
			c.agenda.add(network)
		}
	}
	if c.nets[network] == nil {
		return
	}
	c.revisit(n, now)
	c.updateStatuses(n, in.Intent, refs, now)
	if decided {
		c.settle(n, in)
		c.release(n, in, now)
	}
}

// revisit has the network considered again when a wait is over.
func (c *core) revisit(n *star.Network, now time.Time) {
	at := []time.Time{c.nets[n.UUID].steady}
	for i := range n.Members {
		if h := c.hosts[n.Members[i].Host]; h != nil {
			at = append(at, h.failed[n.UUID].until)
			if !h.known {
				at = append(at, h.lostAt.Add(lostAfter))
			}
		}
	}
	for _, t := range at {
		if now.Before(t) {
			c.agenda.addAt(n.UUID, t)
		}
	}
}

// updateStatuses has the statuses of a network's tunnels written where they are not true.
func (c *core) updateStatuses(n *star.Network, in star.Intent, refs []string, now time.Time) {
	net := c.nets[n.UUID]
	for i, st := range star.Statuses(n, in, c)[:len(refs)] {
		tunnel, actual := refs[i], c.pool.status(refs[i])
		if st.Active || st.Error != "" || !n.Members[i].Attached || actual["active"] != "true" {
			delete(net.fading, tunnel)
		} else {
			since, ok := net.fading[tunnel]
			if !ok {
				since = now
				net.fading[tunnel] = now
			}
			if now.Before(since.Add(fade)) {
				c.agenda.addAt(n.UUID, since.Add(fade))
				continue
			}
		}
		c.do(setStatus{tunnel, st.Map(), actual})
	}
}

// settle follows a move to its end: as spokes arrive at the new center, and at last everywhere,
// bridges forget on which port they have learnt addresses.
func (c *core) settle(n *star.Network, in intent) {
	net := c.nets[n.UUID]
	spokes, all := star.InPlace(n, in.Intent, c)
	arrived := len(spokes) > net.inPlace
	net.inPlace, net.legs = len(spokes), len(star.Spokes(n, in.Intent))
	for _, spoke := range spokes {
		if c.Health(spoke, in.Center) == star.Up {
			net.moves, net.steady = 0, time.Time{}
		}
	}
	if !in.Moving() {
		return
	}
	if arrived || all {
		for i := range n.Members {
			host := n.Members[i].Host
			if h := c.hosts[host]; h != nil && h.known && (all || host == in.Center || host == in.Previous) {
				h.flush[n.UUID] = true
			}
		}
	}
	if all {
		in.Settled, in.Previous = in.Epoch, ""
		c.intents.set(n.UUID, in)
		c.agenda.add(n.UUID)
	}
}

// release frees the key of a network that has no tunnels any more, once no host has had a leg with
// it for the quarantine. That begins again with each leader: clocks differ.
func (c *core) release(n *star.Network, in intent, now time.Time) {
	net := c.nets[n.UUID]
	switch {
	case c.inUse(n, in):
		net.unused = time.Time{}
	case net.unused.IsZero():
		net.unused = now
		c.agenda.addAt(n.UUID, now.Add(c.quarantine))
	case now.Before(net.unused.Add(c.quarantine)):
		c.agenda.addAt(n.UUID, net.unused.Add(c.quarantine))
	default:
		c.do(freeKey{n.UUID})
	}
}

// keyFreed notes that a network's intent was deleted from the store, or why not.
func (c *core) keyFreed(network string, err error, now time.Time) {
	if err != nil {
		c.agenda.addAt(network, now.Add(retryAfter))
		return
	}
	c.do(logEntry{slog.LevelInfo, "key is free", []any{"network", network, "key", c.nets[network].acted.Key}})
	c.count(network, "")
	delete(c.nets, network)
}

// inUse reports whether a host has a leg with the network's key, or may have one because its switch
// is out of reach. A host that has left the pool counts as dead.
func (c *core) inUse(n *star.Network, in intent) bool {
	if c.pool.tunnelled(n.UUID) || slices.ContainsFunc(n.Members, func(m star.Member) bool { return len(m.Legs) > 0 }) {
		return true
	}
	return slices.ContainsFunc(in.Hosts, func(host string) bool {
		h := c.hosts[host]
		return h != nil && (!h.known || h.busy)
	})
}
