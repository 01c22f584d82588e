package bgp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/calico"
	"heddle/internal/bgp/plan"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

const (
	// Pauses before unconfirmed blocks are read again: a program that claims a block writes the
	// affinity before the block.
	leastConfirm, mostConfirm = 250 * time.Millisecond, 30 * time.Second
	readyKey                  = "/calico/v1/Ready"
)

// feed follows this host's data in etcd and makes plans of them.
//
// Affinity keys below the host's name list its blocks; but the block decides (spec §11.2), so each
// is read once for each change of its key. Following all blocks of the cluster would wake every
// host at each allocation.
type feed struct {
	host     plan.Host
	store    store.Store
	replica  *replica.Replica
	changed  task.Notice
	plans    chan *plan.Plan // the newest, if it was not taken yet
	log      *slog.Logger
	lack     task.Lack // what the first plan, or the next, waits for
	notReady bool      // the data, by their key

	numbers asNumbers
	blocks  map[string]confirmed // by affinity key
	kept    string               // file that keeps the blocks that are this host's own; "": none
}

// confirmed is the finding about a block with an affinity key of this host.
type confirmed struct {
	revision int64 // of the key
	cidr     netip.Prefix
	own      bool
	problem  string
}

// keptBlock is a block in the file of the host's own blocks, for a start without the store.
type keptBlock struct {
	Key      string
	Revision int64
	CIDR     netip.Prefix
}

// recallBlocks reads the blocks that were this host's own when the store was last read.
func (f *feed) recallBlocks() {
	if _, recalled := f.replica.Recalled(); !recalled || f.kept == "" || len(f.blocks) > 0 {
		return
	}
	raw, err := os.ReadFile(f.kept)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var all []keptBlock
	if err = errors.Join(err, json.Unmarshal(raw, &all)); err != nil {
		f.log.Error("ignoring the file of this host's blocks", "file", f.kept, "err", err)
		return
	}
	for _, b := range all {
		f.blocks[b.Key] = confirmed{revision: b.Revision, cidr: b.CIDR, own: true}
	}
}

// keepBlocks writes this host's own blocks to their file.
func (f *feed) keepBlocks() {
	if f.kept == "" {
		return
	}
	all := []keptBlock{}
	for _, key := range slices.Sorted(maps.Keys(f.blocks)) {
		if b := f.blocks[key]; b.own {
			all = append(all, keptBlock{key, b.revision, b.cidr})
		}
	}
	raw, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(f.kept+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(f.kept+".new", f.kept)
	}
	if err != nil {
		f.log.Error("cannot keep this host's blocks on disk", "file", f.kept, "err", err)
	}
}

func newFeed(host plan.Host, st store.Store, snapshots string, log *slog.Logger) *feed {
	f := &feed{host: host, store: st, log: log, changed: task.NewNotice(), plans: make(chan *plan.Plan, 1), numbers: asNumbers{}, blocks: map[string]confirmed{}}
	var tables []snapshot.Table
	for _, prefix := range append(plan.Prefixes(host.Name), f.affinities(), readyKey) {
		tables = append(tables, snapshot.Source{Name: prefix, Prefix: prefix,
			Decode: func(id string, value []byte) (any, error) { return plan.Entry{Path: prefix + id, Value: value}, nil }})
	}
	f.replica = replica.New(st, replica.Options{Journal: follow.NewJournal(snapshots, "bgp", host.Name), Log: log}, tables...)
	if snapshots != "" {
		f.kept = filepath.Join(snapshots, "bgp-blocks.json")
	}
	f.replica.OnChange(func(snapshot.Update) { f.changed.Give() })
	f.lack.Set("waits for the store")
	return f
}

func (f *feed) affinities() string { return "/calico/ipam/v2/host/" + f.host.Name + "/" }

// Run makes plans until ctx ends.
func (f *feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.replica.Run(ctx) })
	g.Go(func() error { return f.follow(ctx) })
	return g.Wait()
}

func (f *feed) follow(ctx context.Context) error {
	backoff := task.Backoff{Least: leastConfirm, Most: mostConfirm}
	retry := task.NewAlarm()
	retry.Set(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
			backoff.Reset()
		case <-retry.C:
		}
		var again time.Time
		if !f.plan(ctx) {
			again = time.Now().Add(backoff.Next())
		}
		retry.Set(again)
	}
}

// plan sends a plan of the newest snapshot. It reports whether it was complete; else it should run
// again.
func (f *feed) plan(ctx context.Context) (complete bool) {
	s := f.replica.Snapshot()
	switch {
	case s.Revision == 0:
		return true // the first snapshot will follow
	case !isReady(s):
		if !f.notReady {
			f.log.Warn("the data is not ready: sessions and routes stay as they are", "key", readyKey, "want", "true", "hint", "heddle calico ready")
			f.lack.Set("waits for " + readyKey)
		}
		f.notReady = true
		return true
	}
	var entries []plan.Entry
	for _, prefix := range plan.Prefixes(f.host.Name) {
		for e := range s.All(prefix) {
			entries = append(entries, e.Record.(plan.Entry))
		}
	}
	complete, known := f.confirm(ctx, s)
	if !known {
		return false // the plan before stands
	}
	var blocks []netip.Prefix
	problems := f.numbers.settle(entries)
	for key, b := range f.blocks {
		if b.own {
			blocks = append(blocks, b.cidr)
		} else if b.problem != "" {
			problems = append(problems, plan.Problem{Key: key, Reason: b.problem})
		}
	}
	p := plan.New(f.host, entries, blocks)
	p.Problems = append(p.Problems, problems...)
	select {
	case <-f.plans: // it was not taken; now it is stale
	default:
	}
	f.plans <- p
	f.notReady = false
	f.lack.Set("")
	return complete
}

func isReady(s *snapshot.Snapshot) bool {
	e := s.Get(readyKey, "")
	return e != nil && string(e.Record.(plan.Entry).Value) == "true"
}

// confirm reads the blocks of the affinity keys of a snapshot. complete: all blocks exist and are
// this host's. known: all could be read.
func (f *feed) confirm(ctx context.Context, s *snapshot.Snapshot) (complete, known bool) {
	complete, known = true, true
	f.recallBlocks()
	changed := false
	there := map[string]bool{}
	for e := range s.All(f.affinities()) {
		path := e.Record.(plan.Entry).Path
		key, ok := calico.ParseAs[calico.BlockAffinityKey](path)
		if !ok || key.Host != f.host.Name {
			continue
		}
		there[path] = true
		b := f.blocks[path]
		if b.revision != e.Mod || !b.own {
			own, problem, err := f.readBlock(ctx, key.CIDR)
			if err != nil {
				f.log.Warn("cannot read a block of this host, will try again", "block", key.CIDR, "err", err)
				return false, false
			}
			b = confirmed{e.Mod, key.CIDR, own, problem}
			f.blocks[path], changed = b, true
		}
		complete = complete && b.own
	}
	for path := range f.blocks {
		if !there[path] {
			delete(f.blocks, path)
			changed = true
		}
	}
	if changed {
		f.keepBlocks()
	}
	return complete, known
}

// readBlock reads whether a block is this host's. One that is missing or another host's is no
// problem: programs that were stopped between the two writes, or lost a race, leave such affinity
// keys.
func (f *feed) readBlock(ctx context.Context, cidr netip.Prefix) (own bool, problem string, err error) {
	key := calico.BlockKey{CIDR: cidr}
	path, err := key.Path()
	if err != nil {
		return false, err.Error(), nil
	}
	kv, err := f.store.Get(ctx, path)
	if errors.Is(err, store.ErrNotFound) {
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	object, err := calico.Decode(key, kv.Value)
	if err != nil {
		return false, fmt.Sprintf("its block cannot be read, so its addresses are exported one by one: %v", err), nil
	}
	block, ok := object.(*calico.Block)
	return ok && block.Affinity == "host:"+f.host.Name, "", nil
}

func logProblems(log *slog.Logger, before, now []plan.Problem) {
	for _, p := range now {
		if !slices.Contains(before, p) {
			log.Warn("cannot be honoured", "key", p.Key, "reason", p.Reason)
		}
	}
	for _, p := range before {
		if !slices.Contains(now, p) {
			log.Info("problem gone", "key", p.Key, "reason", p.Reason)
		}
	}
}
