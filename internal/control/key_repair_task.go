package control

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// Keys keeps the keys of Calico's data model as Neutron's objects define them, whichever program
// changes or deletes them (spec/calico 18, resync). It is a task.
//
//	store ──a key changed──▶ marks it ──▶ Run ──not as its object defines it?──▶ repairs it
//
// At start it compares all keys, existing and missing; later those that change. It compares states,
// so every server may run one: the second finds nothing to do.
//
// Once the site has a routed network, endpoints of the orchestrator openstack, rules and tags of
// profiles openstack-sg-…, and DHCP subnets with the id of a Neutron subnet are Neutron's alone.
// Other keys are never touched.
type Keys struct {
	task.Part
	service *Service
	objects *replica.Replica
	log     *slog.Logger
	marked  *marks[store.Event] // by path, the last event

	// Of the goroutine that makes the passes.
	renaming map[string]bool // keys in which names get our domain; nil before the first pass
	repaired map[string]bool // of late
	last     time.Time       // when something was repaired
	backoff  task.Backoff    // before a key is repaired again
}

// repairAtOnce bounds the keys of one transaction: most have less than a kilobyte.
const repairAtOnce = 64

// NewKeys returns the task. objects is the service's replica.
func NewKeys(s *Service, objects *replica.Replica, log *slog.Logger) *Keys {
	return &Keys{
		Part: task.NewPart("calico keys"), service: s, objects: objects, log: log, marked: newMarks[store.Event](),
		repaired: map[string]bool{}, backoff: newBackoff(),
	}
}

// Run repairs keys until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	k.BeReady()
	var watching sync.WaitGroup
	watching.Go(func() { k.watch(ctx) })
	k.marked.follow(ctx, k.log, "cannot repair keys of Calico's model", k.pass)
	watching.Wait()
	return nil
}

// watch marks all keys, then each that changes, until ctx ends; all again after a full listing.
func (k *Keys) watch(ctx context.Context) {
	f := follow.New(follow.Options{Store: k.service.db.Store(), Prefixes: []string{schema.CalicoPrefix}, Log: k.log})
	_ = f.Run(ctx, func(ctx context.Context, u follow.Update) { // it ends with ctx alone
		if u.Full {
			k.markAll(ctx, u)
			return
		}
		for _, e := range u.Events {
			if ofNeutron(e.Key) {
				k.marked.add(e.Key, e)
			}
		}
	})
}

// markAll marks the keys that are there or should be.
func (k *Keys) markAll(ctx context.Context, u follow.Update) {
	snap, ok := fresh(ctx, k.objects) // they are followed apart from the keys, and may be behind
	if !ok {
		return
	}
	events := map[string]store.Event{}
	for path := range paths(records.Over(snap)) {
		events[path] = store.Event{KV: store.KV{Key: path, ModRevision: u.Revision}, Deleted: true}
	}
	for _, kv := range u.All {
		if ofNeutron(kv.Key) {
			events[kv.Key] = store.Event{KV: kv}
		}
	}
	k.marked.addAll(events)
}

// pass repairs marked keys and returns the last error. Keys that failed stay marked.
func (k *Keys) pass(ctx context.Context) error {
	events := k.marked.take()
	wrong, failed, err := k.compare(ctx, events)
	if err != nil {
		for path, e := range events {
			k.marked.keep(path, e)
		}
		return err
	}
	if k.renaming == nil {
		k.renaming = map[string]bool{}
		for _, path := range wrong {
			k.renaming[path] = true
		}
		for path := range failed {
			k.renaming[path] = true
		}
	}
	var last error
	fail := func(path string, err error) {
		last = err
		k.marked.keep(path, events[path])
	}
	for path, err := range failed {
		fail(path, err)
	}
	if len(wrong) == 0 || !k.rest(ctx, wrong) {
		return last
	}
	for part := range slices.Chunk(wrong, repairAtOnce) {
		done, err := k.service.repair(ctx, part, k.renaming)
		for _, path := range part {
			if err := cmp.Or(err, done.failed[path]); err != nil {
				fail(path, err)
			} else {
				delete(k.renaming, path)
			}
		}
		k.note(done.changed)
	}
	return last
}

// compare returns the keys that are not as they should be, first those to be deleted, last those
// that are missing; and the keys for which the desired value is not known.
func (k *Keys) compare(ctx context.Context, events map[string]store.Event) (wrong []string, failed map[string]error, err error) {
	var rev int64
	for _, e := range events {
		rev = max(rev, e.ModRevision)
	}
	snap, err := k.objects.At(ctx, rev)
	if err != nil {
		return nil, nil, err
	}
	r := records.Over(snap)
	failed = map[string]error{}
	var needless, different, missing []string
	for _, path := range slices.Sorted(maps.Keys(events)) {
		want, ours, err := k.service.desiredValue(r, path)
		switch e := events[path]; {
		case err != nil:
			failed[path] = err
		case !ours, e.Deleted == (want == nil) && bytes.Equal(e.Value, want):
			delete(k.renaming, path)
		case want == nil:
			needless = append(needless, path)
		case e.Deleted:
			missing = append(missing, path)
		default:
			different = append(different, path)
		}
	}
	wrong = slices.Concat(needless, different, missing)
	if len(wrong)+len(failed) > 0 && !hasRouted(r) {
		return nil, nil, nil
	}
	return wrong, failed, nil
}

// rest waits before it repairs keys again that another writer has changed back, each time longer:
// an endless fight harms readers. It returns false when ctx ends.
func (k *Keys) rest(ctx context.Context, wrong []string) bool {
	if time.Since(k.last) > 2*mostPause {
		clear(k.repaired)
		k.backoff.Reset()
	}
	if !slices.ContainsFunc(wrong, func(path string) bool { return k.repaired[path] }) {
		return true
	}
	pause := k.backoff.Next()
	k.log.Warn("another writer keeps changing keys of Neutron", "keys", len(wrong), "one", wrong[0], "pause", pause)
	return task.Pause(ctx, pause)
}

// note records and logs repaired keys.
func (k *Keys) note(paths []string) {
	if len(paths) == 0 {
		return
	}
	k.last = time.Now()
	for _, path := range paths {
		k.repaired[path] = true
	}
	k.log.Info("repaired keys of Calico's model", "keys", len(paths), "one", paths[0])
}
