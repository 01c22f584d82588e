package natport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

const (
	// storeTimeout bounds one call of the store.
	storeTimeout = 5 * time.Second
	// Pauses before a failed pass is tried again. They stay short: packets wait for ports a few
	// seconds at most, and those of health checks are among them, so that a long pause would be an
	// outage beyond that of the store.
	leastPause, mostPause = 500 * time.Millisecond, time.Second
	// upkeepEvery is the interval of looking for blocks to be released.
	upkeepEvery = 30 * time.Second
	// claimAttempts bounds the blocks that one pass tries when other hosts claim the same ones.
	claimAttempts = 10
	// blocksOfHost bounds the blocks of an address that one host holds, and its claims that count.
	// So no host takes all ports of an address from the others.
	blocksOfHost = blocksOfAddress / 2
	// warnEvery is the least interval of warnings that there are no blocks left.
	warnEvery = time.Minute
)

// claims holds the lease of this host's claims.
type claims struct {
	lease store.Lease
	lost  chan error // receives when the lease has ended
	end   func()     // stops renewing the lease, and waits for that

	quietUntil time.Duration // no warning that there are no blocks left before
}

// addressClaims holds the claims of all hosts to the blocks of an address.
type addressClaims struct {
	owners [blocksOfAddress]*snapshot.Entry // the claim to each block that counts; nil = none
	count  map[string]int                   // claims by host, those that do not count too
}

// claimsTo returns the claims to an address. Of each host the first blocksOfHost count, and of
// these the first to each block.
func claimsTo(s *snapshot.Snapshot, a address) *addressClaims {
	byHost := map[string][]*snapshot.Entry{}
	for e := range s.By(schema.NATBlocks.Name(), "address", schema.NATAddress(a.device, a.addr)) {
		host := e.Record.(*topology.NATBlock).HostID
		byHost[host] = append(byHost[host], e)
	}
	claims := &addressClaims{count: make(map[string]int, len(byHost))}
	for host, entries := range byHost {
		claims.count[host] = len(entries)
		if len(entries) > blocksOfHost {
			slices.SortFunc(entries, compareClaims)
			entries = entries[:blocksOfHost]
		}
		for _, e := range entries {
			number := e.Record.(*topology.NATBlock).Block
			if number >= blocksOfAddress {
				continue // written by no agent
			}
			first := &claims.owners[number]
			if *first == nil || compareClaims(e, *first) < 0 {
				*first = e
			}
		}
	}
	return claims
}

// compareClaims orders claims by create revision. Those of one transaction are in order of their
// blocks.
func compareClaims(a, b *snapshot.Entry) int {
	x, y := a.Record.(*topology.NATBlock), b.Record.(*topology.NATBlock)
	return cmp.Or(cmp.Compare(a.Create, b.Create), cmp.Compare(x.Block, y.Block), cmp.Compare(x.HostID, y.HostID))
}

// largest returns the host that holds the most of the blocks from first to last, and how many.
func (c *addressClaims) largest(first, last uint16) (host string, blocks int) {
	held := map[string]int{}
	for _, e := range c.owners[first : last+1] {
		if e == nil {
			continue
		}
		id := e.Record.(*topology.NATBlock).HostID
		held[id]++
		if held[id] > blocks || held[id] == blocks && id < host {
			host, blocks = id, held[id]
		}
	}
	return host, blocks
}

// Load takes over the blocks that an earlier agent of this host held, before Run.
func (l *Leases) Load(s *snapshot.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, claims := l.opts.Clock(), map[address]*addressClaims{}
	for e := range s.By(schema.NATBlocks.Name(), "host", l.opts.HostID) {
		c := e.Record.(*topology.NATBlock)
		a := address{c.DeviceID, c.Address}
		if claims[a] == nil {
			claims[a] = claimsTo(s, a)
		}
		if c.Block >= blocksOfAddress || claims[a].owners[c.Block] != e {
			continue
		}
		p := l.pools[a]
		if p == nil {
			p = &pool{released: map[uint16]time.Duration{}}
			l.pools[a] = p
		}
		p.held = append(p.held, &block{number: c.Block, create: e.Create, used: now})
	}
	l.kick.Give() // to renew them
}

// owner returns the claim to a block that counts, or nil, as claimsTo finds it.
func owner(s *snapshot.Snapshot, a address, number uint16) (first *snapshot.Entry) {
	key := schema.NATAddress(a.device, a.addr)
	for e := range s.By(schema.NATBlocks.Name(), "address", key) {
		if e.Record.(*topology.NATBlock).Block == number && (first == nil || compareClaims(e, first) < 0) && counts(s, key, e) {
			first = e
		}
	}
	return first
}

// counts reports whether a claim is among the first blocksOfHost of its host to the address, which
// has this key in the index.
func counts(s *snapshot.Snapshot, key string, claim *snapshot.Entry) bool {
	if s.CountBy(schema.NATBlocks.Name(), "address", key) <= blocksOfHost {
		return true
	}
	host, earlier := claim.Record.(*topology.NATBlock).HostID, 0
	for e := range s.By(schema.NATBlocks.Name(), "address", key) {
		if e.Record.(*topology.NATBlock).HostID == host && compareClaims(e, claim) < 0 {
			earlier++
		}
	}
	return earlier < blocksOfHost
}

// Changed takes in a change of a claim, of any host, as of a snapshot.
func (l *Leases) Changed(c *snapshot.Changed, s *snapshot.Snapshot) {
	record, ok := c.New.(*topology.NATBlock)
	if !ok {
		if record, ok = c.Old.(*topology.NATBlock); !ok {
			return
		}
	}
	a := address{record.DeviceID, record.Address}
	l.mu.Lock()
	p := l.pools[a]
	if p == nil {
		l.mu.Unlock()
		return
	}
	arrived := false
	if c.New == nil {
		p.released[record.Block] = l.opts.Clock()
		arrived, p.exhausted = p.exhausted, false
	}
	if i := p.find(record.Block); i >= 0 {
		if first := l.newOwner(s, a, p.held[i]); first != nil {
			p.held = slices.Delete(p.held, i, i+1)
			l.opts.Log.Warn("lost a block of NAT ports to another host, which claimed it while this host had no claim",
				"router", a.device, "address", a.addr, "block", record.Block, "host_id", first.Record.(*topology.NATBlock).HostID)
		}
		l.kick.Give()
	}
	l.mu.Unlock()
	if arrived {
		l.opts.Arrived(a.device, a.addr)
	}
}

// newOwner returns the claim of another host that has won a block of this host, or nil. While this
// host's claim is there none has: an earlier one that counts only now, since its host has taken
// others back, comes too late.
func (l *Leases) newOwner(s *snapshot.Snapshot, a address, b *block) *snapshot.Entry {
	if own := s.Get(schema.NATBlocks.Name(), l.id(a, b.number)); own != nil && own.Create == b.create {
		return nil
	}
	first := owner(s, a, b.number)
	if first == nil || first.Record.(*topology.NATBlock).HostID == l.opts.HostID {
		return nil
	}
	return first
}

func (p *pool) find(number uint16) int {
	return slices.IndexFunc(p.held, func(b *block) bool { return b.number == number })
}

// Run leases and releases blocks until ctx ends. The blocks held then stay.
func (l *Leases) Run(ctx context.Context) error {
	l.claims.lost = make(chan error, 1)
	defer l.endLease()
	wait, failing := task.Backoff{Least: leastPause, Most: mostPause, Spread: true}, false
	retry, tick := task.NewAlarm(), time.Tick(upkeepEvery)
	for {
		if err := l.pass(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			if !failing {
				l.opts.Log.Warn("cannot lease NAT ports, will try again: connections that need more of them wait and are dropped", "err", err)
			}
			failing = true
			retry.Set(time.Now().Add(wait.Next()))
		} else {
			failing = false
			wait.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.claims.lost:
			l.opts.Log.Warn("the lease of this host's NAT ports has ended, taking another", "err", err)
			l.endLease()
		case <-retry.C:
		case <-tick:
			l.releaseUnused()
		case <-l.kick:
		}
	}
}

func (l *Leases) endLease() {
	if l.claims.end != nil {
		l.claims.end()
		l.claims.end, l.claims.lease = nil, 0
	}
}

// pass makes the store hold this host's claims, those to its blocks and no others, and leases the
// blocks that are wanted.
func (l *Leases) pass(ctx context.Context) error {
	l.mu.Lock()
	var wanted []address
	n := 0
	for a, p := range l.pools {
		n += len(p.held)
		if p.wanted {
			wanted = append(wanted, a)
		}
	}
	l.mu.Unlock()
	s := l.opts.Replica.Snapshot()
	if n > 0 || len(wanted) > 0 {
		if err := l.ensureLease(ctx); err != nil {
			return err
		}
		if err := l.renewAll(ctx, s); err != nil {
			return err
		}
	}
	for _, a := range wanted {
		if err := l.lease(ctx, a); err != nil {
			return fmt.Errorf("address %s of router %s: %w", a.addr, a.device, err)
		}
	}
	return l.withdraw(ctx, s)
}

// ensureLease takes a lease if there is none, and renews it from then on.
func (l *Leases) ensureLease(ctx context.Context) error {
	if l.claims.lease != 0 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	lease, err := l.opts.Store.Grant(short, leaseTTL)
	if err != nil {
		return err
	}
	renewing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.opts.Store.KeepAlive(renewing, lease); err != nil {
			select {
			case l.claims.lost <- err:
			case <-renewing.Done():
			}
		}
	}()
	l.claims.lease, l.claims.end = lease, func() {
		stop()
		<-done
	}
	return nil
}

// renewAll puts this host's claims under its lease, also those that the store has lost.
func (l *Leases) renewAll(ctx context.Context, s *snapshot.Snapshot) error {
	type claim struct {
		address
		block
	}
	var due []claim
	l.mu.Lock()
	for a, p := range l.pools {
		for _, b := range p.held {
			e := s.Get(schema.NATBlocks.Name(), l.id(a, b.number))
			if b.lease != l.claims.lease || b.create <= s.Revision && (e == nil || e.Create != b.create) {
				due = append(due, claim{a, *b})
			}
		}
	}
	l.mu.Unlock()
	for _, c := range due {
		create, err := l.renew(ctx, c.address, c.number, c.create)
		if err != nil {
			return err
		}
		l.mu.Lock()
		if p := l.pools[c.address]; p != nil {
			if i := p.find(c.number); i >= 0 && create == 0 {
				p.held = slices.Delete(p.held, i, i+1)
			} else if i >= 0 {
				p.held[i].create, p.held[i].lease = create, l.claims.lease
			}
		}
		l.mu.Unlock()
	}
	return nil
}

// renew writes a claim under the current lease. It returns the claim's create revision, 0 if the
// block has become another host's.
func (l *Leases) renew(ctx context.Context, a address, number uint16, create int64) (int64, error) {
	_, err := l.put(ctx, a, number, store.Cond{Create: create})
	if !errors.Is(err, store.ErrConflict) {
		return create, err
	}
	return l.claim(ctx, a, number)
}

// claim claims a block. It returns the claim's create revision, 0 if the block is another host's.
func (l *Leases) claim(ctx context.Context, a address, number uint16) (int64, error) {
	rev, err := l.put(ctx, a, number, store.Cond{})
	if err != nil && !errors.Is(err, store.ErrConflict) { // a conflict: an earlier attempt got through
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := l.opts.Replica.At(ctx, rev)
	if err != nil {
		return 0, err
	}
	if first := owner(s, a, number); first != nil && first.ID == l.id(a, number) {
		return first.Create, nil
	}
	return 0, nil
}

func (l *Leases) record(a address, number uint16) *topology.NATBlock {
	return &topology.NATBlock{HostID: l.opts.HostID, DeviceID: a.device, Address: a.addr, Block: number}
}

func (l *Leases) id(a address, number uint16) string {
	return schema.NATBlocks.ID(l.record(a, number))
}

// put writes a claim if a condition on its key holds.
func (l *Leases) put(ctx context.Context, a address, number uint16, cond store.Cond) (int64, error) {
	record := l.record(a, number)
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	cond.Key = schema.NATBlocks.KeyOf(record)
	rev, err := l.opts.Store.Commit(ctx, []store.Cond{cond}, []store.Op{{Key: cond.Key, Value: value, Lease: l.claims.lease}})
	if errors.Is(err, store.ErrLeaseGone) {
		l.endLease() // the next attempt takes another
	}
	return rev, err
}

// lease leases another block of an address, or finds that there is none for this host.
func (l *Leases) lease(ctx context.Context, a address) error {
	for range claimAttempts {
		claims := claimsTo(l.opts.Replica.Snapshot(), a)
		number, ok := l.candidate(a, claims)
		if !ok {
			l.warnExhausted(a, claims)
			l.finish(a, nil)
			return nil
		}
		create, err := l.claim(ctx, a, number)
		if err != nil {
			return err
		}
		if create != 0 {
			l.finish(a, &block{number: number, create: create, lease: l.claims.lease, used: l.opts.Clock()})
			return nil
		}
		if err := l.drop(ctx, l.id(a, number)); err != nil {
			return err
		}
	}
	return errors.New("other hosts claim the same blocks")
}

// warnExhausted logs that no block of an address is left for this host, and which host holds the
// most of those that were asked for.
func (l *Leases) warnExhausted(a address, claims *addressClaims) {
	now := l.opts.Clock()
	if now < l.claims.quietUntil {
		return
	}
	l.claims.quietUntil = now + warnEvery
	l.mu.Lock()
	p := l.pools[a]
	first, last := p.first, p.last
	l.mu.Unlock()
	host, blocks := claims.largest(first, last)
	l.opts.Log.Warn("no block of NAT ports is left to lease: connections that need more are dropped",
		"router", a.device, "address", a.addr, "blocks", int(last-first)+1, "claimedHere", claims.count[l.opts.HostID], "claimsOfHost", blocksOfHost,
		"largestHolder", host, "largestBlocks", blocks)
}

// candidate chooses a block that no host holds: the preferred one, else one at random that this
// host has not seen in use, else the one released first. There is none for a host with its share.
func (l *Leases) candidate(a address, claims *addressClaims) (number uint16, ok bool) {
	if claims.count[l.opts.HostID] >= blocksOfHost {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[a]
	if preferred := p.prefer / flowstate.BlockSize; p.prefer != 0 && len(p.held) == 0 && claims.owners[preferred] == nil {
		return preferred, true
	}
	var fresh []uint16
	oldest := time.Duration(0)
	for n := int(p.first); n <= int(p.last); n++ {
		released, was := p.released[uint16(n)]
		switch {
		case claims.owners[n] != nil:
		case !was:
			fresh = append(fresh, uint16(n))
		case !ok || released < oldest:
			number, oldest, ok = uint16(n), released, true
		}
	}
	if len(fresh) > 0 {
		return fresh[rand.IntN(len(fresh))], true
	}
	return number, ok
}

// finish ends the wish for another block of an address: it is b, or nil if there is none.
func (l *Leases) finish(a address, b *block) {
	l.mu.Lock()
	if p := l.pools[a]; p != nil {
		p.wanted, p.exhausted = false, b == nil
		if b != nil {
			p.held = append(p.held, b)
		}
	}
	l.mu.Unlock()
	l.opts.Arrived(a.device, a.addr)
}

// releaseUnused lets go of the blocks that no connection has used for long; the next pass takes the
// claims back.
func (l *Leases) releaseUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opts.Clock()
	for a, p := range l.pools {
		p.held = slices.DeleteFunc(p.held, func(b *block) bool {
			if l.opts.Translations.Uses(flowstate.Block{Device: a.device, Addr: a.addr, Number: b.number}) > 0 {
				b.used = now
			}
			return now >= b.used+releaseAfter
		})
		p.exhausted = false // to be found again, should a change have been missed
		if len(p.held) == 0 && !p.wanted {
			delete(l.pools, a)
		}
	}
}

// withdraw takes back claims to blocks that this host does not hold.
func (l *Leases) withdraw(ctx context.Context, s *snapshot.Snapshot) error {
	var ids []string
	l.mu.Lock()
	for e := range s.By(schema.NATBlocks.Name(), "host", l.opts.HostID) {
		c := e.Record.(*topology.NATBlock)
		if p := l.pools[address{c.DeviceID, c.Address}]; p == nil || p.find(c.Block) < 0 {
			ids = append(ids, e.ID)
		}
	}
	l.mu.Unlock()
	for _, id := range ids {
		if err := l.drop(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// drop takes a claim back.
func (l *Leases) drop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := l.opts.Store.Commit(ctx, nil, []store.Op{{Key: schema.NATBlocks.Key(id), Delete: true}})
	return err
}
