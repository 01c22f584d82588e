package overlay

import (
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/verdicts"
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
	// nats are the translations that the flow makes, and keeps alive. It goes with each of them.
	// With missing, it found none: it goes when one of them comes.
	nats    []natLink
	missing []flow.NATKey
	meters  []flow.Meter   // that count it
	counts  []verdicts.Key // likewise
	logged  loggedFlow     // what the flow log has of it
	settled bool           // it has left the kernel, and is counted
	sent    traffic        // that was counted: by counts, and for its tunnel and network

	// until is the end of a flow that is kept for a while only, used or not; 0 for others.
	until time.Duration

	links [roles]links
}

// loggedFlow is the part of a flow that the flow log has or is to have.
type loggedFlow struct {
	key     verdicts.FlowKey
	at      time.Duration // when it was logged
	pending traffic
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

// natLink is a translation that a flow uses, and the flow's neighbours among those that use it.
type natLink struct {
	key        flow.NATKey
	flow       *installed
	prev, next *natLink
}

// usesNATs notes the translations of a flow that is not in an index yet: those it uses and made,
// and those that are missing.
func (f *installed) usesNATs(keys []flow.NATKey, made []flow.NATEntry, missing []flow.NATKey) {
	if len(keys)+len(made)+len(missing) == 0 {
		return
	}
	f.missing = slices.Clone(missing)
	f.nats = make([]natLink, 0, len(keys)+len(made)+len(missing))
	for _, k := range missing {
		f.nats = append(f.nats, natLink{key: k, flow: f})
	}
	for _, k := range keys {
		f.nats = append(f.nats, natLink{key: k, flow: f})
	}
	for i := range made {
		if made[i].IsForward() {
			f.nats = append(f.nats, natLink{key: made[i].NATKey, flow: f})
		}
	}
}

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

// flowIndex finds flows by cookie, by connection and by translation. A flow that was replaced in
// the kernel stays until a round misses it there.
type flowIndex struct {
	last     uint64 // cookie
	byCookie map[uint64]*installed
	byConn   map[flow.ConnKey][roles]*installed // first of each role's list
	byNAT    map[flow.NATKey]*natLink           // first of the list of those that use it
	shortly  []*installed                       // those with until, in that order
	// leaving has flows that are not remembered any more and may have packets to count, by cookie.
	leaving map[uint64]*installed
}

// newFlowIndex gives cookies from after on: those of an earlier agent must not come again.
func newFlowIndex(after uint64) *flowIndex {
	return &flowIndex{last: after, byCookie: map[uint64]*installed{}, byConn: map[flow.ConnKey][roles]*installed{}, byNAT: map[flow.NATKey]*natLink{},
		leaving: map[uint64]*installed{}}
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
	for i := range f.nats {
		l := &f.nats[i]
		if l.next = x.byNAT[l.key]; l.next != nil {
			l.next.prev = l
		}
		x.byNAT[l.key] = l
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
	if len(f.counts) > 0 && !f.settled {
		x.leaving[f.cookie] = f
	}
	for r := range roles {
		if c, ok := f.connOf(r); ok {
			x.unlink(f, r, c)
		}
	}
	for i := range f.nats {
		x.unlinkNAT(&f.nats[i])
	}
}

func (x *flowIndex) unlinkNAT(l *natLink) {
	if l.next != nil {
		l.next.prev = l.prev
	}
	switch {
	case l.prev != nil:
		l.prev.next = l.next
	case l.next != nil:
		x.byNAT[l.key] = l.next
	default:
		delete(x.byNAT, l.key)
	}
	l.prev, l.next = nil, nil
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

// takeNAT forgets the flows that use a translation and returns their keys.
func (x *flowIndex) takeNAT(k flow.NATKey) (keys []datapath.Key) {
	for l := x.byNAT[k]; l != nil; l = x.byNAT[k] {
		keys = append(keys, l.flow.key)
		x.remove(l.flow)
	}
	return keys
}

// takeMissing forgets the flows that found no such translation and returns their keys.
func (x *flowIndex) takeMissing(k flow.NATKey) (keys []datapath.Key) {
	var waiting []*installed
	for l := x.byNAT[k]; l != nil; l = l.next {
		if slices.Contains(l.flow.missing, k) && !slices.Contains(waiting, l.flow) {
			waiting = append(waiting, l.flow)
			keys = append(keys, l.flow.key)
		}
	}
	for _, f := range waiting {
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
		delete(m.flows.leaving, f.cookie)
	}
}

// leave forgets a flow that is to be removed from the kernel.
func (m *memory) leave(f *installed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flows.remove(f)
}

// settle returns a flow that has carried so much when it goes, nil if it is settled, and what of
// that was not counted before.
func (m *memory) settle(cookie uint64, now traffic) (f *installed, more traffic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f = m.flows.byCookie[cookie]; f == nil {
		f = m.flows.leaving[cookie]
	}
	if f == nil || f.settled {
		return nil, traffic{}
	}
	delete(m.flows.leaving, cookie)
	f.settled = true
	return f, f.grow(now)
}

// grow notes what a flow has carried, and returns what was not counted before.
func (f *installed) grow(now traffic) (more traffic) {
	if now.bytes > f.sent.bytes {
		more = traffic{now.packets - f.sent.packets, now.bytes - f.sent.bytes}
		f.sent = now
	}
	return more
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

// takeNATs forgets the flows that use translations that are gone, and returns their keys: first
// those of the connections' first direction, since a packet that passed by one of them would get a
// reply for which there is none.
func (m *memory) takeNATs(gone []flow.NATEntry) (keys []datapath.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range gone {
		keys = append(keys, m.flows.takeNAT(gone[i].NATKey)...)
	}
	for i := range gone {
		keys = append(keys, m.flows.takeNAT(gone[i].Reverse().NATKey)...)
	}
	return keys
}

// takeWaiting forgets the flows that found none of the translations that have come, and returns
// their keys.
func (m *memory) takeWaiting(fresh []flow.NATEntry) (keys []datapath.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range fresh {
		keys = append(keys, m.flows.takeMissing(fresh[i].NATKey)...)
		keys = append(keys, m.flows.takeMissing(fresh[i].Reverse().NATKey)...)
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

// takeSeen forgets an address that another host has seen, and returns it if it was seen here. On a
// LAN several hosts see the same: there it stays, else each would take it from the other again.
func (m *memory) takeSeen(other *sighting) (gone []*sighting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen.known[other.address]; s != nil && (s.port != other.port || !s.isMAC()) {
		m.seen.forget(s)
		gone = append(gone, s)
	}
	return gone
}
