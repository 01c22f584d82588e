package flowstate

import (
	"time"

	"heddle/internal/topology/flow"
)

// fragments are in order of arrival, which is that of expiry.
type fragments struct {
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
	f.order = append(f.order, x)
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
