package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// A full cache makes room like a clock with one hand: the hand goes round the table a sample at a time and throws out
// the quarter of the sample that has been idle longest. That bounds the work an insertion can cause, whatever the size
// of the table, and busy flows stay. The kernel's own LRU maps would evict without saying so.
const (
	evictSample = 1024
	evictPart   = 4
	evictSay    = 10 * time.Second // between two words in the log
)

// evictor is the state of both tables' hands.
type evictor struct {
	mu      sync.Mutex
	v4      hand[bpfKey4]
	v6      hand[bpfKey6]
	evicted atomic.Uint64
	said    time.Time
}

// hand is where the clock's hand stands in one table.
type hand[K bpfKey] struct {
	cursor *ebpf.MapBatchCursor
	keys   []K
	values []bpfFlow
}

// Evicted is how many flows were thrown out to make room since Open.
func (d *Datapath) Evicted() uint64 { return d.evict.evicted.Load() }

func (d *Datapath) makeRoom(evict func() (int, error)) error {
	d.evict.mu.Lock()
	defer d.evict.mu.Unlock()
	n, err := evict()
	if err != nil {
		return fmt.Errorf("the flow cache is full; make room: %w", err)
	}
	total := d.evict.evicted.Add(uint64(n))
	if now := time.Now(); now.Sub(d.evict.said) > evictSay {
		d.evict.said = now
		d.opts.Log.Warn("the flow cache is full: idle flows make room, and start again with a miss when they wake",
			"max_flows", d.opts.MaxFlows, "evicted", total)
	}
	return nil
}

// evict moves the hand one step and says how many flows it threw out, at least one.
func (h *hand[K]) evict(m *ebpf.Map) (int, error) {
	if h.keys == nil {
		n := min(evictSample, int(m.MaxEntries()))
		h.keys, h.values = make([]K, n), make([]bpfFlow, n)
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
			return h.throwOut(m, got)
		}
	}
	return 0, errors.New("it has no flow to evict")
}

// throwOut deletes the part of the first n flows of the sample that has been idle longest.
func (h *hand[K]) throwOut(m *ebpf.Map, n int) (int, error) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if h.values[a].Used < h.values[b].Used {
			return -1
		}
		return 1
	})
	gone := 0
	for _, i := range order[:max(1, n/evictPart)] {
		switch err := m.Delete(&h.keys[i]); {
		case err == nil:
			gone++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return gone, err
		}
	}
	return gone, nil
}
