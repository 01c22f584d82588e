package control

import (
	"bytes"
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
)

// Keys keeps what lies in Calico's data model for Neutron's objects as these mean it, whoever changes, deletes or leaves
// something there (spec/calico 18, resync). It is a task.
//
//	store ──a key changed──▶ marks it ──▶ Run ──not as its object means it?──▶ put right, unless key or object change meanwhile
//
// When it starts it looks at all keys, there and missing; later its work follows what changes. What an operation writes
// is right already. What it looks at is the state, so every server may run one: who comes second finds nothing to do.
//
// Endpoints of the orchestrator openstack and the rules and tags of profiles openstack-sg-… are Neutron's alone once the
// site has a routed network, and so are the subnets of DHCP that have the id of one of Neutron's. Nothing else is touched.
type Keys struct {
	service *Service
	objects *replica.Replica
	log     *slog.Logger
	ready   chan struct{}
	marked  *marks[store.Event] // by path, the last event

	// Of the goroutine that makes the passes.
	renaming map[string]bool // keys in which names get our domain; nil before the first pass
	repaired map[string]bool // of late
	last     time.Time       // when something was repaired
	pause    time.Duration   // before a key is repaired again
}

// repairAtOnce is how many keys are put right in one transaction: most have less than a kilobyte.
const repairAtOnce = 64

// NewKeys returns the task. objects is the service's replica.
func NewKeys(s *Service, objects *replica.Replica, log *slog.Logger) *Keys {
	return &Keys{
		service: s, objects: objects, log: log, ready: make(chan struct{}), marked: newMarks[store.Event](),
		repaired: map[string]bool{}, pause: leastPause,
	}
}

func (k *Keys) String() string { return "calico keys" }

// Ready is closed when the task runs.
func (k *Keys) Ready() <-chan struct{} { return k.ready }

// Run puts keys right until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	close(k.ready)
	var watching sync.WaitGroup
	watching.Go(func() { k.watch(ctx) })
	k.marked.follow(ctx, k.log, "keys of Calico's model cannot be put right", k.pass)
	watching.Wait()
	return nil
}

// watch marks all keys, then each that changes, until ctx ends; all again when the store has lost our place.
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
	snap, err := k.objects.Fresh(ctx)
	for err != nil {
		// The objects are followed apart from the keys, and may be behind.
		select {
		case <-ctx.Done():
			return
		case <-time.After(leastPause):
		}
		snap, err = k.objects.Fresh(ctx)
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

// pass puts right what is marked, some at once, and returns the last error; the keys it concerns stay marked.
func (k *Keys) pass(ctx context.Context) error {
	events := k.marked.take()
	wrong, err := k.wrong(ctx, events)
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
	}
	if len(wrong) == 0 || !k.rest(ctx, wrong) {
		return nil
	}
	var last error
	for part := range slices.Chunk(wrong, repairAtOnce) {
		repaired, err := k.service.repair(ctx, part, k.renaming)
		for _, path := range part {
			if err == nil {
				delete(k.renaming, path)
			} else {
				last = err
				k.marked.keep(path, events[path])
			}
		}
		k.note(repaired)
	}
	return last
}

// wrong are the keys that were not what they should be: first those that should not be there, last those that are missing.
func (k *Keys) wrong(ctx context.Context, events map[string]store.Event) ([]string, error) {
	var rev int64
	for _, e := range events {
		rev = max(rev, e.ModRevision)
	}
	snap, err := k.objects.At(ctx, rev)
	if err != nil {
		return nil, err
	}
	r := records.Over(snap)
	var needless, different, missing []string
	for _, path := range slices.Sorted(maps.Keys(events)) {
		want, ours, err := k.service.due(r, path)
		switch e := events[path]; {
		case err != nil:
			k.log.Error("key of Calico's model left as it is", "err", err)
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
	all := slices.Concat(needless, different, missing)
	if len(all) > 0 && !hasRouted(r) {
		return nil, nil
	}
	return all, nil
}

// rest waits before keys are repaired that were just repaired, each time longer: somebody insists on something else, and
// to fight about it harms those who read it. It returns false when ctx ends.
func (k *Keys) rest(ctx context.Context, wrong []string) bool {
	if time.Since(k.last) > 2*mostPause {
		clear(k.repaired)
		k.pause = leastPause
	}
	if !slices.ContainsFunc(wrong, func(path string) bool { return k.repaired[path] }) {
		return true
	}
	k.log.Warn("somebody else keeps changing keys that are Neutron's", "keys", len(wrong), "one", wrong[0], "pause", k.pause)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(k.pause):
		k.pause = min(2*k.pause, mostPause)
		return true
	}
}

// note remembers and tells what was repaired.
func (k *Keys) note(paths []string) {
	if len(paths) == 0 {
		return
	}
	k.last = time.Now()
	for _, path := range paths {
		k.repaired[path] = true
	}
	k.log.Info("keys of Calico's model put right", "keys", len(paths), "one", paths[0])
}
