package control

import (
	"net/netip"
	"slices"
	"sync"
)

// reservations are the addresses chosen by operations in flight in this process, which others
// avoid. They only save conflicts: the store decides.
type reservations struct {
	mu     sync.Mutex
	owners map[subnetAddr]*reservation
}

type subnetAddr struct {
	subnetID string
	addr     netip.Addr
}

// reservation lists the addresses reserved by one operation.
type reservation struct {
	all   *reservations
	addrs []subnetAddr
}

func newReservations() *reservations { return &reservations{owners: map[subnetAddr]*reservation{}} }

func (r *reservations) begin() *reservation { return &reservation{all: r} }

// take reserves the address unless another operation has it.
func (o *reservation) take(subnetID string, a netip.Addr) bool {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	at := subnetAddr{subnetID, a}
	if owner, reserved := o.all.owners[at]; reserved {
		return owner == o
	}
	o.all.owners[at] = o
	o.addrs = append(o.addrs, at)
	return true
}

// others adds what other operations have reserved from first to last to taken, and sorts it.
func (o *reservation) others(subnetID string, first, last netip.Addr, taken []netip.Addr) []netip.Addr {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	for at, owner := range o.all.owners {
		if owner != o && at.subnetID == subnetID && !at.addr.Less(first) && !last.Less(at.addr) {
			taken = append(taken, at.addr)
		}
	}
	slices.SortFunc(taken, netip.Addr.Compare)
	return slices.Compact(taken)
}

// end releases the operation's reservations.
func (o *reservation) end() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	for _, at := range o.addrs {
		delete(o.all.owners, at)
	}
	o.addrs = nil
}
