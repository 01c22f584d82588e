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

// ReleaseIPs frees addresses and returns those that were not assigned. An address, and the count of
// its handle, change in one transaction. If it fails, some addresses may have been freed.
func (i *IPAM) ReleaseIPs(ctx context.Context, ips ...netip.Addr) (notAssigned []netip.Addr, err error) {
	byBlock := map[netip.Prefix][]netip.Addr{}
	var keys []calico.Key
	for _, ip := range ips {
		ip = ip.Unmap()
		if !ip.IsValid() || ip.Zone() != "" {
			notAssigned = append(notAssigned, ip)
			continue
		}
		cidr := calico.BlockOf(ip)
		if byBlock[cidr] == nil {
			keys = append(keys, calico.BlockKey{CIDR: cidr})
		}
		if !slices.Contains(byBlock[cidr], ip) {
			byBlock[cidr] = append(byBlock[cidr], ip)
		}
	}
	lines, err := i.linesOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	for l, those := range lines {
		var todo []netip.Addr
		for _, cidr := range those {
			todo = append(todo, byBlock[cidr]...)
		}
		free, err := i.release(ctx, l, todo)
		notAssigned = append(notAssigned, free...)
		if err != nil {
			return notAssigned, err
		}
	}
	slices.SortFunc(notAssigned, netip.Addr.Compare)
	return notAssigned, nil
}

// linesOf says where requests for certain blocks queue up: those of a host with that host's.
func (i *IPAM) linesOf(ctx context.Context, keys []calico.Key) (map[line][]netip.Prefix, error) {
	t := i.newTx(false)
	if err := t.load(ctx, keys...); err != nil {
		return nil, err
	}
	lines := map[line][]netip.Prefix{}
	for _, k := range keys {
		cidr := k.(calico.BlockKey).CIDR
		l := line{family: familyOf(cidr.Addr())}
		if b, err := t.loadedBlock(cidr); err == nil && b != nil {
			l.host, _ = b.Host()
		}
		lines[l] = append(lines[l], cidr)
	}
	return lines, nil
}

// release frees addresses whose requests queue in one line, as many in a transaction as fit.
func (i *IPAM) release(ctx context.Context, l line, ips []netip.Addr) (notAssigned []netip.Addr, err error) {
	for len(ips) > 0 {
		var free []netip.Addr
		var n int
		err := i.do(ctx, l, func(ctx context.Context, t *tx) (err error) {
			free, n, err = t.release(ctx, ips)
			return err
		})
		if err != nil {
			return notAssigned, fmt.Errorf("release %s: %w", ips[0], err)
		}
		notAssigned, ips = append(notAssigned, free...), ips[n:]
	}
	return notAssigned, nil
}

// release frees addresses, as many as fit, and says how many it has dealt with.
func (t *tx) release(ctx context.Context, ips []netip.Addr) (notAssigned []netip.Addr, n int, err error) {
	if t.full(opsPerBlock) {
		return nil, 0, errFull
	}
	var keys []calico.Key
	for _, ip := range ips {
		keys = append(keys, calico.BlockKey{CIDR: calico.BlockOf(ip)})
	}
	if err := t.load(ctx, keys...); err != nil {
		return nil, 0, err
	}
	for n, ip := range ips {
		if t.full(opsPerBlock) {
			return notAssigned, n, nil
		}
		ok, err := t.releaseOne(ctx, ip)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			notAssigned = append(notAssigned, ip)
		}
	}
	return notAssigned, len(ips), nil
}

// releaseOne frees an address of a block that has been loaded; false when it is not assigned.
func (t *tx) releaseOne(ctx context.Context, ip netip.Addr) (bool, error) {
	cidr, ord := calico.BlockOf(ip), ordinal(ip)
	b, err := t.loadedBlock(cidr)
	if err != nil {
		return false, t.certain(err)
	}
	if b == nil || b.Allocations[ord] == nil {
		if !t.fresh {
			return false, errStale
		}
		return false, nil
	}
	b = t.change(b)
	handle, _ := release(b, ord)
	t.dropIfUnused(b)
	return true, t.count(ctx, handle, cidr, -1)
}

// dropIfUnused deletes an empty block without a host.
func (t *tx) dropIfUnused(b *calico.Block) {
	if empty(b) && b.Affinity == "" {
		t.delete(calico.BlockKey{CIDR: b.CIDR})
	}
}

// IPsByHandle returns the addresses that carry a handle, sorted. It fails with [ErrUnknownHandle].
// Blocks that cannot be read are left out, and logged.
func (i *IPAM) IPsByHandle(ctx context.Context, handle string) ([]netip.Addr, error) {
	h, err := i.handle(ctx, handle)
	if err != nil {
		return nil, err
	}
	var keys []calico.Key
	for cidr := range h.Block {
		keys = append(keys, calico.BlockKey{CIDR: cidr})
	}
	var ips []netip.Addr
	if len(keys) == 0 {
		return nil, nil
	}
	s, err := i.client.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for _, e := range s.Entries {
		o := objectOf(e, s.Revision)
		b, ok := o.value.(*calico.Block)
		if !ok {
			i.warn(e.Key, e.Revision, "a block with addresses of a handle cannot be read", o.err)
			continue
		}
		for _, ord := range carrying(b, handle) {
			ips = append(ips, address(b.CIDR, ord))
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips, nil
}

func (i *IPAM) handle(ctx context.Context, handle string) (*calico.Handle, error) {
	h, _, err := client.Get[*calico.Handle](ctx, i.client, calico.HandleKey{Handle: handle})
	if errors.Is(err, client.ErrNotFound) {
		return nil, fmt.Errorf("%q: %w", handle, ErrUnknownHandle)
	}
	return h, err
}

// ReleaseByHandle frees all addresses of a handle. It fails with [ErrUnknownHandle]. A transaction
// covers some fifty blocks. The handle keeps its count of unreadable blocks, which the error names.
func (i *IPAM) ReleaseByHandle(ctx context.Context, handle string) error {
	l, err := i.lineOf(ctx, handle)
	if err != nil {
		return fmt.Errorf("release addresses of handle %q: %w", handle, err)
	}
	for more, again := true, false; more; again = true {
		err := i.do(ctx, l, func(ctx context.Context, t *tx) (err error) {
			more, err = t.releaseHandle(ctx, handle)
			return err
		})
		if again && errors.Is(err, ErrUnknownHandle) {
			return nil // another caller did the rest
		}
		if err != nil {
			return fmt.Errorf("release addresses of handle %q: %w", handle, err)
		}
	}
	return nil
}

// lineOf returns the queue for a handle: that of its block's host, as most have one block.
func (i *IPAM) lineOf(ctx context.Context, handle string) (line, error) {
	t := i.newTx(false)
	key := calico.HandleKey{Handle: handle}
	if err := t.load(ctx, key); err != nil {
		return line{}, err
	}
	v, _ := t.value(key)
	h, ok := v.(*calico.Handle)
	if !ok || len(h.Block) == 0 {
		return line{family: 4}, nil
	}
	lines, err := i.linesOf(ctx, []calico.Key{calico.BlockKey{CIDR: sorted(h.Block)[0]}})
	for l := range lines { // one
		return l, err
	}
	return line{}, err
}

// releaseHandle frees the addresses in as many blocks as fit, and reports whether there are more.
func (t *tx) releaseHandle(ctx context.Context, handle string) (more bool, err error) {
	if t.full(opsPerBlock) {
		return false, errFull
	}
	key := calico.HandleKey{Handle: handle}
	if err := t.load(ctx, key); err != nil {
		return false, err
	}
	v, err := t.value(key)
	if err != nil {
		return false, t.certain(err)
	}
	h, ok := v.(*calico.Handle)
	if !ok {
		return false, t.certain(ErrUnknownHandle)
	}
	if !t.fresh && len(h.Block) == 0 {
		return false, errStale
	}
	left := &calico.Handle{ID: handle, Block: map[netip.Prefix]int{}, Unknown: h.Unknown}
	var keys []calico.Key
	for cidr, n := range h.Block {
		left.Block[cidr] = n
		keys = append(keys, calico.BlockKey{CIDR: cidr})
	}
	if err := t.load(ctx, keys...); err != nil {
		return false, err
	}
	var unread []error
	for cidr := range h.Block {
		if t.full(opsPerBlock) {
			more = true
			break
		}
		b, err := t.loadedBlock(cidr)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		delete(left.Block, cidr)
		t.check(calico.BlockKey{CIDR: cidr})
		if b == nil {
			continue
		}
		ords := carrying(b, handle)
		if len(ords) == 0 {
			continue
		}
		b = t.change(b)
		for _, ord := range ords {
			release(b, ord)
		}
		t.dropIfUnused(b)
	}
	if len(left.Block) == 0 {
		t.delete(key)
		return false, nil
	}
	if len(left.Block) == len(h.Block) {
		return false, t.certain(errors.Join(unread...))
	}
	t.put(key, left)
	return true, nil
}

// GetAssignmentAttributes returns the attributes of an address. It fails with [ErrNotAssigned].
func (i *IPAM) GetAssignmentAttributes(ctx context.Context, ip netip.Addr) (map[string]string, error) {
	a, err := i.attribute(ctx, ip)
	return a.Secondary, err
}

// HandleOf returns the handle that an address carries; "" for none. It fails with [ErrNotAssigned].
func (i *IPAM) HandleOf(ctx context.Context, ip netip.Addr) (string, error) {
	a, err := i.attribute(ctx, ip)
	return handleOf(a), err
}

func (i *IPAM) attribute(ctx context.Context, ip netip.Addr) (calico.Attribute, error) {
	ip = ip.Unmap()
	if !ip.IsValid() || ip.Zone() != "" {
		return calico.Attribute{}, fmt.Errorf("%v: %w", ip, ErrNotAssigned)
	}
	t := i.newTx(true)
	b, err := t.block(ctx, calico.BlockOf(ip))
	if err != nil {
		return calico.Attribute{}, err
	}
	if b == nil || b.Allocations[ordinal(ip)] == nil {
		return calico.Attribute{}, fmt.Errorf("%s: %w", ip, ErrNotAssigned)
	}
	return b.Attributes[*b.Allocations[ordinal(ip)]], nil
}
