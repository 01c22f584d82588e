package flowstate

import (
	"sync"
	"time"

	"heddle/internal/topology/flow"
)

// fragments are in order of arrival, which is that of expiry.
type fragments struct {
	max int

	mu      sync.Mutex
	known   map[flow.FragKey]*fragment
	order   []*fragment // oldest first
	evicted uint64
}

type fragment struct {
	key     flow.FragKey
	ports   [2]uint16
	expires time.Duration
}

// AddFrag remembers the source and destination port of a datagram whose first fragment passed.
func (t *Table) AddFrag(key flow.FragKey, ports [2]uint16, now time.Duration) {
	f := &t.frags
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
	if len(f.known) >= f.max {
		f.pop()
		f.evicted++
	}
	x := &fragment{key: key, ports: ports, expires: now + FragTTL}
	f.known[key] = x
	f.order = append(f.order, x)
}

// Frag returns the ports of a datagram whose first fragment passed not long before now.
func (t *Table) Frag(key flow.FragKey, now time.Duration) (ports [2]uint16, ok bool) {
	f := &t.frags
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.known[key]
	if x == nil || now >= x.expires {
		return ports, false
	}
	return x.ports, true
}

// FragStats returns how many first fragments are remembered, and how many were evicted.
func (t *Table) FragStats() (n int, evicted uint64) {
	t.frags.mu.Lock()
	defer t.frags.mu.Unlock()
	return len(t.frags.known), t.frags.evicted
}

func (f *fragments) expire(now time.Duration) {
	for len(f.order) > 0 && now >= f.order[0].expires {
		f.pop()
	}
}

// pop forgets the oldest; a key that came again since stays with its newer fragment.
func (f *fragments) pop() {
	x := f.order[0]
	f.order[0] = nil
	f.order = f.order[1:]
	if f.known[x.key] == x {
		delete(f.known, x.key)
	}
}
