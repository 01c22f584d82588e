package control

import (
	"net/netip"
	"slices"
	"sync"
)

// held are the addresses that operations under way in this process have chosen, so that others choose different ones. It
// only saves conflicts: what is taken for good is in the store, and another server's choices meet there.
type held struct {
	mu    sync.Mutex
	bySub map[string]map[netip.Addr]*hold
}

// hold is what one operation holds.
type hold struct {
	h     *held
	addrs []heldAddr
}

type heldAddr struct {
	subnetID string
	addr     netip.Addr
}

func (h *held) begin() *hold { return &hold{h: h} }

// take holds the address unless another operation does.
func (o *hold) take(subnetID string, a netip.Addr) bool {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	addrs := o.h.bySub[subnetID]
	switch owner, ok := addrs[a]; {
	case ok:
		return owner == o
	case addrs == nil:
		addrs = map[netip.Addr]*hold{}
		if o.h.bySub == nil {
			o.h.bySub = map[string]map[netip.Addr]*hold{}
		}
		o.h.bySub[subnetID] = addrs
	}
	addrs[a] = o
	o.addrs = append(o.addrs, heldAddr{subnetID, a})
	return true
}

// others adds to taken, which is sorted, what other operations hold from first to last.
func (o *hold) others(subnetID string, first, last netip.Addr, taken []netip.Addr) []netip.Addr {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	for a, owner := range o.h.bySub[subnetID] {
		if owner != o && !a.Less(first) && !last.Less(a) {
			taken = append(taken, a)
		}
	}
	slices.SortFunc(taken, netip.Addr.Compare)
	return slices.Compact(taken)
}

// end gives back what the operation holds.
func (o *hold) end() {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	for _, a := range o.addrs {
		addrs := o.h.bySub[a.subnetID]
		delete(addrs, a.addr)
		if len(addrs) == 0 {
			delete(o.h.bySub, a.subnetID)
		}
	}
	o.addrs = nil
}
