package overlay

import (
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// installed is a flow in the kernel: its uses keep alive what it rests on, and it goes with that.
type installed struct {
	cookie uint64 // the flow's own; a flow that takes its place has another
	key    datapath.Key
	at     time.Duration // when it was installed

	// A flow that asked for a connection rests on the answer: it goes when the answer changes.
	tracked, reply bool
	lookup         flow.ConnKey
	// conns are the connections that the flow's packets open and keep alive. The flow goes with
	// them: later packets would pass without opening them again, and the replies would be dropped.
	conns []flow.ConnKey
	learn *sighting // likewise; nil if it took none

	// until is the end of a flow that is kept for a while only, used or not; 0 for others.
	until time.Duration

	links [roles]links
}

// A role is the relation of a flow to a connection.
type role int

const (
	asks  role = iota // it rests on the answer whether the connection is there
	opens             // its packets open the connection
	roles
)

// links are the neighbours of a flow among those with the same role for the same connection.
type links struct{ prev, next *installed }

func (f *installed) connOf(r role) (flow.ConnKey, bool) {
	if r == asks {
		return f.lookup, f.tracked
	}
	for _, c := range f.conns {
		if !c.Ingress { // those go with the others
			return c, true
		}
	}
	return flow.ConnKey{}, false
}

// flowIndex finds flows by cookie and by connection. A flow that was replaced in the kernel stays
// until a round misses it there.
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

func (x *flowIndex) cookie() uint64 {
	x.last++
	return x.last
}

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

func (x *flowIndex) get(cookie uint64) *installed { return x.byCookie[cookie] }

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

// memory holds the flows in the kernel and the addresses seen by this host.
type memory struct {
	mu    sync.Mutex
	flows *flowIndex
	seen  *sightings
}

// put remembers flows that are being installed, and gives them cookies.
func (m *memory) put(records []*installed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range records {
		f.cookie = m.flows.cookie()
		m.flows.put(f)
	}
}

func (m *memory) adopt(f *installed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flows.put(f)
}

// forget reverses put.
func (m *memory) forget(records []*installed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range records {
		m.flows.remove(f)
	}
}

func (m *memory) has(cookie uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flows.get(cookie) != nil
}

// take forgets the flows with one of the roles for a connection, and returns their keys in order.
func (m *memory) take(conns []flow.ConnKey, having ...role) (keys []datapath.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range having {
		for _, c := range conns {
			keys = append(keys, m.flows.take(c, r)...)
		}
	}
	return keys
}

// takeDue forgets the flows that were kept for a while and are due, and returns them.
func (m *memory) takeDue(now time.Duration) []*installed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flows.takeDue(now)
}

func (m *memory) takeOld(now time.Duration) []*sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.takeOld(now)
}

func (m *memory) takePort(id string) []*sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.takePort(id)
}

// takeSeen forgets an address, and returns it if it was seen here.
func (m *memory) takeSeen(a address) (gone []*sighting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen.known[a]; s != nil {
		m.seen.forget(s)
		gone = append(gone, s)
	}
	return gone
}
