package calc

import (
	"fmt"
	"net/netip"
	"slices"
)

// set is an address set that rules of this host name: the addresses of its classes' members.
type set struct {
	id       SetID
	text     string // of the selector or tag
	query    query
	users    []*list          // lists that name it
	size     [2]int           // members, by family
	reported bool             // it is there, as far as Changes have said
	fresh    []address        // all members, in the update that brings it
	since    map[address]bool // what became of members since the last Changes: true added, false removed
	queueable
}

// addressSets are the sets that rules of this host name, or have just named.
type addressSets struct {
	index        *index
	endpoints    *endpoints
	maxSize      int // addresses of one family that a set may hold
	all          map[SetID]*set
	ids          map[string]SetID // by canonical text of a selector
	queue        queue[*set]
	found        []*class // room that is used again and again
	foundQueries []*query // likewise
}

// ofTag finds or makes the set of a tag. It is filled when it comes into use.
func (ss *addressSets) ofTag(tag string) *set {
	return ss.get(SetID("t:"+tag), "tag "+tag, func(s *set) { s.query.tag = tagPrefix + tag })
}

func (ss *addressSets) ofSelector(text string) (*set, error) {
	if id, known := ss.ids[text]; known {
		return ss.all[id], nil
	}
	sel, err := parse(text)
	if err != nil {
		return nil, err
	}
	s := ss.get(SetID(sel.UID()), sel.String(), func(s *set) { s.query.selector = sel })
	ss.ids[s.text] = s.id
	return s, nil
}

func (ss *addressSets) get(id SetID, text string, prepare func(*set)) *set {
	s := ss.all[id]
	if s == nil {
		s = &set{id: id, text: text}
		s.query = query{kind: ofSets, set: s}
		prepare(s)
		ss.all[id] = s
		ss.fill(s)
		ss.queue.add(s)
	}
	return s
}

// fill finds the classes of a new set, and its members.
func (ss *addressSets) fill(s *set) {
	x := ss.index
	x.file(&s.query)
	ss.found = x.classesOf(&s.query, ss.found[:0])
	n := 0
	for _, k := range ss.found {
		k.sets = append(k.sets, s) // the newest, so they stay sorted
		n += len(k.members)
	}
	s.fresh = ss.membersOf(s, ss.found, n)
	for _, a := range s.fresh {
		s.size[a.family()]++
	}
}

// membersOf lists the addresses of a set, given its classes and an estimate of their members.
func (ss *addressSets) membersOf(s *set, classes []*class, n int) []address {
	members, room := make([]address, 0, n), [1]address{}
	for _, k := range classes {
		for _, id := range k.members {
			for _, a := range ss.endpoints.all[id].addresses(room[:0]) {
				if ss.endpoints.holders.only(a) == id || ss.firstIn(s, a) == id {
					members = append(members, a)
				}
			}
		}
	}
	return members
}

// firstIn returns the first of several holders of an address that a set holds.
func (ss *addressSets) firstIn(s *set, a address) endpointID {
	for _, id := range ss.endpoints.holders.several(a) {
		if ss.endpoints.all[id].class.has(s) {
			return id
		}
	}
	return 0
}

func (ss *addressSets) forget(s *set) {
	x := ss.index
	ss.found = x.classesOf(&s.query, ss.found[:0])
	for _, k := range ss.found {
		i, _ := k.findSet(s)
		k.sets = slices.Delete(k.sets, i, i+1)
	}
	x.unfile(&s.query)
	delete(ss.all, s.id)
	delete(ss.ids, s.text)
}

// reset finds a class's sets again, and moves its members' addresses.
func (ss *addressSets) reset(k *class) {
	before := k.sets
	ss.foundQueries = ss.index.queriesOf(ofSets, k, ss.foundQueries[:0])
	var sets []*set
	if len(ss.foundQueries) > 0 {
		sets = make([]*set, len(ss.foundQueries))
	}
	for i, q := range ss.foundQueries {
		sets[i] = q.set
	}
	slices.SortFunc(sets, bySetID)
	lost, gained := without(before, sets), without(sets, before)
	if len(lost) > 0 || len(gained) > 0 {
		ss.moveMembers(k, lost, gained)
	}
	k.sets = sets
}

// moveMembers removes the addresses of a class's members from sets and adds them to others.
func (ss *addressSets) moveMembers(k *class, lost, gained []*set) {
	var room [1]address
	for _, id := range k.members {
		for _, a := range ss.endpoints.all[id].addresses(room[:0]) {
			holders := ss.endpoints.holders.several(a)
			if ss.endpoints.holders.only(a) != id && ss.firstOf(k, holders) != id {
				continue // another member's turn
			}
			for _, s := range lost {
				if !ss.heldOutside(k, s, holders) {
					ss.change(s, a, false)
				}
			}
			for _, s := range gained {
				if !ss.heldOutside(k, s, holders) {
					ss.change(s, a, true)
				}
			}
		}
	}
}

// firstOf returns the first of several endpoints that is a member of a class.
func (ss *addressSets) firstOf(k *class, some []endpointID) endpointID {
	for _, id := range some {
		if ss.endpoints.all[id].class == k {
			return id
		}
	}
	return 0
}

// heldOutside reports whether a set holds one of some endpoints by another class.
func (ss *addressSets) heldOutside(k *class, s *set, some []endpointID) bool {
	for _, id := range some {
		if other := ss.endpoints.all[id].class; other != k && other.has(s) {
			return true
		}
	}
	return false
}

// without returns the sets in a and not in b, both sorted.
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

// change records a member that was added or removed; before the set is reported, only their number.
func (ss *addressSets) change(s *set, a address, added bool) {
	ss.queue.add(s)
	if added {
		s.size[a.family()]++
	} else {
		s.size[a.family()]--
	}
	if !s.reported {
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

// tooLarge returns why no kernel set can hold s, or "".
func (ss *addressSets) tooLarge(s *set) string {
	if n := max(s.size[0], s.size[1]); n > ss.maxSize {
		return fmt.Sprintf("%s picks %d addresses of one family; a set may hold %d (MaxIpsetSize)", s.text, n, ss.maxSize)
	}
	return ""
}

// takeChange returns the change of a set since the last call, or nil.
func (ss *addressSets) takeChange(s *set) *SetChange {
	fits := len(s.users) > 0 && ss.tooLarge(s) == ""
	if !fits {
		s.fresh = nil
	}
	switch {
	case s.reported && !fits:
		s.reported, s.since = false, nil
		return &SetChange{Gone: true}
	case !s.reported && fits:
		s.reported = true
		if s.fresh == nil {
			s.fresh = ss.membersOf(s, ss.index.classesOf(&s.query, nil), s.size[0]+s.size[1])
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
