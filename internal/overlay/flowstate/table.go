// Package flowstate remembers connections, exchanged between the hosts that see their two
// directions (midonet-simulation §5, §13), and the ports of datagrams whose first fragment passed.
//
// A host that lets a tracked packet through remembers its keys and sends them, before the packet,
// to the hosts where replies will come in. Keys live while they are used: see [Table.Touch], which
// also finds those that must be sent again. A [Keeper] keeps what must survive a restart of the
// agent.
//
// Times are those of the machine's monotonic clock, which goes on when the agent restarts.
package flowstate

import (
	"cmp"
	"math"
	"sync"
	"time"

	"heddle/internal/task"
	"heddle/internal/topology/flow"
)

// Times of midonet-simulation §5 and §13.
const (
	// TTL is the life of a connection after its last use.
	TTL = 60 * time.Second
	// ImportedTTL is the same for a connection received from another host.
	ImportedTTL = 90 * time.Second
	// ResendAfter is the interval of messages about a connection in use: two may be lost.
	ResendAfter = 30 * time.Second
	// FragTTL is the life of a first fragment's ports.
	FragTTL = 30 * time.Second

	// never is longer than anything was unused.
	never = time.Duration(math.MaxInt64)
)

// Options bound a Table.
type Options struct {
	// Max bounds the connections; default 524288, two for each of 262144 flows. Half of it is
	// reserved for this host's own, the rest is for imported ones. The port that opened most gives
	// way first, and so does the host that sent most.
	Max      int
	MaxFrags int // first fragments; default 16384
	// Keeper keeps what must survive a restart of the agent; nil: nothing does.
	Keeper Keeper
}

// Stats counts since the table was made; Connections, Imported and Frags are current.
type Stats struct {
	Connections, Imported, Frags int
	Max                          int
	Added, Received              uint64
	Expired                      uint64
	Evicted, EvictedFrags        uint64 // oldest idle, thrown out because the table was full
	EvictedImported              uint64 // of Evicted
}

// Table holds connections and first fragments. It may be used from any goroutine.
type Table struct {
	opts Options

	mu        sync.Mutex
	conns     map[flow.ConnKey]*conn
	own       holders // by the port that opened it; "" for an earlier agent's
	imported  holders // received, by host; "" for an earlier agent's
	frags     fragments
	due       map[string][]flow.ConnKey // host → keys to tell it again
	gone      []flow.ConnKey            // expired or evicted since TakeGone
	keep      []Change                  // for the next Flush
	changed   task.Notice               // see Changed
	leastIdle time.Duration             // of those evicted, see TakeEvicted
	stats     Stats
}

// conn is one key.
type conn struct {
	key        flow.ConnKey
	last       time.Duration // of the last use
	sentAt     time.Duration
	hosts      []string // that it is sent to
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
	o.Max, o.MaxFrags = cmp.Or(o.Max, 524288), cmp.Or(o.MaxFrags, 16384)
	return &Table{opts: o, changed: task.NewNotice(), conns: map[flow.ConnKey]*conn{},
		own: holders{by: map[string]*list{}}, imported: holders{by: map[string]*list{}, imported: true}, leastIdle: never, due: map[string][]flow.ConnKey{}, frags: fragments{known: map[flow.FragKey]*fragment{}}}
}

// Has reports whether key is remembered at a time. That is no use of it; see Touch.
func (t *Table) Has(key flow.ConnKey, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conns[key]
	return c != nil && now < c.expires()
}

// Add remembers keys decided here for a packet of port, to be sent to other hosts as long as they
// are used; the caller sends them the first time. It returns the new ones: flows decided without
// them must be decided again.
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
			wasImported := c.in.imported
			t.unlist(c)
			t.own.push(c, port)
			if wasImported {
				t.keepSet(c)
			}
		default:
			c.in.toFront(c)
		}
		c.last, c.sentAt = max(c.last, now), now
		c.hosts = hosts
	}
	return fresh
}

// Import remembers keys that another host sent, and returns the new ones, as Add does. In a full
// table a host with more than its share evicts its own: it can evict neither other hosts' keys nor
// this host's.
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
		t.insert(key, &t.imported, from, now)
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

// Touch notes a use of key at a time, and reports whether key is remembered. An expired key that is
// not yet forgotten lives on: uses of flows are read with a delay.
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
	if len(c.hosts) > 0 && c.last >= c.sentAt+ResendAfter {
		c.sentAt = c.last
		for _, h := range c.hosts {
			t.due[h] = append(t.due[h], key)
		}
	}
	return true
}

// TakeDue returns the keys in use that have to be sent again, by host.
func (t *Table) TakeDue() map[string][]flow.ConnKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = map[string][]flow.ConnKey{}
	return due
}

// Expire forgets what has expired. Lists are in the order of Touch, so a key touched late may stay
// for one more call; Has does not see it.
func (t *Table) Expire(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range []*holders{&t.own, &t.imported} {
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

// TakeEvicted returns the shortest time for which any connection evicted since the last call was
// unused, and whether there was one. If that is shorter than the delay of Touch, connections in use
// are evicted.
func (t *Table) TakeEvicted() (leastIdle time.Duration, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	leastIdle, t.leastIdle = t.leastIdle, never
	return leastIdle, leastIdle < never
}

// TakeGone returns the keys forgotten since the last call: flows that rest on them must go.
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
	s.Connections, s.Imported, s.Frags = len(t.conns), t.imported.n, len(t.frags.known)
	s.Max, s.EvictedFrags = t.opts.Max, t.frags.evicted
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
		t.own.most, t.imported.most = nil, nil
	}
	c := &conn{key: key, last: now}
	t.conns[key] = c
	kind.push(c, holder)
	t.keepSet(c)
	return c
}

// victim chooses what a full table evicts: the port with most connections gives its longest unused
// one while this host has more than half, else the host that sent most. A host with its share or
// more gives its own.
func (t *Table) victim(imported bool, holder string) *conn {
	over := imported && t.overShare(holder)
	switch {
	case t.imported.n == 0 || t.own.n > t.opts.Max-t.opts.Max/2 && !over:
		return t.own.largest().last
	case over:
		return t.imported.by[holder].last
	}
	return t.imported.largest().last
}

// overShare reports whether a host has its share, or more, of the half for imported connections.
func (t *Table) overShare(host string) bool {
	l := t.imported.by[host]
	return l != nil && l.n >= max(1, t.opts.Max/2/len(t.imported.by))
}

func (t *Table) unlist(c *conn) {
	if c.in.imported {
		t.imported.remove(c)
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
	// most was the longest list when last looked for, which costs more than all else. In a full
	// table it stands until it has lost a sixteenth.
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

// largest returns the longest list; of several, the one with the longest unused connection.
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

// list holds one holder's connections, last used first, linked through themselves.
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
