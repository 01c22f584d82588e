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
	// conns are the connections that the flow's packets open, and keep alive. It goes with them: in the kernel its packets
	// would pass without opening them again, and the replies would be dropped.
	conns []flow.ConnKey
	learn *sighting // likewise; nil if it took none

	// until is when a flow goes that is only kept for a while, whatever its use; 0 for others.
	until time.Duration

	links [roles]links
}

// A role is what a flow has to do with a connection.
type role int

const (
	asks  role = iota // it rests on the answer whether the connection is there
	opens             // its packets open the connection
	roles
)

// links are the neighbours of a flow among those with the same role for the same connection.
type links struct{ prev, next *installed }

// connOf is the connection for which a flow has a role.
func (f *installed) connOf(r role) (flow.ConnKey, bool) {
	if r == asks {
		return f.asked, f.tracked
	}
	for _, c := range f.conns {
		if !c.Ingress { // those go with the others
			return c, true
		}
	}
	return flow.ConnKey{}, false
}

// flowIndex finds flows by their cookie and by the connections they have to do with. A flow whose place in the kernel was taken
// by another stays until a round does not find it there.
type flowIndex struct {
	last     uint64 // cookie
	byCookie map[uint64]*installed
	byConn   map[flow.ConnKey][roles]*installed // first of each role's list
	shortly  []*installed                       // those with until, in that order
}

// newFlowIndex gives cookies from after on: those of an earlier agent must not come again.
func newFlowIndex(after uint64) *flowIndex {
	return &flowIndex{last: after, byCookie: map[uint64]*installed{}, byConn: map[flow.ConnKey][roles]*installed{}}
}

// cookie returns one that no flow has.
func (x *flowIndex) cookie() uint64 {
	x.last++
	return x.last
}

// put remembers f.
func (x *flowIndex) put(f *installed) {
	x.byCookie[f.cookie] = f
	for r := range roles {
		c, ok := f.connOf(r)
		if !ok {
			continue
		}
		first := x.byConn[c]
		if f.links[r].next = first[r]; first[r] != nil {
			first[r].links[r].prev = f
		}
		first[r] = f
		x.byConn[c] = first
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
	for r := range roles {
		if c, ok := f.connOf(r); ok {
			x.unlink(f, r, c)
		}
	}
}

func (x *flowIndex) unlink(f *installed, r role, c flow.ConnKey) {
	l := f.links[r]
	f.links[r] = links{}
	if l.next != nil {
		l.next.links[r].prev = l.prev
	}
	if l.prev != nil {
		l.prev.links[r].next = l.next
		return
	}
	first := x.byConn[c]
	first[r] = l.next
	if first == [roles]*installed{} {
		delete(x.byConn, c)
	} else {
		x.byConn[c] = first
	}
}

// take forgets the flows with a role for a connection and returns their keys.
func (x *flowIndex) take(c flow.ConnKey, r role) (keys []datapath.Key) {
	for f := x.byConn[c][r]; f != nil; f = x.byConn[c][r] {
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
