package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/store/etcd"
)

// listPage bounds the keys of one request of a List.
const listPage = 10_000

// Entry is one object as etcd holds it.
type Entry struct {
	Key  calico.Key
	Path string // where it lies; of a key with two places, one of them
	// Object is the result of [calico.Decode] for Raw, or nil if that failed with Err.
	Object any
	Err    error
	Raw    []byte // must not be modified
	// Created and Revision are the revisions at which it was created and last changed.
	Created, Revision int64
	Lease             LeaseID // 0: it stays until it is deleted
}

// Snapshot is the result of a List, all of it at one revision.
type Snapshot struct {
	Entries  []Entry // by path; also those that cannot be decoded
	Revision int64

	filters  []calico.Key
	counts   map[calico.Key]int // of keys with two places, the index of the entry that counts
	shadowed []Entry            // and those that do not
	cluster  uint64             // that was listed
	term     uint64             // of its leader then
}

// Get reads one object. It fails with [ErrNotFound], or with [ErrInvalid] when the object cannot be
// decoded; then the entry has the rest.
func (c *Client) Get(ctx context.Context, key calico.Key) (Entry, error) {
	p, err := placesOf(key)
	if err != nil {
		return Entry{}, err
	}
	found, _, err := c.fetch(ctx, p.paths())
	if err != nil {
		return Entry{}, err
	}
	kv := p.effective(found)
	if kv == nil {
		return Entry{}, &KeyError{Key: key, Path: p.left, Err: ErrNotFound}
	}
	e := c.entry(key, etcd.FromProto(kv))
	if e.Err != nil {
		return e, invalid(key, e.Path, e.Err)
	}
	return e, nil
}

// Get reads one object of a known type, as in Get[*calico.Policy], and its revision.
func Get[T any](ctx context.Context, c *Client, key calico.Key) (T, int64, error) {
	var none T
	e, err := c.Get(ctx, key)
	if err != nil {
		return none, 0, err
	}
	object, ok := e.Object.(T)
	if !ok {
		return none, 0, fmt.Errorf("%s %s: it is a %T, not a %T", key.Kind(), e.Path, e.Object, none)
	}
	return object, e.Revision, nil
}

// All iterates over the valid objects of one type, as in All[*calico.Policy].
func All[T any](s *Snapshot) iter.Seq2[calico.Key, T] {
	return func(yield func(calico.Key, T) bool) {
		for _, e := range s.Entries {
			if object, ok := e.Object.(T); ok && !yield(e.Key, object) {
				return
			}
		}
	}
}

// Read reads several objects at one revision. Those that are not there are left out.
func (c *Client) Read(ctx context.Context, keys ...calico.Key) (*Snapshot, error) {
	var paths []string
	for _, k := range keys {
		p, err := placesOf(k)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p.paths()...)
	}
	found, header, err := c.fetch(ctx, paths)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Revision: header.Revision, cluster: header.ClusterId, term: header.RaftTerm, filters: slices.Clone(keys)}
	for _, k := range keys {
		p, _ := placesOf(k)
		for _, path := range p.paths() {
			if kv := found[path]; kv != nil {
				s.add(c.entry(k, etcd.FromProto(kv)))
				delete(found, path) // a key may be asked for twice
			}
		}
	}
	slices.SortFunc(s.Entries, byPath)
	return s, nil
}

// Revisions reads when several objects were last changed, and not the objects themselves: all at
// one revision, which it also returns. Those that are not there are left out.
func (c *Client) Revisions(ctx context.Context, keys ...calico.Key) (map[calico.Key]int64, int64, error) {
	var paths []string
	var all []places
	for _, k := range keys {
		p, err := placesOf(k)
		if err != nil {
			return nil, 0, err
		}
		all, paths = append(all, p), append(paths, p.paths()...)
	}
	found, header, err := c.fetch(ctx, paths, clientv3.WithKeysOnly())
	if err != nil {
		return nil, 0, err
	}
	revisions := make(map[calico.Key]int64, len(found))
	for i, k := range keys {
		if kv := all[i].effective(found); kv != nil {
			revisions[k] = kv.ModRevision
		}
	}
	return revisions, header.Revision, nil
}

// fetchPage bounds the keys of one request of a fetch; etcd's own limit is 128.
const fetchPage = 100

// fetch reads some keys at one revision, which the header has.
func (c *Client) fetch(ctx context.Context, paths []string, opts ...clientv3.OpOption) (map[string]*mvccpb.KeyValue, *etcdserverpb.ResponseHeader, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for {
		found, header, err := c.fetchPages(ctx, paths, opts)
		// Compacted between two pages: what was read is too old to be completed.
		if errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, nil, c.explain(ctx, "get "+paths[0], err)
		}
		return found, header, nil
	}
}

func (c *Client) fetchPages(ctx context.Context, paths []string, opts []clientv3.OpOption) (map[string]*mvccpb.KeyValue, *etcdserverpb.ResponseHeader, error) {
	found := map[string]*mvccpb.KeyValue{}
	header := &etcdserverpb.ResponseHeader{}
	for page := range slices.Chunk(paths, fetchPage) {
		gets := make([]clientv3.Op, len(page))
		for i, p := range page {
			gets[i] = clientv3.OpGet(p, append([]clientv3.OpOption{clientv3.WithRev(header.Revision)}, opts...)...)
		}
		r, err := c.txn(ctx, nil, gets, nil)
		if err != nil {
			return nil, nil, err
		}
		if header.Revision == 0 {
			header = r.Header
		}
		maps.Copy(found, kvs(r))
	}
	return found, header, nil
}

func (c *Client) txn(ctx context.Context, conds []clientv3.Cmp, then, otherwise []clientv3.Op) (r *clientv3.TxnResponse, err error) {
	err = etcd.UnlessAuthChanged(func() (err error) {
		r, err = c.etcd.Txn(ctx).If(conds...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	return r, err
}

// kvs returns all keys that the reads of a transaction found, by path.
func kvs(r *clientv3.TxnResponse) map[string]*mvccpb.KeyValue {
	found := map[string]*mvccpb.KeyValue{}
	for _, one := range r.Responses {
		for _, kv := range one.GetResponseRange().GetKvs() {
			found[string(kv.Key)] = kv
		}
	}
	return found
}

// List reads all objects that any of the filters picks, at one revision. A filter is a key of which
// some members are set: those must be equal. So calico.PolicyKey{} picks all policies,
// calico.PolicyKey{Tier: "default"} those of one tier, and calico.WorkloadEndpointKey{Host: "h"}
// the workload endpoints of a host. Keys of the legacy tree are picked by filters with Legacy set.
func (c *Client) List(ctx context.Context, filters ...calico.Key) (*Snapshot, error) {
	return c.collect(ctx, filters, func(s *Snapshot, kv *mvccpb.KeyValue) {
		if key, ok := pick(filters, string(kv.Key)); ok {
			s.add(c.entry(key, etcd.FromProto(kv)))
		}
	})
}

// collect calls add with each key under the filters' prefixes. Compaction makes it start again.
func (c *Client) collect(ctx context.Context, filters []calico.Key, add func(*Snapshot, *mvccpb.KeyValue), opts ...clientv3.OpOption) (*Snapshot, error) {
	if len(filters) == 0 {
		return nil, errors.New("list: name at least one kind of key")
	}
	prefixes, err := prefixesOf(filters)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	for {
		s := &Snapshot{filters: slices.Clone(filters)}
		err := c.pages(ctx, s, prefixes, add, opts)
		if errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, c.explain(ctx, "list "+prefixes[0], err)
		}
		slices.SortFunc(s.Entries, byPath)
		return s, nil
	}
}

// span is a range of keys, without its end.
type span struct{ start, end string }

// pages reads all prefixes page by page, at the revision of the first page.
func (c *Client) pages(ctx context.Context, s *Snapshot, prefixes []string, add func(*Snapshot, *mvccpb.KeyValue), opts []clientv3.OpOption) error {
	var spans []span
	for _, p := range prefixes {
		spans = append(spans, span{p, clientv3.GetPrefixRangeEnd(p)})
	}
	for len(spans) > 0 {
		var rest []span
		for chunk := range slices.Chunk(spans, fetchPage) {
			more, err := c.page(ctx, s, chunk, add, opts)
			if err != nil {
				return err
			}
			rest = append(rest, more...)
		}
		spans = rest
	}
	return nil
}

// page reads the first keys of some spans in one request, and returns what is left of them.
func (c *Client) page(ctx context.Context, s *Snapshot, spans []span, add func(*Snapshot, *mvccpb.KeyValue), opts []clientv3.OpOption) (rest []span, err error) {
	gets := make([]clientv3.Op, len(spans))
	for i, one := range spans {
		gets[i] = clientv3.OpGet(one.start, append([]clientv3.OpOption{clientv3.WithRange(one.end), clientv3.WithLimit(listPage), clientv3.WithRev(s.Revision)}, opts...)...)
	}
	r, err := c.txn(ctx, nil, gets, nil)
	if err != nil {
		return nil, err
	}
	if s.Revision == 0 {
		s.Revision, s.cluster, s.term = r.Header.Revision, r.Header.ClusterId, r.Header.RaftTerm
	}
	for i, one := range r.Responses {
		found := one.GetResponseRange()
		for _, kv := range found.Kvs {
			add(s, kv)
		}
		if found.More {
			rest = append(rest, span{string(found.Kvs[len(found.Kvs)-1].Key) + "\x00", spans[i].end})
		}
	}
	return rest, nil
}

// add takes an entry in, of two places the one that counts.
func (s *Snapshot) add(e Entry) {
	key := e.Key
	p, err := placesOf(key)
	if err != nil || p.right == "" {
		s.Entries = append(s.Entries, e)
		return
	}
	i, twice := s.counts[key]
	switch {
	case !twice:
		if s.counts == nil {
			s.counts = map[calico.Key]int{}
		}
		s.counts[key] = len(s.Entries)
		s.Entries = append(s.Entries, e)
	case e.Path == p.left:
		s.shadowed = append(s.shadowed, s.Entries[i])
		s.Entries[i] = e
	default:
		s.shadowed = append(s.shadowed, e)
	}
}

// Keys reads the keys of all objects that any of the filters picks, at one revision, which it
// returns. It costs less than a List where the objects themselves do not matter.
func (c *Client) Keys(ctx context.Context, filters ...calico.Key) ([]calico.Key, int64, error) {
	s, err := c.collect(ctx, filters, func(s *Snapshot, kv *mvccpb.KeyValue) {
		if key, ok := pick(filters, string(kv.Key)); ok {
			s.Entries = append(s.Entries, Entry{Key: key, Path: string(kv.Key)})
		}
	}, clientv3.WithKeysOnly())
	if err != nil {
		return nil, 0, err
	}
	keys := make([]calico.Key, 0, len(s.Entries))
	seen := make(map[calico.Key]bool, len(s.Entries)) // some may lie at two places
	for _, e := range s.Entries {
		if !seen[e.Key] {
			seen[e.Key] = true
			keys = append(keys, e.Key)
		}
	}
	return keys, s.Revision, nil
}

func (c *Client) entry(key calico.Key, kv store.KV) Entry {
	e := Entry{
		Key:      key,
		Path:     kv.Key,
		Raw:      kv.Value,
		Created:  kv.CreateRevision,
		Revision: kv.ModRevision,
		Lease:    LeaseID(kv.Lease),
	}
	e.Object, e.Err = calico.Decode(key, kv.Value, c.codec...)
	return e
}
