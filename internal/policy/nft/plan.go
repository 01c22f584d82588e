package nft

import (
	"slices"
	"strings"
)

// plan has the operations that lead from the actual state to the desired one.
type plan struct {
	// prepare makes what nothing in force names yet. If it is large it goes ahead in pieces, during
	// which the old rules stay in force.
	prepare batch
	change  batch
	full    bool // of all, not only of what was marked
	replace bool // our tables are replaced

	chains map[ref]*chainSum // as they are after; nil: gone
	sets   map[ref]*string   // likewise, shapes
	// counters are those of rules that were marked, and whether they are there after.
	counters map[ref]bool
	found    *found
}

// pieceWeight bounds one piece of preparation, in elements; a rule counts as several.
const (
	pieceWeight = 50000
	ruleWeight  = 10
)

// parts returns the batches to commit, in order.
func (p plan) parts() []batch {
	var parts []batch
	weight, from := 0, 0
	for i, o := range p.prepare {
		if p.replace {
			break // the old tables must not go before the new ones are whole
		}
		weight += len(o.elements)
		if o.kind == addRules {
			weight += ruleWeight * p.chains[o.ref].rules
		}
		if weight > pieceWeight {
			parts = append(parts, p.prepare[from:i+1])
			weight, from = 0, i+1
		}
	}
	if last := slices.Concat(p.prepare[from:], p.change); len(last) > 0 {
		parts = append(parts, last)
	}
	return parts
}

// String lists the operations.
func (p plan) String() string {
	var text strings.Builder
	for _, o := range slices.Concat(p.prepare, p.change) {
		text.WriteString(o.String() + "\n")
	}
	return text.String()
}

func (p plan) done(t *Table) {
	if p.full {
		t.have = have{known: true, certain: t.have.certain, generation: t.have.generation,
			chains: map[ref]chainSum{}, sets: map[ref]string{}, counters: map[ref]bool{}}
	}
	for r, c := range p.chains {
		if c == nil {
			delete(t.have.chains, r)
		} else {
			t.have.chains[r] = *c
		}
	}
	for r, s := range p.sets {
		if s == nil {
			delete(t.have.sets, r)
		} else {
			t.have.sets[r] = *s
		}
	}
	for r, there := range p.counters {
		if delete(t.have.counters, r); there {
			t.have.counters[r] = true
		}
	}
	for r := range p.sets {
		if s := t.rules.out.sets[r]; s != nil {
			s.forget()
		}
	}
	for id := range t.rules.out.dirty.addresses {
		s := t.rules.out.addresses[id]
		if s == nil {
			continue
		}
		s.was, s.there = nil, s.users != [2]int{}
		if s.gone && !s.there {
			delete(t.rules.out.addresses, id)
		}
	}
	t.rules.out.dirty = newObjectMarks()
}

// planner collects operations by kind: nothing is named before it exists, or deleted while named.
type planner struct {
	plan
	t          *Table
	haveChains map[ref]chainSum
	haveSets   map[ref]string

	newChains, newRules, addChains, removeElements, flushes, addElements, addRules, deleteChains, deleteSets batch
}

// plan returns the operations for what was marked or, given what was found, for everything.
func (t *Table) plan(f *found) plan {
	p := &planner{t: t, haveChains: t.have.chains, haveSets: t.have.sets,
		plan: plan{chains: map[ref]*chainSum{}, sets: map[ref]*string{}, counters: map[ref]bool{}, found: f, full: f != nil}}
	chains, sets := t.rules.out.dirty.chains, t.rules.out.dirtySets()
	if f == nil {
		p.countRules()
	} else {
		p.begin(f)
		chains, sets = allKeys(t.rules.out.chains, nil), t.rules.out.allSets()
		for r := range p.haveChains {
			chains[r] = true
		}
		for r := range p.haveSets {
			if _, wanted := sets[r]; !wanted {
				sets[r] = nil
			}
		}
	}
	for _, r := range sortedRefs(chains) {
		p.chain(r)
	}
	for _, r := range sortedRefs(sets) {
		p.set(r, sets[r])
	}
	return p.assemble()
}

func (p *planner) assemble() plan {
	p.prepare = slices.Concat(p.prepare, p.newChains, p.newRules)
	p.change = slices.Concat(p.addChains, p.removeElements, p.flushes, p.addElements, p.addRules, p.deleteChains, p.deleteSets)
	return p.plan
}

// begin starts a plan of everything. Tables with an object of another kind are replaced.
func (p *planner) begin(f *found) {
	p.haveChains, p.haveSets = f.chains, map[ref]string{}
	for r, s := range f.sets {
		p.haveSets[r] = s.shape
	}
	there, counters := f.tables, f.counters
	if p.misshapen(f) {
		for _, table := range []family{inet, arp} {
			if there[table] {
				p.prepare = append(p.prepare, operation{kind: deleteTable, ref: ref{table: table}})
			}
		}
		p.replace, there, counters = true, nil, nil
		p.haveChains, p.haveSets, p.found = nil, nil, newFound()
	}
	for _, table := range p.t.rules.features.families() {
		if !there[table] {
			p.prepare = append(p.prepare, operation{kind: addTable, ref: ref{table: table}})
		}
	}
	wanted := map[ref]bool{}
	for r := range p.t.rules.out.counters {
		p.counters[r] = true
	}
	for _, r := range p.t.rules.counters() {
		wanted[r] = true
		if !counters[r] {
			p.prepare = append(p.prepare, operation{kind: addCounter, ref: r})
		}
	}
	for _, r := range sortedRefs(counters) {
		if !wanted[r] {
			p.deleteSets = append(p.deleteSets, operation{kind: deleteCounter, ref: r})
		}
	}
}

// countRules plans the counters of rules that were marked.
func (p *planner) countRules() {
	for _, r := range sortedRefs(p.t.rules.out.dirty.counters) {
		wanted, there := p.t.rules.out.counters[r], p.t.have.counters[r]
		p.counters[r] = wanted
		switch {
		case wanted && !there:
			p.prepare = append(p.prepare, operation{kind: addCounter, ref: r})
		case !wanted && there:
			p.deleteSets = append(p.deleteSets, operation{kind: deleteCounter, ref: r})
		}
	}
}

// misshapen reports whether a desired set or base chain exists as another kind of thing.
func (p *planner) misshapen(f *found) bool {
	for r, w := range p.t.rules.out.allSets() {
		if s, ok := f.sets[r]; ok && s.shape != w.shape().shape() {
			return true
		}
	}
	for r, c := range p.t.rules.out.chains {
		if s, ok := f.chains[r]; ok && s.hook != sumOf(c.hook, nil).hook {
			return true
		}
	}
	return false
}

func (p *planner) chain(r ref) {
	have, there := p.haveChains[r]
	c := p.t.rules.out.chains[r]
	if c == nil {
		if there {
			p.flushes = append(p.flushes, operation{kind: flushChain, ref: r})
			p.deleteChains = append(p.deleteChains, operation{kind: deleteChain, ref: r})
			p.chains[r] = nil
		}
		return
	}
	sum := c.sum()
	p.chains[r] = &sum
	if there && have == sum {
		return
	}
	chains, rules := &p.addChains, &p.addRules
	if !there && c.hook == nil { // nothing calls it yet
		chains, rules = &p.newChains, &p.newRules
	}
	if !there {
		*chains = append(*chains, operation{kind: addChain, ref: r, hook: c.hook})
	} else if have.rules > 0 {
		p.flushes = append(p.flushes, operation{kind: flushChain, ref: r})
	}
	if sum.rules > 0 {
		*rules = append(*rules, operation{kind: addRules, ref: r, rules: c.rules})
	}
}

func (c wantedChain) sum() chainSum {
	rules := c.rules()
	sums := make([]uint64, len(rules))
	for i := range rules {
		sums[i] = rules[i].sum()
	}
	return sumOf(c.hook, sums)
}

// set plans one set; w is nil if it is not wanted.
func (p *planner) set(r ref, w wantedSet) {
	_, there := p.haveSets[r]
	if w == nil {
		if there {
			s := &set{ref: r}
			p.removeElements = append(p.removeElements, operation{kind: flushSet, ref: r, set: s})
			p.deleteSets = append(p.deleteSets, operation{kind: deleteSet, ref: r, set: s})
			p.sets[r] = nil
		}
		return
	}
	s := w.shape()
	shape := s.shape()
	p.sets[r] = &shape
	if !there {
		p.prepare = append(p.prepare, operation{kind: addSet, ref: r, set: s})
		if all := slices.Collect(w.all()); s.verdicts {
			p.elements(addElements, s, all)
		} else {
			p.prepareElements(s, all)
		}
		return
	}
	add, remove := w.changes()
	if p.found != nil {
		add, remove = difference(w, p.found.sets[r].elements)
	}
	p.elements(deleteElements, s, remove)
	p.elements(addElements, s, add)
}

// difference returns the elements to add and to remove.
func difference(w wantedSet, there map[string]element) (add, remove []element) {
	for e := range w.all() {
		if old, ok := there[e.key]; !ok || old != e {
			add = append(add, e)
		}
	}
	for key, old := range there {
		if e, ok := w.has(key); !ok || e != old {
			remove = append(remove, old)
		}
	}
	return add, remove
}

func (p *planner) elements(kind operationKind, s *set, all []element) {
	if len(all) == 0 {
		return
	}
	o := operation{kind: kind, ref: s.ref, set: s, elements: all}
	if kind == deleteElements {
		p.removeElements = append(p.removeElements, o)
	} else {
		p.addElements = append(p.addElements, o)
	}
}

// prepareElements fills a new set, in pieces.
func (p *planner) prepareElements(s *set, all []element) {
	for piece := range slices.Chunk(all, pieceWeight) {
		p.prepare = append(p.prepare, operation{kind: addElements, ref: s.ref, set: s, elements: piece})
	}
}
