package datapath

// epochs holds the epoch of every slot, in memory shared with the programs.
type epochs struct{ memory *sharedWords }

// epochStride is the number of words from one slot's epoch to the next.
const epochStride = 2

// Tags reads the current epochs of slots.
func (e *epochs) Tags(slots ...Slot) []Tag {
	return e.AppendTags(make([]Tag, 0, len(slots)), slots...)
}

// AppendTags is Tags into a slice of the caller's.
func (e *epochs) AppendTags(to []Tag, slots ...Slot) []Tag {
	for _, s := range slots {
		to = append(to, Tag{Slot: s, Epoch: e.memory.load(int(s) * epochStride)})
	}
	return to
}

// Current reports whether no tag has moved: a flow with these tags would act.
func (e *epochs) Current(tags []Tag) bool {
	for _, t := range tags {
		if e.memory.load(int(t.Slot)*epochStride) != t.Epoch {
			return false
		}
	}
	return true
}

// Bump stops all flows that carry a tag of one of the slots, from the next packet on.
func (e *epochs) Bump(slots ...Slot) {
	for _, s := range slots {
		e.memory.add(int(s)*epochStride, 1)
	}
}
