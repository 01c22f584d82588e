package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Fake is a [Backend] in memory, for tests. It refuses what the kernel refuses, carries out a batch
// as a whole or not at all, and prints itself as nft lists. The zero Fake is empty.
type Fake struct {
	mu     sync.Mutex
	now    fakeState
	gen    uint32
	refuse func(batch string) error

	withoutARP bool // refuse tables of family arp
}

// fakeState has the contents of our tables. Objects never change, so copying the maps suffices.
type fakeState struct {
	tables   map[family]bool
	chains   map[ref]*chain
	sets     map[ref]*fakeSet
	counters map[ref]bool
}

type fakeSet struct {
	*set
	elements map[string]element
}

// Refuse makes commits fail for which f returns an error, given the batch; nil: refuse none.
func (f *Fake) Refuse(refuse func(batch string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// Wipe removes our tables, as another program might.
func (f *Fake) Wipe() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = fakeState{}
	f.gen++
}

// String prints the contents as nft lists them; empty for nothing.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	sets, chains := map[ref]filledSet{}, map[ref]chain{}
	for r, s := range f.now.sets {
		sets[r] = filledSet{s.set, slices.Collect(maps.Values(s.elements))}
	}
	for r, c := range f.now.chains {
		chains[r] = *c
	}
	tables := slices.Sorted(maps.Keys(f.now.tables))
	return printTables(tables, sets, sortedRefs(f.now.counters), chains)
}

func (f *Fake) commit(ctx context.Context, batches ...batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range batches {
		if err := f.commitOne(ctx, b); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	return nil
}

func (f *Fake) commitOne(ctx context.Context, b batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.refuse != nil {
		if err := f.refuse(b.String()); err != nil {
			return err
		}
	}
	next := f.now.clone()
	for _, o := range b {
		if f.withoutARP && o.ref.table == arp {
			return fmt.Errorf("%s: %w", o, errors.ErrUnsupported)
		}
		if err := next.carryOut(o); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
	}
	f.now = next
	f.gen++
	return nil
}

func (s fakeState) clone() fakeState {
	if s.tables == nil {
		return fakeState{tables: map[family]bool{}, chains: map[ref]*chain{}, sets: map[ref]*fakeSet{}, counters: map[ref]bool{}}
	}
	return fakeState{maps.Clone(s.tables), maps.Clone(s.chains), maps.Clone(s.sets), maps.Clone(s.counters)}
}

func (s fakeState) carryOut(o operation) error {
	if o.kind == addTable {
		s.tables[o.ref.table] = true
		return nil
	}
	if !s.tables[o.ref.table] {
		return errMissing
	}
	switch o.kind {
	case deleteTable:
		s.deleteTable(o.ref.table)
		return nil
	case addCounter:
		s.counters[o.ref] = true
		return nil
	case deleteCounter:
		return remove(s, s.counters, aCounter, o.ref)
	case addSet, deleteSet, addElements, deleteElements, flushSet:
		return s.onSet(o)
	}
	return s.onChain(o)
}

func (s fakeState) deleteTable(table family) {
	delete(s.tables, table)
	maps.DeleteFunc(s.chains, func(r ref, _ *chain) bool { return r.table == table })
	maps.DeleteFunc(s.sets, func(r ref, _ *fakeSet) bool { return r.table == table })
	maps.DeleteFunc(s.counters, func(r ref, _ bool) bool { return r.table == table })
}

// remove deletes an object that exists and that nothing names.
func remove[V any](s fakeState, objects map[ref]V, kind objectKind, r ref) error {
	if _, ok := objects[r]; !ok {
		return errMissing
	}
	if s.isUsed(kind, r) {
		return errBusy
	}
	delete(objects, r)
	return nil
}

func (s fakeState) isUsed(kind objectKind, r ref) (used bool) {
	note := func(k objectKind, name ref) { used = used || k == kind && name == r }
	for _, c := range s.chains {
		for i := range c.rules {
			if c.ref != r || kind != aChain {
				c.rules[i].uses(c.table, note)
			}
		}
	}
	for _, set := range s.sets {
		for _, e := range set.elements {
			if e.verdict.chain != "" {
				note(aChain, ref{set.table, e.verdict.chain})
			}
		}
	}
	return used
}

func (s fakeState) onSet(o operation) error {
	there := s.sets[o.ref]
	if o.kind == addSet {
		if there != nil && there.shape() != o.set.shape() {
			return errExists
		}
		if there == nil {
			s.sets[o.ref] = &fakeSet{o.set, map[string]element{}}
		}
		return nil
	}
	if there == nil {
		return errMissing
	}
	changed := &fakeSet{there.set, maps.Clone(there.elements)}
	switch o.kind {
	case deleteSet:
		return remove(s, s.sets, aSet, o.ref)
	case flushSet:
		clear(changed.elements)
	case addElements:
		for _, e := range o.elements {
			if old, ok := changed.elements[e.key]; ok && old != e {
				return errExists
			}
			if e.verdict.chain != "" && s.chains[ref{o.ref.table, e.verdict.chain}] == nil {
				return errMissing
			}
			changed.elements[e.key] = e
		}
	case deleteElements:
		for _, e := range o.elements {
			if _, ok := changed.elements[e.key]; !ok {
				return errMissing
			}
			delete(changed.elements, e.key)
		}
	}
	s.sets[o.ref] = changed
	return nil
}

func (s fakeState) onChain(o operation) error {
	there := s.chains[o.ref]
	if o.kind == addChain {
		if there == nil {
			s.chains[o.ref] = &chain{ref: o.ref, hook: o.hook}
		}
		return nil
	}
	if there == nil {
		return errMissing
	}
	switch o.kind {
	case deleteChain:
		return remove(s, s.chains, aChain, o.ref)
	case flushChain:
		s.chains[o.ref] = &chain{ref: o.ref, hook: there.hook}
	case addRules:
		rules := o.rules()
		for i := range rules {
			if err := s.allThere(o.ref.table, &rules[i]); err != nil {
				return err
			}
		}
		s.chains[o.ref] = &chain{ref: o.ref, hook: there.hook, rules: slices.Concat(there.rules, rules)}
	}
	return nil
}

func (s fakeState) allThere(table family, r *rule) (err error) {
	r.uses(table, func(kind objectKind, name ref) {
		there := kind == aChain && s.chains[name] != nil || kind == aSet && s.sets[name] != nil || kind == aCounter && s.counters[name]
		if !there && err == nil {
			err = fmt.Errorf("%s %s: %w", kind, name, errMissing)
		}
	})
	return err
}

func (f *Fake) read(ctx context.Context) (*found, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nftables: read back: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	there := newFound()
	there.generation, there.withoutARP = f.gen, f.withoutARP
	maps.Copy(there.tables, f.now.tables)
	maps.Copy(there.counters, f.now.counters)
	for r, c := range f.now.chains {
		sums := make([]uint64, len(c.rules))
		for i := range c.rules {
			sums[i] = c.rules[i].sum()
		}
		there.chains[r] = sumOf(c.hook, sums)
	}
	for r, s := range f.now.sets {
		there.sets[r] = foundSet{s.shape(), maps.Clone(s.elements)}
	}
	return there, nil
}

func (f *Fake) generation(context.Context) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gen, nil
}

func (f *Fake) counters(context.Context) (map[string]Counter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]Counter{}
	for r := range f.now.counters {
		all[r.name] = Counter{}
	}
	return all, nil
}
