package explain

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"heddle/internal/api/operator"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// mostCompared bounds the pairs of classes of machines that one comparison asks about.
const mostCompared = 20_000

// Diff returns the connections that fare otherwise in one snapshot than in one before it, and what
// deserves a second look. asker is the address of the client who asks, invalid if it is not known.
// Only ends are compared that the difference may affect (explain §7).
func (w *World) Diff(before, after *records.Snap, asker netip.Addr) *operator.DiffAnswer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.diff(before, after, asker, (*comparison).affected)
}

// diff is Diff with the ends that selected returns.
func (w *World) diff(before, after *records.Snap, asker netip.Addr, selected func(*comparison) affectedEnds) *operator.DiffAnswer {
	c := &comparison{world: w}
	c.sides[0] = w.side(before)
	w.affected = map[string]bool{}
	c.sides[1] = w.side(after)
	c.noted, w.affected = w.affected, nil
	c.affectedEnds = selected(c)
	c.plan()
	for _, i := range []int{1, 0} {
		w.apply(c.sides[i].snap)
		c.ask(i)
	}
	w.apply(after)
	a := c.answer(asker)
	w.apply(before) // the next change is one of what there is then, too
	return a
}

// comparison compares who reaches whom in two snapshots.
type comparison struct {
	world *World
	sides [2]*side        // before and after
	noted map[string]bool // ids that the difference affects, as the world says
	affectedEnds
	groups   [2][]*group // of machines by version of IP, IPv4 first
	pairs    []pairQuestion
	outsides []outsideQuestion
	omitted  int // pairs that are not asked about
}

// side is one of the snapshots.
type side struct {
	snap   *records.Snap
	roster *roster
	class  [2]map[string]int // of machines, by version of IP
}

// side brings the world to a snapshot, and finds the classes of its machines.
func (w *World) side(snap *records.Snap) *side {
	w.apply(snap)
	now := w.rosterOf(snap)
	s := &side{snap: snap, roster: now.clone()}
	for v := range s.class {
		s.class[v] = map[string]int{}
		for i, ends := range now.classes(v == 0) {
			for _, e := range ends {
				s.class[v][e.PortID] = i + 1
			}
		}
	}
	return s
}

// machine returns the machine at a port as an end; nil if there is none.
func (s *side) machine(id string) *reach.End {
	if s.roster.machines[id] == nil {
		return nil
	}
	return s.roster.end(id)
}

// group is machines that are alike before and after, and of which all are affected or none.
type group struct {
	ids       []string // in order
	affected  bool
	component int // of networks whose connections by routers are affected; 0: none
	network   string
}

// pairQuestion is a question about a machine of one group and another of a second.
type pairQuestion struct {
	version  int // 0: IPv4
	from, to *group
	answers  [2]reach.Answer
}

// ends returns the ids of the two that stand for all.
func (q *pairQuestion) ends() (from, to string) {
	if q.from == q.to {
		return q.from.ids[0], q.from.ids[1]
	}
	return q.from.ids[0], q.to.ids[0]
}

// size is the number of pairs of machines that the question is about.
func (q *pairQuestion) size() int {
	if q.from == q.to {
		return len(q.from.ids) * (len(q.from.ids) - 1)
	}
	return len(q.from.ids) * len(q.to.ids)
}

// outsideQuestion is a question about machines that are alike and outside.
type outsideQuestion struct {
	ids     []string
	inbound bool
	answers [2]map[netip.Addr][]reach.OutsideAnswer // by the machine's address
}

// plan chooses the questions.
func (c *comparison) plan() {
	for v := range c.groups {
		c.groups[v] = c.groupsOf(v)
		direct, routed := c.pairsOf(v, c.groups[v])
		c.pairs = append(append(c.pairs, direct...), routed...)
	}
	slices.SortStableFunc(c.pairs, func(a, b pairQuestion) int { return priority(&a) - priority(&b) })
	if over := len(c.pairs) - mostCompared; over > 0 {
		c.pairs, c.omitted = c.pairs[:mostCompared], over
	}
	c.planOutside()
}

// priority orders questions by what is most likely to have changed.
func priority(q *pairQuestion) int {
	if q.from.affected || q.to.affected {
		return 0
	}
	return 1
}

// groupsOf returns the machines with a version of IP, by what tells them apart, in the order of the
// first of each.
func (c *comparison) groupsOf(v int) []*group {
	type key struct {
		before, after int
		affected      bool
		component     int
	}
	all := map[key]*group{}
	var ordered []*group
	for _, id := range c.machineIDs() {
		k := key{c.sides[0].class[v][id], c.sides[1].class[v][id], c.direct[id], c.component[id]}
		if k.before == 0 && k.after == 0 {
			continue
		}
		g := all[k]
		if g == nil {
			g = &group{affected: k.affected, component: k.component}
			for _, s := range c.sides {
				if e := s.machine(id); e != nil {
					g.network = e.NetworkID
				}
			}
			all[k] = g
			ordered = append(ordered, g)
		}
		g.ids = append(g.ids, id)
	}
	return ordered
}

// machineIDs returns the ids of the machines before and after, in order.
func (c *comparison) machineIDs() []string {
	ids := make([]string, 0, len(c.sides[1].roster.machines))
	for id := range c.sides[1].roster.machines {
		ids = append(ids, id)
	}
	for id := range c.sides[0].roster.machines {
		if c.sides[1].roster.machines[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// pairsOf returns the questions about pairs of which one is affected, and about those whose way by
// routers is.
func (c *comparison) pairsOf(v int, groups []*group) (direct, routed []pairQuestion) {
	for _, from := range groups {
		for _, to := range groups {
			if from == to && len(from.ids) < 2 {
				continue
			}
			q := pairQuestion{version: v, from: from, to: to}
			switch {
			case from.affected || to.affected:
				direct = append(direct, q)
			case from.component != 0 && from.component == to.component && from.network != to.network:
				routed = append(routed, q)
			}
		}
	}
	return direct, routed
}

// planOutside chooses the questions about outside: one for machines that are alike, but one for
// each that has addresses outside of its own.
func (c *comparison) planOutside() {
	type key struct {
		groups   [2]*group
		floating string // id of a machine that has addresses outside
	}
	of := map[string]*key{}
	for v := range c.groups {
		for _, g := range c.groups[v] {
			for _, id := range g.ids {
				if of[id] == nil {
					of[id] = &key{}
				}
				of[id].groups[v] = g
			}
		}
	}
	at := map[key]int{}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		k := of[id]
		if !slices.ContainsFunc(k.groups[:], func(g *group) bool { return g != nil && (g.affected || g.component != 0) }) {
			continue
		}
		if c.hasFloating(id) {
			k.floating = id
		}
		i, known := at[*k]
		if !known {
			i = len(c.outsides)
			at[*k] = i
			c.outsides = append(c.outsides, outsideQuestion{inbound: true}, outsideQuestion{})
		}
		c.outsides[i].ids = append(c.outsides[i].ids, id)
		c.outsides[i+1].ids = c.outsides[i].ids
	}
}

// hasFloating reports whether a port has an address outside before or after.
func (c *comparison) hasFloating(id string) bool {
	for _, s := range c.sides {
		if schema.FloatingIPs.CountBy(s.snap, "port", id) > 0 || schema.PortForwardings.CountBy(s.snap, "internal_port", id) > 0 {
			return true
		}
	}
	return false
}

// ask asks all questions of a side, by all processors. The world is as that side is.
func (c *comparison) ask(i int) {
	s := c.sides[i]
	next := make(chan func(*reach.Asker))
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			asker := reach.NewAsker(c.world.world, s.roster.end)
			for question := range next {
				question(asker)
			}
		})
	}
	for k := range c.outsides {
		q := &c.outsides[k]
		next <- func(a *reach.Asker) { q.answers[i] = c.askOutside(s, q, a) }
	}
	for batch := range slices.Chunk(c.pairs, 16) {
		next <- func(a *reach.Asker) {
			for k := range batch {
				batch[k].answers[i] = askPair(s, &batch[k], a)
			}
		}
	}
	close(next)
	all.Wait()
}

// askPair asks about two machines; nothing reaches, and nothing is reached by, one that is not
// there.
func askPair(s *side, q *pairQuestion, a *reach.Asker) reach.Answer {
	one, other := q.ends()
	from, to := s.machine(one), s.machine(other)
	if from == nil || to == nil {
		return reach.Answer{}
	}
	source, target := from.Address(q.version == 0), to.Address(q.version == 0)
	if !source.IsValid() || !target.IsValid() {
		return reach.Answer{}
	}
	return a.Ask(&reach.Question{From: from, Source: source, Target: target, To: to})
}

// askOutside asks about a machine and outside.
func (c *comparison) askOutside(s *side, q *outsideQuestion, a *reach.Asker) map[netip.Addr][]reach.OutsideAnswer {
	answers := map[netip.Addr][]reach.OutsideAnswer{}
	p := s.roster.machines[q.ids[0]]
	if p == nil {
		return answers
	}
	x := &survey{world: c.world, snap: s.snap, roster: s.roster, asker: a, heard: func(o *reach.OutsideAnswer, own netip.Addr) {
		answers[own] = append(answers[own], *o)
	}}
	if q.inbound {
		x.to = &end{port: p}
		x.fromOutside()
	} else {
		x.from = &end{port: p}
		x.toOutside(s.roster.end(p.ID))
	}
	return answers
}
