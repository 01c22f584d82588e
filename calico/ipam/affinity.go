package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/calico/client"
)

// index puts the affinity key of a block.
func (t *tx) index(host string, cidr netip.Prefix) {
	t.put(calico.BlockAffinityKey{Host: host, CIDR: cidr}, &calico.BlockAffinity{})
}

// maxClaims bounds the blocks that one call claims.
const maxClaims = 1 << 16

// ClaimAffinity claims all blocks of a CIDR for a host ("": this one). The CIDR must be at least a
// block and lie in an enabled pool. Blocks of other hosts are returned as failed. A transaction
// claims up to some fifty blocks.
func (i *IPAM) ClaimAffinity(ctx context.Context, cidr netip.Prefix, host string) (claimed, failed []netip.Prefix, err error) {
	host = i.hostOr(host)
	if !cidr.IsValid() {
		return nil, nil, fmt.Errorf("claim affinity for host %s: not a CIDR", host)
	}
	cidr = cidr.Masked()
	f := familyOf(cidr.Addr())
	switch n := f.bits() - cidr.Bits(); {
	case n < 0:
		return nil, nil, fmt.Errorf("claim affinity of %s: it is smaller than a block, a /%d", cidr, f.bits())
	case 1<<min(n, 62) > maxClaims:
		return nil, nil, fmt.Errorf("claim affinity of %s: it has more than %d blocks; name parts of it", cidr, maxClaims)
	}
	l := line{host, f}
	for next := cidr.Addr(); cidr.Contains(next); {
		var done, lost []netip.Prefix
		var end netip.Addr
		err := i.do(ctx, l, func(ctx context.Context, t *tx) (err error) {
			done, lost, end, err = t.claimAll(ctx, l, cidr, next)
			return err
		})
		if err != nil {
			return claimed, failed, fmt.Errorf("claim affinity of %s for host %s: %w", cidr, host, err)
		}
		claimed, failed, next = append(claimed, done...), append(failed, lost...), end
	}
	return claimed, failed, nil
}

// claimAll claims blocks from an address on, as many as fit, and returns the address to go on at.
func (t *tx) claimAll(ctx context.Context, l line, cidr netip.Prefix, from netip.Addr) (claimed, failed []netip.Prefix, next netip.Addr, err error) {
	if !t.fresh {
		return nil, nil, from, errStale
	}
	if t.full(opsPerBlock) {
		return nil, nil, from, errFull
	}
	v, err := t.view(ctx, l)
	if err != nil {
		return nil, nil, from, err
	}
	pool, ok := v.poolOf(cidr)
	if !ok {
		return nil, nil, from, ErrNotInPool
	}
	taken, err := t.existing(ctx)
	if err != nil {
		return nil, nil, from, err
	}
	t.check(pool)
	for next = from; cidr.Contains(next) && !t.full(opsPerBlock); next = after(block(next)) {
		one := block(next)
		if _, odd := taken.overOdd(one); odd {
			failed = append(failed, one)
			continue
		}
		if !taken.whole[one] {
			t.claim(v, l.host, one)
			claimed = append(claimed, one)
			continue
		}
		b, err := t.block(ctx, one)
		if err != nil && !errors.Is(err, ErrInvalidBlock) {
			return nil, nil, from, err
		}
		if b == nil || b.Affinity != calico.HostAffinity(l.host) {
			failed = append(failed, one)
			continue
		}
		t.check(calico.BlockKey{CIDR: one})
		t.index(l.host, one)
		claimed = append(claimed, one)
	}
	return claimed, failed, next, nil
}

func block(ip netip.Addr) netip.Prefix { return calico.BlockOf(ip) }

// after returns the first address behind a block; the zero one at the end of all addresses.
func after(cidr netip.Prefix) netip.Addr { return address(cidr, ordinalMask).Next() }

// ReleaseAffinity takes the blocks of a CIDR from a host ("": this one): an empty block is deleted,
// another one is left without an owner, and its addresses stay assigned. Blocks that are not the
// host's are left alone. Each block is a transaction of its own.
func (i *IPAM) ReleaseAffinity(ctx context.Context, cidr netip.Prefix, host string) error {
	return i.releaseAffinities(ctx, cidr, i.hostOr(host))
}

// ReleaseHostAffinities does the same for all blocks of a host ("": this one).
func (i *IPAM) ReleaseHostAffinities(ctx context.Context, host string) error {
	return i.releaseAffinities(ctx, netip.Prefix{}, i.hostOr(host))
}

// ReleasePoolAffinities does the same for all blocks of a pool, whatever their hosts.
func (i *IPAM) ReleasePoolAffinities(ctx context.Context, pool netip.Prefix) error {
	if !pool.IsValid() {
		return errors.New("release the affinities of a pool: not a CIDR")
	}
	return i.releaseAffinities(ctx, pool, "")
}

// RemoveIPAMHost forgets a host ("": this one): its affinities are released and all that IPAM keeps
// of it is deleted. Addresses stay assigned.
func (i *IPAM) RemoveIPAMHost(ctx context.Context, host string) error {
	host = i.hostOr(host)
	if err := i.ReleaseHostAffinities(ctx, host); err != nil {
		return err
	}
	_, err := i.client.Commit(ctx, client.OpClear(calico.IPAMHostKey{Host: host}))
	return err
}

// releaseAffinities releases those within a CIDR (invalid: anywhere) and of a host ("": any). What
// cannot be released does not keep the others from it.
func (i *IPAM) releaseAffinities(ctx context.Context, cidr netip.Prefix, host string) error {
	// The blocks too, and not only the index: it may lack one.
	s, err := i.client.List(ctx, calico.BlockAffinityKey{Host: host}, calico.BlockKey{})
	if err != nil {
		return err
	}
	wanted := map[calico.BlockAffinityKey]bool{}
	for _, e := range s.Entries {
		var key calico.BlockAffinityKey
		switch k := e.Key.(type) {
		case calico.BlockAffinityKey:
			key = k
		case calico.BlockKey:
			b, ok := e.Object.(*calico.Block)
			if !ok {
				continue
			}
			owner, ok := b.Host()
			if !ok || host != "" && owner != host {
				continue
			}
			key = calico.BlockAffinityKey{Host: owner, CIDR: k.CIDR}
		}
		if !cidr.IsValid() || cidr.Bits() <= key.CIDR.Bits() && cidr.Contains(key.CIDR.Addr()) {
			wanted[key] = true
		}
	}
	var failed []error
	for key := range wanted {
		err := i.do(ctx, line{key.Host, familyOf(key.CIDR.Addr())}, func(ctx context.Context, t *tx) error {
			return t.releaseAffinity(ctx, key)
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("release affinity of %s to host %s: %w", key.CIDR, key.Host, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

func (t *tx) releaseAffinity(ctx context.Context, key calico.BlockAffinityKey) error {
	if t.full(opsPerBlock) {
		return errFull
	}
	b, err := t.block(ctx, key.CIDR)
	if err != nil {
		return t.certain(err)
	}
	t.check(calico.BlockKey{CIDR: key.CIDR})
	t.disown(key)
	if b == nil || b.Affinity != calico.HostAffinity(key.Host) {
		return nil // a stray key
	}
	if empty(b) {
		t.delete(calico.BlockKey{CIDR: key.CIDR})
		return nil
	}
	t.change(b).Affinity = ""
	return nil
}

// disown deletes an affinity key.
func (t *tx) disown(key calico.BlockAffinityKey) {
	t.delete(key)
	t.claimed = slices.DeleteFunc(slices.Clone(t.claimed), func(c netip.Prefix) bool { return c == key.CIDR })
}

// DeletePool deletes a pool: it is disabled first, so that nothing new is taken from it, then its
// affinities are released, and then it goes. Addresses assigned from it stay so.
func (i *IPAM) DeletePool(ctx context.Context, cidr netip.Prefix) error {
	key := calico.PoolKey{CIDR: cidr.Masked()}
	for range maxAttempts {
		pool, rev, err := client.Get[*calico.Pool](ctx, i.client, key)
		if err != nil && !errors.Is(err, client.ErrInvalid) {
			return err
		}
		// An invalid pool is not used.
		if err == nil && !pool.Disabled {
			pool.Disabled = true
			if rev, err = i.client.Update(ctx, key, pool, rev); isConflict(err) {
				continue
			} else if err != nil {
				return err
			}
		}
		if err := i.ReleasePoolAffinities(ctx, cidr); err != nil {
			return err
		}
		if err := i.client.Delete(ctx, key, rev); !errors.Is(err, client.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("delete pool %s: %w", cidr, ErrBusy)
}
