package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/calico/client"
)

var (
	// errStale asks for another attempt, which reads from etcd what this one took from the cache.
	errStale = errors.New("what is remembered does not suffice")
	// errFull means that the rest of a request does not fit into the transaction.
	errFull = errors.New("transaction full")
)

// trust is what a transaction rests on beside what it reads from etcd.
type trust int

const (
	nothing trust = iota
	memory        // what was read or written before
	guess         // and that a handle that nothing is known of is new
)

// tx is one transaction in the making: what it has read, and what it is to write if that is still so.
type tx struct {
	ipam  *IPAM
	trust trust
	read  map[calico.Key]object
	views map[line]*view
	taken *blocks // all that exist, once asked for
	// exhausted are blocks that have no address left, or had none: the next searches begin elsewhere.
	exhausted map[netip.Prefix]bool
	writes
}

// writes are what a request adds to a transaction, and what is taken back when it fails.
type writes struct {
	written map[calico.Key]any  // nil: to be deleted
	checked map[calico.Key]bool // must be as it was read
	claimed []netip.Prefix      // new blocks
}

func (w writes) clone() writes {
	return writes{maps.Clone(w.written), maps.Clone(w.checked), w.claimed[:len(w.claimed):len(w.claimed)]}
}

func (i *IPAM) newTx(trust trust) *tx {
	return &tx{
		ipam:      i,
		trust:     trust,
		read:      map[calico.Key]object{},
		views:     map[line]*view{},
		exhausted: map[netip.Prefix]bool{},
		writes:    writes{written: map[calico.Key]any{}, checked: map[calico.Key]bool{}},
	}
}

// weight is how many operations of etcd a key takes: some lie at two places.
func weight(key calico.Key) int {
	if key.Kind() == calico.KindIPAMHandle {
		return 2
	}
	return 1
}

// full says whether there is no room for more operations beside those there are.
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
		if o, ok := t.ipam.cache.get(k); ok && t.trust != nothing {
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

// confirm asks whether what is remembered of some keys is still so, and returns those that have to be read.
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

// value is what is at a key after the writes so far; the key must have been loaded.
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

// block is the block at a CIDR; nil when there is none. It must not be changed.
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

// count adds n to how many addresses of a block carry a handle. Most handles are new when an address is assigned: while
// the transaction may guess, that is not asked, and the commit finds out.
func (t *tx) count(ctx context.Context, handle string, block netip.Prefix, n int) error {
	if handle == "" || n == 0 {
		return nil
	}
	key := calico.HandleKey{Handle: handle}
	_, known := t.read[key]
	if _, cached := t.ipam.cache.get(key); !known && !cached && t.trust == guess && n > 0 {
		t.read[key] = object{}
	}
	if err := t.load(ctx, key); err != nil {
		return err
	}
	v, err := t.value(key)
	if err != nil {
		return t.unlessStale(fmt.Errorf("handle %q: %w", handle, err))
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

// commit writes what there is to write, and remembers it. A conflict has what it concerns forgotten.
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
		for key := range t.written {
			t.ipam.cache.forget(key)
		}
		for key := range t.checked {
			t.ipam.cache.forget(key)
		}
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

// rests says whether a conflict concerns something that views rest on, and not only blocks and handles.
func (t *tx) rests(conflict error) bool {
	if many, ok := conflict.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(many.Unwrap(), t.rests)
	}
	var fault *client.KeyError
	if !errors.As(conflict, &fault) {
		return true
	}
	kind := fault.Key.Kind()
	return kind != calico.KindIPAMBlock && kind != calico.KindIPAMHandle
}
