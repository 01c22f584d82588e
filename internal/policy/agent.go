package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/hostnet"
	"heddle/internal/policy/nft"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// Options of an agent. Host and Store are needed.
type Options struct {
	Host   string // this host's name in the model
	HostID string // by which the virtual topology knows this host; empty: it has no part in one
	Store  store.Store
	// Environment and File are settings of this host. They override those of the datastore.
	Environment, File map[string]string
	// Namespace is the network namespace of the host, by default this process's. It must stay open.
	Namespace *hostnet.Namespace
	// Snapshots is a directory for what was last read of the store, to start from while the store
	// cannot be reached; empty: nothing is kept.
	Snapshots string
	// Metadata, if set, answers this host's workloads at 169.254.169.254, unless the settings name
	// another server.
	Metadata MetadataServer
	// MostCounted is the number of rules of policies and profiles up to which each is counted.
	MostCounted int
	Watchdog    *task.Watchdog // watches the agent's loop; nil: nothing does
	Log         *slog.Logger   // default: none
}

// Agent is the policy agent of one host. It is a task: see Run, Ready and String.
type Agent struct {
	opts       Options
	log        *slog.Logger
	logs       *logSwitch    // behind log
	checkEvery time.Duration // interval between checks that the store is still the same; 0: the default
	ready      chan struct{}
	settled    sync.Once // closes ready
	waiting    task.Lack // after the last pass
	metrics    atomic.Pointer[[]telemetry.Value]

	mu    sync.Mutex
	table *nft.Table // while it is open, for its counters
}

// New makes an agent. It does nothing until Run.
func New(o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	logs := newLogSwitch(logDirectory)
	return &Agent{opts: o, log: logs.logger(o.Log), logs: logs, ready: make(chan struct{})}
}

// String names the task, with what it waits for.
func (a *Agent) String() string { return a.waiting.Of("policy agent") }

// Ready is closed once everything that etcd requests of this host is in force for the first time.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// countersTimeout bounds a read of the kernel's counters.
const countersTimeout = 5 * time.Second

// Metrics returns the agent's figures as of its last pass, with current ones of refused packets.
func (a *Agent) Metrics() []telemetry.Value {
	v := a.metrics.Load()
	if v == nil {
		return nil
	}
	all := slices.Clone(*v)
	a.mu.Lock() // the table is not closed meanwhile
	defer a.mu.Unlock()
	if a.table == nil {
		return all
	}
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	counts, err := a.table.Counts(ctx)
	if err != nil {
		return all // there is no table yet, or it is being mended
	}
	for _, reason := range slices.Sorted(maps.Keys(counts.Refused)) {
		all = append(all, telemetry.Counter.Of("heddle_policy_refused_packets_total", "Packets that the rules have refused since they were made.",
			int(counts.Refused[reason].Packets)).With("reason", reason))
	}
	dropped := droppedBy(counts)
	for _, code := range slices.Sorted(maps.Keys(dropped)) {
		all = append(all, telemetry.Counter.Of("heddle_dropped_packets_total",
			"Packets that decisions of the virtual network dropped, those of cached flows with them, or rules of a routed host, by docs/codes.md.",
			int(dropped[code].Packets)).With("plane", "policy").With("code", code.String()))
	}
	return all
}

// check returns an error for options that the agent cannot work with.
func (o *Options) check() error {
	switch {
	case o.Host == "":
		return errors.New("policy agent: the host has no name")
	case o.Store == nil:
		return errors.New("policy agent: no store")
	}
	_, problems := Resolve(Sources{Environment: o.Environment, File: o.File})
	for _, p := range problems {
		if p.Fatal {
			return fmt.Errorf("policy agent: %w", p)
		}
	}
	return nil
}

// Run works until ctx ends. What is in force stays, see Cleanup. It must not be called twice.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.check(); err != nil {
		return err
	}
	k, err := openKernel(a.opts.Namespace)
	if err != nil {
		return err
	}
	defer k.close()
	defer a.logs.close()
	return a.work(ctx, k)
}

func (a *Agent) setTable(t *nft.Table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.table = t
}

func (a *Agent) work(ctx context.Context, k *kernel) error {
	defaults, _ := Resolve(Sources{})
	table, err := nft.New(k.rules, defaults.Rules, a.log)
	if err != nil {
		return err
	}
	a.setTable(table)
	defer a.setTable(nil)
	g, ctx := errgroup.WithContext(ctx)
	f := newFeed(a.opts.Store, a.checkEvery, follow.NewJournal(a.opts.Snapshots, "policy", a.opts.Host), a.log)
	o := newOverlayInterfaces(a.opts.Store, a.opts.HostID, follow.NewJournal(a.opts.Snapshots, "policy-bindings", a.opts.HostID), a.log)
	r := newReporter(a.opts.Store, a.opts.Host, a.log)
	l := newLoop(a.opts.Host, k.net, table, r, time.Now, a.log)
	l.mostCounted, l.sources, l.relist, l.logTo = a.opts.MostCounted, Sources{Environment: a.opts.Environment, File: a.opts.File}, f.relist, a.logs.configure
	if a.opts.Metadata != nil {
		m := newMetadataService(a.opts.Metadata, k.net.Namespace(), a.log)
		l.serveAt, l.serveTo = m.listenAt, m.serveTo
		g.Go(func() error { return m.run(ctx) })
	}
	asked, unwatch := a.opts.Watchdog.Ask("policy")
	defer unwatch()
	changed := task.NewNotice()
	changes, err := k.net.Watch(ctx)
	if err != nil {
		return err
	}
	if err := l.list(); err != nil {
		return err
	}
	g.Go(func() error { return f.run(ctx) })
	g.Go(func() error { return o.replica.Run(ctx) })
	g.Go(func() error { return r.run(ctx) })
	if a.opts.HostID != "" {
		s := newCountsService(a.opts.Store, a.opts.HostID, table, a.log)
		g.Go(func() error { return s.requests.Run(ctx) })
		g.Go(func() error { return s.run(ctx) })
	}
	g.Go(func() error { return k.rules.Watch(ctx, changed.Give) })
	g.Go(func() error {
		return l.run(ctx, events{store: f.out, overlay: o.out, kernel: changes, rules: changed, asked: asked}, func() { a.publish(l) })
	})
	return g.Wait()
}

// publish makes the state of the loop visible to the other methods.
func (a *Agent) publish(l *loop) {
	if l.isSettled() {
		a.settled.Do(func() { close(a.ready) })
	}
	waiting := l.core.waiting.cause
	if waiting != "" {
		waiting = "waits: " + waiting
	}
	a.waiting.Set(waiting)
	values := l.metrics()
	a.metrics.Store(&values)
}
