package calc

import (
	"cmp"
	"slices"
)

// class is a set of endpoints that no selector or tag distinguishes: equal own labels and profiles.
// There are far fewer classes than endpoints, and everything but addresses is kept by class.
type class struct {
	own      []*pair     // own labels, sorted by id
	inherits []inherited // distinct profiles, in the order in which they count
	carries  []carried   // effective labels and tags
	members  []endpointID
	sets     []*set      // in use, that hold this class's endpoints; sorted by id
	local    *localClass // nil: no endpoint of this host
	pos      int         // in index.classes
	hash     uint64      // of own and inherits
	next     *class      // with the same hash
}

// member is a class in the list of a pair or of a profile, with the index of that in the class's
// own list. Both ends store each other's place, so that a class leaves each list in one step.
type member struct {
	class *class
	at    int // in class.carries or class.inherits
}

// inherited is a profile with the class's position in its list.
type inherited struct {
	profile *profile
	pos     int
}

// carried is a pair with the class's position in its list.
type carried struct {
	pair *pair
	pos  int
}

// get returns the class by own labels and distinct profiles. It takes over the references to the
// pairs. The class is dropped with its last member, so a caller must add an endpoint at once.
func (ct *classTable) get(own []*pair, profiles []*profile) *class {
	slices.SortFunc(own, func(a, b *pair) int { return cmp.Compare(a.id, b.id) })
	hash := uint64(len(own))
	for _, p := range own {
		hash = mix(hash, p.id)
	}
	for _, p := range profiles {
		hash = mix(hash, p.id)
	}
	x := ct.index
	for k := x.byOwn[hash]; k != nil; k = k.next {
		if slices.Equal(k.own, own) && slices.EqualFunc(k.inherits, profiles, func(i inherited, p *profile) bool { return i.profile == p }) {
			for _, p := range own {
				x.release(p)
			}
			return k
		}
	}
	k := &class{own: own, hash: hash, next: x.byOwn[hash], pos: len(x.classes)}
	x.byOwn[hash] = k
	x.classes = append(x.classes, k)
	if len(profiles) > 0 {
		k.inherits = make([]inherited, len(profiles))
	}
	for i, p := range profiles {
		k.inherits[i] = inherited{p, len(p.classes)}
		p.classes = append(p.classes, member{k, i})
	}
	ct.relabel(k)
	return k
}

// removeAt moves the last item of a list to a position, which is free, and returns it.
func removeAt[T any](list *[]T, pos int) (moved T) {
	last := len(*list) - 1
	moved = (*list)[last]
	(*list)[pos] = moved
	clear((*list)[last:])
	*list = (*list)[:last]
	return moved
}

// mix folds an id into a hash. The ids are ours: no writer of labels can cause collisions.
func mix(hash, id uint64) uint64 {
	hash = (hash ^ id) * 0x9e3779b97f4a7c15
	return hash ^ hash>>29
}

// drop removes a class without members.
func (ct *classTable) drop(k *class) {
	x := ct.index
	x.hide()
	for _, carried := range k.carries {
		x.uncarry(k, carried)
	}
	for _, p := range k.own {
		x.release(p)
	}
	for _, in := range k.inherits {
		in.profile.dropClass(in.pos)
		ct.dropProfile(in.profile)
	}
	removeAt(&x.classes, k.pos).pos = k.pos
	x.unlink(k)
}

// unlink takes a class out of the table by hash.
func (x *index) unlink(k *class) {
	if x.byOwn[k.hash] == k {
		if k.next == nil {
			delete(x.byOwn, k.hash)
		} else {
			x.byOwn[k.hash] = k.next
		}
		return
	}
	for before := x.byOwn[k.hash]; before != nil; before = before.next {
		if before.next == k {
			before.next = k.next
			return
		}
	}
}

// relabel recomputes what a class carries, and moves its endpoints between sets accordingly.
func (ct *classTable) relabel(k *class) {
	if !ct.index.carry(k, ct.effective(k)) && len(k.members) > 0 {
		return
	}
	ct.sets.reset(k)
	if k.local != nil {
		ct.touched.add(k.local, rematch)
	}
}

// effective returns the labels and tags of a class: its own labels, then those of its profiles, of
// which the first wins, and all tags. The slice is valid until the next call.
func (ct *classTable) effective(k *class) []*pair {
	x := ct.index
	x.walk++
	found := ct.scratch[:0]
	take := func(pairs []*pair) {
		for _, p := range pairs {
			if p.label.mark != x.walk {
				p.label.mark, p.mark = x.walk, x.walk
				found = append(found, p)
			}
		}
	}
	take(k.own)
	for _, in := range k.inherits {
		take(in.profile.labels)
		take(in.profile.tags)
	}
	ct.scratch = found
	return found
}

// carry makes a class carry the pairs marked by the last walk. It reports whether that is a change.
func (x *index) carry(k *class, pairs []*pair) (changed bool) {
	x.hide()
	kept := k.carries[:0]
	for i := range k.carries {
		old := k.carries[i]
		if old.pair.mark == x.walk {
			old.pair.mark = 0 // carried already
			old.pair.classes[old.pos].at = len(kept)
			kept = append(kept, old)
			continue
		}
		changed = true
		x.uncarry(k, old)
	}
	clear(k.carries[len(kept):])
	k.carries = slices.Grow(kept, len(pairs)-len(kept))
	for _, p := range pairs {
		if p.mark != x.walk {
			continue
		}
		changed = true
		p.refs++
		p.label.classes++
		k.carries = append(k.carries, carried{p, len(p.classes)})
		p.classes = append(p.classes, member{k, len(k.carries) - 1})
	}
	return changed
}

// uncarry takes a class off a pair's list.
func (x *index) uncarry(k *class, old carried) {
	p := old.pair
	if moved := removeAt(&p.classes, old.pos); moved.class != k {
		moved.class.carries[moved.at].pos = old.pos
	}
	p.label.classes--
	x.release(p)
}

func (k *class) has(s *set) bool {
	_, found := k.findSet(s)
	return found
}

func (k *class) findSet(s *set) (int, bool) {
	return slices.BinarySearchFunc(k.sets, s, bySetID)
}

func bySetID(a, b *set) int { return cmp.Compare(a.query.id, b.query.id) }
