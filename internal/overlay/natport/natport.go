// Package natport leases NAT ports to this host: blocks of 64 ports of a router's translated
// address, each held by one host, so that no two hosts give one port to connections to the same
// destination (midonet-simulation §6).
//
// A host claims a block by writing a key below its own, which no other host can write. Hosts follow
// each other's claims: of several to one block the earliest counts, by its create revision. After
// a claim the host waits until it has seen all earlier ones; if one is to the same block, it takes
// its own back. Of one host's claims to an address no more count than half of its blocks, so that a
// host that claims all of them leaves the others the rest. Claims are under a lease of the host. It
// lasts an hour without renewal, since the connections of a host that cannot reach the store go on:
// other hosts get the blocks of a dead host an hour later, or when an operator removes it.
package natport

import (
	"context"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/store"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// blocksOfAddress is the number of blocks of a translated address.
	blocksOfAddress = 1 << 16 / flowstate.BlockSize
	// mostAddresses bounds the addresses of one request that are looked at.
	mostAddresses = 256
	// Another block is leased when no more ports toward a destination are free than are in use,
	// within these bounds. So steady traffic goes on while the store is away: the ports of
	// connections that have ended are free again only after a while.
	leastSpare, mostSpare = 16, 512
	// holdFor bounds the time for which a port is held for a decision that is not stored yet.
	holdFor = time.Second
	// releaseAfter is the time for which a block is kept without a connection. Other hosts forget
	// their copies of its translations sooner.
	releaseAfter = 10 * time.Minute
	// leaseTTL is the life of claims after the last renewal by their host.
	leaseTTL = time.Hour
)

// Replica follows the store; see replica.Replica.
type Replica interface {
	Snapshot() *snapshot.Snapshot
	At(ctx context.Context, rev int64) (*snapshot.Snapshot, error)
}

// Translations are the connections that use the ports.
type Translations interface {
	// AppendInUse appends the ports in use for connections like the requested one with a translated
	// address, in order of their blocks.
	AppendInUse(to []flowstate.BlockUse, r *flow.NATRequest, source netip.Addr) []flowstate.BlockUse
	// UsedBySource returns how many ports of a translated address are in use for connections like
	// the requested one by the same source.
	UsedBySource(r *flow.NATRequest, translated netip.Addr) int
	// Uses returns how many connections use ports of a block.
	Uses(flowstate.Block) int
}

// Options of Leases; all but Log are needed.
type Options struct {
	HostID       string
	Store        store.Store
	Replica      Replica
	Translations Translations
	// Arrived is called when requests of a router for an address may be answered otherwise.
	Arrived func(device string, address netip.Addr)
	Clock   func() time.Duration // the machine's monotonic clock
	Log     *slog.Logger
}

// Leases are the blocks that this host holds. The methods may be called from any goroutine.
type Leases struct {
	opts   Options
	kick   task.Notice // wakes Run
	claims claims      // of Run alone

	mu    sync.Mutex
	pools map[address]*pool
	holds map[flow.NATKey]time.Duration // chosen ports, by the key of replies, until then
	order []flow.NATKey                 // of holds, in order of time
	use   []flowstate.BlockUse          // room
}

// address is a translated address of a router.
type address struct {
	device string
	addr   netip.Addr
}

// pool holds this host's blocks of an address, and what it knows of the others.
type pool struct {
	held      []*block
	wanted    bool // another block is to be leased
	exhausted bool // no block is left for this host
	// first and last are the blocks with ports that were asked for; prefer, if it is not 0, is a
	// port of the block to be leased first.
	first, last uint16
	prefer      uint16
	released    map[uint16]time.Duration // blocks that hosts let go, by when this host saw that
}

// block is a block that this host holds.
type block struct {
	number uint16
	create int64 // revision of the claim
	lease  store.Lease
	used   time.Duration // when it was last seen in use
}

// New returns Leases of nothing. Without Run, no blocks come.
func New(o Options) *Leases {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Leases{opts: o, kick: task.NewNotice(), pools: map[address]*pool{}, holds: map[flow.NATKey]time.Duration{}}
}

// Choose answers a request from the blocks held. A chosen port is held for a moment, until the
// translation is stored. If the blocks suffice no longer, or soon will not, another one is leased.
func (l *Leases) Choose(r flow.NATRequest) (flow.NATBinding, flow.NATAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Clock()
	l.expireHolds(now)
	b, answer := l.choose(&r, true)
	if answer == flow.NATChosen {
		key := r.Taken(b)
		l.holds[key] = now + holdFor
		l.order = append(l.order, key)
	}
	return b, answer
}

// Peek answers as Choose would now, and leaves nothing behind.
func (l *Leases) Peek(r flow.NATRequest) (flow.NATBinding, flow.NATAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.choose(&r, false)
}

func (l *Leases) expireHolds(now time.Duration) {
	n := 0
	for ; n < len(l.order); n++ {
		until, there := l.holds[l.order[n]]
		if there && now < until {
			break
		}
		delete(l.holds, l.order[n])
	}
	l.order = slices.Delete(l.order, 0, n)
}

// choose answers from the first address with a free port. With lease, blocks that will be needed
// are leased.
func (l *Leases) choose(r *flow.NATRequest, lease bool) (flow.NATBinding, flow.NATAnswer) {
	looked, next, isShareUsed := 0, netip.Addr{}, false
	var nextIn *flow.NATTarget
	for i := range r.Targets {
		t := &r.Targets[i]
		for a := t.First; a.IsValid() && !t.Last.Less(a) && looked < mostAddresses; a = a.Next() {
			looked++
			if l.opts.Translations.UsedBySource(r, a) >= shareOf(t) {
				isShareUsed = true
				continue
			}
			port, free, used := l.pick(r, t, a)
			if free > 0 {
				if lease && free <= min(max(leastSpare, used), mostSpare) {
					l.want(r, t, a)
				}
				return flow.NATBinding{Addr: a, Port: port}, flow.NATChosen
			}
			if p := l.pools[address{r.Device, a}]; nextIn == nil && (p == nil || !p.exhausted) {
				next, nextIn = a, t
			}
		}
	}
	switch {
	case nextIn != nil:
	case isShareUsed:
		return flow.NATBinding{}, flow.NATShareUsed
	default:
		return flow.NATBinding{}, flow.NATExhausted
	}
	if lease {
		l.want(r, nextIn, next)
	}
	return flow.NATBinding{}, flow.NATWaiting
}

// shareOf returns how many ports of an address the connections of one source to one destination may
// use: half of them, so that no machine alone takes the ports of its router from all others.
func shareOf(t *flow.NATTarget) int { return (int(t.LastPort) - int(t.FirstPort) + 2) / 2 }

// want has another block of an address leased.
func (l *Leases) want(r *flow.NATRequest, t *flow.NATTarget, a netip.Addr) {
	p := l.pools[address{r.Device, a}]
	if p == nil {
		p = &pool{released: map[uint16]time.Duration{}}
		l.pools[address{r.Device, a}] = p
	}
	if !p.wanted && !p.exhausted {
		p.wanted, p.prefer = true, r.Keep
		p.first, p.last = t.FirstPort/flowstate.BlockSize, t.LastPort/flowstate.BlockSize
		l.kick.Give()
	}
}

// pick chooses a free port of an address at random. free is the number of those there are, and used
// that of the others in the host's blocks.
func (l *Leases) pick(r *flow.NATRequest, t *flow.NATTarget, a netip.Addr) (port uint16, free, used int) {
	p := l.pools[address{r.Device, a}]
	if p == nil || len(p.held) == 0 {
		return 0, 0, 0
	}
	l.use = l.opts.Translations.AppendInUse(l.use[:0], r, a)
	kept := false
	start := rand.IntN(len(p.held))
	for i := range p.held {
		number := p.held[(start+i)%len(p.held)].number
		ports := ^l.inUse(number) &^ reserved(r, number)
		if r.Keep != 0 && r.Keep/flowstate.BlockSize == number && ports>>(r.Keep%flowstate.BlockSize)&1 != 0 && !l.held(r, a, r.Keep) {
			port, kept = r.Keep, true
		}
		ports &= within(number, t.FirstPort, t.LastPort)
		if port == 0 {
			port, ports = l.anyOf(r, a, number, ports)
		}
		free += bits.OnesCount64(ports)
		used += bits.OnesCount64(l.inUse(number))
	}
	if kept {
		free = max(free, 1)
	}
	return port, free, used
}

// inUse returns the ports of a block that are in use for the request being answered.
func (l *Leases) inUse(number uint16) uint64 {
	i, found := slices.BinarySearchFunc(l.use, number, func(u flowstate.BlockUse, n uint16) int { return int(u.Number) - int(n) })
	if !found {
		return 0
	}
	return l.use[i].Ports
}

// reserved returns the ports of a block that a request must not get.
func reserved(r *flow.NATRequest, number uint16) (ports uint64) {
	i, _ := slices.BinarySearch(r.Reserved, number*flowstate.BlockSize)
	for _, port := range r.Reserved[i:] {
		if port/flowstate.BlockSize != number {
			break
		}
		ports |= 1 << (port % flowstate.BlockSize)
	}
	return ports
}

// within returns the ports of a block in a range.
func within(number, first, last uint16) uint64 {
	low := int(number) * flowstate.BlockSize
	from, to := max(int(first)-low, 0), min(int(last)-low, flowstate.BlockSize-1)
	if from > to {
		return 0
	}
	return ^uint64(0) << from & (^uint64(0) >> (flowstate.BlockSize - 1 - to))
}

// anyOf chooses one of some ports of a block at random, 0 for none. It returns those that are not
// held for other decisions.
func (l *Leases) anyOf(r *flow.NATRequest, a netip.Addr, number uint16, ports uint64) (uint16, uint64) {
	for rest := ports; rest != 0; {
		bit := nth(rest, rand.IntN(bits.OnesCount64(rest)))
		rest &^= 1 << bit
		port := number*flowstate.BlockSize + uint16(bit)
		if port != 0 && !l.held(r, a, port) {
			return port, ports
		}
		ports &^= 1 << bit
	}
	return 0, 0
}

// nth returns the position of the bit that has n set bits below it.
func nth(b uint64, n int) int {
	for ; n > 0; n-- {
		b &= b - 1
	}
	return bits.TrailingZeros64(b)
}

func (l *Leases) held(r *flow.NATRequest, a netip.Addr, port uint16) bool {
	_, held := l.holds[r.Taken(flow.NATBinding{Addr: a, Port: port})]
	return held
}

// Held returns the number of blocks that this host holds.
func (l *Leases) Held() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pools {
		n += len(p.held)
	}
	return n
}

// Holder returns the id of another host that holds the block of a translated port, or "". A
// connection that has moved here keeps its port: the holder must not give it to another.
func (l *Leases) Holder(device string, addr netip.Addr, port uint16) string {
	if host := l.Owner(device, addr, port); host != l.opts.HostID {
		return host
	}
	return ""
}

// Owner returns the id of the host that holds the block of a translated port, or "".
func (l *Leases) Owner(device string, addr netip.Addr, port uint16) string {
	a, number := address{device, addr}, port/flowstate.BlockSize
	l.mu.Lock()
	p := l.pools[a]
	isHeld := p != nil && p.find(number) >= 0
	l.mu.Unlock()
	if isHeld {
		return l.opts.HostID
	}
	if first := owner(l.opts.Replica.Snapshot(), a, number); first != nil {
		return first.Record.(*topology.NATBlock).HostID
	}
	return ""
}
