package nft

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"heddle/internal/policy/calc"
)

// plan is what leads from what is there to what is wanted.
type plan struct {
	// prepare makes what nothing in force names yet. Where it is large it goes ahead in pieces: whatever happens between
	// them, the rules in force are the old ones.
	prepare batch
	change  batch
	full    bool // of all, not only of what was marked
	anew    bool // our tables are made anew

	chains map[ref]*chainSum // as they are after; nil: gone
	sets   map[ref]*string   // likewise, shapes
	found  *found
}

// pieceWeight is how much goes into one piece of preparation: in elements, for as many of which a rule counts.
const (
	pieceWeight = 50000
	ruleWeight  = 10
)

// parts are the batches to commit, in order; none when there is nothing to do.
func (p plan) parts() []batch {
	var parts []batch
	weight, from := 0, 0
	for i, o := range p.prepare {
		if p.anew {
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

// String lists the operations, each with how much it moves.
func (p plan) String() string {
	var text strings.Builder
	for _, o := range slices.Concat(p.prepare, p.change) {
		text.WriteString(o.String() + "\n")
	}
	return text.String()
}

// done remembers that the plan is carried out.
func (p plan) done(t *Table) {
	if p.full {
		t.have = have{known: true, certain: t.have.certain, generation: t.have.generation,
			chains: map[ref]chainSum{}, sets: map[ref]string{}}
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
	for r := range p.sets {
		if s := t.sets[r]; s != nil {
			s.forget()
		}
	}
	for id := range t.dirty.addresses {
		s := t.addresses[id]
		if s == nil {
			continue
		}
		s.was, s.there = nil, s.users != [2]int{}
		if s.gone && !s.there {
			delete(t.addresses, id)
		}
	}
	t.dirty = newDirty(false)
}

// planner collects a plan, each kind of operation apart: they are put in the order in which nothing is named before it
// is there, and nothing is taken away while it is named.
type planner struct {
	plan
	t          *Table
	haveChains map[ref]chainSum
	haveSets   map[ref]string

	newChains, newRules, addChains, removeElements, flushes, addElements, addRules, deleteChains, deleteSets batch
}

// plan works out what to do: about what was marked, or, given what was found, about everything.
func (t *Table) plan(f *found) plan {
	p := &planner{t: t, haveChains: t.have.chains, haveSets: t.have.sets,
		plan: plan{chains: map[ref]*chainSum{}, sets: map[ref]*string{}, found: f, full: f != nil}}
	if f == nil {
		for _, r := range slices.SortedFunc(maps.Keys(t.dirty.chains), compareRefs) {
			p.chain(r)
		}
		for r, w := range t.dirtySets() {
			p.set(r, w)
		}
		return p.assemble()
	}
	p.begin(f)
	for _, r := range slices.SortedFunc(maps.Keys(allKeys(t.chains, nil)), compareRefs) {
		p.chain(r)
	}
	for _, r := range slices.SortedFunc(maps.Keys(p.haveChains), compareRefs) {
		if t.chains[r] == nil {
			p.chain(r)
		}
	}
	wanted := t.wantedSets()
	for _, r := range slices.SortedFunc(maps.Keys(wanted), compareRefs) {
		p.set(r, wanted[r])
	}
	for _, r := range slices.SortedFunc(maps.Keys(p.haveSets), compareRefs) {
		if wanted[r] == nil {
			p.set(r, nil)
		}
	}
	return p.assemble()
}

func (p *planner) assemble() plan {
	p.prepare = slices.Concat(p.prepare, p.newChains, p.newRules)
	p.change = slices.Concat(p.addChains, p.removeElements, p.flushes, p.addElements, p.addRules, p.deleteChains, p.deleteSets)
	return p.plan
}

// begin begins a plan of everything: with our tables as they are, or with new ones where an object is of a kind that
// cannot be changed.
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
		p.anew, there, counters = true, nil, nil
		p.haveChains, p.haveSets, p.found = nil, nil, newFound()
	}
	for _, table := range p.t.features.families() {
		if !there[table] {
			p.prepare = append(p.prepare, operation{kind: addTable, ref: ref{table: table}})
		}
	}
	wanted := map[ref]bool{}
	for _, r := range p.t.features.counters() {
		wanted[r] = true
		if !counters[r] {
			p.prepare = append(p.prepare, operation{kind: addCounter, ref: r})
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(counters), compareRefs) {
		if !wanted[r] {
			p.deleteSets = append(p.deleteSets, operation{kind: deleteCounter, ref: r})
		}
	}
}

// misshapen says whether a set or a base chain that is wanted is there as another kind of thing.
func (p *planner) misshapen(f *found) bool {
	for r, w := range p.t.wantedSets() {
		if s, ok := f.sets[r]; ok && s.shape != w.shape().shape() {
			return true
		}
	}
	for r, c := range p.t.chains {
		if s, ok := f.chains[r]; ok && s.hook != sumOf(c.hook, nil).hook {
			return true
		}
	}
	return false
}

// chain plans for one chain.
func (p *planner) chain(r ref) {
	have, there := p.haveChains[r]
	c := p.t.chains[r]
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

// set plans for one set; w is nil for one that is not wanted.
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

// difference is what leads from the elements that are there to those that shall be.
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

// wantedSets are all sets that shall be there.
func (t *Table) wantedSets() map[ref]wantedSet {
	all := map[ref]wantedSet{}
	for r, s := range t.sets {
		all[r] = s
	}
	for id := range t.addresses {
		t.views(id, func(r ref, w wantedSet) {
			if w != nil {
				all[r] = w
			}
		})
	}
	return all
}

// views calls f for the sets of both versions of an address set; w is nil where no rule names it.
func (t *Table) views(id calc.SetID, f func(r ref, w wantedSet)) {
	for _, v := range []view{{id, 4}, {id, 6}} {
		s := t.addresses[id]
		if s != nil && s.users[v.index()] > 0 {
			w := newAddressView(id, s, v.version)
			f(w.set.ref, w)
		} else {
			f(ref{inet, setName(id, v.version)}, nil)
		}
	}
}

// dirtySets are the sets that were marked; nil for those that shall not be there.
func (t *Table) dirtySets() iter.Seq2[ref, wantedSet] {
	return func(yield func(ref, wantedSet) bool) {
		all := map[ref]wantedSet{}
		for r := range t.dirty.sets {
			if s := t.sets[r]; s != nil {
				all[r] = s
			} else {
				all[r] = nil
			}
		}
		for id := range t.dirty.addresses {
			t.views(id, func(r ref, w wantedSet) { all[r] = w })
		}
		for _, r := range slices.SortedFunc(maps.Keys(all), compareRefs) {
			if !yield(r, all[r]) {
				return
			}
		}
	}
}
