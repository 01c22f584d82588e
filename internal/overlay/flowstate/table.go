// Package flowstate remembers connections and their translations, exchanged between the hosts that
// see their two directions (midonet-simulation §5, §6, §13), and the ports of datagrams whose first
// fragment passed.
//
// A host that lets a tracked packet through remembers its keys and sends them, before the packet,
// to the hosts where replies will come in; so it does with translations. Both live while they are
// used: see Touch, which also finds those that must be sent again. A [Keeper] keeps what must
// survive a restart of the agent.
//
// Times are those of the machine's monotonic clock, which goes on when the agent restarts.
package flowstate

import (
	"math"
	"slices"
	"sync"
	"time"

	"heddle/internal/task"
)

// Times of midonet-simulation §5 and §13.
const (
	// TTL is the life of a connection or translation after its last use.
	TTL = 60 * time.Second
	// ImportedTTL is the same for one received from another host.
	ImportedTTL = 90 * time.Second
	// ResendAfter is the interval of messages about a connection in use: two may be lost.
	ResendAfter = 30 * time.Second
	// KeepAfter is the interval of messages that return a translation in use to the host that sent
	// it and does not use it itself. One may be lost before that forgets it.
	KeepAfter = 20 * time.Second
	// FragTTL is the life of a first fragment's ports.
	FragTTL = 30 * time.Second

	// never is longer than anything was unused.
	never = time.Duration(math.MaxInt64)
)

// Stats counts since the table was made; Entries and Imported are current.
type Stats struct {
	Entries, Imported int
	Max               int
	Added, Received   uint64
	Expired           uint64
	Evicted           uint64 // longest unused, evicted because the table was full
	EvictedImported   uint64 // of Evicted
}

// table holds records R, each found by one key or two. It may be used from any goroutine.
//
// Half of it is reserved for this host's own records, the rest is for imported ones. The port that
// opened most gives way first, and so does the host that sent most.
type table[K, R comparable] struct {
	max    int
	keys   func(R) (K, K) // of a record; both alike if it has one
	keeper Keeper[R]      // nil: nothing survives a restart
	// entered and left, if set, are called for each record that comes or goes, or passes from
	// another host's to this host's own. The table is locked.
	entered, left func(r R, imported bool)
	// life, if set, returns the life of a record after its last use; 0 = TTL.
	life func(R) time.Duration
	// hostID is that of this host, for records with a life of their own: see yields.
	hostID string
	// returned: imported records in use are returned to their sender, so that they live there too.
	returned bool

	flushing  sync.Mutex
	mu        sync.Mutex
	entries   index[K, R]
	n         int
	own       holders[R] // by the port that opened it; "" for an earlier agent's
	imported  holders[R] // received, by host; "" for an earlier agent's
	due       map[string][]R
	gone      []R         // expired, evicted or replaced since TakeGone
	keep      []Change[R] // for the next Flush
	changed   task.Notice // see Changed
	leastIdle time.Duration
	stats     Stats
}

// entry is one record.
type entry[R any] struct {
	record     R
	last       time.Duration // of the last use
	sentAt     time.Duration
	hosts      hostSet // that it is sent to
	in         *list[R]
	prev, next *entry[R]
	special    bool   // it has a life of its own
	ended      bool   // its connection has ended
	ends       Ends   // the signs of that
	reported   Ends   // those that other hosts were told last
	resetBy    uint32 // second by which the last RST had come; a finer time would take more memory
}

func (t *table[K, R]) expires(c *entry[R]) time.Duration {
	switch {
	case c.special && c.in.imported:
		return c.last + t.life(c.record) + t.life(c.record)/2
	case c.special:
		return c.last + t.life(c.record)
	case c.ended:
		return c.last + EndedTTL
	case c.in.imported:
		return c.last + ImportedTTL
	}
	return c.last + TTL
}

func newTable[K, R comparable](max int, keys func(R) (K, K), hash func(K) uint64, keeper Keeper[R]) *table[K, R] {
	return &table[K, R]{max: max, keys: keys, keeper: keeper, changed: task.NewNotice(), entries: newIndex(keys, hash),
		own: holders[R]{by: map[string]*list[R]{}}, imported: holders[R]{by: map[string]*list[R]{}, imported: true}, leastIdle: never, due: map[string][]R{}}
}

// get returns the record found by key at a time. That is no use of it; see Touch.
func (t *table[K, R]) get(key K, now time.Duration) (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil || now >= t.expires(c) {
		return r, false
	}
	return c.record, true
}

// Idle returns the time since the last use of the record found by key; not known if there is none.
func (t *table[K, R]) Idle(key K, now time.Duration) (idle time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil || now >= t.expires(c) {
		return 0, false
	}
	return max(0, now-c.last), true
}

// Add remembers records decided here for a packet of port, to be sent to other hosts as long as
// they are used; the caller sends them the first time. It returns the new ones: flows decided
// without them must be decided again. A record replaces others with one of its keys.
func (t *table[K, R]) Add(records []R, port string, hosts []string, now time.Duration) (fresh []R) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := newHostSet(hosts)
	for _, r := range records {
		c, others := t.match(r, now)
		if c == nil {
			for _, other := range others {
				t.drop(other)
			}
			c = t.insert(r, &t.own, port, now)
			t.stats.Added++
			fresh = append(fresh, r)
		} else {
			t.adopt(c, port)
			t.use(c, now)
		}
		c.sentAt = now
		c.hosts = to
	}
	return fresh
}

// adopt makes a record one that port uses.
func (t *table[K, R]) adopt(c *entry[R], port string) {
	if !c.in.imported && c.in.holder == port {
		c.in.toFront(c)
		return
	}
	wasImported := c.in.imported
	t.unlist(c)
	t.own.push(c, port)
	if !wasImported {
		return
	}
	t.keepSet(c)
	if t.entered != nil {
		t.left(c.record, true)
		t.entered(c.record, false)
	}
}

// Import remembers records that another host sent, and returns the new ones, as Add does. It
// replaces imported records with one of their keys, and none of this host's own, unless the hosts
// agree by other means which one counts. In a full table a
// host with more than its share evicts its own: it can evict neither other hosts' records nor this
// host's.
func (t *table[K, R]) Import(records []R, from string, now time.Duration) (fresh []R) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Received += uint64(len(records))
	for _, r := range records {
		c, others := t.match(r, now)
		switch {
		case c != nil && c.ended:
			continue // the use may be one before the end
		case c != nil:
			t.use(c, now)
			if c.in.imported {
				c.sentAt = now // its sender knows
			}
			t.resend(c, from)
			continue
		case slices.ContainsFunc(others, func(e *entry[R]) bool { return !t.yields(e, from) }):
			continue
		}
		for _, other := range others {
			t.drop(other)
		}
		t.insert(r, &t.imported, from, now).sentAt = now
		fresh = append(fresh, r)
	}
	return fresh
}

// yields reports whether a record gives way to another with one of its keys that a host sent. This
// host's own connections do not, and those of others do. Of records with a life of their own the
// one of the host with the lowest id counts; a host that will give way is sent it.
func (t *table[K, R]) yields(c *entry[R], from string) bool {
	switch {
	case !c.special:
		return c.in.imported
	case c.in.imported: // by a host that an earlier agent knew, if there is no name
		return c.in.holder == "" || from <= c.in.holder
	case from < t.hostID:
		return true
	}
	t.due[from] = append(t.due[from], c.record)
	return false
}

// match returns the live entry of r, or nil and the live entries of others with a key of r.
func (t *table[K, R]) match(r R, now time.Duration) (same *entry[R], others []*entry[R]) {
	a, b := t.keys(r)
	if c := t.live(a, now); c != nil {
		if c.record == r {
			return c, nil
		}
		others = append(others, c)
	}
	if b != a {
		if c := t.live(b, now); c != nil && !slices.Contains(others, c) {
			others = append(others, c)
		}
	}
	return nil, others
}

// live finds an entry and forgets it when its time is over.
func (t *table[K, R]) live(key K, now time.Duration) *entry[R] {
	c := t.entries.get(key)
	if c != nil && now >= t.expires(c) {
		t.expire(c)
		return nil
	}
	return c
}

// Touch notes a use of the record with this key at a time, and reports whether there is one. An
// expired record that is not yet forgotten lives on: uses of flows are read with a delay.
func (t *table[K, R]) Touch(key K, at time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil {
		return false
	}
	t.use(c, at)
	t.resend(c, "")
	return true
}

// resend makes a record in use due that the other hosts were not sent for a while, except one host
// that knows of the use. One that has ended may go there too.
func (t *table[K, R]) resend(c *entry[R], except string) {
	hosts, after := c.hosts.ids(), ResendAfter
	if c.in.imported {
		hosts, after = nil, KeepAfter
		if t.returned && c.in.holder != "" {
			hosts = []string{c.in.holder}
		}
	}
	if len(hosts) == 0 || c.ended || c.last < c.sentAt+after {
		return
	}
	c.sentAt = c.last
	for _, h := range hosts {
		if h != except {
			t.due[h] = append(t.due[h], c.record)
		}
	}
}

// TakeDue returns the records in use that have to be sent again, by host.
func (t *table[K, R]) TakeDue() map[string][]R {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = map[string][]R{}
	return due
}

// Expire forgets what has expired. Lists are in the order of Touch, so a record touched late may
// stay for one more call; readers do not see it. Records with a life of their own are all looked
// at, and those of ended connections, which come to their list in any order.
func (t *table[K, R]) Expire(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range []*holders[R]{&t.own, &t.imported} {
		for _, l := range h.by {
			for c := l.usual.last; c != nil && now >= t.expires(c); c = l.usual.last {
				t.expire(c)
			}
			for _, row := range []*chain[R]{&l.ended, &l.special} {
				for c := row.last; c != nil; {
					before := c.prev
					if now >= t.expires(c) {
						t.expire(c)
					}
					c = before
				}
			}
		}
	}
}

func (t *table[K, R]) expire(c *entry[R]) {
	t.drop(c)
	t.stats.Expired++
}

// Delete forgets the records with these keys, if they are there.
func (t *table[K, R]) Delete(keys []K) {
	if len(keys) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if c := t.entries.get(k); c != nil {
			t.drop(c)
		}
	}
}

// TakeEvicted returns the shortest time for which any record evicted since the last call was
// unused, and whether there was one. If that is shorter than the delay of Touch, records in use are
// evicted.
func (t *table[K, R]) TakeEvicted() (leastIdle time.Duration, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	leastIdle, t.leastIdle = t.leastIdle, never
	return leastIdle, leastIdle < never
}

// TakeGone returns the records forgotten since the last call: flows that rest on them must go.
func (t *table[K, R]) TakeGone() []R {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := t.gone
	t.gone = nil
	return gone
}

// Select returns the live records that match, with the port that opened each; "" for those of other
// hosts and of an earlier agent. It takes some ten nanoseconds a record, under the lock.
func (t *table[K, R]) Select(now time.Duration, matches func(port string, r R) bool) (all []R) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range []*holders[R]{&t.own, &t.imported} {
		for port, l := range h.by {
			if h.imported {
				port = ""
			}
			for _, first := range []*entry[R]{l.usual.first, l.ended.first, l.special.first} {
				for c := first; c != nil; c = c.next {
					if now < t.expires(c) && matches(port, c.record) {
						all = append(all, c.record)
					}
				}
			}
		}
	}
	return all
}

// Stats returns the counters.
func (t *table[K, R]) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Entries, s.Imported, s.Max = t.n, t.imported.n, t.max
	return s
}

// insert makes room first.
func (t *table[K, R]) insert(r R, kind *holders[R], holder string, now time.Duration) *entry[R] {
	if t.n >= t.max {
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
	c := &entry[R]{record: r, last: now, hosts: noHosts, special: t.life != nil && t.life(r) != 0}
	for _, other := range t.entries.put(c) {
		t.drop(other)
	}
	t.n++
	kind.push(c, holder)
	t.keepSet(c)
	if t.entered != nil {
		t.entered(r, kind.imported)
	}
	return c
}

// victim chooses what a full table evicts: the port with most records gives its longest unused one
// while this host has more than half, else the host that sent most. A host with its share or more
// gives its own.
func (t *table[K, R]) victim(imported bool, holder string) *entry[R] {
	over := imported && t.overShare(holder)
	switch {
	case t.imported.n == 0 || t.own.n > t.max-t.max/2 && !over:
		return t.own.largest().oldest()
	case over:
		return t.imported.by[holder].oldest()
	}
	return t.imported.largest().oldest()
}

// overShare reports whether a host has its share, or more, of the half for imported records.
func (t *table[K, R]) overShare(host string) bool {
	l := t.imported.by[host]
	return l != nil && l.n >= max(1, t.max/2/len(t.imported.by))
}

func (t *table[K, R]) unlist(c *entry[R]) {
	if c.in.imported {
		t.imported.remove(c)
	} else {
		t.own.remove(c)
	}
}

func (t *table[K, R]) drop(c *entry[R]) {
	t.unlist(c)
	t.entries.remove(c)
	t.n--
	t.gone = append(t.gone, c.record)
	t.keepDelete(c.record)
	if t.left != nil {
		t.left(c.record, c.in.imported)
	}
}
