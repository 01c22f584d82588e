package flowstate

import (
	"time"

	"heddle/internal/topology/flow"
)

// fragments are remembered in the order in which they came, which is the order in which they expire.
type fragments struct {
	known       map[flow.FragKey]*fragment
	first, last *fragment // oldest, newest
	evicted     uint64
}

type fragment struct {
	key     flow.FragKey
	ports   [2]uint16
	expires time.Duration
	next    *fragment
}

// AddFrag remembers the source and destination port of a datagram whose first fragment passed.
func (t *Table) AddFrag(key flow.FragKey, ports [2]uint16, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &t.frags
	f.expire(now)
	if len(f.known) >= t.opts.MaxFrags {
		f.pop()
		f.evicted++
	}
	x := &fragment{key: key, ports: ports, expires: now + FragTTL}
	f.known[key] = x
	if f.last == nil {
		f.first = x
	} else {
		f.last.next = x
	}
	f.last = x
}

// Frag returns the ports of a datagram whose first fragment passed not long before now.
func (t *Table) Frag(key flow.FragKey, now time.Duration) (ports [2]uint16, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.frags.known[key]
	if x == nil || now >= x.expires {
		return ports, false
	}
	return x.ports, true
}

func (f *fragments) expire(now time.Duration) {
	for f.first != nil && now >= f.first.expires {
		f.pop()
	}
}

// pop forgets the oldest; a key that came again since is known by its newer fragment and stays.
func (f *fragments) pop() {
	x := f.first
	if f.first = x.next; f.first == nil {
		f.last = nil
	}
	if f.known[x.key] == x {
		delete(f.known, x.key)
	}
}
