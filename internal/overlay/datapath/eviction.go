package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// A full cache is evicted like a clock with one hand, which goes round the table a sample at a time
// and evicts the quarter of the sample that has been idle longest. That bounds the work of an
// insertion whatever the size of the table, and busy flows stay. The kernel's own LRU maps would
// not report what they evict.
const (
	evictSample = 1024
	evictPart   = 4
	evictSay    = 10 * time.Second // between two words in the log
)

// evictor is the state of both tables' hands.
type evictor struct {
	mu      sync.Mutex
	v4      hand[bpfKey4, bpfFlow4, *bpfFlow4]
	v6      hand[bpfKey6, bpfFlow6, *bpfFlow6]
	evicted atomic.Uint64
	gone    func(cookie, packets, bytes uint64)
	said    time.Time
}

// hand is a position in one table.
type hand[K bpfKey, V any, PV bpfValue[V]] struct {
	cursor *ebpf.MapBatchCursor
	keys   []K
	values []V
}

// OnGone has gone called with the last counters of each flow that is evicted, replaced or deleted
// from now on. It is called during Install and Delete.
func (c *flowCache) OnGone(gone func(cookie, packets, bytes uint64)) {
	c.evict.mu.Lock()
	defer c.evict.mu.Unlock()
	c.evict.gone = gone
}

// left gives away the counters of a flow that has left the cache.
func (e *evictor) left(f *bpfFlow) {
	e.mu.Lock()
	gone := e.gone
	e.mu.Unlock()
	if gone != nil {
		gone(f.Cookie, f.Packets, f.Bytes)
	}
}

// Evicted returns the number of flows evicted since Open.
func (c *flowCache) Evicted() uint64 { return c.evict.evicted.Load() }

func (c *flowCache) makeRoom(evict func() (int, error)) error {
	c.evict.mu.Lock()
	defer c.evict.mu.Unlock()
	n, err := evict()
	if err != nil {
		return fmt.Errorf("the flow cache is full; make room: %w", err)
	}
	total := c.evict.evicted.Add(uint64(n))
	if now := time.Now(); now.Sub(c.evict.said) > evictSay {
		c.evict.said = now
		c.log.Warn("the flow cache is full: idle flows make room, and start again with a miss when they wake",
			"max_flows", c.maps.Flows4.MaxEntries(), "evicted", total)
	}
	return nil
}

// evict moves the hand one step and returns the number of flows evicted, at least one.
func (h *hand[K, V, PV]) evict(m *ebpf.Map, evicted func(cookie, packets, bytes uint64)) (int, error) {
	if h.keys == nil {
		n := min(evictSample, int(m.MaxEntries()))
		h.keys, h.values = make([]K, n), make([]V, n)
	}
	for range 2 { // the second time from the start, when the hand stood at the end
		if h.cursor == nil {
			h.cursor = new(ebpf.MapBatchCursor)
		}
		got, err := m.BatchLookup(h.cursor, h.keys, h.values, nil)
		if err != nil {
			h.cursor = nil
			if !errors.Is(err, ebpf.ErrKeyNotExist) {
				return 0, err
			}
		}
		if got > 0 {
			return h.throwOut(m, got, evicted)
		}
	}
	return 0, errors.New("it has no flow to evict")
}

// throwOut deletes the part of the first n flows of the sample that has been idle longest.
func (h *hand[K, V, PV]) throwOut(m *ebpf.Map, n int, evicted func(cookie, packets, bytes uint64)) (int, error) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	used := func(i int) uint64 { return PV(&h.values[i]).common().Used }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(used(a), used(b)) })
	gone := 0
	for _, i := range order[:max(1, n/evictPart)] {
		switch err := m.Delete(&h.keys[i]); {
		case err == nil:
			gone++
			if evicted != nil {
				v := PV(&h.values[i]).common()
				evicted(v.Cookie, v.Packets, v.Bytes)
			}
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return gone, err
		}
	}
	return gone, nil
}
