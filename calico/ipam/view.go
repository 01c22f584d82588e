package ipam

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"

	"heddle/calico"
)

// view is the immutable state for allocations on a host, for one address family.
type view struct {
	pools  []calico.PoolKey // usable, by key
	idle   []calico.PoolKey // disabled, or not for IPAM
	blocks []netip.Prefix   // those that the index says are affine to the host
	config calico.IPAMConfig
	read   map[calico.Key]object // pools and configuration as they were read
}

// with returns the view after blocks were claimed. Exhausted blocks come last.
func (v *view) with(claimed []netip.Prefix, exhausted map[netip.Prefix]bool) *view {
	if len(claimed) == 0 && len(exhausted) == 0 {
		return v
	}
	w := *v
	w.blocks = nil
	var last []netip.Prefix
	for _, cidr := range slices.Concat(v.blocks, claimed) {
		if exhausted[cidr] {
			last = append(last, cidr)
		} else {
			w.blocks = append(w.blocks, cidr)
		}
	}
	w.blocks = append(w.blocks, last...)
	return &w
}

// view reads pools, configuration and the host's affinities, or takes the queue's view.
func (t *tx) view(ctx context.Context, l line) (*view, error) {
	v := t.views[l]
	if v == nil {
		var err error
		if v, err = t.ipam.readView(ctx, l); err != nil {
			return nil, err
		}
		t.views[l] = v
	}
	for k, o := range v.read {
		if _, ok := t.read[k]; !ok {
			t.read[k] = o
		}
	}
	return v, nil
}

func (i *IPAM) readView(ctx context.Context, l line) (*view, error) {
	s, err := i.client.List(ctx, calico.PoolKey{}, calico.IPAMConfigKey{}, calico.BlockAffinityKey{Host: l.host})
	if err != nil {
		return nil, err
	}
	v := &view{config: defaultConfig, read: map[calico.Key]object{calico.IPAMConfigKey{}: {known: s.Revision}}}
	for _, e := range s.Entries {
		if k, ok := e.Key.(calico.BlockAffinityKey); ok {
			if familyOf(k.CIDR.Addr()) == l.family && whole(k.CIDR) {
				v.blocks = append(v.blocks, k.CIDR)
			}
			continue
		}
		v.read[e.Key] = objectOf(e, s.Revision)
		switch o := e.Object.(type) {
		case *calico.Pool:
			switch key := e.Key.(calico.PoolKey); {
			case familyOf(o.CIDR.Addr()) != l.family:
			case usable(o):
				v.pools = append(v.pools, key)
			default:
				v.idle = append(v.idle, key)
			}
		case *calico.IPAMConfig:
			v.config = *o
		default:
			if e.Key == (calico.IPAMConfigKey{}) {
				return nil, fmt.Errorf("%s: %w", e.Path, e.Err)
			}
			i.warn(e.Key, e.Revision, "a pool is invalid and not used", e.Err)
		}
	}
	return v, nil
}

// poolOf returns the usable pool in which a CIDR lies.
func (v *view) poolOf(cidr netip.Prefix) (calico.PoolKey, bool) {
	for _, p := range v.pools {
		if p.CIDR.Bits() <= cidr.Bits() && p.CIDR.Contains(cidr.Addr()) {
			return p, true
		}
	}
	return calico.PoolKey{}, false
}

// choose returns the pools to take addresses from: those named, in their order, else all. Named
// ones that are disabled or not for IPAM are skipped; that none is left is an error.
func (v *view) choose(f family, named []netip.Prefix) ([]calico.PoolKey, error) {
	if len(named) == 0 {
		if len(v.pools) == 0 {
			return nil, fmt.Errorf("%s: %w: make one, or enable one for IPAM", f, ErrNoPool)
		}
		return v.pools, nil
	}
	var out []calico.PoolKey
	for _, p := range named {
		switch {
		case !p.IsValid():
			return nil, fmt.Errorf("pool: not a CIDR: %w", ErrUnknownPool)
		case familyOf(p.Addr()) != f:
			return nil, fmt.Errorf("pool %s is not of %s: %w", p, f, ErrUnknownPool)
		}
		key := calico.PoolKey{CIDR: p.Masked()}
		switch {
		case slices.Contains(v.idle, key):
		case !slices.Contains(v.pools, key):
			return nil, fmt.Errorf("pool %s does not exist: %w", p, ErrUnknownPool)
		case !slices.Contains(out, key):
			out = append(out, key)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w: all pools named are disabled or not for IPAM; enable one, or name another", f, ErrNoPool)
	}
	return out, nil
}

// errOdd is the reason why a block of another size is invalid.
var errOdd = fmt.Errorf("it is not of %d addresses", calico.BlockSize)

// blocks are all blocks there are.
type blocks struct {
	whole map[netip.Prefix]bool
	odd   []netip.Prefix // of another size than 64: nothing may be claimed that overlaps them
}

// existing reads which blocks there are.
func (t *tx) existing(ctx context.Context) (*blocks, error) {
	if t.taken != nil {
		return t.taken, nil
	}
	keys, _, err := t.ipam.client.Keys(ctx, calico.BlockKey{})
	if err != nil {
		return nil, err
	}
	b := &blocks{whole: make(map[netip.Prefix]bool, len(keys))}
	for _, k := range keys {
		if cidr := k.(calico.BlockKey).CIDR; whole(cidr) {
			b.whole[cidr] = true
		} else {
			b.odd = append(b.odd, cidr)
			t.ipam.warn(k, 0, "a block is not used, and its addresses count as taken", errOdd)
		}
	}
	t.taken = b
	return b, nil
}

// overOdd returns a block of another size that overlaps a CIDR.
func (b *blocks) overOdd(cidr netip.Prefix) (netip.Prefix, bool) {
	for _, o := range b.odd {
		if o.Overlaps(cidr) {
			return o, true
		}
	}
	return netip.Prefix{}, false
}

// in returns the blocks within pools, in an order that differs from host to host.
func (b *blocks) in(pools []calico.PoolKey, host string) []netip.Prefix {
	var out []netip.Prefix
	seen := map[netip.Prefix]bool{} // pools may overlap
	for _, p := range pools {
		var those []netip.Prefix
		for cidr := range b.whole {
			if p.CIDR.Bits() <= cidr.Bits() && p.CIDR.Contains(cidr.Addr()) && !seen[cidr] {
				seen[cidr] = true
				those = append(those, cidr)
			}
		}
		slices.SortFunc(those, byCIDR)
		seed := uint64(hash(host))
		rand.New(rand.NewPCG(seed, seed)).Shuffle(len(those), func(i, j int) { those[i], those[j] = those[j], those[i] })
		out = append(out, those...)
	}
	return out
}

func byCIDR(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// hash spreads hosts over a pool (spec 11.3).
func hash(host string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(host))
	return h.Sum32()
}

// maxPassed bounds the existing blocks that a search for a free one returns.
const maxPassed = 16

// free finds the first block of a pool that does not exist, from an index that depends on the host,
// so that its retries find the same. Passed are the first existing blocks that are not known.
func (b *blocks) free(pool netip.Prefix, host string, known map[netip.Prefix]bool) (free netip.Prefix, ok bool, passed []netip.Prefix) {
	f := familyOf(pool.Addr())
	count := new(big.Int).Lsh(big.NewInt(1), uint(f.bits()-pool.Bits()))
	start := new(big.Int).Mod(big.NewInt(int64(hash(host))), count)
	one := big.NewInt(1)
	for i, left := new(big.Int).Set(start), new(big.Int).Set(count); left.Sign() > 0; {
		cidr := nth(pool, i)
		step := one
		odd, isOdd := b.overOdd(cidr)
		switch {
		case isOdd:
			step = blocksToEnd(odd, cidr)
		case !b.whole[cidr]:
			return cidr, true, passed
		case !known[cidr] && len(passed) < maxPassed:
			passed = append(passed, cidr)
		}
		left.Sub(left, step)
		if i.Add(i, step); i.Cmp(count) >= 0 {
			i.SetInt64(0) // go on at the pool's beginning
		}
	}
	return netip.Prefix{}, false, passed
}

// nth returns the nth block of a pool.
func nth(pool netip.Prefix, n *big.Int) netip.Prefix {
	f := familyOf(pool.Addr())
	a := new(big.Int).SetBytes(pool.Addr().AsSlice())
	a.Add(a, new(big.Int).Mul(n, big.NewInt(calico.BlockSize)))
	bytes := a.FillBytes(make([]byte, len(pool.Addr().AsSlice())))
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, f.bits())
}

// blocksToEnd counts the blocks from cidr to the end of an odd block that overlaps it.
func blocksToEnd(odd, cidr netip.Prefix) *big.Int {
	if odd.Bits() >= cidr.Bits() {
		return big.NewInt(1)
	}
	size := new(big.Int).Lsh(big.NewInt(1), uint(odd.Addr().BitLen()-odd.Bits()))
	end := new(big.Int).SetBytes(odd.Masked().Addr().AsSlice())
	end.Add(end, size)
	end.Sub(end, new(big.Int).SetBytes(cidr.Addr().AsSlice()))
	return end.Div(end, big.NewInt(calico.BlockSize))
}
