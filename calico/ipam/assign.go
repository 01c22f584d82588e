package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
)

// Request describes the addresses that AutoAssign should find.
type Request struct {
	Num4, Num6 int
	Host       string            // on which they will be used; "": this one
	Handle     string            // by which they can be found and released together; "": none
	Attributes map[string]string // kept beside the addresses
	// Pools4 and Pools6 restrict the choice, in the order of preference; none: all pools. Those
	// that are disabled or not for IPAM are skipped.
	Pools4, Pools6 []netip.Prefix
}

// AutoAssign finds addresses: from blocks affine to the host, then from blocks that it claims, if
// the configuration allows, then, unless blocks are strict, from blocks of others. Finding fewer
// than requested is no error.
//
// Returned addresses are assigned, even if there is an error; if IPv4 fails, IPv6 is not tried. A
// transaction covers up to some fifty blocks; a larger request takes several, each complete. After
// [client.ErrUnavailable] the last transaction may have been made: release by the handle.
func (i *IPAM) AutoAssign(ctx context.Context, r Request) (ipv4, ipv6 []netip.Addr, err error) {
	if ipv4, err = i.autoAssign(ctx, 4, r.Num4, r.Pools4, r); err != nil {
		return ipv4, nil, err
	}
	ipv6, err = i.autoAssign(ctx, 6, r.Num6, r.Pools6, r)
	return ipv4, ipv6, err
}

func (i *IPAM) autoAssign(ctx context.Context, f family, n int, pools []netip.Prefix, r Request) ([]netip.Addr, error) {
	var all []netip.Addr
	a := allocation{
		line:  line{i.hostOr(r.Host), f},
		owner: owner{r.Handle, r.Attributes},
		pools: pools,
	}
	for len(all) < n {
		var got []netip.Addr
		var more bool
		err := i.do(ctx, a.line, func(ctx context.Context, t *tx) (err error) {
			got, more, err = a.run(ctx, t, n-len(all))
			return err
		})
		if err != nil {
			return all, fmt.Errorf("assign %s addresses on host %s: %w", f, a.line.host, err)
		}
		all = append(all, got...)
		if !more {
			break
		}
	}
	return all, nil
}

func (i *IPAM) hostOr(host string) string {
	if host == "" {
		return i.host
	}
	return host
}

// allocation is a search for addresses of one family.
type allocation struct {
	line  line
	owner owner
	pools []netip.Prefix
}

// opsPerBlock bounds the operations for a block: block, affinity, handle, pool, configuration.
const opsPerBlock = 6

// run takes up to n addresses, and reports whether more may follow in another transaction.
func (a allocation) run(ctx context.Context, t *tx, n int) (got []netip.Addr, more bool, err error) {
	if t.full(opsPerBlock) {
		return nil, false, errFull
	}
	v, err := t.view(ctx, a.line)
	if err != nil {
		return nil, false, err
	}
	pools, err := v.choose(a.line.family, a.pools)
	if err != nil {
		return nil, false, t.certain(err)
	}
	s := &search{allocation: a, tx: t, view: v, pools: pools, wanted: n}
	for _, step := range []func(context.Context) error{s.own, s.claim, s.borrow} {
		if err := step(ctx); err != nil {
			return nil, false, err
		}
		if s.wanted == 0 || t.full(opsPerBlock) {
			break
		}
		if !t.fresh {
			// Nothing is claimed or given up on the ground of what is remembered.
			return nil, false, errStale
		}
	}
	return s.got, s.wanted > 0 && t.full(opsPerBlock) && len(s.got) > 0, nil
}

// certain returns an error if the transaction is fresh; else it asks for one that is.
func (t *tx) certain(err error) error {
	if !t.fresh {
		return errStale
	}
	return err
}

// search is one run of an allocation.
type search struct {
	allocation
	tx     *tx
	view   *view
	pools  []calico.PoolKey
	wanted int
	got    []netip.Addr
}

// satisfied reports whether there is nothing to do, or no room for it.
func (s *search) satisfied() bool { return s.wanted == 0 || s.tx.full(opsPerBlock) }

// from takes what it can from a block.
func (s *search) from(ctx context.Context, pool calico.PoolKey, b *calico.Block) error {
	if len(b.Unallocated) == 0 {
		return nil
	}
	got := take(s.tx.change(b), s.wanted, s.owner)
	s.got = append(s.got, got...)
	s.wanted -= len(got)
	s.tx.check(pool)
	return s.tx.count(ctx, s.owner.handle, b.CIDR, len(got))
}

// owned returns the blocks that the index says are the host's.
func (s *search) owned() []netip.Prefix { return append(slices.Clone(s.view.blocks), s.tx.claimed...) }

// loadAtOnce bounds the blocks of one read.
const loadAtOnce = 100

// own takes addresses from the host's blocks.
func (s *search) own(ctx context.Context) error {
	owned := s.owned()
	for _, p := range s.pools {
		within := slices.DeleteFunc(slices.Clone(owned), func(cidr netip.Prefix) bool { return !p.CIDR.Contains(cidr.Addr()) })
		err := s.each(ctx, within, func(b *calico.Block) error {
			// Other writers may leave affinities without a block, or of another host's block.
			if b.Affinity != calico.HostAffinity(s.line.host) {
				return nil
			}
			if len(b.Unallocated) <= s.wanted {
				s.tx.exhausted[b.CIDR] = true
			}
			return s.from(ctx, p, b)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls f with those blocks that exist and are valid, until the search is satisfied.
func (s *search) each(ctx context.Context, cidrs []netip.Prefix, f func(*calico.Block) error) error {
	for chunk := range slices.Chunk(cidrs, loadAtOnce) {
		if s.satisfied() {
			return nil
		}
		keys := make([]calico.Key, len(chunk))
		for i, cidr := range chunk {
			keys[i] = calico.BlockKey{CIDR: cidr}
		}
		if err := s.tx.load(ctx, keys...); err != nil {
			return err
		}
		for _, cidr := range chunk {
			if s.satisfied() {
				return nil
			}
			b, err := s.tx.loadedBlock(cidr)
			if err != nil {
				key := calico.BlockKey{CIDR: cidr}
				s.tx.ipam.warn(key, s.tx.read[key].revision, "a block is invalid and not used", err)
			}
			if err != nil || b == nil {
				continue
			}
			if err := f(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// claim makes new blocks and takes addresses from them. It adopts blocks that the index lacks.
func (s *search) claim(ctx context.Context) error {
	if !s.view.config.AutoAllocateBlocks {
		return nil
	}
	taken, err := s.tx.existing(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.pools {
		for free := true; free && !s.satisfied(); {
			known := map[netip.Prefix]bool{}
			for _, cidr := range s.owned() {
				known[cidr] = true
			}
			var cidr netip.Prefix
			var passed []netip.Prefix
			cidr, free, passed = taken.free(p.CIDR, s.line.host, known)
			adopted, err := s.adopt(ctx, p, passed)
			if err != nil {
				return err
			}
			if adopted || !free {
				continue
			}
			if err := s.from(ctx, p, s.tx.claim(s.view, s.line.host, cidr)); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt takes addresses from blocks of the host that are missing from the index, and adds them.
func (s *search) adopt(ctx context.Context, pool calico.PoolKey, candidates []netip.Prefix) (adopted bool, err error) {
	err = s.each(ctx, candidates, func(b *calico.Block) error {
		if b.Affinity != calico.HostAffinity(s.line.host) || len(b.Unallocated) == 0 {
			return nil
		}
		s.tx.index(s.line.host, b.CIDR)
		s.tx.claimed = append(s.tx.claimed, b.CIDR)
		adopted = true
		return s.from(ctx, pool, b)
	})
	return adopted, err
}

// claim makes a block that does not exist, with its affinity key: at a stray one, a peer's, too.
func (t *tx) claim(v *view, host string, cidr netip.Prefix) *calico.Block {
	b := newBlock(cidr, host, v.config.StrictAffinity)
	key := calico.BlockKey{CIDR: cidr}
	if _, ok := t.read[key]; !ok {
		t.read[key] = object{} // the commit finds out if it is not so
	}
	t.put(key, b)
	t.index(host, cidr)
	t.check(calico.IPAMConfigKey{})
	t.claimed = append(t.claimed, cidr)
	if t.taken != nil {
		t.taken.whole[cidr] = true
	}
	return b
}

// borrow takes addresses from blocks of other hosts and of none.
func (s *search) borrow(ctx context.Context) error {
	if s.view.config.StrictAffinity {
		return nil
	}
	taken, err := s.tx.existing(ctx)
	if err != nil {
		return err
	}
	return s.each(ctx, taken.in(s.pools, s.line.host), func(b *calico.Block) error {
		if !mayUse(b, s.line.host) {
			return nil
		}
		pool, _ := s.view.poolOf(b.CIDR)
		return s.from(ctx, pool, b)
	})
}

// mayUse reports whether a host may take addresses of a block.
func mayUse(b *calico.Block, host string) bool {
	return !b.StrictAffinity || b.Affinity == "" || b.Affinity == calico.HostAffinity(host)
}

// Assignment is one address that a caller has chosen.
type Assignment struct {
	IP         netip.Addr
	Host       string // on which it will be used; "": this one
	Handle     string
	Attributes map[string]string
}

// AssignIP assigns a certain address. Its block is claimed for the host if there is none. It fails
// with [ErrNotInPool], [ErrAssigned], [ErrStrict] or [ErrInvalidBlock].
func (i *IPAM) AssignIP(ctx context.Context, a Assignment) error {
	ip := a.IP.Unmap()
	if !ip.IsValid() || ip.Zone() != "" {
		return fmt.Errorf("assign %v: not an address of a pool: %w", a.IP, ErrNotInPool)
	}
	host := i.hostOr(a.Host)
	l := line{host, familyOf(ip)}
	err := i.do(ctx, l, func(ctx context.Context, t *tx) error {
		return t.assign(ctx, l, ip, owner{a.Handle, a.Attributes})
	})
	if err != nil {
		return fmt.Errorf("assign %s on host %s: %w", ip, host, err)
	}
	return nil
}

func (t *tx) assign(ctx context.Context, l line, ip netip.Addr, o owner) error {
	if t.full(opsPerBlock) {
		return errFull
	}
	v, err := t.view(ctx, l)
	if err != nil {
		return err
	}
	pool, ok := v.poolOf(netip.PrefixFrom(ip, ip.BitLen()))
	if !ok {
		return t.certain(ErrNotInPool)
	}
	cidr := calico.BlockOf(ip)
	b, err := t.block(ctx, cidr)
	if err != nil {
		return t.certain(err)
	}
	if b == nil {
		taken, err := t.existing(ctx)
		if err != nil {
			return err
		}
		if odd, ok := taken.overOdd(cidr); ok {
			return t.certain(fmt.Errorf("block %s: %w: %w", odd, ErrInvalidBlock, errOdd))
		}
		b = t.claim(v, l.host, cidr)
	}
	if !mayUse(b, l.host) {
		return t.certain(fmt.Errorf("block %s of %s: %w", cidr, b.Affinity, ErrStrict))
	}
	if !takeOne(t.change(b), ordinal(ip), o) {
		return t.certain(ErrAssigned)
	}
	t.check(pool)
	return t.count(ctx, o.handle, cidr, 1)
}
