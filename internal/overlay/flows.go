package overlay

import (
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// installed is what the agent remembers of a flow in the kernel: what keeps it alive keeps that alive, and what it rests
// on takes it away.
type installed struct {
	key datapath.Key
	out datapath.Output
	at  time.Duration // when it was installed

	// A flow that asked for a connection rests on the answer: it goes when the answer changes.
	tracked, reply bool
	asked          flow.ConnKey
	conns          []flow.ConnKey // that the flow keeps alive
	learn          *sighting      // likewise; nil if it took none

	// until is when a flow goes that is only kept for a while, whatever its use; 0 for others.
	until time.Duration

	prev, next *installed // with the same asked
}

// flowIndex finds flows by their key and by the connection they asked for.
type flowIndex struct {
	byKey   map[datapath.Key]*installed
	byAsked map[flow.ConnKey]*installed // first of a list
	shortly []*installed                // those with until, in that order
}

func newFlowIndex() *flowIndex {
	return &flowIndex{byKey: map[datapath.Key]*installed{}, byAsked: map[flow.ConnKey]*installed{}}
}

// put remembers f instead of what was known under its key.
func (x *flowIndex) put(f *installed) {
	if old := x.byKey[f.key]; old != nil {
		x.unlink(old)
	}
	x.byKey[f.key] = f
	if f.tracked {
		if f.next = x.byAsked[f.asked]; f.next != nil {
			f.next.prev = f
		}
		x.byAsked[f.asked] = f
	}
	if f.until > 0 {
		x.shortly = append(x.shortly, f)
	}
}

func (x *flowIndex) unlink(f *installed) {
	if !f.tracked {
		return
	}
	switch {
	case f.prev != nil:
		f.prev.next = f.next
	case f.next != nil:
		x.byAsked[f.asked] = f.next
	default:
		delete(x.byAsked, f.asked)
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
}

// get returns what is known of a flow, nil if nothing is.
func (x *flowIndex) get(key datapath.Key) *installed { return x.byKey[key] }

// remove forgets a flow.
func (x *flowIndex) remove(key datapath.Key) {
	if f := x.byKey[key]; f != nil {
		x.unlink(f)
		delete(x.byKey, key)
	}
}

// takeAsked forgets the flows that asked for a connection and returns their keys.
func (x *flowIndex) takeAsked(asked flow.ConnKey) (keys []datapath.Key) {
	for f := x.byAsked[asked]; f != nil; f = x.byAsked[asked] {
		keys = append(keys, f.key)
		x.remove(f.key)
	}
	return keys
}

// takeDue forgets the flows that were kept for a while and are due at now, and returns their keys.
func (x *flowIndex) takeDue(now time.Duration) (keys []datapath.Key) {
	n := 0
	for ; n < len(x.shortly) && x.shortly[n].until <= now; n++ {
		f := x.shortly[n]
		if x.byKey[f.key] == f { // else it was replaced since
			keys = append(keys, f.key)
			x.remove(f.key)
		}
	}
	clear(x.shortly[:n])
	x.shortly = x.shortly[n:]
	if len(x.shortly) == 0 {
		x.shortly = nil
	}
	return keys
}

// nextDue is when takeDue has something to return.
func (x *flowIndex) nextDue() (at time.Duration, ok bool) {
	if len(x.shortly) == 0 {
		return 0, false
	}
	return x.shortly[0].until, true
}
