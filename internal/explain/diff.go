package explain

import (
	"context"
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
// Only ends are compared that the difference may affect (explain §7). An error is a [Fault].
func (w *World) Diff(ctx context.Context, before, after *records.Snap, asker netip.Addr) (*operator.DiffAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.diff(ctx, before, after, asker, (*comparison).choose)
	if ctx.Err() != nil {
		return nil, fault("change", Late, "the comparison takes too long: ask for a part of the change, or again when the server has less to do")
	}
	return a, nil
}

// diff is Diff with what choose chooses to compare, and with the second side that it finds.
func (w *World) diff(ctx context.Context, before, after *records.Snap, asker netip.Addr, choose func(c *comparison, after *records.Snap)) *operator.DiffAnswer {
	c := &comparison{world: w}
	c.sides[0] = w.side(before)
	w.affected = map[string]bool{}
	w.apply(after)
	c.noted, w.affected = w.affected, nil
	choose(c, after)
	c.plan()
	for _, i := range []int{1, 0} {
		w.apply(c.sides[i].snap)
		c.ask(ctx, i)
	}
	w.apply(after)
	a := c.answer(asker)
	w.apply(before) // the next change is one of what there is then, too
	return a
}

// choose chooses what the difference may affect.
func (c *comparison) choose(after *records.Snap) {
	before := c.sides[0]
	if rules, only := rulesBetween(before.snap, after); only {
		c.rules = &rules
		c.sides[1] = &side{snap: after, roster: before.roster, class: rules.refine(after, before.roster, before.class)}
	} else {
		c.sides[1] = c.world.side(after)
	}
	c.affectedEnds = c.affected()
}

// comparison compares who reaches whom in two snapshots.
type comparison struct {
	world *World
	sides [2]*side        // before and after
	noted map[string]bool // ids that the difference affects, as the world says
	rules *changedRules   // all that differs; nil: more may
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
		if !from.affected {
			continue
		}
		for _, to := range groups {
			q := pairQuestion{version: v, from: from, to: to}
			if c.directed(egress) || to.affected {
				direct = q.appendTo(direct)
			}
			if q = (pairQuestion{version: v, from: to, to: from}); !to.affected && c.directed(ingress) {
				direct = q.appendTo(direct)
			}
		}
	}
	if len(c.component) == 0 {
		return direct, nil
	}
	divided := map[string]bool{} // networks
	for _, g := range groups {
		if _, known := divided[g.network]; !known {
			divided[g.network] = c.isDivided(g.network)
		}
	}
	for _, from := range groups {
		for _, to := range groups {
			byRouters := from.network != to.network || divided[from.network]
			if from.component != 0 && from.component == to.component && byRouters && !from.affected && !to.affected {
				routed = pairQuestion{version: v, from: from, to: to}.appendTo(routed)
			}
		}
	}
	return direct, routed
}

// isDivided reports whether machines of a network may reach each other by routers, from one of its
// subnets to another or by routes of their own.
func (c *comparison) isDivided(network string) bool {
	for _, s := range c.sides {
		subnets := map[int]int{} // by version of IP
		for x := range schema.Subnets.By(s.snap, "network", network) {
			if subnets[x.IPVersion]++; subnets[x.IPVersion] > 1 || len(x.HostRoutes) > 0 {
				return true
			}
		}
	}
	return false
}

// appendTo appends the question unless it is about no pair.
func (q pairQuestion) appendTo(all []pairQuestion) []pairQuestion {
	if q.from == q.to && len(q.from.ids) < 2 {
		return all
	}
	return append(all, q)
}

// directed reports whether connections may fare otherwise by what differs in a direction at the
// machines that are affected.
func (c *comparison) directed(direction string) bool {
	return c.rules == nil || c.rules.directed(direction)
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
	var alike [][]string
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
			i = len(alike)
			at[*k] = i
			alike = append(alike, nil)
		}
		alike[i] = append(alike[i], id)
	}
	for _, ids := range alike {
		if c.directed(ingress) {
			c.outsides = append(c.outsides, outsideQuestion{ids: ids, inbound: true})
		}
		if c.directed(egress) {
			c.outsides = append(c.outsides, outsideQuestion{ids: ids})
		}
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
func (c *comparison) ask(ctx context.Context, i int) {
	s := c.sides[i]
	next := make(chan func(*reach.Asker))
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			asker := reach.NewAsker(ctx, c.world.world, s.roster.end)
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
				batch[k].answers[i] = c.askPair(s, &batch[k], a)
			}
		}
	}
	close(next)
	all.Wait()
}

// askPair asks about two machines; nothing reaches, and nothing is reached by, one that is not
// there.
func (c *comparison) askPair(s *side, q *pairQuestion, a *reach.Asker) (all reach.Answer) {
	one, other := q.ends()
	from, to := s.machine(one), s.machine(other)
	if from == nil || to == nil {
		return reach.Answer{}
	}
	source, target := from.Address(q.version == 0), to.Address(q.version == 0)
	if !source.IsValid() || !target.IsValid() {
		return reach.Answer{}
	}
	services := []reach.Service{{}} // all
	if c.rules != nil {
		services = c.rules.servicesOf(q.version, false)
	}
	for _, about := range services {
		one := a.Ask(&reach.Question{From: from, Source: source, Target: target, To: to, Protocol: about.Protocol, Port: about.Port})
		all = reach.Answer{Always: all.Always.And(&one.Always), May: all.May.And(&one.May), OneWay: all.OneWay.And(&one.OneWay)}
	}
	return all
}

// askOutside asks about a machine and outside.
func (c *comparison) askOutside(s *side, q *outsideQuestion, a *reach.Asker) map[netip.Addr][]reach.OutsideAnswer {
	answers := map[netip.Addr][]reach.OutsideAnswer{}
	p := s.roster.machines[q.ids[0]]
	if p == nil {
		return answers
	}
	ask := func(about service, want func(own netip.Addr) bool) {
		x := &survey{world: c.world, snap: s.snap, roster: s.roster, asker: a, service: about}
		x.heard = func(o *reach.OutsideAnswer, own netip.Addr) {
			if want(own) {
				answers[own] = append(answers[own], *o)
			}
		}
		if q.inbound {
			x.to = &end{port: p}
			x.fromOutside()
		} else {
			x.from = &end{port: p}
			x.toOutside(s.roster.end(p.ID))
		}
	}
	if c.rules == nil {
		ask(service{}, func(netip.Addr) bool { return true })
		return answers
	}
	translated := schema.PortForwardings.CountBy(s.snap, "internal_port", p.ID) > 0
	for v := range c.groups {
		for _, about := range c.rules.servicesOf(v, translated) {
			ask(service{proto: about.Protocol, port: about.Port}, func(own netip.Addr) bool { return own.Is4() == (v == 0) })
		}
	}
	return answers
}
