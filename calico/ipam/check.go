package ipam

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/calico/client"
)

// Problem is something that is not as it should be in what etcd holds of IPAM.
type Problem struct {
	Path string // of the key in etcd
	// Harmless problems may be left by other programs, and every reader tolerates them.
	Harmless bool
	Text     string // what is wrong, and what follows from it
}

// String returns the problem in one line.
func (p Problem) String() string { return p.Path + ": " + p.Text }

// Check looks for violations of the rules (spec 3.7, 3.8): invalid, overlapping or odd-sized
// blocks, handles with wrong counts, and affinities without a block. It reads everything at one
// revision and changes nothing. Problems come by path.
func (i *IPAM) Check(ctx context.Context) ([]Problem, error) {
	s, err := i.client.List(ctx, calico.PoolKey{}, calico.BlockKey{}, calico.HandleKey{}, calico.BlockAffinityKey{}, calico.IPAMConfigKey{})
	if err != nil {
		return nil, err
	}
	c := newChecker(s)
	for _, e := range s.Entries {
		c.entry(e)
	}
	for handle := range c.carried {
		c.handle(handle)
	}
	c.overlaps()
	slices.SortFunc(c.problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text)) })
	return c.problems, nil
}

// checker has what the blocks, handles and affinities say, to compare them.
type checker struct {
	pools      []netip.Prefix
	blocks     map[netip.Prefix]*calico.Block // those that are as they must be
	cidrs      []netip.Prefix                 // of all blocks
	paths      map[calico.Key]string
	affinities map[calico.BlockAffinityKey]bool
	handles    map[string]*calico.Handle
	broken     map[netip.Prefix]bool           // blocks of which nothing can be said
	carried    map[string]map[netip.Prefix]int // by handle and block, as the blocks have it
	problems   []Problem
}

func newChecker(s *client.Snapshot) *checker {
	c := &checker{
		blocks:     map[netip.Prefix]*calico.Block{},
		paths:      map[calico.Key]string{},
		affinities: map[calico.BlockAffinityKey]bool{},
		handles:    map[string]*calico.Handle{},
		broken:     map[netip.Prefix]bool{},
		carried:    map[string]map[netip.Prefix]int{},
	}
	for _, e := range s.Entries {
		c.paths[e.Key] = e.Path
		switch k := e.Key.(type) {
		case calico.PoolKey:
			c.pools = append(c.pools, k.CIDR)
		case calico.BlockKey:
			c.block(k.CIDR, objectOf(e, s.Revision))
		case calico.HandleKey:
			c.handles[k.Handle], _ = e.Object.(*calico.Handle)
		case calico.BlockAffinityKey:
			c.affinities[k] = true
		}
	}
	return c
}

func (c *checker) block(cidr netip.Prefix, o object) {
	c.cidrs = append(c.cidrs, cidr)
	b, ok := o.value.(*calico.Block)
	if !ok {
		c.broken[cidr] = true
		return
	}
	c.blocks[cidr] = b
	for _, index := range b.Allocations {
		if index == nil {
			continue
		}
		if handle := handleOf(b.Attributes[*index]); handle != "" {
			if c.carried[handle] == nil {
				c.carried[handle] = map[netip.Prefix]int{}
			}
			c.carried[handle][cidr]++
		}
	}
}

func (c *checker) report(path string, harmless bool, format string, args ...any) {
	c.problems = append(c.problems, Problem{path, harmless, fmt.Sprintf(format, args...)})
}

// entry checks one object against the others.
func (c *checker) entry(e client.Entry) {
	if e.Err != nil {
		c.report(e.Path, false, "it cannot be read: %v", e.Err)
		return
	}
	switch k := e.Key.(type) {
	case calico.BlockKey:
		if err := e.Object.(*calico.Block).Check(); err != nil {
			c.report(e.Path, false, "%v; its addresses count as taken, and none is assigned from it", err)
			return
		}
		c.owned(e.Path, c.blocks[k.CIDR])
	case calico.HandleKey:
		if len(e.Object.(*calico.Handle).Block) == 0 {
			c.report(e.Path, true, "the handle counts no address: it should not be there")
		}
		c.counts(e.Path, k.Handle)
	case calico.BlockAffinityKey:
		c.affinity(e.Path, k)
	}
}

// owned checks what a block says of its owner.
func (c *checker) owned(path string, b *calico.Block) {
	host, ok := b.Host()
	switch {
	case ok && !c.affinities[calico.BlockAffinityKey{Host: host, CIDR: b.CIDR}]:
		c.report(path, true, "it is affine to host %s, whose index does not name it", host)
	case !ok && empty(b):
		c.report(path, true, "it is empty and nobody's: it should not be there")
	}
	if !slices.ContainsFunc(c.pools, func(p netip.Prefix) bool { return p.Bits() <= b.CIDR.Bits() && p.Contains(b.CIDR.Addr()) }) {
		c.report(path, true, "it lies in no pool; %d of its addresses are assigned", calico.BlockSize-len(b.Unallocated))
	}
}

// counts checks the counts of a handle that are there.
func (c *checker) counts(path, handle string) {
	for _, cidr := range sorted(c.handles[handle].Block) {
		n, have := c.handles[handle].Block[cidr], c.carried[handle][cidr]
		switch {
		case c.broken[cidr] || n == have:
		case n > have:
			c.report(path, true, "it counts %d addresses of block %s, which has %d", n, cidr, have)
		default:
			c.report(path, false, "it counts %d addresses of block %s, which has %d: releasing by handle is not certain to find them", n, cidr, have)
		}
	}
}

// handle checks that a handle counts all addresses that carry it.
func (c *checker) handle(handle string) {
	h, there := c.handles[handle]
	if there && h == nil {
		return // reported as unreadable
	}
	for _, cidr := range sorted(c.carried[handle]) {
		if h == nil || h.Block[cidr] == 0 {
			c.report(c.paths[calico.BlockKey{CIDR: cidr}], false, "%d of its addresses carry handle %q, which does not count them", c.carried[handle][cidr], handle)
		}
	}
}

// affinity checks that an affinity key has its block.
func (c *checker) affinity(path string, k calico.BlockAffinityKey) {
	b, ok := c.blocks[k.CIDR]
	switch {
	case c.broken[k.CIDR]:
	case !ok:
		c.report(path, true, "there is no such block")
	case b.Affinity != calico.HostAffinity(k.Host):
		owner, ok := b.Host()
		if !ok {
			owner = "nobody"
		}
		c.report(path, true, "the block is not affine to host %s but to %s", k.Host, owner)
	}
}

// overlaps checks that no two blocks have an address in common.
func (c *checker) overlaps() {
	slices.SortFunc(c.cidrs, byCIDR)
	for i, cidr := range c.cidrs {
		for _, other := range c.cidrs[i+1:] {
			if !cidr.Overlaps(other) {
				break // nor do those behind it
			}
			c.report(c.paths[calico.BlockKey{CIDR: other}], false, "it overlaps block %s", cidr)
		}
	}
}

func sorted[V any](m map[netip.Prefix]V) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, byCIDR)
	return out
}
