package ipam

import (
	"cmp"
	"context"
	"maps"
	"math/big"
	"net/netip"
	"slices"

	"heddle/calico"
)

// Usage counts the use of pools, blocks and hosts, at one revision.
type Usage struct {
	Pools  []PoolUsage  // by CIDR
	Blocks []BlockUsage // by CIDR
	Hosts  []HostUsage  // by name; those that have a block
}

// PoolUsage counts the use of a pool.
type PoolUsage struct {
	CIDR     netip.Prefix
	Usable   bool     // new addresses may be taken from it
	Size     *big.Int // addresses
	Blocks   int
	Assigned int // addresses
}

// BlockUsage counts the use of a block.
type BlockUsage struct {
	CIDR     netip.Prefix
	Host     string       // that it is affine to; "": none
	Pool     netip.Prefix // invalid: none
	Strict   bool
	Assigned int   // addresses
	Err      error // the block is not as it must be; nothing more is known
}

// HostUsage counts the use of a host's blocks, by the host or by borrowers.
type HostUsage struct {
	Host     string
	Blocks   int
	Assigned int // addresses
}

// Usage counts what is in use.
func (i *IPAM) Usage(ctx context.Context) (Usage, error) {
	s, err := i.client.List(ctx, calico.PoolKey{}, calico.BlockKey{})
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	hosts := map[string]*HostUsage{}
	for _, e := range s.Entries {
		switch k := e.Key.(type) {
		case calico.PoolKey:
			p, ok := e.Object.(*calico.Pool)
			size := new(big.Int).Lsh(big.NewInt(1), uint(k.CIDR.Addr().BitLen()-k.CIDR.Bits()))
			u.Pools = append(u.Pools, PoolUsage{CIDR: k.CIDR, Usable: ok && usable(p), Size: size})
		case calico.BlockKey:
			u.Blocks = append(u.Blocks, blockUsage(k.CIDR, objectOf(e, s.Revision)))
		}
	}
	slices.SortFunc(u.Pools, func(a, b PoolUsage) int { return byCIDR(a.CIDR, b.CIDR) })
	slices.SortFunc(u.Blocks, func(a, b BlockUsage) int { return byCIDR(a.CIDR, b.CIDR) })
	for j := range u.Blocks {
		b := &u.Blocks[j]
		if p := u.poolOf(b.CIDR); p != nil {
			b.Pool = p.CIDR
			p.Blocks++
			p.Assigned += b.Assigned
		}
		if b.Host == "" {
			continue
		}
		if hosts[b.Host] == nil {
			hosts[b.Host] = &HostUsage{Host: b.Host}
		}
		hosts[b.Host].Blocks++
		hosts[b.Host].Assigned += b.Assigned
	}
	for h := range maps.Values(hosts) {
		u.Hosts = append(u.Hosts, *h)
	}
	slices.SortFunc(u.Hosts, func(a, b HostUsage) int { return cmp.Compare(a.Host, b.Host) })
	return u, nil
}

func blockUsage(cidr netip.Prefix, o object) BlockUsage {
	b, ok := o.value.(*calico.Block)
	if !ok {
		return BlockUsage{CIDR: cidr, Err: o.err}
	}
	host, _ := b.Host()
	return BlockUsage{CIDR: cidr, Host: host, Strict: b.StrictAffinity, Assigned: calico.BlockSize - len(b.Unallocated)}
}

// poolOf returns the smallest pool in which a block lies.
func (u *Usage) poolOf(cidr netip.Prefix) *PoolUsage {
	var found *PoolUsage
	for i := range u.Pools {
		p := &u.Pools[i]
		if p.CIDR.Bits() <= cidr.Bits() && p.CIDR.Contains(cidr.Addr()) && (found == nil || p.CIDR.Bits() > found.CIDR.Bits()) {
			found = p
		}
	}
	return found
}
