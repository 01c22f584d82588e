package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"heddle/calico"
	"heddle/calico/client"
)

var (
	// errStale asks for a fresh attempt: the outcome of this one rests on the cache.
	errStale = errors.New("the cache does not suffice")
	// errFull means that the rest of a request does not fit into the transaction.
	errFull = errors.New("transaction full")
)

// tx collects the reads and writes of one transaction.
type tx struct {
	ipam  *IPAM
	fresh bool // reads everything from etcd, nothing from the cache
	read  map[calico.Key]object
	views map[line]*view
	taken *blocks // all that exist, once asked for
	// exhausted blocks have no address left, or had none: later searches begin elsewhere.
	exhausted map[netip.Prefix]bool
	writes
}

// writes are a request's part of a transaction, rolled back if the request fails.
type writes struct {
	written map[calico.Key]any  // nil: to be deleted
	checked map[calico.Key]bool // must be as it was read
	claimed []netip.Prefix      // new blocks
}

func (w writes) clone() writes {
	return writes{maps.Clone(w.written), maps.Clone(w.checked), w.claimed[:len(w.claimed):len(w.claimed)]}
}

func (i *IPAM) newTx(fresh bool) *tx {
	return &tx{
		ipam:      i,
		fresh:     fresh,
		read:      map[calico.Key]object{},
		views:     map[line]*view{},
		exhausted: map[netip.Prefix]bool{},
		writes:    writes{written: map[calico.Key]any{}, checked: map[calico.Key]bool{}},
	}
}

// weight returns the number of etcd operations for a key: handles lie at two places.
func weight(key calico.Key) int {
	if key.Kind() == calico.KindIPAMHandle {
		return 2
	}
	return 1
}

// full reports whether there is no room for more operations beside those there are.
func (t *tx) full(more int) bool {
	n := more
	for k := range t.written {
		n += weight(k)
	}
	for k := range t.checked {
		if _, twice := t.written[k]; !twice {
			n += weight(k)
		}
	}
	return n > t.ipam.operations
}

// load reads what the transaction does not know yet of some keys.
func (t *tx) load(ctx context.Context, keys ...calico.Key) error {
	var missing []calico.Key
	for _, k := range keys {
		if _, ok := t.read[k]; ok {
			continue
		}
		if o, ok := t.ipam.cache.get(k); ok && !t.fresh {
			t.read[k] = o
			continue
		}
		missing = append(missing, k)
	}
	if len(missing) > fewKeys {
		var err error
		if missing, err = t.confirm(ctx, missing); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	s, err := t.ipam.client.Read(ctx, missing...)
	if err != nil {
		return err
	}
	for _, k := range missing {
		t.note(k, object{known: s.Revision})
	}
	for _, e := range s.Entries {
		t.note(e.Key, objectOf(e, s.Revision))
	}
	return nil
}

// fewKeys are better read than asked about.
const fewKeys = 4

// confirm compares cached revisions with etcd's, and returns the keys that must be read.
func (t *tx) confirm(ctx context.Context, keys []calico.Key) (changed []calico.Key, err error) {
	revisions, at, err := t.ipam.client.Revisions(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		o, ok := t.ipam.cache.get(k)
		if !ok || o.revision != revisions[k] {
			changed = append(changed, k)
			continue
		}
		o.known = at
		t.note(k, o)
	}
	return changed, nil
}

func (t *tx) note(key calico.Key, o object) {
	t.read[key] = o
	t.ipam.cache.put(key, o)
}

// value returns the value at a loaded key after the writes so far.
func (t *tx) value(key calico.Key) (any, error) {
	if v, ok := t.written[key]; ok {
		return v, nil
	}
	o := t.read[key]
	return o.value, o.err
}

func (t *tx) put(key calico.Key, value any) { t.written[key] = value }
func (t *tx) delete(key calico.Key)         { t.written[key] = nil }

// check makes what was read a condition of the commit.
func (t *tx) check(key calico.Key) { t.checked[key] = true }

// block returns the block at a CIDR; nil when there is none. It must not be changed.
func (t *tx) block(ctx context.Context, cidr netip.Prefix) (*calico.Block, error) {
	key := calico.BlockKey{CIDR: cidr}
	if err := t.load(ctx, key); err != nil {
		return nil, err
	}
	return t.loadedBlock(cidr)
}

func (t *tx) loadedBlock(cidr netip.Prefix) (*calico.Block, error) {
	v, err := t.value(calico.BlockKey{CIDR: cidr})
	b, _ := v.(*calico.Block)
	if err != nil {
		return nil, fmt.Errorf("block %s: %w: %w", cidr, ErrInvalidBlock, err)
	}
	return b, nil
}

// change gives a copy of a block, which is written in place of the block.
func (t *tx) change(b *calico.Block) *calico.Block {
	b = clone(b)
	t.put(calico.BlockKey{CIDR: b.CIDR}, b)
	return b
}

// count adds n to a handle's count of addresses in a block. Most handles are new when an address is
// assigned: unless the transaction is fresh, a handle that is not cached counts as new, and the
// commit fails if it exists.
func (t *tx) count(ctx context.Context, handle string, block netip.Prefix, n int) error {
	if handle == "" || n == 0 {
		return nil
	}
	key := calico.HandleKey{Handle: handle}
	_, known := t.read[key]
	if _, cached := t.ipam.cache.get(key); !known && !cached && !t.fresh && n > 0 {
		t.read[key] = object{}
	}
	if err := t.load(ctx, key); err != nil {
		return err
	}
	v, err := t.value(key)
	if err != nil {
		return t.certain(fmt.Errorf("handle %q: %w", handle, err))
	}
	h, _ := v.(*calico.Handle)
	switch {
	case h == nil && n < 0:
		t.check(key) // a peer's fault, if it is so: there is nothing to count down
		return nil
	case h == nil:
		h = &calico.Handle{ID: handle, Block: map[netip.Prefix]int{}}
	default:
		h = &calico.Handle{ID: handle, Block: maps.Clone(h.Block), Unknown: h.Unknown}
	}
	if h.Block == nil {
		h.Block = map[netip.Prefix]int{}
	}
	if h.Block[block] += n; h.Block[block] <= 0 {
		delete(h.Block, block)
	}
	if len(h.Block) == 0 {
		t.delete(key)
	} else {
		t.put(key, h)
	}
	return nil
}

// commit writes to etcd, and on success to the cache.
func (t *tx) commit(ctx context.Context) error {
	var ops []client.Op
	for key, value := range t.written {
		// The block is the truth; affinity keys, stray ones too, follow it.
		index := key.Kind() == calico.KindIPAMBlockAffinity
		switch rev := t.read[key].revision; {
		case index && value != nil:
			ops = append(ops, client.OpApply(key, value))
		case index:
			ops = append(ops, client.OpClear(key))
		case value != nil:
			ops = append(ops, client.OpReplace(key, value, rev))
		case rev != 0:
			ops = append(ops, client.OpDelete(key, rev))
		default:
			ops = append(ops, client.OpCheck(key, 0))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	for key := range t.checked {
		if _, twice := t.written[key]; !twice {
			ops = append(ops, client.OpCheck(key, t.read[key].revision))
		}
	}
	rev, err := t.ipam.client.Commit(ctx, ops...)
	if err != nil {
		return err
	}
	for key, value := range t.written {
		o := object{value: value, known: rev}
		if value != nil {
			o.revision = rev
		}
		t.ipam.cache.put(key, o)
	}
	return nil
}
