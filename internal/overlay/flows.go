package overlay

import (
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// installed is what the agent remembers of a flow in the kernel: what keeps it alive keeps that alive, and what it rests
// on takes it away.
type installed struct {
	cookie uint64 // the flow's own; a flow that takes its place has another
	key    datapath.Key
	at     time.Duration // when it was installed

	// A flow that asked for a connection rests on the answer: it goes when the answer changes.
	tracked, reply bool
	asked          flow.ConnKey
	conns          []flow.ConnKey // that the flow keeps alive
	learn          *sighting      // likewise; nil if it took none

	// until is when a flow goes that is only kept for a while, whatever its use; 0 for others.
	until time.Duration

	prev, next *installed // with the same asked
}

// flowIndex finds flows by their cookie and by the connection they asked for. A flow whose place in the kernel was taken
// by another stays until a round does not find it there.
type flowIndex struct {
	last     uint64 // cookie
	byCookie map[uint64]*installed
	byAsked  map[flow.ConnKey]*installed // first of a list
	shortly  []*installed                // those with until, in that order
}

// newFlowIndex gives cookies from after on: those of an earlier agent must not come again.
func newFlowIndex(after uint64) *flowIndex {
	return &flowIndex{last: after, byCookie: map[uint64]*installed{}, byAsked: map[flow.ConnKey]*installed{}}
}

// cookie returns one that no flow has.
func (x *flowIndex) cookie() uint64 {
	x.last++
	return x.last
}

// put remembers f.
func (x *flowIndex) put(f *installed) {
	x.byCookie[f.cookie] = f
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

// get returns what is known of a flow, nil if nothing is.
func (x *flowIndex) get(cookie uint64) *installed { return x.byCookie[cookie] }

// remove forgets a flow.
func (x *flowIndex) remove(f *installed) {
	if x.byCookie[f.cookie] != f {
		return
	}
	delete(x.byCookie, f.cookie)
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

// takeAsked forgets the flows that asked for a connection and returns their keys.
func (x *flowIndex) takeAsked(asked flow.ConnKey) (keys []datapath.Key) {
	for f := x.byAsked[asked]; f != nil; f = x.byAsked[asked] {
		keys = append(keys, f.key)
		x.remove(f)
	}
	return keys
}

// takeDue forgets the flows that were kept for a while and are due at now, and returns them.
func (x *flowIndex) takeDue(now time.Duration) (due []*installed) {
	n := 0
	for ; n < len(x.shortly) && x.shortly[n].until <= now; n++ {
		f := x.shortly[n]
		if x.byCookie[f.cookie] == f {
			due = append(due, f)
			x.remove(f)
		}
	}
	clear(x.shortly[:n])
	if x.shortly = x.shortly[n:]; len(x.shortly) == 0 {
		x.shortly = nil
	}
	return due
}
