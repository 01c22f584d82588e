package flowstate

import (
	"cmp"
	"time"

	"heddle/internal/topology/flow"
)

// Options bound a Table.
type Options struct {
	Max      int // connections; default 524288, two for each of 262144 flows
	MaxFrags int // first fragments; default 16384
	// Keeper keeps what must survive a restart of the agent; nil: nothing does.
	Keeper Keeper[flow.ConnKey]
}

// Table holds connections and first fragments. It may be used from any goroutine.
type Table struct {
	*table[flow.ConnKey, flow.ConnKey]
	frags fragments
}

// New makes an empty table.
func New(o Options) *Table {
	keys := func(k flow.ConnKey) (flow.ConnKey, flow.ConnKey) { return k, k }
	h := newHasher()
	return &Table{newTable(cmp.Or(o.Max, 524288), keys, h.ofConn, o.Keeper), fragments{max: cmp.Or(o.MaxFrags, 16384), known: map[flow.FragKey]*fragment{}}}
}

// Has reports whether key is remembered at a time. That is no use of it; see Touch.
func (t *Table) Has(key flow.ConnKey, now time.Duration) bool {
	_, ok := t.get(key, now)
	return ok
}

// Expire forgets what has expired.
func (t *Table) Expire(now time.Duration) {
	t.table.Expire(now)
	t.frags.mu.Lock()
	defer t.frags.mu.Unlock()
	t.frags.expire(now)
}
