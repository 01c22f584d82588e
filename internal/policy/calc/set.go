package calc

import (
	"fmt"
	"net/netip"
	"slices"
)

// set is an address set that rules of this host name. Its members are not listed anywhere: they are the addresses of its
// classes' members, and an address that several of those hold counts once.
type set struct {
	id     SetID
	text   string // of the selector or tag
	query  query
	users  []*list          // lists that name it
	size   [2]int           // members, by family
	told   bool             // it is there, as far as Changes have said
	fresh  []address        // all members, in the update that brings it
	since  map[address]bool // what became of members since the last Changes: true added, false removed
	queued bool             // in Calc.queuedSets
}

// setOfTag finds or makes the set of a tag. It is filled when it comes into use.
func (c *Calc) setOfTag(tag string) *set {
	return c.set(SetID("t:"+tag), "tag "+tag, func(s *set) { s.query.tag = tagPrefix + tag })
}

// setOfSelector finds or makes the set of a selector.
func (c *Calc) setOfSelector(text string) (*set, error) {
	if id, known := c.setIDs[text]; known {
		return c.sets[id], nil
	}
	sel, err := c.parse(text)
	if err != nil {
		return nil, err
	}
	s := c.set(SetID(sel.UID()), sel.String(), func(s *set) { s.query.selector = sel })
	c.setIDs[s.text] = s.id
	return s, nil
}

func (c *Calc) set(id SetID, text string, prepare func(*set)) *set {
	s := c.sets[id]
	if s == nil {
		s = &set{id: id, text: text}
		s.query = query{kind: ofSets, set: s}
		prepare(s)
		c.sets[id] = s
		c.fillSet(s)
		c.queueSet(s)
	}
	return s
}

// fillSet finds the classes of a new set, and its members.
func (c *Calc) fillSet(s *set) {
	x := &c.index
	x.file(&s.query)
	c.found = x.classesOf(&s.query, c.found[:0])
	n := 0
	for _, k := range c.found {
		k.sets = append(k.sets, s) // the newest, so they stay sorted
		n += len(k.members)
	}
	s.fresh = c.membersOf(s, c.found, n)
	for _, a := range s.fresh {
		s.size[a.family()]++
	}
}

// membersOf lists the addresses of a set, whose classes are given with an estimate of how many members they have.
func (c *Calc) membersOf(s *set, classes []*class, n int) []address {
	members, room := make([]address, 0, n), [1]address{}
	for _, k := range classes {
		for _, id := range k.members {
			for _, a := range c.endpoints.all[id].addresses(room[:0]) {
				if c.endpoints.holders.only(a) == id || c.firstIn(s, a) == id {
					members = append(members, a)
				}
			}
		}
	}
	return members
}

// firstIn is the first of several holders of an address that a set holds.
func (c *Calc) firstIn(s *set, a address) endpointID {
	for _, id := range c.endpoints.holders.several(a) {
		if c.endpoints.all[id].class.has(s) {
			return id
		}
	}
	return 0
}

// forgetSet undoes fillSet.
func (c *Calc) forgetSet(s *set) {
	x := &c.index
	c.found = x.classesOf(&s.query, c.found[:0])
	for _, k := range c.found {
		i, _ := k.findSet(s)
		k.sets = slices.Delete(k.sets, i, i+1)
	}
	x.unfile(&s.query)
	delete(c.sets, s.id)
	delete(c.setIDs, s.text)
}

// resetSets finds a class's sets anew, and moves its members' addresses.
func (c *Calc) resetSets(k *class) {
	before := k.sets
	c.foundQueries = c.index.queriesOf(ofSets, k, c.foundQueries[:0])
	var sets []*set
	if len(c.foundQueries) > 0 {
		sets = make([]*set, len(c.foundQueries))
	}
	for i, q := range c.foundQueries {
		sets[i] = q.set
	}
	slices.SortFunc(sets, bySetID)
	lost, gained := without(before, sets), without(sets, before)
	if len(lost) > 0 || len(gained) > 0 {
		c.moveMembers(k, lost, gained)
	}
	k.sets = sets
}

// moveMembers takes the addresses of a class's members out of sets and into others.
func (c *Calc) moveMembers(k *class, lost, gained []*set) {
	var room [1]address
	for _, id := range k.members {
		for _, a := range c.endpoints.all[id].addresses(room[:0]) {
			holders := c.endpoints.holders.several(a)
			if c.endpoints.holders.only(a) != id && c.firstOf(k, holders) != id {
				continue // another member's turn
			}
			for _, s := range lost {
				if !c.heldOutside(k, s, holders) {
					c.change(s, a, false)
				}
			}
			for _, s := range gained {
				if !c.heldOutside(k, s, holders) {
					c.change(s, a, true)
				}
			}
		}
	}
}

// firstOf is the first of several endpoints that is a member of a class.
func (c *Calc) firstOf(k *class, some []endpointID) endpointID {
	for _, id := range some {
		if c.endpoints.all[id].class == k {
			return id
		}
	}
	return 0
}

// heldOutside says whether a set holds any of some endpoints of other classes.
func (c *Calc) heldOutside(k *class, s *set, some []endpointID) bool {
	for _, id := range some {
		if other := c.endpoints.all[id].class; other != k && other.has(s) {
			return true
		}
	}
	return false
}

// without returns what is in a and not in b, both sorted.
func without(a, b []*set) []*set {
	var only []*set
	for _, s := range a {
		for len(b) > 0 && bySetID(b[0], s) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != s {
			only = append(only, s)
		}
	}
	return only
}

// change notes a new member, or one that is gone. Where Changes have not told of the members yet, they are counted only.
func (c *Calc) change(s *set, a address, added bool) {
	c.queueSet(s)
	if added {
		s.size[a.family()]++
	} else {
		s.size[a.family()]--
	}
	if !s.told {
		s.fresh = nil
		return
	}
	if was, changed := s.since[a]; changed && was != added {
		delete(s.since, a)
		return
	}
	if s.since == nil {
		s.since = map[address]bool{}
	}
	s.since[a] = added
}

// queueSet has a set looked at: whether it is used, and what became of it.
func (c *Calc) queueSet(s *set) {
	if !s.queued {
		s.queued = true
		c.queuedSets = append(c.queuedSets, s)
	}
}

// tooLarge says why no kernel set can hold s; empty: one can.
func (c *Calc) tooLarge(s *set) string {
	if n := max(s.size[0], s.size[1]); n > c.maxSetSize {
		return fmt.Sprintf("%s picks %d addresses of one family; a set may hold %d (MaxIpsetSize)", s.text, n, c.maxSetSize)
	}
	return ""
}

// tell says what became of a set since the last time, nil for nothing.
func (c *Calc) tell(s *set) *SetChange {
	fits := len(s.users) > 0 && c.tooLarge(s) == ""
	if !fits {
		s.fresh = nil
	}
	switch {
	case s.told && !fits:
		s.told, s.since = false, nil
		return &SetChange{Gone: true}
	case !s.told && fits:
		s.told = true
		if s.fresh == nil {
			s.fresh = c.membersOf(s, c.index.classesOf(&s.query, nil), s.size[0]+s.size[1])
		}
		change := &SetChange{New: true, Added: make([]netip.Addr, len(s.fresh))}
		for i, a := range s.fresh {
			change.Added[i] = a.addr()
		}
		s.fresh = nil
		return change
	case len(s.since) == 0:
		return nil
	}
	change := &SetChange{}
	for a, added := range s.since {
		if added {
			change.Added = append(change.Added, a.addr())
		} else {
			change.Removed = append(change.Removed, a.addr())
		}
	}
	s.since = nil
	return change
}
