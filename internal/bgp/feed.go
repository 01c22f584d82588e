package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/calico"
	"heddle/internal/bgp/plan"
	"heddle/internal/store"
	"heddle/internal/store/replica"
)

const (
	// Pauses before blocks that could not be confirmed are asked for again: a program that claims a block writes the
	// affinity before the block.
	leastConfirm, mostConfirm = 250 * time.Millisecond, 30 * time.Second
	readyKey                  = "/calico/v1/Ready"
)

// feed follows what lies in etcd for this host and makes plans of it.
//
// Which blocks are the host's own, the affinity keys below its name say; but the block is the truth (spec §11.2), so
// each is read once when its key is seen. Following all blocks of the cluster would wake every host at each allocation.
type feed struct {
	host    plan.Host
	store   store.Store
	replica *replica.Replica
	changed chan struct{}
	plans   chan *plan.Plan // the newest, if it was not taken yet
	log     *slog.Logger
	// waits is what the feed waits for before its first plan.
	waits atomic.Pointer[string]

	blocks map[string]confirmed // by affinity key
}

// confirmed is what is known of a block with an affinity key of this host.
type confirmed struct {
	revision int64 // of the key
	cidr     netip.Prefix
	own      bool
	problem  string
}

func newFeed(host plan.Host, st store.Store, log *slog.Logger) *feed {
	f := &feed{host: host, store: st, log: log, changed: make(chan struct{}, 1), plans: make(chan *plan.Plan, 1), blocks: map[string]confirmed{}}
	var tables []replica.Table
	for _, prefix := range append(plan.Prefixes(host.Name), f.affinities(), readyKey) {
		tables = append(tables, replica.Source{Name: prefix, Prefix: prefix,
			Decode: func(id string, value []byte) (any, error) { return plan.Entry{Path: prefix + id, Value: value}, nil }})
	}
	f.replica = replica.New(st, replica.Options{Log: log}, tables...)
	f.replica.OnChange(func(replica.Update) { f.wake() })
	f.wait("the store")
	return f
}

func (f *feed) affinities() string { return "/calico/ipam/v2/host/" + f.host.Name + "/" }

func (f *feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// wait notes what the feed waits for; "" for nothing.
func (f *feed) wait(what string) { f.waits.Store(&what) }

// Run makes plans until ctx ends.
func (f *feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.replica.Run(ctx) })
	g.Go(func() error { return f.follow(ctx) })
	return g.Wait()
}

func (f *feed) follow(ctx context.Context) error {
	pause := leastConfirm
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
			pause = leastConfirm
		case <-again.C:
		}
		if f.plan(ctx) {
			again.Stop()
			continue
		}
		again.Reset(pause)
		pause = min(2*pause, mostConfirm)
	}
}

// plan hands out a plan of the newest snapshot. False: something could not be found out, and should be asked again.
func (f *feed) plan(ctx context.Context) (complete bool) {
	s := f.replica.Snapshot()
	switch {
	case s.Revision == 0:
		return true // the first snapshot will tell
	case !isReady(s):
		if *f.waits.Load() != readyKey {
			f.log.Warn("the data is not ready: sessions and routes stay as they are", "key", readyKey, "want", "true", "hint", "heddle calico ready")
			f.wait(readyKey)
		}
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
	var problems []plan.Problem
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
	case <-f.plans: // nobody took it; now it is old
	default:
	}
	f.plans <- p
	f.wait("")
	return complete
}

func isReady(s *replica.Snapshot) bool {
	e := s.Get(readyKey, "")
	return e != nil && string(e.Record.(plan.Entry).Value) == "true"
}

// confirm brings blocks to the affinity keys of a snapshot. complete: all blocks are there and this host's. known: of
// each it is known whether it is.
func (f *feed) confirm(ctx context.Context, s *replica.Snapshot) (complete, known bool) {
	complete, known = true, true
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
			own, problem, err := f.ask(ctx, key.CIDR)
			if err != nil {
				f.log.Warn("cannot read a block of this host, will try again", "block", key.CIDR, "err", err)
				return false, false
			}
			b = confirmed{e.Mod, key.CIDR, own, problem}
			f.blocks[path] = b
		}
		complete = complete && b.own
	}
	for path := range f.blocks {
		if !there[path] {
			delete(f.blocks, path)
		}
	}
	return complete, known
}

// ask reads whose a block is. A block that is not there or another's is no problem: such affinity keys are left by
// programs that were stopped between the two, or lost a race.
func (f *feed) ask(ctx context.Context, cidr netip.Prefix) (own bool, problem string, err error) {
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

// logProblems tells which problems are new and which have gone.
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
