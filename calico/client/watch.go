package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"heddle/calico"
)

// Event is one change of one object. Of one that cannot be decoded it has Raw and Err, as a List would have. When the
// object was deleted, the entry has its key, path and the revision at which it was found gone.
type Event struct {
	Entry
	Deleted bool
}

// errPlace means that a watch cannot go on from where it is: what it has seen must be compared with a new list.
var errPlace = errors.New("the watch has lost its place")

// Watch delivers what changes after a snapshot, of the objects that the snapshot's filters pick, in the order of
// revisions, until ctx ends. Events of one commit follow each other and have the same revision.
//
// A lost connection is made again, and nothing is missed. When etcd no longer keeps the revisions between, or another
// cluster answers, or the cluster was set back, the watch lists again and delivers the difference to what it has
// delivered so far, deletions too: the outcome is right, but what happened in between is not told.
//
// The one error that a watch delivers is its last: [ErrDenied] or [ErrClosed]. An end of ctx is none.
// With several filters, or one for keys with two places, etcd sends all that lies under their common prefix.
// What is not taken from the watch waits in memory, without a bound.
func (c *Client) Watch(ctx context.Context, from *Snapshot) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := newWatch(c, from)
		for err == nil {
			err = w.follow(ctx, yield)
			if errors.Is(err, errPlace) {
				err = w.compare(ctx, yield)
			}
			if err != nil && !isFinal(err) && c.etcd.Ctx().Err() == nil {
				err = pause(ctx)
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errStopped):
		case c.etcd.Ctx().Err() != nil:
			yield(Event{}, fmt.Errorf("watch: %w", ErrClosed))
		default:
			yield(Event{}, c.explain(ctx, "watch", err))
		}
	}
}

// errStopped means that the caller takes no more events.
var errStopped = errors.New("stopped")

// errClosed means that etcd ended the watch without a word.
var errClosed = errors.New("closed by etcd")

// isFinal says whether there is no use in going on after an error.
func isFinal(err error) bool { return errors.Is(err, errStopped) || isDenied(err) }

// retryPause is how long a watch that has failed waits before it tries again.
const retryPause = 100 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryPause):
		return nil
	}
}

// watch knows what it has delivered.
type watch struct {
	client   *Client
	filters  []calico.Key
	prefix   string
	cluster  uint64
	revision int64 // everything up to here is delivered
	seen     map[calico.Key]place
	twice    map[calico.Key]*pair // of keys with two places, what lies there
}

// place is what of an object was delivered.
type place struct {
	path     string
	revision int64
}

// pair is what lies at the two places of a key.
type pair struct{ left, right *mvccpb.KeyValue }

func (p *pair) effective() *mvccpb.KeyValue {
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
	w.cluster, w.revision = s.cluster, s.Revision
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

// note keeps an entry of a key with two places.
func (w *watch) note(e Entry) {
	if p, err := placesOf(e.Key); err == nil && p.right != "" {
		w.put(e.Key, p, e.Path, &mvccpb.KeyValue{
			Key: []byte(e.Path), Value: e.Raw, CreateRevision: e.Created, ModRevision: e.Revision, Lease: int64(e.Lease),
		})
	}
}

// put says what lies at one of the two places of a key; nil: nothing.
func (w *watch) put(key calico.Key, p places, path string, kv *mvccpb.KeyValue) {
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

// follow delivers changes until the watch breaks, and says why.
func (w *watch) follow(ctx context.Context, yield func(Event, error) bool) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := w.client.etcd.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.revision+1), clientv3.WithCreatedNotify())
	check := time.NewTicker(w.client.checkEvery)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-check.C:
			if err := w.stillThere(ctx); err != nil {
				return err
			}
		case r, ok := <-changes:
			if !ok {
				return errClosed
			}
			if err := w.take(r, yield); err != nil {
				return err
			}
		}
	}
}

// stillThere makes sure that the cluster is the one that the watch began with, and has not been set back: such a one
// would keep silent until it has reached the watch's revision.
func (w *watch) stillThere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.client.timeout)
	defer cancel()
	r, err := w.client.etcd.Get(ctx, w.prefix, clientv3.WithCountOnly())
	if err != nil {
		return nil // away: the watch itself finds out
	}
	if r.Header.ClusterId != w.cluster || r.Header.Revision < w.revision {
		return errPlace
	}
	return nil
}

// take delivers the events of one answer. It holds whole revisions.
func (w *watch) take(r clientv3.WatchResponse, yield func(Event, error) bool) error {
	if r.CompactRevision != 0 {
		return errPlace
	}
	if err := r.Err(); err != nil {
		return err
	}
	if r.Header.ClusterId != w.cluster || r.Created && r.Header.Revision < w.revision {
		return errPlace
	}
	for events := r.Events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		for _, e := range w.commit(events[:n]) {
			if !yield(e, nil) {
				return errStopped
			}
		}
		events = events[n:]
	}
	return nil
}

// commit makes events of what one commit changed.
func (w *watch) commit(changes []*clientv3.Event) []Event {
	w.revision = changes[0].Kv.ModRevision
	var out []Event
	var twice []calico.Key // changed at either of their places
	for _, c := range changes {
		path := string(c.Kv.Key)
		key, ok := pick(w.filters, path)
		if !ok {
			continue
		}
		kv := c.Kv
		if c.Type == clientv3.EventTypeDelete {
			kv = nil
		}
		if p, err := placesOf(key); err == nil && p.right != "" {
			w.put(key, p, path, kv)
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
		var kv *mvccpb.KeyValue
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
func (w *watch) event(key calico.Key, kv *mvccpb.KeyValue) (Event, bool) {
	before, known := w.seen[key]
	if kv == nil {
		delete(w.seen, key)
		return Event{Entry: Entry{Key: key, Path: before.path, Revision: w.revision}, Deleted: true}, known
	}
	now := place{string(kv.Key), kv.ModRevision}
	w.seen[key] = now
	return Event{Entry: w.client.entry(key, kv)}, !known || now != before
}

// compare lists anew and delivers the difference.
func (w *watch) compare(ctx context.Context, yield func(Event, error) bool) error {
	s, err := w.client.List(ctx, w.filters...)
	if err != nil {
		return err
	}
	before := w.seen
	// Revisions of another cluster, or of an older state of this one, say nothing.
	comparable := s.cluster == w.cluster && s.Revision >= w.revision
	w.begin(s)
	var out []Event
	for _, e := range s.Entries {
		if was, known := before[e.Key]; !known || !comparable || was != w.seen[e.Key] {
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
	for _, e := range out {
		if !yield(e, nil) {
			return errStopped
		}
	}
	return nil
}
