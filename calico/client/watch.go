package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
	"heddle/internal/store"
	"heddle/internal/store/etcd"
	"heddle/internal/store/follow"
)

// Event is one change of one object. If the object cannot be decoded, the entry has Raw and Err. If
// it was deleted, the entry has its key, path and the revision at which it was found gone.
type Event struct {
	Entry
	Deleted bool
}

// Watch delivers changes after a snapshot, of objects that match the snapshot's filters, in the
// order of revisions, until ctx ends. Events of one commit are consecutive and have the same
// revision.
//
// Reconnecting loses nothing. If etcd has compacted the revisions between, another cluster answers,
// or the cluster was set back, the watch lists again and delivers the difference to what it
// delivered so far, deletions included; it does not deliver the states between.
//
// The only error that a watch delivers is its last: [ErrDenied] or [ErrClosed]. With several
// filters, or one for keys with two places, etcd sends everything under their common prefix. Events
// that are not consumed wait in memory, without a bound.
func (c *Client) Watch(ctx context.Context, from *Snapshot) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stopped := false
		w, err := newWatch(c, from)
		if err == nil {
			err = w.run(ctx, func(e Event) bool {
				stopped = !yield(e, nil)
				return !stopped
			})
		}
		switch {
		case stopped || ctx.Err() != nil:
		case c.etcd.Ctx().Err() != nil:
			yield(Event{}, fmt.Errorf("watch: %w", ErrClosed))
		default:
			yield(Event{}, c.explain(ctx, "watch", err))
		}
	}
}

// watch turns a follower's updates into events, and records what it has delivered.
type watch struct {
	client   *Client
	filters  []calico.Key
	prefix   string // that all keys have which the filters pick: etcd is watched there
	from     follow.Position
	revision int64 // everything up to here is delivered
	seen     map[calico.Key]place
	twice    map[calico.Key]*pair // of keys with two places, what lies there
}

// run passes events to yield until it returns false, ctx ends, or the client may not read or is
// closed. The error is of the last two.
func (w *watch) run(ctx context.Context, yield func(Event) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.client.etcd.Ctx(), stop)()
	f := follow.New(follow.Options{Store: w, Prefixes: []string{w.prefix}, After: &w.from, CheckEvery: w.client.checkEvery, IsFinal: isDenied})
	return f.Run(ctx, func(ctx context.Context, u follow.Update) {
		for _, e := range w.take(u) {
			if ctx.Err() != nil || !yield(e) {
				stop()
				return
			}
		}
	})
}

// take returns the events of an update.
func (w *watch) take(u follow.Update) []Event {
	if u.Full {
		return w.compare(u)
	}
	var out []Event
	for events := u.Events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].ModRevision == events[0].ModRevision {
			n++
		}
		out = append(out, w.commit(events[:n])...)
		events = events[n:]
	}
	return out
}

// The rest of a follow.Source, by what those may read who may watch the prefix.

// Watch implements [follow.Source].
func (w *watch) Watch(ctx context.Context, from int64, prefixes ...string) (<-chan store.Change, func() error) {
	return w.client.watcher.Watch(ctx, from, prefixes...)
}

// Nudge implements [follow.Source].
func (w *watch) Nudge(rev int64) { w.client.watcher.Nudge(rev) }

// Identity implements [follow.Source].
func (w *watch) Identity(ctx context.Context) (store.Identity, error) {
	r, err := w.client.etcd.Get(ctx, w.prefix, clientv3.WithCountOnly())
	if err != nil {
		return store.Identity{}, etcd.Explain(ctx, "identity", err)
	}
	return store.Identity{Cluster: r.Header.ClusterId, Term: r.Header.RaftTerm, Revision: r.Header.Revision}, nil
}

// GetAt implements [follow.Source].
func (w *watch) GetAt(ctx context.Context, key string, rev int64) (store.KV, error) {
	r, err := w.client.etcd.Get(ctx, key, clientv3.WithRev(rev))
	switch {
	case err != nil:
		return store.KV{}, etcd.Explain(ctx, fmt.Sprintf("get %s at revision %d", key, rev), err)
	case len(r.Kvs) == 0:
		return store.KV{}, fmt.Errorf("%s at revision %d: %w", key, rev, store.ErrNotFound)
	}
	return etcd.FromProto(r.Kvs[0]), nil
}

// List implements [follow.Source]. It lists the filters' prefixes, maybe a small part of prefix.
func (w *watch) List(ctx context.Context, _ string) ([]store.KV, int64, error) {
	var all []store.KV
	s, err := w.client.collect(ctx, w.filters, func(_ *Snapshot, kv *mvccpb.KeyValue) { all = append(all, etcd.FromProto(kv)) })
	if err != nil {
		return nil, 0, err
	}
	return all, s.Revision, nil
}

// place is the version of an object that was delivered.
type place struct {
	path     string
	revision int64
}

// pair holds the objects at the two places of a key.
type pair struct{ left, right *store.KV }

func (p *pair) effective() *store.KV {
	if p.left != nil {
		return p.left
	}
	return p.right
}

func newWatch(c *Client, from *Snapshot) (*watch, error) {
	prefixes, err := prefixesOf(from.filters)
	if err != nil {
		return nil, err
	}
	w := &watch{client: c, filters: from.filters, prefix: commonPrefix(prefixes)}
	w.begin(from)
	return w, nil
}

// begin takes a snapshot as delivered.
func (w *watch) begin(s *Snapshot) {
	w.revision = s.Revision
	w.from = follow.Position{Identity: store.Identity{Cluster: s.cluster, Term: s.term, Revision: s.Revision}}
	w.seen = make(map[calico.Key]place, len(s.Entries))
	w.twice = map[calico.Key]*pair{}
	for _, e := range s.Entries {
		w.seen[e.Key] = place{e.Path, e.Revision}
		w.note(e)
	}
	for _, e := range s.shadowed {
		w.note(e)
	}
}

// note keeps an entry of a key with two places, and the one that was put last.
func (w *watch) note(e Entry) {
	kv := store.KV{Key: e.Path, Value: e.Raw, CreateRevision: e.Created, ModRevision: e.Revision, Lease: store.Lease(e.Lease)}
	if kv.ModRevision > w.from.Newest.ModRevision {
		w.from.Newest = kv
	}
	if p, err := placesOf(e.Key); err == nil && p.right != "" {
		w.put(e.Key, p, e.Path, &kv)
	}
}

// put records the object at one of the two places of a key; nil: there is none.
func (w *watch) put(key calico.Key, p places, path string, kv *store.KV) {
	both := w.twice[key]
	if both == nil {
		both = &pair{}
		w.twice[key] = both
	}
	if path == p.left {
		both.left = kv
	} else {
		both.right = kv
	}
	if both.left == nil && both.right == nil {
		delete(w.twice, key)
	}
}

// commit makes events of what one commit changed.
func (w *watch) commit(changes []store.Event) []Event {
	w.revision = changes[0].ModRevision
	var out []Event
	var twice []calico.Key // changed at either of their places
	for i := range changes {
		key, ok := pick(w.filters, changes[i].Key)
		if !ok {
			continue
		}
		kv := &changes[i].KV
		if changes[i].Deleted {
			kv = nil
		}
		if p, err := placesOf(key); err == nil && p.right != "" {
			w.put(key, p, changes[i].Key, kv)
			if !slices.Contains(twice, key) {
				twice = append(twice, key)
			}
			continue
		}
		if e, ok := w.event(key, kv); ok {
			out = append(out, e)
		}
	}
	for _, key := range twice {
		var kv *store.KV
		if both := w.twice[key]; both != nil {
			kv = both.effective()
		}
		if e, ok := w.event(key, kv); ok {
			out = append(out, e)
		}
	}
	return out
}

// event makes an event of what now counts of a key, unless that was delivered already.
func (w *watch) event(key calico.Key, kv *store.KV) (Event, bool) {
	before, known := w.seen[key]
	if kv == nil {
		delete(w.seen, key)
		return Event{Entry: Entry{Key: key, Path: before.path, Revision: w.revision}, Deleted: true}, known
	}
	now := place{kv.Key, kv.ModRevision}
	w.seen[key] = now
	return Event{Entry: w.client.entry(key, *kv)}, !known || now != before
}

// compare returns the difference between what was delivered and all that there is now.
func (w *watch) compare(u follow.Update) []Event {
	s := &Snapshot{Revision: u.Revision}
	for _, kv := range u.All {
		if key, ok := pick(w.filters, kv.Key); ok {
			s.add(w.client.entry(key, kv))
		}
	}
	before := w.seen
	w.begin(s)
	var out []Event
	for _, e := range s.Entries {
		if was, known := before[e.Key]; !known || u.Diverged || was != w.seen[e.Key] {
			out = append(out, Event{Entry: e})
		}
	}
	for key, was := range before {
		if _, still := w.seen[key]; !still {
			out = append(out, Event{Entry: Entry{Key: key, Path: was.path, Revision: s.Revision}, Deleted: true})
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), byPath(a.Entry, b.Entry))
	})
	return out
}
