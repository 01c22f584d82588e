// Package flowstate remembers connections, told between the hosts that see their two directions (midonet-simulation
// §5, §13), and the ports of datagrams whose first fragment passed.
//
// A host that lets a tracked packet through remembers its keys and tells them, before the packet leaves, to the hosts
// where replies will come in. What is remembered lives as long as it is used: [Table.Touch] says so, and also notices when
// the other hosts have to be told again. Whatever must survive a restart of the agent is given to a [Keeper].
//
// Times are those of the machine's monotonic clock since it started, which goes on when the agent restarts.
package flowstate

import (
	"math"
	"sync"
	"time"

	"heddle/internal/task"
	"heddle/internal/topology/flow"
)

// Times of midonet-simulation §5 and §13.
const (
	// TTL is how long a connection is remembered after its last use.
	TTL = 60 * time.Second
	// ImportedTTL is the same for what another host told.
	ImportedTTL = 90 * time.Second
	// TellAgain is how old the last message about a connection in use may become: two may be lost before ImportedTTL ends.
	TellAgain = 30 * time.Second
	// FragTTL is how long the ports of a first fragment are remembered.
	FragTTL = 30 * time.Second

	// never is longer than anything was unused.
	never = time.Duration(math.MaxInt64)
)

// Options bound a Table.
type Options struct {
	// Max bounds the connections; default 524288, two for each of 262144 flows. Half of them are this host's for sure, the
	// other half what others told. The port that opened most gives way to the others, and so does the host that told most.
	Max      int
	MaxFrags int // first fragments; default 16384
	// Keeper is told what must survive a restart of the agent; nil: nothing does.
	Keeper Keeper
}

// Stats counts since the table was made, but for Connections, Imported and Frags, which are there now.
type Stats struct {
	Connections, Imported, Frags int
	Max, MaxFrags                int
	Added, Told, Received        uint64
	Expired                      uint64
	Evicted, EvictedFrags        uint64 // oldest idle, thrown out because the table was full
	EvictedImported              uint64 // of Evicted, what others told
}

// Table is the connections and first fragments that a host knows. Its methods may be called from any goroutine.
type Table struct {
	opts Options

	mu        sync.Mutex
	conns     map[flow.ConnKey]*conn
	own       holders // what this host decided, by the port that opened it; "" if an earlier agent did
	told      holders // what others told, by host; "" if an earlier agent knew
	frags     fragments
	due       map[string][]flow.ConnKey // host → keys to tell it again
	gone      []flow.ConnKey            // expired or evicted since TakeGone
	keep      []Change                  // not yet told to the Keeper
	spare     []Change                  // room for the next ones
	changed   task.Notice               // see Changed
	leastIdle time.Duration             // of those evicted, see TakeEvicted
	stats     Stats
}

// conn is one key.
type conn struct {
	key        flow.ConnKey
	last       time.Duration // of the last use
	toldAt     time.Duration
	hosts      []string // that are told
	in         *list
	prev, next *conn
}

func (c *conn) expires() time.Duration {
	if c.in.imported {
		return c.last + ImportedTTL
	}
	return c.last + TTL
}

// New makes an empty table.
func New(o Options) *Table {
	if o.Max == 0 {
		o.Max = 524288
	}
	if o.MaxFrags == 0 {
		o.MaxFrags = 16384
	}
	return &Table{opts: o, changed: task.NewNotice(), conns: map[flow.ConnKey]*conn{},
		own: holders{by: map[string]*list{}}, told: holders{by: map[string]*list{}, imported: true}, leastIdle: never, due: map[string][]flow.ConnKey{}, frags: fragments{known: map[flow.FragKey]*fragment{}}}
}

// Has says whether key is remembered at time now. It is no use of the key; see Touch.
func (t *Table) Has(key flow.ConnKey, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conns[key]
	return c != nil && now < c.expires()
}

// Add remembers keys that this host decided for a packet of port, to be told to hosts (not this one) as long as they are in
// use. The caller tells them the first time. It returns those that were unknown: flows that were decided without them are
// to be decided again.
func (t *Table) Add(keys []flow.ConnKey, port string, hosts []string, now time.Duration) (fresh []flow.ConnKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		c := t.live(key, now)
		switch {
		case c == nil:
			c = t.insert(key, &t.own, port, now)
			t.stats.Added++
			fresh = append(fresh, key)
		case c.in.imported || c.in.holder != port:
			told := c.in.imported
			t.unlist(c)
			t.own.push(c, port)
			if told {
				t.keepSet(c)
			}
		default:
			c.in.toFront(c)
		}
		c.last, c.toldAt = max(c.last, now), now
		c.hosts = hosts
	}
	if len(hosts) > 0 {
		t.stats.Told += uint64(len(keys))
	}
	return fresh
}

// Import remembers keys that another host told, and returns those that were unknown, as Add does. In a full table a host
// that has told more than its share takes the place of what it told itself: it cannot push out what others told, nor what
// this host decided.
func (t *Table) Import(keys []flow.ConnKey, from string, now time.Duration) (fresh []flow.ConnKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Received += uint64(len(keys))
	for _, key := range keys {
		if c := t.live(key, now); c != nil {
			c.last = max(c.last, now)
			c.in.toFront(c)
			continue
		}
		t.insert(key, &t.told, from, now)
		fresh = append(fresh, key)
	}
	return fresh
}

// live finds a key and forgets it when its time is over.
func (t *Table) live(key flow.ConnKey, now time.Duration) *conn {
	c := t.conns[key]
	if c != nil && now >= c.expires() {
		t.drop(c)
		t.stats.Expired++
		return nil
	}
	return c
}

// Touch says that a packet that belongs to key was let through at time at. A key whose time was over but that is not yet
// forgotten lives on: the kernel tells of a flow's packets a little late. It returns whether key is remembered.
func (t *Table) Touch(key flow.ConnKey, at time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conns[key]
	if c == nil {
		return false
	}
	if at > c.last {
		c.last = at
		c.in.toFront(c)
	}
	if len(c.hosts) > 0 && c.last >= c.toldAt+TellAgain {
		c.toldAt = c.last
		t.stats.Told++
		for _, h := range c.hosts {
			t.due[h] = append(t.due[h], key)
		}
	}
	return true
}

// TakeDue returns the keys in use that have to be told again, by host.
func (t *Table) TakeDue() map[string][]flow.ConnKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = map[string][]flow.ConnKey{}
	return due
}

// Expire forgets what has not been used for its time. Lists are in the order of use as it was told, so what was touched
// late may stay for one more call; Has does not see it.
func (t *Table) Expire(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range []*holders{&t.own, &t.told} {
		for _, l := range h.by {
			t.expireList(l, now)
		}
	}
	t.frags.expire(now)
}

func (t *Table) expireList(l *list, now time.Duration) {
	for c := l.last; c != nil && now >= c.expires(); c = l.last {
		t.drop(c)
		t.stats.Expired++
	}
}

// TakeEvicted returns the shortest time for which a connection had not been used that was evicted since the last call, and
// whether any was: where it is about as short as that after which the table learns of a use, connections in use go.
func (t *Table) TakeEvicted() (leastIdle time.Duration, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	leastIdle, t.leastIdle = t.leastIdle, never
	return leastIdle, leastIdle < never
}

// TakeGone returns the keys forgotten since it was last called: flows that rest on them are to be taken away.
func (t *Table) TakeGone() []flow.ConnKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := t.gone
	t.gone = nil
	return gone
}

// Stats returns the counters.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Connections, s.Imported, s.Frags = len(t.conns), t.told.n, len(t.frags.known)
	s.Max, s.MaxFrags, s.EvictedFrags = t.opts.Max, t.opts.MaxFrags, t.frags.evicted
	return s
}

// insert makes room first.
func (t *Table) insert(key flow.ConnKey, kind *holders, holder string, now time.Duration) *conn {
	if len(t.conns) >= t.opts.Max {
		victim := t.victim(kind.imported, holder)
		if victim.in.imported {
			t.stats.EvictedImported++
		}
		t.leastIdle = min(t.leastIdle, max(0, now-victim.last))
		t.drop(victim)
		t.stats.Evicted++
	} else {
		t.own.most, t.told.most = nil, nil
	}
	c := &conn{key: key, last: now}
	t.conns[key] = c
	kind.push(c, holder)
	t.keepSet(c)
	return c
}

// victim is what goes from a full table for a new connection: while this host has more than its half, the longest unused of
// the port that opened most, else the longest unused of the host that has told most. A host that has told its share or
// more gives its own.
func (t *Table) victim(imported bool, holder string) *conn {
	over := imported && t.overShare(holder)
	switch {
	case t.told.n == 0 || t.own.n > t.opts.Max-t.opts.Max/2 && !over:
		return t.own.largest().last
	case over:
		return t.told.by[holder].last
	}
	return t.told.largest().last
}

// overShare reports whether a host has told so much that another one would have to give way to it: its share of the half
// of the table that is for what others tell.
func (t *Table) overShare(host string) bool {
	l := t.told.by[host]
	return l != nil && l.n >= max(1, t.opts.Max/2/len(t.told.by))
}

// unlist takes a connection out of the list that it is in.
func (t *Table) unlist(c *conn) {
	if c.in.imported {
		t.told.remove(c)
	} else {
		t.own.remove(c)
	}
}

func (t *Table) drop(c *conn) {
	t.unlist(c)
	delete(t.conns, c.key)
	t.gone = append(t.gone, c.key)
	t.keepDelete(c.key)
}

// holders are the lists of connections of all ports, or of all hosts, that have any.
type holders struct {
	imported bool
	by       map[string]*list
	n        int // connections in all lists
	// most was the longest list when it was last looked for. While the table is full it stands for that until it has lost a
	// sixteenth: to look at all lists for each connection would cost more than the rest.
	most  *list
	until int
}

func (h *holders) push(c *conn, holder string) {
	l := h.by[holder]
	if l == nil {
		l = &list{holder: holder, imported: h.imported}
		h.by[holder] = l
	}
	h.n++
	c.in = l
	l.push(c)
}

func (h *holders) remove(c *conn) {
	h.n--
	c.in.remove(c)
	if c.in.n == 0 {
		delete(h.by, c.in.holder)
	}
}

// largest is the longest list; of several, the one whose last connection has been unused for longest.
func (h *holders) largest() *list {
	if h.most == nil || h.most.n <= h.until {
		h.most = nil
		for _, l := range h.by {
			if h.most == nil || l.n > h.most.n || l.n == h.most.n && l.last.last < h.most.last.last {
				h.most = l
			}
		}
		h.until = h.most.n - 1 - h.most.n/16
	}
	return h.most
}

// list is the connections of one holder, last used first: a doubly linked list through the connections themselves.
type list struct {
	holder      string
	imported    bool
	first, last *conn
	n           int
}

func (l *list) push(c *conn) {
	l.n++
	c.prev, c.next = nil, l.first
	if l.first != nil {
		l.first.prev = c
	} else {
		l.last = c
	}
	l.first = c
}

func (l *list) remove(c *conn) {
	l.n--
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
}

func (l *list) toFront(c *conn) {
	if l.first != c {
		l.remove(c)
		l.push(c)
	}
}
