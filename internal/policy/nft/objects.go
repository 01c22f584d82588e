package nft

import (
	"heddle/internal/policy/calc"
)

type objects struct {
	chains    map[ref]*wantedChain
	sets      map[ref]*namedSet // those that are not of addresses
	addresses map[calc.SetID]*addressState
	counters  map[ref]bool // those of rules
	dirty     objectMarks
}

// wantedChain is a chain as it should be.
type wantedChain struct {
	hook  *hook
	rules func() []rule
}

// objectMarks mark changes since the last commit.
type objectMarks struct {
	chains, sets, counters map[ref]bool
	addresses              map[calc.SetID]bool
}

func newObjects() objects {
	return objects{chains: map[ref]*wantedChain{}, sets: map[ref]*namedSet{}, addresses: map[calc.SetID]*addressState{}, counters: map[ref]bool{}, dirty: newObjectMarks()}
}

func newObjectMarks() objectMarks {
	return objectMarks{chains: map[ref]bool{}, sets: map[ref]bool{}, counters: map[ref]bool{}, addresses: map[calc.SetID]bool{}}
}

func (o *objects) want(r ref, c *wantedChain) {
	o.chains[r] = c
	o.dirty.chains[r] = true
}

func (o *objects) unwant(r ref) {
	delete(o.chains, r)
	o.dirty.chains[r] = true
}

// wantCounters puts some counters in the place of others.
func (o *objects) wantCounters(old, now []ref) {
	for _, r := range old {
		delete(o.counters, r)
		o.dirty.counters[r] = true
	}
	for _, r := range now {
		o.counters[r] = true
		o.dirty.counters[r] = true
	}
}

// fill replaces the elements of a set, if it is wanted.
func (o *objects) fill(r ref, all []element) {
	if s := o.sets[r]; s != nil {
		s.replace(all)
		o.dirty.sets[r] = true
	}
}

// useSet counts the users of an address set. One that is not known yet is empty.
func (o *objects) useSet(v view, by int) {
	s := o.addresses[v.id]
	if s == nil {
		s = &addressState{gone: true}
		o.addresses[v.id] = s
	}
	s.users[v.index()] += by
	o.dirty.addresses[v.id] = true
}

func (o *objects) updateSet(id calc.SetID, c *calc.SetChange) {
	s := o.addresses[id]
	if c == nil || c.Gone {
		if s != nil {
			s.clear()
			s.gone = true
			o.dirty.addresses[id] = true
		}
		return
	}
	if s == nil {
		s = &addressState{}
		o.addresses[id] = s
	}
	s.gone = false
	if c.New {
		s.clear()
	}
	for _, a := range c.Removed {
		s.touch(a)
		s.members.remove(a)
	}
	for _, a := range c.Added {
		s.touch(a)
	}
	s.members.add(c.Added)
	o.dirty.addresses[id] = true
}

func (o *objects) allSets() map[ref]wantedSet {
	all := map[ref]wantedSet{}
	for r, s := range o.sets {
		all[r] = s
	}
	for id := range o.addresses {
		o.views(id, func(r ref, w wantedSet) {
			if w != nil {
				all[r] = w
			}
		})
	}
	return all
}

// views calls f for the sets of both versions of an address set; w is nil where no rule names it.
func (o *objects) views(id calc.SetID, f func(r ref, w wantedSet)) {
	for _, v := range []view{{id, 4}, {id, 6}} {
		s := o.addresses[id]
		if s != nil && s.users[v.index()] > 0 {
			w := newAddressView(id, s, v.version)
			f(w.set.ref, w)
		} else {
			f(ref{inet, setName(id, v.version)}, nil)
		}
	}
}

// dirtySets returns the marked sets; nil: the set should not exist.
func (o *objects) dirtySets() map[ref]wantedSet {
	all := map[ref]wantedSet{}
	for r := range o.dirty.sets {
		all[r] = nil
		if s := o.sets[r]; s != nil {
			all[r] = s
		}
	}
	for id := range o.dirty.addresses {
		o.views(id, func(r ref, w wantedSet) { all[r] = w })
	}
	return all
}
